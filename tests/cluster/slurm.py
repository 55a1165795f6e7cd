"""A Slurm cluster of its own on this machine: two nodes of eight pretended GPUs.

Tests take it from the fixture ``slurm``; people start one by hand:

    python -m tests.cluster.slurm start        prints the directory, and the variable to export
    python -m tests.cluster.slurm stop DIRECTORY

It needs Debian's slurm-wlm, slurmdbd, munge and mariadb-server installed, none of them running. It
uses free ports and a directory of its own, so that several may run at once. Accounting is part of
it since submitit asks ``sacct`` what became of a job: without, it waits for a killed one for ever.
"""

from __future__ import annotations

import argparse
import getpass
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from .processes import kill_all, processes

NODES = ("n1", "n2")
GPUS = 8
CPUS = 64
"""CPUs that a node pretends to have."""

DEBIAN_PACKAGES = "slurm-wlm slurmdbd munge mariadb-server"
_PROGRAMS = {
    "slurmctld", "slurmd", "slurmdbd", "munged", "munge", "mariadbd", "mariadb-install-db",
    "mariadb-admin", "sbatch", "srun", "sinfo", "scontrol", "sacct", "sacctmgr",
}  # fmt: skip
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
_MUNGE_FILES = ("key-file", "pid-file", "log-file", "seed-file")
_DAEMON = "SLURM_LAB_DAEMON"
"""Set in the environment of each daemon, by which `Lab.stop` knows it."""


class LabError(RuntimeError):
    """A daemon of the lab did not come up."""


def missing() -> str:
    """Why no lab can be started here; empty where one can."""
    absent = sorted(p for p in _PROGRAMS if shutil.which(p, path=_PATH) is None)
    if not absent:
        return ""
    return f"no Slurm here ({', '.join(absent)} not found): apt-get install {DEBIAN_PACKAGES}"


