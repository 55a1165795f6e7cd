"""The ``areal.*`` resolvers of OmegaConf: what a backend string means, inside any config.

All are pure, print nothing, and raise `AllocationError` for what they cannot read. They are known
once this module is imported, which Hydra does at the start of every app: it costs microseconds, and
the library is imported on first use. Other processes (the children of a ``spawn``) import it
themselves.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig, ListConfig

    from areal_conf.planning.result import Plan
    from areal_conf.spec.allocation import ModelAllocation


_FIELDS = {
    "dp": "data_parallel_size",
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_parallel_size",
    "etp": "expert_tensor_parallel_size",
    "edp": "expert_data_parallel_size",
}


def register() -> None:
    """Make every ``areal.*`` resolver known to OmegaConf; safe to call again."""
    from omegaconf import OmegaConf

    make_known: Any = OmegaConf.register_resolver
    options: dict[str, Any] = {"replace": True}
    if "annotation_validation" in (make_known.__kwdefaults__ or {}):
        # OmegaConf 2.4 would evaluate the annotations, and import what they name, at every start.
        options["annotation_validation"] = "off"
    else:  # before 2.4 the name belongs to an older function
        make_known = OmegaConf.register_new_resolver
    for name, function in RESOLVERS.items():
        make_known(f"areal.{name}", _discreet(name, function), **options)


def _discreet(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose errors show nothing that the config takes from the environment."""

    judged = _judging_arguments(name, function)

    def resolver(*args: Any, _root_: Any) -> Any:
        from areal_conf.errors import AllocationError

        keywords = {"_root_": _root_} if function in (gpus, nodes, gpus_per_node) else {}
        try:
            return judged(*args, **keywords)
        except AllocationError as error:
            from areal_conf.config.redaction import Redactor

            raise Redactor(_root_).error(error) from None

    return resolver


