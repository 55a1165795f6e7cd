"""What AReaL fixes: the engines, their roles, the launchers, default values."""

from __future__ import annotations

from areal_conf.spec.backends import Role

DIRECTORIES = {
    "cluster.fileroot": "/tmp/areal/",
    "cluster.name_resolve.nfs_record_root": "/tmp/areal/name_resolve",
}
"""Directories that AReaL's launchers need to exist already, and its defaults of them
(infra/utils/launcher.py, api/cli_args.py)."""


ROLES: dict[str, Role | None] = {
    "actor": "training",
    "critic": "training",
    "ref": "training",
    "teacher": None,
    "rollout": "inference",
}
"""The standard engines in the order AReaL creates them (trainer/rl_trainer.py), and their roles.
A teacher may be of either role; one that serves comes after rollout."""

INHERITS: dict[str, str] = {"critic": "actor", "ref": "actor"}
"""Engines that take another engine's backend where theirs is unset."""

DEFAULT_KL_CTL = 0.1
"""AReaL's default of ``actor.kl_ctl`` (api/cli_args.py): over 0, so that ref runs."""
LAUNCHERS = ("local", "ray", "slurm")
"""AReaL's SPMD launchers (infra/launcher)."""
