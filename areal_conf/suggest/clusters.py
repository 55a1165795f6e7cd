"""What a real cluster has: nodes, GPUs of each and the kind of card, from Slurm or Ray."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from areal_conf.errors import AllocationError, clip, counted
from areal_conf.estimate.cards import card_of_device
from areal_conf.suggest.experiment import Gpus

_SECONDS = 30
"""How long a cluster may take to answer."""

_AWAY = re.compile(r"down|drain|fail|future|maint|unknown|power|not_resp|reboot|invalid", re.I)
"""States of nodes that run nothing."""

_GRES = re.compile(r"gpu(?::(?P<card>[^:,()]+))?:(?P<count>\d+)(?:\([^)]*\))?", re.ASCII)
"""One entry of a node's ``gres``: ``gpu:8``, ``gpu:h100:8(S:0-1)`` (slurm.conf, Gres)."""

_ACCELERATOR = "accelerator_type:"
"""Ray's resource that names the card of a node (ray.util.accelerators)."""


class Node(NamedTuple):
    """One node: how many GPUs, and what they are called; empty where not said."""

    gpus: int
    card: str = ""


def ask(cluster: str) -> Gpus:
    """What a cluster has.

    Args:
        cluster: ``slurm``, ``slurm:PARTITION``, ``ray``, ``ray:ADDRESS``, or ``auto``: Slurm where
            ``sinfo`` is installed, else Ray where its address is known, else the GPUs of this
            machine.

    Raises:
        AllocationError: AC607 where it cannot be asked, or has no node with GPUs.
    """
    kind, _, which = cluster.partition(":")
    if kind == "slurm":
        return of_nodes(slurm_nodes(_sinfo(which), which), cluster)
    if kind == "ray":
        return of_nodes(_ray_nodes(which), cluster)
    if cluster == "auto":
        return _found_here()
    raise _not_asked(
        cluster, "it is none of slurm, ray and auto", "write --cluster slurm:PARTITION"
    )


def _found_here() -> Gpus:
    if shutil.which("sinfo"):
        try:
            return ask("slurm")
        except AllocationError:
            if not os.environ.get("RAY_ADDRESS"):
                raise
    if os.environ.get("RAY_ADDRESS"):
        return ask("ray")
    raise _not_asked(
        "auto", "there is neither sinfo nor RAY_ADDRESS here", "say how many GPUs: --gpus 16"
    )


def of_nodes(nodes: Iterable[Node], cluster: str) -> Gpus:
    """The largest set of equal nodes.

    Raises:
        AllocationError: AC607 where none has a GPU.
    """
    kinds = Counter(node for node in nodes if node.gpus > 0)
    if not kinds:
        raise _not_asked(cluster, "no node of it that is up has a GPU", "check its state: sinfo")
    best = max(kinds, key=lambda node: (node.gpus * kinds[node], node))
    notes = [
        f"cluster: {counted(count, 'node')} of {_words(node)} are left out: nodes are taken alike"
        for node, count in sorted(kinds.items())
        if node != best
    ]
    card = None
    if best.card:
        known = card_of_device(best.card)
        card = known.name if known else None
        if known is None:
            notes.append(f"cluster: its card {clip(best.card, 40)!r} is not in the table of cards")
    return Gpus(kinds[best], best.gpus, card, tuple(notes))


def _words(node: Node) -> str:
    return f"{counted(node.gpus, 'GPU')} ({node.card})" if node.card else counted(node.gpus, "GPU")


# -- Slurm -----------------------------------------------------------------------------------------


