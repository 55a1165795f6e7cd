"""Starts experiments with AReaL's own loader, trainer, controllers, schedulers, and no process.

One experiment a line in (JSON: name of the config class, and the config), one verdict a line out:
what AReaL raised, or which GPUs it reserved. AReaL is the installed one, or the checkout that
AREAL_SOURCE names. What would start, end or ask a process is stubbed: AReaL ends process trees by
their ids, so that an id that a stub made up would be somebody's. Run it as `differential.answers`
does: in a PID namespace of its own, where it refuses to run otherwise.
"""

from __future__ import annotations

import asyncio
import copy
import importlib
import importlib.abc
import importlib.machinery
import json
import logging
import os
import re
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

HERE = Path(__file__).resolve().parent
ABSENT = (
    *("datasets", "awex", "megatron", "mbridge", "sglang", "vllm", "transformer_engine"),
    *("pybase64", "math_verify", "torch_memory_saver", "peft"),
)
"""Packages that AReaL imports beside these stubs, and that need a GPU or are not installed."""


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Any module of an absent package is a mock."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if name.partition(".")[0] not in ABSENT:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        module = MagicMock(name=spec.name)
        module.__path__, module.__spec__, module.__name__ = [], spec, spec.name
        module.__file__ = f"{spec.name}/__init__.py"
        module.start_meta_server = lambda: ("127.0.0.1", 1)
        return module  # type: ignore[no-any-return]

    def exec_module(self, module: types.ModuleType) -> None:
        return None


class Process:
    """A process that runs for ever, without an id of this machine."""

    pid = None
    returncode = None

    def poll(self) -> None:
        return None


class Clock:
    """`time`, without sleeping."""

    time, monotonic = staticmethod(time.time), staticmethod(time.monotonic)

    @staticmethod
    def sleep(seconds: float) -> None:
        return None


class Remote:
    """A Ray actor: whatever is asked of it is answered at once."""

    def __init__(self, options: dict[str, Any] | None = None) -> None:
        self.gpus = int((options or {}).get("num_gpus") or 0)
        self.alloc_ports = self._method(lambda count: [str(20000 + i) for i in range(count)])
        self.get_node_info = self._method(self._node)
        for name in ("configure", "destroy", "ping", "start_workers", "stop_all_processes"):
            setattr(self, name, self._method(lambda *_, **__: None))
        self.start_backend_worker = SimpleNamespace(remote=_later)
        self.stop_backend_worker_group = SimpleNamespace(remote=_later)

    def _node(self) -> dict[str, Any]:
        devices = [str(i) for i in range(self.gpus)]
        return {"host": "node", "node_id": str(id(self)), "visible_devices": devices}

    @staticmethod
    def _method(answer: Callable[..., Any]) -> Any:
        return SimpleNamespace(remote=answer)


async def _later(*_: Any, **__: Any) -> None:
    return None


class RemoteClass:
    """A class of Ray actors; Ray's own check of their options, nothing started."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    def options(self, **options: Any) -> RemoteClass:
        from ray._common.ray_option_utils import validate_actor_options

        known = {key: value for key, value in options.items() if key != "scheduling_strategy"}
        validate_actor_options(known, in_options=True)
        made = RemoteClass()
        made.asked = options
        return made

    def remote(self, *_: Any, **__: Any) -> Remote:
        gpus = self.asked.get("num_gpus") or 0
        if gpus > 1 and gpus != int(gpus):  # ray/_raylet.pyx, prepare_resources
            raise ValueError(f"Ray takes no fraction of more than one GPU: {gpus}")
        return Remote(self.asked)


class Reserved:
    """What the schedulers asked for in one experiment.

    Attributes:
        gpus: GPUs in all.
        per_node: GPUs of a node.
        refused: what a real cluster would never grant, though AReaL asks for it.
    """

    def __init__(self, per_node: int) -> None:
        self.gpus = 0
        self.per_node = per_node
        self.refused: list[str] = []

    def bundles(self, bundles: list[dict[str, float]]) -> None:
        """A placement group of Ray: each bundle lies on one node."""
        gpus = [int(bundle.get("GPU", 0)) for bundle in bundles]
        if max(gpus, default=0) > self.per_node:
            raise TimeoutError(f"no node has {max(gpus)} GPUs")
        self.gpus += sum(gpus)

    def script(self, text: str) -> None:
        """A script that was handed to sbatch."""
        nodes, each = (int(re.search(rf"--{key}=(\d+)", text)[1]) for key in _SBATCH)  # type: ignore[index]
        tasks = int(re.search(r"--ntasks=(\d+)", text)[1])  # type: ignore[index]
        if "--gres=gpu" in text.split("\n\n")[0]:
            self.gpus += nodes * self.per_node
        if each * nodes < tasks or each < 1:
            self.refused.append(f"{tasks} tasks do not fit {nodes} nodes of {each}")


_SBATCH = ("nodes", "ntasks-per-node")
_now: list[Reserved] = []


def reserved() -> Reserved:
    """What the experiment that runs reserved."""
    return _now[0]


# -- stubs, once ----------------------------------------------------------------------------------


def in_own_namespace() -> bool:
    """Whether this process sees none of the machine's others."""
    return sum(name.isdigit() for name in os.listdir("/proc")) < 20 and os.getppid() <= 1


