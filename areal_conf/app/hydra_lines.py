"""What differs between the lines of Hydra, and whose line a warning of Hydra names."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hydra.types import HydraContext
    from omegaconf import DictConfig

_NOT_THE_USERS = ("areal_conf", "hydra_plugins", "hydra", "omegaconf")


@contextmanager
def warned_at_the_caller() -> Iterator[None]:
    """Warnings that name a line of this package name the user's line that led there instead.

    Hydra counts stack levels up to its caller, which is this package where it stands between. The
    user's filters decide about every warning, as they would without this.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        failed: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failed = error
    for one in caught:
        place: tuple[str, int, str | None] = (one.filename, one.lineno, None)
        if f"{__name__.partition('.')[0]}/" in one.filename.replace("\\", "/"):
            place = _users_place()
        warnings.warn_explicit(one.message, one.category, place[0], place[1], module=place[2])
    if failed is not None:
        raise failed


def _users_place() -> tuple[str, int, str | None]:
    """File, line and module of the innermost caller outside of this package and Hydra."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in (*_NOT_THE_USERS, "contextlib"):
            break
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno, str(frame.f_globals.get("__name__", ""))


def configure_log(context: HydraContext, config: DictConfig) -> None:
    """Configure logging as Hydra's own launcher does between two jobs."""
    from hydra.core import utils

    allowed = getattr(context, "execution_whitelist", None)  # from Hydra 1.4.0rc on
    options: dict[str, Any] = {} if allowed is None else {"execution_whitelist": allowed}
    with warned_at_the_caller():
        utils.configure_log(config.hydra.hydra_logging, config.hydra.verbose, **options)
