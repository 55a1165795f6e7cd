"""A first config for AReaL: complete, commented, and free of warnings when it is planned.

Keys and defaults are those of AReaL 1.0.4 (areal/api/cli_args.py). `ENGINES` says which sections a
kind of experiment has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from string import Template

ENGINES: dict[str, tuple[str, ...]] = {
    "ppo": ("rollout", "actor", "critic", "ref"),
    "grpo": ("rollout", "actor", "ref"),
    "sft": ("actor",),
    "rw": ("actor",),
    "dpo": ("actor", "ref"),
    "distill": ("rollout", "actor", "ref", "teacher"),
}
"""The engines of each kind of experiment."""

_DATA = {"sft": "sft", "rw": "rw", "dpo": "dpo"}
"""``train_dataset.type``; other kinds have rl."""


@dataclass(frozen=True)
class Start:
    """What a first config says.

    Attributes:
        kind: one of `ENGINES`.
        model: Hub id or directory of the model.
        backends: backend string of each engine that needs one.
        n_nodes: nodes.
        n_gpus_per_node: GPUs of a node.
        scheduler: local, ray or slurm.
        gpu: name of the card, or GiB.
        plan_model: what `--model` takes for this model.
        batch_size: sequences of a training step; a multiple of every training ``d``.
        max_length: tokens of a prompt, or of a training sequence.
        max_new_tokens: tokens of an answer.
        teacher: the model that teaches; the model itself where it is empty.
        concurrent: rollouts that are under way at once.
    """

    kind: str
    model: str
    backends: Mapping[str, str]
    n_nodes: int
    n_gpus_per_node: int
    scheduler: str
    gpu: str
    plan_model: str
    batch_size: int = 256
    max_length: int = 1024
    max_new_tokens: int = 1024
    teacher: str = ""
    concurrent: int = 256


def starter_config(start: Start) -> str:
    """The text of the config."""
    generates = "rollout" in ENGINES[start.kind]
    values = {
        "kind": start.kind,
        "model": start.model,
        "teacher_model": start.teacher or start.model,
        "n_nodes": start.n_nodes,
        "per_node": start.n_gpus_per_node,
        "scheduler": start.scheduler,
        "gpu": start.gpu,
        "plan_model": start.plan_model,
        "batch": start.batch_size,
        "concurrent": start.concurrent,
        "max_length": start.max_length,
        "max_new_tokens": start.max_new_tokens,
        "tokens_per_mb": _tokens_per_mb(
            start.max_length + (start.max_new_tokens if generates else 0)
        ),
        "context": start.max_length + start.max_new_tokens,
        "data": _DATA.get(start.kind, "rl"),
        "is_critic": "true" if start.kind == "rw" else "false",
        **{f"{name}_backend": spec for name, spec in start.backends.items()},
    }
    parts = [_HEAD]
    if generates:
        parts.append(_ROLLOUT)
    parts.append(_ACTOR + (_PPO if generates else "") + _WORKERS)
    parts += [_PARTS[name] for name in ENGINES[start.kind] if name in _PARTS]
    if generates:
        parts += [_SERVERS, _GENERATION]
    parts += [_DATASETS, _UTILITIES]
    return Template("\n".join(parts)).substitute(values)


def _tokens_per_mb(longest: int) -> int:
    """Tokens of a micro-batch: at least one sequence of full length, in steps of 1,024."""
    return max(4096, -(-longest * 2 // 1024) * 1024)


_HEAD = """\
# A $kind experiment of AReaL, laid out for $n_nodes x $per_node $gpu.
#
# Plan it:   areal-conf plan THIS_FILE --model $plan_model --gpu $gpu
# Start it:  areal-conf run -- python YOUR_SCRIPT.py --config THIS_FILE
#
# A Hydra app of your own can keep the model and the card in its config. AReaL's loader refuses keys
# that it does not know, so the lines are a comment here:
# areal_plan: {model: $plan_model, gpu: $gpu}

experiment_name: $kind
trial_name: trial0
seed: 1
total_train_epochs: 1
tokenizer_path: $${actor.path}

cluster:
  n_nodes: $n_nodes
  n_gpus_per_node: $per_node
  fileroot: /tmp/areal/experiments          # every node must see it; use a shared disk
  name_resolve:
    type: nfs
    nfs_record_root: /tmp/areal/name_resolve

scheduler:
  type: $scheduler
"""

_ROLLOUT = """\
# The servers that generate: d instances, each on t GPUs.
rollout:
  backend: "$rollout_backend"
  experiment_name: $${experiment_name}
  trial_name: $${trial_name}
  max_concurrent_rollouts: $concurrent
  consumer_batch_size: $${train_dataset.batch_size}
  max_head_offpolicyness: 2
  scheduling_spec: $${actor.scheduling_spec}
  fileroot: $${cluster.fileroot}
  tokenizer_path: $${tokenizer_path}