def stub_areal() -> Any:
    """Stubs whatever starts, ends or asks processes; the trainer's module."""
    import areal.infra.utils.proc as proc

    logging.disable(logging.CRITICAL)
    import areal.api.alloc_mode as language

    language.Lark = lru_cache(maxsize=None)(language.Lark)  # newer versions build it every time
    proc.kill_process_tree = proc.run_with_streaming_logs = _never
    with suppress(ImportError):
        importlib.import_module("areal.infra.utils.ray_placement_group")
    trainer = importlib.import_module("areal.trainer.rl_trainer")
    for name in ("local", "slurm", "ray"):
        _stub_scheduler(importlib.import_module(f"areal.infra.scheduler.{name}"), name)
    _stub_controllers()
    _stub_trainer(trainer)
    return trainer


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("this would touch a process")


def _nothing(*_: Any, **__: Any) -> None:
    return None


async def _forked(self: Any, session: Any, role: str, idx: int, target: Any, *_: Any) -> Any:
    made = copy.copy(target)
    made.role, made.worker = role, copy.copy(target.worker)
    made.worker.id = f"{role}/{idx}"
    return made


def _workers_of(self: Any, role: str, timeout: Any = None) -> list[Any]:
    """`get_workers`, without waiting for them."""
    from areal.infra.scheduler.exceptions import WorkerNotFoundError

    if role in self._colocated_roles and role not in self._workers:
        return _workers_of(self, self._colocated_roles[role])
    if role not in self._workers:
        raise WorkerNotFoundError(role)
    for info in self._workers[role]:
        info.worker.ip = "127.0.0.1"
        info.worker.worker_ports = ["1", "2"]
    return [info.worker for info in self._workers[role]]


async def _called(*_: Any, **__: Any) -> Any:
    return SimpleNamespace(host="127.0.0.1", port=1)


def _stub_scheduler(module: Any, kind: str) -> None:
    module.time = Clock
    scheduler = getattr(module, f"{kind.capitalize()}Scheduler")
    for name in ("kill_process_tree", "initialize_ray", "validate_shared_path"):
        if hasattr(module, name):
            setattr(module, name, _nothing)
    module.get_tms_env_vars = dict  # a library of its own, preloaded
    for name in ("delete_workers", "_configure_worker", "_cleanup_workers", "_ping_workers"):
        if hasattr(scheduler, name):
            setattr(scheduler, name, _nothing)
    if hasattr(scheduler, "_configure_workers"):
        scheduler._configure_workers = scheduler._configure_worker = _later
    if hasattr(scheduler, "_fork_single_worker"):
        scheduler._fork_single_worker = _forked
    scheduler.get_workers = _workers_of
    scheduler.create_engine = scheduler.set_worker_env = _later
    if hasattr(scheduler, "_async_call_engine_rpc"):
        scheduler._async_call_engine_rpc = _called
    else:
        scheduler.async_call_engine = _called
    {"local": _stub_local, "slurm": _stub_slurm, "ray": _stub_ray}[kind](module, scheduler)


def _stub_local(module: Any, scheduler: Any) -> None:
    module.run_with_streaming_logs = lambda *_, **__: Process()
    scheduler._detect_gpus = lambda self: list(range(reserved().per_node))
    scheduler._allocate_ports = lambda self, count: list(range(20000, 20000 + count))
    allocate = scheduler._allocate_gpus

    def counted(self: Any, count: int) -> list[int]:
        found: list[int] = allocate(self, count)
        reserved().gpus += len(found)
        return found

    scheduler._allocate_gpus = counted


