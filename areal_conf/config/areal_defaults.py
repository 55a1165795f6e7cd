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


def turns_ref_off(kl_ctl: object) -> bool:
    """Whether AReaL builds no ref beside a rollout with this value (trainer/rl_trainer.py)."""
    if not isinstance(kl_ctl, (int, float)) and not (isinstance(kl_ctl, str) and kl_ctl.isascii()):
        return False
    try:
        return float(kl_ctl) <= 0
    except (ValueError, OverflowError):
        return False


LAUNCHERS = ("local", "ray", "slurm")
"""AReaL's SPMD launchers (infra/launcher), and the schedulers of its single controller
(infra/scheduler)."""