"""

_ACTOR = """\
# The model that is trained.
actor:
  backend: "$actor_backend"
  experiment_name: $${experiment_name}
  trial_name: $${trial_name}
  path: $model
  is_critic: $is_critic
  disable_dropout: true
  dtype: bfloat16
  gradient_checkpointing: true              # less memory for activations, one more forward pass
  mb_spec:
    max_tokens_per_mb: $tokens_per_mb                 # of a micro-batch; lower it to save memory
  fsdp:
    memory_efficient_load: true             # else each GPU loads the whole model first
  optimizer:
    type: adam
    lr: 1.0e-5
    weight_decay: 0.01
    lr_scheduler_type: constant
    gradient_clipping: 1.0
"""

_PPO = """\
  eps_clip: 0.4
  kl_ctl: 0.1                               # 0 leaves the reference model out
  ppo_n_minibatches: 1
  recompute_logprob: true
  use_decoupled_loss: true
  rejection_sampling: {level: token, action: mask, metric: ratio, upper: 5.0}
  reward_norm:
    mean_level: group
    std_level: group
    group_size: $${gconfig.n_samples}
  adv_norm:
    mean_level: batch
    std_level: batch
  max_new_tokens: $${gconfig.max_new_tokens}
  temperature: $${gconfig.temperature}
  weight_update_mode: xccl
"""

_WORKERS = """\
  scheduling_spec:                          # per GPU
    - task_type: worker
      port_count: 2
      gpu: 1
      mem: 32                               # GB
      cmd: python3 -m areal.infra.rpc.rpc_server
      env_vars: {}
"""

_PARTS = {
    "critic": """\
# The value model, on the GPUs of the actor.
critic:
  backend: $${actor.backend}
  experiment_name: $${experiment_name}
  trial_name: $${trial_name}
  path: $${actor.path}
  is_critic: true
  disable_dropout: true
  dtype: $${actor.dtype}
  gradient_checkpointing: true
  mb_spec:
    max_tokens_per_mb: $${actor.mb_spec.max_tokens_per_mb}
  fsdp:
    memory_efficient_load: true
  optimizer: {type: adam, lr: 1.0e-5}
  scheduling_strategy: {type: colocation, target: actor}
  scheduling_spec: $${actor.scheduling_spec}
""",
    "ref": """\
# The reference model, on the GPUs of the actor.
ref:
  backend: $${actor.backend}
  experiment_name: $${experiment_name}
  trial_name: $${trial_name}
  path: $${actor.path}
  disable_dropout: true
  dtype: $${actor.dtype}
  mb_spec:
    max_tokens_per_mb: $${actor.mb_spec.max_tokens_per_mb}
  fsdp:
    memory_efficient_load: true
  optimizer: null
  scheduling_strategy: {type: colocation, target: actor}
  scheduling_spec: $${actor.scheduling_spec}
""",
    "teacher": """\
# The teacher answers from servers of its own. Set the model that teaches.
teacher:
  engine_type: rollout
  path: $teacher_model
  rollout:
    backend: "$teacher_backend"
    scheduling_spec: $${actor.scheduling_spec}
  rl_loss_weight: 1.0
  distill_loss_weight: 0.005
""",
}

_SERVERS = """\
sglang:
  model_path: $${actor.path}
  random_seed: $${seed}
  skip_tokenizer_init: true
  dtype: $${actor.dtype}
  context_length: $context                     # prompt and answer together
  mem_fraction_static: 0.85                 # share of a GPU for weights and cache

vllm:
  model: $${actor.path}
  seed: $${seed}
  dtype: $${actor.dtype}
  max_model_len: $context
  gpu_memory_utilization: 0.85
"""

_GENERATION = """\
gconfig:
  n_samples: 4                              # answers to each prompt
  max_new_tokens: $max_new_tokens
  temperature: 1.0
"""

_DATASETS = """\
train_dataset:
  path: YOUR_DATASET                        # set this
  type: $data
  batch_size: $batch
  shuffle: true
  max_length: $max_length

valid_dataset:
  path: YOUR_DATASET
  type: $data
  batch_size: $batch
"""

_UTILITIES = """\
saver:
  experiment_name: $${experiment_name}
  trial_name: $${trial_name}
  fileroot: $${cluster.fileroot}
  freq_epochs: 1

recover:
  mode: disabled
  experiment_name: $${experiment_name}
  trial_name: $${trial_name}
  fileroot: $${cluster.fileroot}
  freq_secs: 3600

evaluator:
  experiment_name: $${experiment_name}
  trial_name: $${trial_name}
  fileroot: $${cluster.fileroot}
  freq_epochs: 1

stats_logger:
  experiment_name: $${experiment_name}
  trial_name: $${trial_name}
  fileroot: $${cluster.fileroot}
"""

APP = """\
# Add to the defaults list of your primary config, before _self_:
#
# defaults:
#   - areal/experiment: $kind
#   - override hydra/callbacks: areal_plan    # checks the plan before each job

rollout: {backend: "$rollout_backend"}
actor: {backend: "$actor_backend"}
cluster: {n_nodes: $n_nodes, n_gpus_per_node: $per_node}
scheduler: {type: $scheduler}
areal_plan: {model: $plan_model, gpu: $gpu}
"""