def _stub_slurm(module: Any, scheduler: Any) -> None:
    def sbatch(command: list[str]) -> bytes:
        reserved().script(Path(command[1]).read_text())
        return b"Submitted batch job 1"

    module.subprocess = SimpleNamespace(
        check_output=sbatch, CalledProcessError=module.subprocess.CalledProcessError
    )
    module.query_jobs = lambda **_: [SimpleNamespace(host="node", state=None)]
    module.cancel_jobs = _nothing


def _stub_ray(module: Any, scheduler: Any) -> None:
    import ray

    def group(bundles: list[dict[str, float]], **_: Any) -> Any:
        reserved().bundles(bundles)
        return MagicMock()

    shim = SimpleNamespace(
        get=lambda found, timeout=None: found,
        wait=lambda found, **_: (found, []),
        kill=_nothing,
        exceptions=ray.exceptions,
        nodes=list,
        available_resources=dict,
        cluster_resources=dict,
    )
    older = sys.modules.get("areal.infra.utils.ray_placement_group")
    for one in filter(None, (module, older)):
        one.ray = shim
        one.ray_resource_type = lambda: "GPU"
        one.placement_group = group
        one.remove_placement_group = _nothing
        one.PlacementGroupSchedulingStrategy = lambda **given: SimpleNamespace(**given)
        one.NodeAffinitySchedulingStrategy = lambda **given: None
    module.get_placement_group_master_ip_and_port = lambda *_, **__: ("127.0.0.1", 1)
    module.RayRPCServer = module.RayWorkerProcessLauncher = RemoteClass()
    if hasattr(module, "RayMultiNodeRolloutCoordinator"):

        async def arguments(self: Any, info: Any, backend: str, args: Any) -> Any:
            return args, [args] * (len(info.launchers) - 1)

        module.RayMultiNodeRolloutCoordinator._build_multi_node_server_args = arguments


def _stub_controllers() -> None:
    train = importlib.import_module("areal.infra.controller.train_controller").TrainController
    train._async_create_engines = train._async_initialize_engines = _later
    train._identify_dp_heads = train.connect_engine = _nothing
    rollout = importlib.import_module("areal.infra.controller.rollout_controller")
    rollout.BatchTaskDispatcher = MagicMock()
    rollout.RolloutController._start_callback_server = _nothing
    for service, name in (
        ("training", "GatewayTrainController"),
        ("inference", "RolloutControllerV2"),
    ):
        path = f"{service}_service.controller.controller"
        for package in ("areal.v2", "areal.experimental"):
            with suppress(ModuleNotFoundError):
                _stub_v2(getattr(importlib.import_module(f"{package}.{path}"), name))
                break


def _stub_v2(controller: Any) -> None:
    """The controller goes no further than to its workers."""
    initialize = controller.initialize

    def stopped(self: Any, *args: Any, **kwargs: Any) -> None:
        ready = threading.Event()
        tell = ready.set
        ready.set = lambda: (self._shutdown_requested.set(), tell())  # type: ignore[method-assign,assignment]
        self._workers_ready = ready
        initialize(self, *args, **kwargs)
        self._init_future.result()

    controller.initialize = stopped
    controller.server_infos = property(lambda self: [1])
    controller.connect_engine = controller._start_online_callback_server = _nothing
    controller._cleanup_runtime_state = _nothing


class Engine:
    """A training engine that makes AReaL's controllers for itself, and nothing else."""

    controllers = "actor.PPOActorController"

    @classmethod
    def as_controller(cls, config: Any, scheduler: Any) -> Any:
        module, _, name = cls.controllers.partition(".")
        found = importlib.import_module(f"areal.trainer.ppo.{module}")
        made = getattr(found, name + ("V2" if config._version == "v2" else ""))
        return made(train_engine=cls, config=config, scheduler=scheduler)


class Critic(Engine):
    """The same of a critic."""

    controllers = "critic.PPOCriticController"