def _judging_arguments(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, refusing a wrong number of arguments in words of the config."""

    @functools.wraps(function)
    def resolver(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except TypeError:
            from inspect import signature

            from areal_conf.errors import AllocationError, counted

            takes = signature(function)
            try:
                takes.bind(*args, **options)
            except TypeError:
                words = ",".join(key.upper() for key in takes.parameters if key != "_root_")
                message = f"areal.{name} does not take {counted(len(args), 'argument')}"
                hint = f"write ${{areal.{name}:{words}}}"
                raise AllocationError("AC309", message, hint=hint) from None
            raise

    return resolver


def _allocation(spec: Any) -> ModelAllocation:
    from areal_conf.spec.allocation import ModelAllocation

    return ModelAllocation.from_str(spec)


def backend(spec: Any) -> str:
    """``${areal.backend:SPEC}``: name of the backend."""
    return _allocation(spec).backend


def _size(field: str) -> Callable[[Any], int]:
    def size(spec: Any) -> int:
        value = getattr(_allocation(spec).parallel, field)
        assert isinstance(value, int)
        return value

    size.__doc__ = f"The {field.replace('_', ' ')} of a backend string."
    return size


def world_size(spec: Any) -> int:
    """``${areal.world_size:SPEC}``: number of ranks."""
    return _allocation(spec).world_size


def instances(spec: Any) -> int:
    """``${areal.instances:SPEC}``: server instances of an inference backend."""
    return _served(spec)[0]


def instance_size(spec: Any) -> int:
    """``${areal.instance_size:SPEC}``: GPUs of one server instance."""
    return _served(spec)[1]


def _served(spec: Any) -> tuple[int, int]:
    allocation = _allocation(spec)
    count, size = allocation.instances, allocation.instance_size
    if count is None or size is None:
        from areal_conf.errors import AllocationError

        start = spec.find(allocation.backend)
        raise AllocationError(
            "AC302",
            f"{allocation.backend} is for training and has no server instances",
            text=spec,
            span=(start, start + len(allocation.backend)),
            hint="give the backend of an inference engine, such as sglang:d2t4",
        )
    return count, size


def parse(spec: Any) -> DictConfig:
    """``${areal.parse:SPEC}``: all that a backend string says, as a mapping."""
    from omegaconf import OmegaConf

    return OmegaConf.create(fields_of(_allocation(spec)))


def fields_of(allocation: ModelAllocation) -> dict[str, Any]:
    """All that a backend string says, as plain values."""
    sizes = allocation.parallel.sizes
    return {
        "backend": allocation.backend,
        "name": allocation.name,
        "d": sizes.d,
        "t": sizes.t,
        "p": sizes.p,
        "c": sizes.c,
        "e": sizes.e,
        "etp": sizes.etp,
        "edp": allocation.parallel.edp_size,
        "world_size": sizes.world,
        "canonical": str(allocation),
    }


def canonical(spec: Any) -> str:
    """``${areal.canonical:SPEC}``: the one way to write what it means."""
    return str(_allocation(spec))


def layouts(pattern: Any, gpus: Any = None) -> ListConfig:
    """``${areal.layouts:PATTERN[,GPUS]}``: canonical strings of all layouts of a pattern."""
    from omegaconf import OmegaConf

    from areal_conf.search_space import layouts

    return OmegaConf.create([str(allocation) for allocation in layouts(pattern, gpus)])


def legacy(mode: Any, engine: Any) -> str | None:
    """``${areal.legacy:MODE,ENGINE}``: what a legacy ``allocation_mode`` says for one engine.

    The canonical backend string; None where the mode is unset or says nothing of the engine.
    """
    from areal_conf.config.view import is_unset
    from areal_conf.errors import wrong_type
    from areal_conf.legacy.allocation_mode import AllocationMode

    if not isinstance(engine, str):
        raise wrong_type(engine, "the name of an engine", hint="write actor or rollout")
    if is_unset(mode):
        return None
    allocation = AllocationMode.from_str(mode).engines().get(engine)
    return None if allocation is None else str(allocation)


def inherit(own: Any, fallback: Any) -> Any:
    """``${areal.inherit:OWN,FALLBACK}``: OWN, unless it is unset (empty, null, ``???``)."""
    return fallback if own is None or own in ("", "???") else own


def gpus(root: str = "", *, _root_: Any) -> int:
    """``${areal.gpus:}``: GPUs that the experiment reserves; the argument names its package."""
    return _plan(root, _root_).total_gpus


def nodes(root: str = "", *, _root_: Any) -> int:
    """``${areal.nodes:}``: nodes that the experiment needs; the argument names its package."""
    return _plan(root, _root_).nodes


def gpus_per_node(root: str = "", *, _root_: Any) -> int:
    """``${areal.gpus_per_node:}``: GPUs that each of the nodes is asked for."""
    return _plan(root, _root_).gpus_per_node


_planning = threading.local()


def _plan(root: str, config: Any) -> Plan:
    from areal_conf.errors import AllocationError
    from areal_conf.planning.result import plan

    if getattr(_planning, "on", False):
        raise AllocationError(
            "AC309",
            "areal.gpus and areal.nodes read engines and cluster: these cannot ask for them",
            hint="write the number itself, such as cluster.n_nodes=2",
        )
    _planning.on = True
    try:
        made = plan(config, root="" if root is None else root)
    finally:
        _planning.on = False
    made.raise_for_errors()
    return made


RESOLVERS: dict[str, Callable[..., Any]] = {
    "backend": backend,
    **{short: _size(field) for short, field in _FIELDS.items()},
    "world_size": world_size,
    "instances": instances,
    "instance_size": instance_size,
    "parse": parse,
    "canonical": canonical,
    "layouts": layouts,
    "legacy": legacy,
    "inherit": inherit,
    "gpus": gpus,
    "nodes": nodes,
    "gpus_per_node": gpus_per_node,
}
"""Every resolver by its name after ``areal.``."""

register()
