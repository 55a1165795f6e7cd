"""An experiment that AReaL's launchers, or the fakes of them, can start."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def experiment(folder: Path, gpus: int = 2, **changes: Any) -> dict[str, Any]:
    """One trainer with two ranks on a node of `gpus`; what AReaL writes goes below `folder`."""
    base: dict[str, Any] = {
        "experiment_name": "exp",
        "trial_name": "trial",
        "allocation_mode": "",
        "cluster": {
            "n_nodes": 1,
            "n_gpus_per_node": gpus,
            "fileroot": str(folder / "root"),
            "name_resolve": {"nfs_record_root": str(folder / "names")},
        },
        "recover": {"mode": "disabled"},
        "actor": {"backend": "fsdp:d2"},
    }
    return base | changes