class Lab:
    """A Slurm cluster in `directory`; `start` it, `stop` it.

    Attributes:
        conf: its slurm.conf.
        env: environment in which Slurm's commands speak to it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.conf = directory / "slurm.conf"
        self.env = {**_without_slurm(os.environ), "SLURM_CONF": str(self.conf), "PATH": _PATH}
        self._munge_socket = str(directory / "munge.socket")
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @classmethod
    def create(cls) -> Lab:
        """A lab in a new directory, running."""
        directory = Path(tempfile.mkdtemp(prefix="slurm-lab-"))
        directory.chmod(0o755)  # munge wants its socket to be reachable by all
        lab = cls(directory)
        try:
            lab.start()
        except BaseException:
            lab.stop()
            raise
        return lab

    def run(self, *command: str, timeout: float = 60) -> str:
        """Output of one of Slurm's commands."""
        done = subprocess.run(
            command, env=self.env, text=True, capture_output=True, timeout=timeout
        )
        if done.returncode:
            raise LabError(f"{' '.join(command)}: {done.stderr or done.stdout}")
        return done.stdout

    # -- start ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start every daemon and wait until all nodes are idle.

        Raises:
            LabError: a daemon ended, or was not ready in time; with the end of its log.
        """
        at = self.directory
        for name in ("state", "log", "dev", *(f"spool/{node}" for node in NODES)):
            (at / name).mkdir(parents=True)
        self._write_configs()
        self._munge()
        self._database()
        self._daemon("slurmdbd", "slurmdbd", "-D")
        self._until("slurmdbd", lambda: self._answers("sacctmgr", "-n", "show", "cluster"))
        self.run("sacctmgr", "-i", "add", "cluster", "lab")
        self._daemon("slurmctld", "slurmctld", "-D", "-c", "-f", str(self.conf))
        for node in NODES:
            self._daemon(node, "slurmd", "-D", "-N", node, "-f", str(self.conf))
        self._until("slurmctld", self._all_idle)

    def _munge(self) -> None:
        key = self.directory / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        files = {
            name: self.directory / f"munge.{name}" for name in ("socket", "pid", "log", "seed")
        }
        self._daemon(
            "munged", "munged", "--foreground", f"--key-file={key}",
            f"--socket={files['socket']}", f"--pid-file={files['pid']}",
            f"--log-file={files['log']}", f"--seed-file={files['seed']}",
        )  # fmt: skip
        self._until("munged", lambda: self._answers("munge", "-n", "-S", str(files["socket"])))

    def _database(self) -> None:
        data, endpoint = self.directory / "mariadb", self.directory / "mariadb.socket"
        user = f"--user={getpass.getuser()}"
        self.run(
            "mariadb-install-db", "--no-defaults", user, f"--datadir={data}", "--skip-test-db",
            "--auth-root-authentication-method=normal",
        )  # fmt: skip
        self._daemon(
            "mariadbd", "mariadbd", "--no-defaults", user, f"--datadir={data}",
            f"--socket={endpoint}", "--skip-networking", "--innodb-buffer-pool-size=32M",
            "--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0",
        )  # fmt: skip
        ping = ("mariadb-admin", "--no-defaults", "-uroot", "-S", str(endpoint), "ping")
        self._until("mariadbd", lambda: self._answers(*ping))

    def _write_configs(self) -> None:
        at, host = self.directory, socket.gethostname().partition(".")[0]
        control, database, *node_ports = _free_ports(2 + len(NODES))
        for index in range(GPUS):  # Slurm counts only files that are devices
            (at / "dev" / f"nvidia{index}").symlink_to("/dev/null")
        facts = {
            "at": at,
            "host": host,
            "user": getpass.getuser(),
            "control": control,
            "database": database,
            "nodes": "\n".join(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS}"
                f" RealMemory=64000 Gres=gpu:{GPUS}"
                for node, port in zip(NODES, node_ports, strict=True)
            ),
            "names": ",".join(NODES),
        }
        self.conf.write_text(_SLURM_CONF.format(**facts))
        accounting = at / "slurmdbd.conf"
        accounting.touch(mode=0o600)  # slurmdbd refuses one that others may read
        accounting.write_text(_SLURMDBD_CONF.format(**facts))
        devices = f"{at}/dev/nvidia[0-{GPUS - 1}]"
        (at / "gres.conf").write_text(
            "".join(f"NodeName={node} Name=gpu File={devices}\n" for node in NODES)
        )

    def _daemon(self, name: str, program: str, *arguments: str) -> None:
        executable = shutil.which(program, path=_PATH)
        assert executable is not None
        env = {**self.env, _DAEMON: "1", "MYSQL_UNIX_PORT": str(self.directory / "mariadb.socket")}
        with (self.directory / "log" / name).open("wb") as log:
            self._daemons[name] = subprocess.Popen(
                [executable, *arguments],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _answers(self, *command: str) -> bool:
        return not subprocess.run(command, env=self.env, capture_output=True).returncode

    def _all_idle(self) -> bool:
        command = ("sinfo", "-h", "-N", "-o", "%T")
        done = subprocess.run(command, env=self.env, capture_output=True, text=True)
        return done.stdout.split() == ["idle"] * len(NODES)

    def _until(self, name: str, ready: Callable[[], bool], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not ready():
            dead = [n for n, d in self._daemons.items() if d.poll() is not None]
            if dead or time.monotonic() > end:
                name = dead[0] if dead else name
                log = (self.directory / "log" / name).read_text(errors="replace")
                raise LabError(f"{name} {'ended' if dead else 'is not ready'}:\n{log[-2000:]}")
            time.sleep(0.05)

    # -- stop -----------------------------------------------------------------------------------

    def stop(self) -> None:
        """End every daemon and every process of every job, and remove the directory.

        Nothing of the lab is worth keeping, so that all is killed outright.
        """
        kill_all(self.processes)
        for daemon in self._daemons.values():
            daemon.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def processes(self) -> Iterator[int]:
        """Daemons of this lab and processes of its jobs, by their environment."""
        conf = f"SLURM_CONF={self.conf}".encode()
        of_a_daemon, of_a_job = f"{_DAEMON}=1".encode(), b"SLURM_JOB_ID="
        return processes(
            lambda variables: (
                conf in variables
                and (of_a_daemon in variables or any(v.startswith(of_a_job) for v in variables))
            )
        )


_SLURM_CONF = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={at}/munge.socket
CredType=cred/munge
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={database}
AccountingStoragePass={at}/munge.socket
AccountingStorageTRES=gres/gpu
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool/%n
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/slurmd.%n.pid
# Pretended nodes: believe the numbers below, follow processes by parent, hold nobody to anything.
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
# Start and end jobs at once; answer for ended ones as long as a test may ask.
SchedulerParameters=sched_interval=1,sched_min_interval=100000,bf_interval=1
EnforcePartLimits=ALL
KillWait=2
MinJobAge=600
ReturnToService=2
MailProg=/bin/true
{nodes}
PartitionName=gpu Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""

_SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={at}/munge.socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={database}
SlurmUser={user}
PidFile={at}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct
"""


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all of them different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _without_slurm(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` without what another Slurm may have put there."""
    return {k: v for k, v in environment.items() if not k.startswith(("SLURM_", "SBATCH_"))}


def main(arguments: list[str] | None = None) -> int:
    """Start a lab, or stop one."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.slurm", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("start")
    commands.add_parser("stop").add_argument("directory", type=Path)
    given = parser.parse_args(arguments)
    if given.command == "stop":
        Lab(given.directory).stop()
        return 0
    if reason := missing():
        print(reason, file=sys.stderr)
        return 1
    lab = Lab.create()
    print(f"{lab.directory}\nexport SLURM_CONF={lab.conf}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
