"""A Ray cluster of its own on this machine: two nodes of eight pretended GPUs.

Tests take it from the fixture ``ray_cluster``; people start one by hand, which runs until its
standard input ends (Ctrl-D):

    python -m tests.cluster.ray_cluster
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from importlib.util import find_spec

from .processes import kill_all, processes

NODES = 2
GPUS = 8
_MARK = "RAY_CLUSTER_OF_TESTS"


def missing() -> str:
    """Why no cluster can be started here; empty where one can."""
    return "" if find_spec("ray") else "Ray is not installed: pip install 'areal-conf[ray]'"


class RayCluster:
    """A cluster in processes of its own, from `create` to `stop`.

    Attributes:
        address: what ``ray.init`` takes.
        env: environment in which Ray finds it.
    """

    def __init__(self, process: subprocess.Popen[str], mark: str) -> None:
        self._process = process
        self._mark = f"{_MARK}={mark}".encode()
        self.address = ""
        self.env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}

    @classmethod
    def create(cls) -> RayCluster:
        """A running cluster.

        Raises:
            RuntimeError: it does not start.
        """
        mark = uuid.uuid4().hex
        process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.ray_cluster"],
            cwd=os.path.dirname(os.path.dirname(__file__)),
            env={**os.environ, _MARK: mark, "RAY_USAGE_STATS_ENABLED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        cluster = cls(process, mark)
        assert process.stdout is not None
        cluster.address = process.stdout.readline().strip()
        if not cluster.address:
            cluster.stop()
            raise RuntimeError("Ray did not start; its own words are on stderr")
        cluster.env["RAY_ADDRESS"] = cluster.address
        return cluster

    def stop(self) -> None:
        """End it, and whatever was started on it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=20)  # its input ends
        kill_all(self.processes)
        self._process.communicate()

    def processes(self) -> Iterator[int]:
        """Processes of the cluster, workers included."""
        return processes(lambda variables: self._mark in variables)


def main() -> None:
    """Run a cluster, say its address, and end it with standard input."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 8, "num_gpus": GPUS, "object_store_memory": 100 * 1024 * 1024}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    for _ in range(NODES - 1):
        cluster.add_node(**node)
    print(cluster.address, flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()
