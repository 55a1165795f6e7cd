"""Puts the configs of areal-conf where every Hydra app finds them, and registers the resolvers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin

import areal_conf
from areal_conf import resolvers

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath

PROVIDER = "areal-conf"
_GROUP = "areal/experiment"
_RESOURCES = "hydra/callbacks/areal_resources"
"""Part of ``hydra/launcher=areal_submitit``; nobody chooses it, so that no list shows it."""

_NAMES = ("distill", "dpo", "grpo", "ppo", "rw", "sft")

resolvers.register()


class ArealSearchPath(SearchPathPlugin):
    """Appends the package's configs to the search path: an app's own come first."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append the structured configs and the YAML files."""
        search_path.append(PROVIDER, f"{ArealConfigSource.scheme()}://experiments")
        conf = Path(areal_conf.__file__).parent / "conf"
        search_path.append(PROVIDER, f"file://{conf}")


class ArealConfigSource(ConfigSource):
    """Serves the group ``areal/experiment``, building each structured config when it is asked for.

    (`ConfigStore.store` would build all of them at the start of every app.)
    """

    @staticmethod
    def scheme() -> str:
        """``areal://``"""
        return "areal"

    def available(self) -> bool:
        """Always: the configs are part of the package."""
        return True

    def load_config(self, config_path: str) -> ConfigResult:
        """Build the experiment at `config_path`; it lands in the root package."""
        from omegaconf import OmegaConf

        from areal_conf.config import structured

        if config_path.removesuffix(".yaml").strip("/") == _RESOURCES:
            callback = {"areal_resources": {"_target_": "areal_conf.app.ResourcesCallback"}}
            return ConfigResult(
                config=OmegaConf.create(callback),
                path=self.full_path(),
                provider=self.provider,
                header={"package": None},
            )
        name = self._name(config_path)
        if name is None:
            raise ConfigLoadError(f"Config not found: {config_path}")
        return ConfigResult(
            config=structured.build(name),
            path=self.full_path(),
            provider=self.provider,
            header={"package": "_global_"},
        )

    def is_group(self, config_path: str) -> bool:
        """Whether `config_path` is ``areal/experiment`` or a parent of it."""
        path = config_path.strip("/")
        return not path or f"{_GROUP}/".startswith(f"{path}/")

    def is_config(self, config_path: str) -> bool:
        """Whether `config_path` names an experiment, or the part of a launcher."""
        part = config_path.removesuffix(".yaml").strip("/") == _RESOURCES
        return part or self._name(config_path) is not None

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Groups and configs directly below `config_path`."""
        path = config_path.strip("/")
        if path == _GROUP:
            return [] if results_filter is ObjectType.GROUP else list(_NAMES)
        if not self.is_group(path) or results_filter is ObjectType.CONFIG:
            return []
        return [_GROUP[len(path) :].strip("/").split("/")[0]]

    @staticmethod
    def _name(config_path: str) -> str | None:
        group, _, name = config_path.strip("/").removesuffix(".yaml").rpartition("/")
        return name if group == _GROUP and name in _NAMES else None
