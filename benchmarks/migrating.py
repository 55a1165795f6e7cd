"""Migration of 1,000 files, against reading and writing them with a YAML library."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from measure import Effort, Job, Row, compare

from areal_conf.migrate.files import find_files, migrate_file

TITLE = "Migrating 1,000 files"
FILES = 1000
FEW = 20
MODES = ("sglang:d4p1t1+d4p1t1", "vllm.d2p1t2+d4p1t1", "sglang:d8t2+megatron:(attn:d4t2p2|ffn:e8)")
CONFIG = """\
experiment_name: gsm8k-grpo-{number}
trial_name: trial0

seed: 1
total_train_epochs: 10
tokenizer_path: ${{actor.path}}

cluster:
  n_nodes: 4
  n_gpus_per_node: 8
  fileroot: /tmp/areal/experiments   # shared by all nodes
  name_resolve:
    type: nfs
    nfs_record_root: /tmp/areal/name_resolve
allocation_mode: {mode}   # servers + trainer

scheduler:
  type: null

rollout:
  experiment_name: ${{experiment_name}}
  trial_name: ${{trial_name}}
  max_concurrent_rollouts: 256
  max_head_offpolicyness: 2

gconfig:
  n_samples: 4
  max_new_tokens: 1024
  temperature: 1.0

actor:
  experiment_name: ${{experiment_name}}
  trial_name: ${{trial_name}}
  path: Qwen/Qwen2.5-1.5B-Instruct   # from the hub
  dtype: bfloat16
  mb_spec:
    max_tokens_per_mb: 10240
  optimizer:
    type: adam
    lr: 1.70e-5
    weight_decay: 0.017
    betas: [0.9, 0.999]
    lr_scheduler_type: constant
  group_size: ${{gconfig.n_samples}}
  eps_clip: 0.4
  kl_ctl: 0.0

ref:
  path: ${{actor.path}}
  dtype: ${{actor.dtype}}
  scheduling_strategy: {{type: colocation, target: actor}}

train_dataset:
  batch_size: 256
  path: openai/gsm8k
  type: rl

stats_logger:
  fileroot: ${{cluster.fileroot}}
  wandb: {{mode: disabled}}
"""


@contextmanager
def tree() -> Iterator[Path]:
    """A folder of configs; each has its own text."""
    with tempfile.TemporaryDirectory() as directory:
        for number in range(FILES):
            text = CONFIG.format(number=number, mode=MODES[number % len(MODES)])
            Path(directory, f"{number:04}.yaml").write_text(text, encoding="utf-8")
        yield Path(directory)


def rows(effort: Effort) -> Iterator[Row]:
    """What becomes of each file, in memory on both sides; nothing is written to the disk."""
    with tree() as directory:
        whole = FILES / FEW
        for peer_name, theirs in (
            ("ruamel.yaml, round trip", ruamel_job),
            ("PyYAML in C, load and dump (comments are lost)", pyyaml_job),
        ):
            yield compare(
                f"{FEW} files times {FILES // FEW}",
                partial(migrated, directory, FEW),
                peer_name,
                partial(theirs, directory, FEW),
                effort,
                whole=(whole, whole),
            )


def migrated(directory: Path, count: int) -> None:
    """The new text of the first `count` files."""
    paths = list(find_files([directory]))
    assert len(paths) == FILES
    for path in paths[:count]:
        assert migrate_file(path).new


def ruamel_job(directory: Path, count: int) -> Job:
    """The same files read and written by the library that keeps comments."""
    from ruamel.yaml import YAML

    def job() -> None:
        for path in sorted(directory.iterdir())[:count]:
            yaml = YAML()
            data = yaml.load(path.read_text(encoding="utf-8"))
            del data["allocation_mode"]
            yaml.dump(data, io.StringIO())

    return job


def pyyaml_job(directory: Path, count: int) -> Job:
    """The same files read and written by the library that Hydra reads configs with."""
    import yaml

    def job() -> None:
        for path in sorted(directory.iterdir())[:count]:
            data = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
            del data["allocation_mode"]
            yaml.dump(data, Dumper=yaml.CSafeDumper, sort_keys=False)

    return job


def here() -> None:
    """For the memory: every file."""
    with tree() as directory:
        migrated(directory, FILES)


def peer() -> None:
    """Every file with PyYAML."""
    with tree() as directory:
        pyyaml_job(directory, FILES)()