def _sinfo(partition: str) -> Mapping[str, Any]:
    cluster = f"slurm:{partition}" if partition else "slurm"
    command = ["sinfo", "--json", *(["-p", partition] if partition else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except FileNotFoundError:
        why, hint = "sinfo is not installed here", "run it where sinfo is, or say --gpus 16"
        raise _not_asked(cluster, why, hint) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _not_asked(cluster, f"sinfo: {clip(str(error), 200)}", "say --gpus 16") from None
    if done.returncode:
        why = clip(done.stderr.strip() or f"sinfo ended with {done.returncode}", 200)
        raise _not_asked(cluster, why, "check that sinfo works, or say --gpus 16")
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _not_asked(cluster, "sinfo --json printed no JSON", "say --gpus 16")
    return found


def slurm_nodes(answer: Mapping[str, Any], partition: str = "") -> list[Node]:
    """The nodes of ``sinfo --json`` that are up.

    Args:
        answer: of Slurm up to 22.05 (``nodes``: one entry a node) or from 23.02 (``sinfo``: one
            entry for equal nodes).
        partition: only nodes of it; empty: all, each once.

    Raises:
        AllocationError: AC607 where there is no such partition.
    """
    entries = answer.get("nodes")
    nodes: dict[str, Node] = {}
    partitions: set[str] = set()
    if isinstance(entries, list):
        for entry in entries:
            partitions.update(entry.get("partitions") or ())
            if not partition or partition in (entry.get("partitions") or ()):
                words = [entry.get("state"), *(entry.get("state_flags") or ())]
                _add(nodes, [str(entry.get("name"))], entry.get("gres"), words)
    else:
        for entry in answer.get("sinfo") or ():
            name = _name(entry.get("partition"))
            partitions.add(name)
            if not partition or partition == name:
                states = (entry.get("node") or {}).get("state")
                gres = (entry.get("gres") or {}).get("total")
                _add(nodes, (entry.get("nodes") or {}).get("nodes") or (), gres, states)
    if partition and partition not in partitions:
        named = ", ".join(sorted(filter(None, partitions))) or "none"
        hint = f"its partitions are {clip(named, 200)}"
        raise _not_asked(f"slurm:{partition}", "there is no such partition", hint)
    return [*nodes.values()]


def _name(partition: Any) -> str:
    return str(partition.get("name", "")) if isinstance(partition, dict) else str(partition or "")


def _add(nodes: dict[str, Node], names: Iterable[str], gres: Any, states: Any) -> None:
    """Add the nodes of one entry, where they are up."""
    words = [states] if isinstance(states, str) else [*(states or ())]
    if any(_AWAY.search(str(word)) for word in words):
        return
    found = [(m["card"] or "", int(m["count"])) for m in _GRES.finditer(str(gres or ""))]
    card, count = max(found, key=lambda one: one[1], default=("", 0))
    for name in names:
        nodes[name] = Node(count, card)


# -- Ray -------------------------------------------------------------------------------------------


def _ray_nodes(address: str) -> list[Node]:
    """The nodes of a running Ray that are alive; whoever was connected stays so."""
    cluster = f"ray:{address}" if address else "ray"
    try:
        import ray
    except ImportError:
        raise _not_asked(cluster, "Ray is not installed", "pip install ray") from None
    started = not ray.is_initialized()
    try:
        if started:
            _knock(address or os.environ.get("RAY_ADDRESS", ""))
            ray.init(address=address or "auto", logging_level="error", log_to_driver=False)
        return ray_nodes(ray.nodes())
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        hint = "name its address: --cluster ray:HOST:6379, or say --gpus 16"
        raise _not_asked(cluster, clip(str(error).strip(), 200), hint) from None
    finally:
        if started:
            ray.shutdown()


def _knock(address: str) -> None:
    """Raise OSError where nothing listens: Ray itself tries again for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "/" not in address:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()


def ray_nodes(answer: Iterable[Mapping[str, Any]]) -> list[Node]:
    """The nodes of ``ray.nodes()`` that are alive."""
    found = []
    for node in answer:
        resources = node.get("Resources") or {}
        if node.get("Alive"):
            cards = [x.removeprefix(_ACCELERATOR) for x in resources if x.startswith(_ACCELERATOR)]
            found.append(Node(int(resources.get("GPU", 0)), cards[0] if cards else ""))
    return found


def _not_asked(cluster: str, why: str, hint: str) -> AllocationError:
    return AllocationError(
        "AC607", f"the cluster cannot be asked: {why}", text=clip(cluster, 80), hint=hint
    )