def _stub_trainer(trainer: Any) -> None:
    engines = importlib.import_module("areal.engine")
    for backend in ("FSDP", "Megatron"):
        setattr(engines, f"{backend}PPOActor", Engine)
        setattr(engines, f"{backend}PPOCritic", Critic)
    archon = types.ModuleType("areal.experimental.engine.archon_engine")
    archon.ArchonPPOActor, archon.ArchonPPOCritic = Engine, Critic  # type: ignore[attr-defined]
    sys.modules[archon.__name__] = archon
    trainer.load_hf_processor_and_tokenizer = lambda *_, **__: (None, None)
    for name in ("Evaluator", "Saver", "RecoverHandler", "StatsLogger", "seeding", "perf_tracer"):
        setattr(trainer, name, MagicMock())
    trainer.logging = MagicMock()
    trainer.create_dataloader = lambda *_, **__: [None]
    trainer.SGLangConfig = trainer.vLLMConfig = SimpleNamespace(build_args=lambda **_: {})
    ppo = trainer.PPOTrainer
    ppo._config_perf_tracer = ppo._apply_initial_offload_policy = ppo.close = _nothing
    ppo._offload_model = ppo._onload_model = _nothing
    ppo._save_initial_lora_weights = lambda self: "/x" if self.config.actor.use_lora else None
    actor = importlib.import_module("areal.trainer.ppo.actor")
    for controller in (actor.PPOActorController, actor.PPOActorControllerV2):
        controller.init_awex_adapter = controller.offload = _nothing


_FILED = ("saver", "evaluator", "recover", "stats_logger")


# -- one experiment -------------------------------------------------------------------------------


@contextmanager
def fresh(config: dict[str, Any]) -> Iterator[Path]:
    """A directory of its own for the records of an experiment, and its file."""
    import yaml

    with tempfile.TemporaryDirectory() as directory:
        records = {"type": "nfs", "nfs_record_root": f"{directory}/names"}
        cluster = {**config["cluster"], "fileroot": directory, "name_resolve": records}
        file = Path(directory) / "config.yaml"
        data = {"path": "data", "type": "rl", **config.get("train_dataset", {})}
        named = {"experiment_name": "e", "trial_name": "t"}
        filed = {**named, "fileroot": directory}
        filled: dict[str, Any] = dict.fromkeys(_FILED, filed)
        for section in ("actor", "critic", "ref"):
            if isinstance(config.get(section), dict):
                filled[section] = {**named, **config[section]}
        teacher = config.get("teacher")
        if isinstance(teacher, dict) and isinstance(teacher.get("train"), dict):
            filled["teacher"] = {**teacher, "train": {**named, **teacher["train"]}}
        whole = {**named, **config, **filled, "cluster": cluster, "train_dataset": data}
        file.write_text(yaml.safe_dump(whole, sort_keys=False))
        yield file


def start(trainer: Any, config: dict[str, Any]) -> dict[str, Any]:
    """What AReaL does with `config`: ``raised``, or the GPUs that it reserved."""
    from areal.api import cli_args

    found = Reserved(config["cluster"].get("n_gpus_per_node", 8))
    _now[:] = [found]
    environment = dict(os.environ)
    with fresh(config) as file:
        try:
            loaded, _ = cli_args.load_expr_config(["--config", str(file)], cli_args.PPOConfig)
            trainer.PPOTrainer(loaded, train_dataset=MagicMock(spec=["__len__"]))
        except (AssertionError, AttributeError, NameError) as error:
            return {"broken": "".join(traceback.format_exception(error))[-2000:]}
        except Exception as error:
            return {"raised": _shown(error)}
        finally:
            os.environ.clear()
            os.environ.update(environment)
    if found.refused:
        return {"raised": f"never starts: {found.refused[0]}"}
    if config["scheduler"]["type"] == "local" and found.gpus > found.per_node:
        return {"gpus": found.gpus, "shared": True}
    return {"gpus": found.gpus}


def _shown(error: BaseException) -> str:
    text = re.sub(r"/tmp/\S+", "DIR", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text}"[:300]


def main() -> None:
    if not in_own_namespace():
        raise SystemExit("run it in a PID namespace of its own: see tests/interop/differential.py")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # AReaL prints
    if source := os.environ.get("AREAL_SOURCE"):
        sys.path.insert(0, source)
    sys.path.insert(1, str(HERE / "stub"))
    sys.meta_path.insert(0, _Absent())
    asyncio.set_event_loop_policy(None)
    trainer = stub_areal()
    for line in sys.stdin:
        answers.write(json.dumps(start(trainer, json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
