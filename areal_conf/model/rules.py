"""The rules that a backend holds a model to: one row a rule, with the file that says so.

`RULES` is the table; the rules of servers alone are in `areal_conf.model.server_rules`.
`areal_conf.model.check` holds layouts to it.
"""

from __future__ import annotations

from areal_conf.model import server_rules, server_types
from areal_conf.model.facts import MAX_NUMBER, ModelFacts
from areal_conf.model.known import is_known_type
from areal_conf.model.rule import NO_SETTINGS, TABLE, Breaks, Rule, Settings, rule
from areal_conf.spec.backends import BACKENDS, Sizes

__all__ = ["NO_SETTINGS", "RULES", "Rule", "Settings", "errors_of", "rules_of", "tests_of"]

_FSDP = "areal/engine/fsdp_utils/parallel.py, apply_non_moe_tp"
_ULYSSES = "areal/models/transformers/ulyssess_patch.py, apply_monkey_patch"
_MCORE = "megatron/core/transformer/transformer_config.py, TransformerConfig.__post_init__"
_MCORE_ATTENTION = "megatron/core/transformer/attention.py, Attention.__init__"
_MCORE_MOE = "megatron/core/transformer/moe/moe_layer.py, BaseMoELayer.__init__"
_MCORE_LAYERS = "areal/engine/megatron_utils/pipeline_parallel.py, configure_pipeline_layer_splits"
_ARCHON = "areal/experimental/models/archon"
_ARCHON_LAYERS = f"{_ARCHON}/pipeline_parallel.py, generate_llm_fqn_per_model_part"
_SGLANG_QKV = "sglang/srt/layers/linear.py, QKVParallelLinear.__init__"
_SGLANG_LAYERS = "sglang/srt/distributed/utils.py, get_pp_indices"
_VLLM_HEADS = "vllm/config/model.py, ModelConfig.verify_with_parallel_config"
_VLLM_QKV = "vllm/model_executor/layers/linear.py, QKVParallelLinear.__init__"
_VLLM_LAYERS = "vllm/distributed/utils.py, get_pp_indices"

_ARCHON_MODELS = {"qwen2", "qwen3", "qwen3_moe"}
_ARCHON_UNSPLIT = {"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"}


@rule(
    "AC401",
    "t",
    "t divides the attention heads",
    message="{m.heads} attention heads do not split over t{s.t}",
    advice="t must divide the {m.heads} attention heads",
    sources={
        "sglang": _SGLANG_QKV,
        "vllm": _VLLM_HEADS,
        "fsdp": _FSDP,
        "megatron": _MCORE,
        "archon": f"{_ARCHON}/utils.py, validate_tp_constraints",
    },
)
def _heads_over_t(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Every tensor rank computes whole heads.

    All backends check it themselves: Megatron-LM and vLLM with a ValueError, SGLang when it divides
    the query heads of ``QKVParallelLinear`` (over fewer ranks under ``enable_dp_attention``),
    AReaL's FSDP and Archon before they shard the projections.
    """
    return m.heads % x.attention_ranks(s) != 0


@rule(
    "AC402",
    "t",
    "t divides the key/value heads",
    message="{m.kv_heads} key/value heads do not split over t{s.t}",
    advice="t must divide the {m.kv_heads} key/value heads: they are not replicated",
    sources={"fsdp": _FSDP, "archon": f"{_ARCHON}/utils.py, validate_tp_constraints"},
)
def _kv_heads_split(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """FSDP and Archon shard k_proj and v_proj by columns and demand whole heads on every rank.

    They read ``num_key_value_heads`` whatever the attention is, so the rule holds for MLA too.
    """
    return m.kv_heads % s.t != 0


@rule(
    "AC402",
    "t",
    "t divides the key/value heads, or is a multiple of them (MLA: none)",
    message="{m.kv_heads} key/value heads neither split nor replicate evenly over t{s.t}",
    advice="t must divide the {m.kv_heads} key/value heads or be a multiple of them",
    sources={"sglang": _SGLANG_QKV, "vllm": _VLLM_QKV, "megatron": _MCORE},
)
def _kv_heads_split_or_replicate(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Fewer key/value heads than ranks are replicated, the same number of times each.

    SGLang and vLLM divide one number by the other in ``QKVParallelLinear``; Megatron-LM checks
    ``num_query_groups``. MLA has one latent for all heads, which no rank splits.
    """
    ranks = x.attention_ranks(s)
    return m.kv_heads % ranks != 0 and ranks % m.kv_heads != 0 and m.kv_lora_rank is None


@rule(
    "AC403",
    "p",
    "pipeline stages <= layers (stages = p, Megatron: p x virtual pipeline size)",
    message="p{s.p} makes more pipeline stages than the model has layers ({m.layers})",
    advice="every stage needs a layer: there are {m.layers}",
    sources={"sglang": _SGLANG_LAYERS, "vllm": _VLLM_LAYERS, "megatron": _MCORE_LAYERS},
)
def _stages_over_layers(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """A stage without a layer has no parameters to train and no KV cache to size.

    SGLang and vLLM deal such a stage an empty range of layers, and have no KV cache to size there.
    For Megatron AReaL looks for a partition in which every stage has a layer. Its search leaves the
    first and the last stage empty where p is one or two over the number of layers; this rule
    refuses that all the same (nobody trains like that, and the code can be allowed).
    """
    return x.stages(s, 1) > m.layers


@rule(
    "AC403",
    "p",
    "stages <= layers + 2 (stages = 2p; p with the schedule 1F1B)",
    message="p{s.p} makes more pipeline stages than the model's layers ({m.layers}) can fill",
    advice="archon puts 2 stages on a rank (1 with archon.pp_schedule=1F1B) and needs at most "
    "{m.layers} + 2 stages",
    sources={"archon": _ARCHON_LAYERS},
)
def _stages_over_layers_archon(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Archon counts embedding and output as a layer each and gives every stage at least one.

    Its default schedule, Interleaved1F1B, has two stages on each rank (``pipeline_llm``).
    """
    return x.stages(s, 2) > m.layers + 2


@rule(
    "AC404",
    "e",
    "e divides the experts",
    message="{m.experts} experts do not split over e{s.e}",
    advice="e must divide the {m.experts} experts",
    sources={"megatron": _MCORE_MOE, "archon": f"{_ARCHON}/utils.py, validate_ep_constraints"},
)
def _experts_over_e(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Every expert rank holds the same number of whole experts (asserted by both backends)."""
    return m.experts % s.e != 0


@rule(
    "AC405",
    "e",
    "e is 1 on a dense model",
    message="e{s.e} on a dense model: it has no experts to spread",
    advice="leave e out",
    sources={"megatron": _MCORE, "archon": f"{_ARCHON}/utils.py, validate_ep_constraints"},
)
def _experts_of_dense_model(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Both backends demand a MoE model for expert parallelism."""
    return m.experts == 0


@rule(
    "AC406",
    "etp",
    "t of ffn divides the experts' intermediate size",
    message="the experts' intermediate size {m.expert_intermediate} does not split over t{s.etp} "
    "of ffn",
    advice="t of ffn must divide {m.expert_intermediate}",
    sources={"megatron": "megatron/core/transformer/moe/experts.py, TEGroupedMLP.__init__"},
)
def _expert_matrices(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """The grouped linear layers of the experts are split by columns and by rows, evenly."""
    return m.expert_intermediate is not None and m.expert_intermediate % s.etp != 0


@rule(
    "AC407",
    "c",
    "c divides the attention heads of a tensor rank",
    message="{m.heads} attention heads over t{s.t} do not split further over c{s.c}",
    advice="c splits heads too (Ulysses): t x c must divide the {m.heads} attention heads",
    sources={"fsdp": _ULYSSES, "archon": f"{_ARCHON}/utils.py, validate_cp_constraints"},
)
def _heads_over_c(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Ulysses exchanges a part of the sequence for a part of the heads.

    Archon checks the heads that tensor parallelism leaves. AReaL's FSDP checks all heads against c
    at start, and fails in the first all-to-all where those of a tensor rank do not split (areal/
    models/fsdp/ulysses.py, all_to_all_tensor). Megatron uses ring attention and has no such rule.
    """
    return m.heads % s.t == 0 and m.heads // s.t % s.c != 0


@rule(
    "AC408",
    "c",
    "c divides the key/value heads of a tensor rank, or is a multiple of them",
    message="{m.kv_heads} key/value heads over t{s.t} neither split nor replicate evenly over "
    "c{s.c}",
    advice="c must divide the key/value heads of a tensor rank ({m.kv_heads} over t{s.t}) or be a "
    "multiple of them",
    sources={"fsdp": _ULYSSES, "archon": f"{_ARCHON}/utils.py, validate_cp_constraints"},
)
def _kv_heads_over_c(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Ulysses repeats key/value heads where there are fewer of them than ranks.

    That the repetitions fit the groups of query heads follows from this rule and AC407.
    """
    local = m.kv_heads // s.t if m.kv_heads % s.t == 0 else s.c
    return local % s.c != 0 and s.c % local != 0


@rule(
    "AC409",
    "p",
    "p is 1 where input and output embeddings are tied",
    message="p{s.p} with tied embeddings: first and last stage would share one matrix",
    advice="use p1 or another backend: archon cannot share a matrix between stages",
    sources={"archon": "areal/experimental/engine/archon_utils.py, prepare_training_config"},
)
def _tied_over_p(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Archon raises a ValueError at start: the two stages are on different GPUs."""
    return m.tied_embeddings


@rule(
    "AC410",
    "c",
    "c is 1 on a vision-language model",
    message="c{s.c} with a vision-language model",
    advice="AReaL's Megatron engine has no context parallelism for vision-language models",
    sources={"megatron": "areal/engine/megatron_engine.py, MegatronEngine.initialize"},
)
def _vision_over_c(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """AReaL's Megatron engine raises NotImplementedError; its FSDP engine slices embeddings."""
    return m.vision


@rule(
    "AC451",
    "t",
    "t is at most the key/value heads (MLA: none)",
    message="t{s.t} is over the {m.kv_heads} key/value heads: each is replicated",
    advice="it runs; t up to {m.kv_heads} would keep one copy of the KV cache",
    sources={"sglang": _SGLANG_QKV, "vllm": _VLLM_QKV, "megatron": _MCORE_ATTENTION},
)
def _kv_replicated(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Copies of key/value heads cost memory: the KV cache of a rank stops shrinking with t."""
    return x.attention_ranks(s) > m.kv_heads > 0 and m.kv_lora_rank is None


@rule(
    "AC451",
    "c",
    "c is at most the key/value heads of a tensor rank",
    message="c{s.c} is over the key/value heads of a tensor rank ({m.kv_heads} over t{s.t}): each "
    "is replicated",
    advice="it runs, with more to communicate",
    sources={"fsdp": _ULYSSES, "archon": f"{_ARCHON}/utils.py, validate_cp_constraints"},
)
def _kv_replicated_over_c(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Ulysses repeats key/value heads before its all-to-all."""
    return s.c * s.t > m.kv_heads > 0


@rule(
    "AC452",
    "p",
    "stages divide the layers",
    message="{m.layers} layers over p{s.p} are uneven: stages hold different numbers of layers",
    advice="it runs; the stages wait for the longest one",
    sources={"sglang": _SGLANG_LAYERS, "vllm": _VLLM_LAYERS, "megatron": _MCORE_LAYERS},
)
def _stages_uneven(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """No backend stops: AReaL balances Megatron's stages by parameters, SGLang and vLLM give the
    remaining layers to some stages. Archon weighs embedding and output as layers, so that an even
    number of layers means nothing there."""
    return m.layers % x.stages(s, 1) != 0


@rule(
    "AC453",
    "c",
    "2 x t x c divides the length of a sequence",
    message="sequences of {x.context_length} tokens are padded to a multiple of 2 x t x c",
    advice="it runs; padding costs compute, most on short sequences",
    sources={"megatron": "areal/engine/megatron_engine.py, MegatronEngine._prepare_mb_list"},
)
def _padded_each(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Each sequence is cut into 2 x c chunks (the causal mask balanced), each dealt over t."""
    return (x.context_length or 0) % (2 * s.t * s.c) != 0


@rule(
    "AC453",
    "c",
    "t x c divides the length of a sequence",
    message="sequences of {x.context_length} tokens are padded to a multiple of t x c",
    advice="it runs; padding costs compute, most on short sequences",
    sources={
        "fsdp": "areal/engine/fsdp_utils/parallel.py, ParallelHelper.seq_len_divisor",
        "archon": f"{_ARCHON}/parallel_dims.py, ArchonParallelDims.seq_len_divisor",
    },
)
def _padded_packed(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """The packed tokens of a micro-batch are padded at the end, then sliced over c and t."""
    return (x.context_length or 0) % (s.t * s.c) != 0


@rule(
    "AC454",
    "",
    "context length <= positions of the model",
    message="a context of {x.context_length} tokens is longer than the {m.max_positions} positions "
    "of the model",
    advice="shorten the context, or set rope scaling: SGLang and vLLM refuse to start unless an "
    "environment variable allows it",
    sources={
        "sglang": "sglang/srt/configs/model_config.py, ModelConfig",
        "vllm": "vllm/config/model.py, _get_and_verify_max_len",
        "fsdp": "transformers, max_position_embeddings",
        "megatron": "transformers, max_position_embeddings",
        "archon": "transformers, max_position_embeddings",
    },
)
def _context_over_positions(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Positions the model never saw; a warning, since rope scaling may extend them."""
    return (x.context_length or 0) > (m.max_positions or MAX_NUMBER)


@rule(
    "AC455",
    "etp",
    "t of ffn is 1 on a dense model",
    message="t{s.etp} of ffn on a dense model says nothing: it has no experts",
    advice="write the plain form",
    sources={
        "megatron": "megatron/core/parallel_state.py, initialize_model_parallel",
        "archon": f"{_ARCHON}/parallel_dims.py, ArchonParallelDims",
    },
)
def _etp_of_dense_model(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Groups for experts are made, and nothing uses them."""
    return m.experts == 0


@rule(
    "AC456",
    "",
    "the model type is one of Archon's",
    message="archon has no model of type {m.model_type}",
    advice="use fsdp or megatron, unless the experiment registers a model of its own with archon",
    sources={"archon": "areal/experimental/engine/archon_engine.py, _validate_model_type"},
)
def _archon_model_type(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Archon stops at a model type nobody registered; a warning, since anybody can register one."""
    known = _ARCHON_MODELS | _ARCHON_UNSPLIT
    return bool(m.model_type) and m.model_type not in known


@rule(
    "AC457",
    "etp",
    "t of ffn divides the experts' intermediate size",
    message="the experts' intermediate size {m.expert_intermediate} is uneven over t{s.etp} of ffn",
    advice="it runs with shards of different sizes; t of ffn may be 1 or t",
    sources={"archon": f"{_ARCHON}/expert_parallel.py, ExpertTensorParallel"},
)
def _expert_matrices_uneven(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Archon shards the experts as DTensors, which may be uneven."""
    return m.expert_intermediate is not None and m.expert_intermediate % s.etp != 0


@rule(
    "AC458",
    "",
    "t, c and e are 1 on Qwen3.5",
    message="archon ignores t, c and e for {m.model_type}: those ranks repeat each other's work",
    advice="spread the GPUs over d",
    sources={"archon": f"{_ARCHON}/qwen3_5/infra/parallelize.py, parallelize_qwen3_5"},
)
def _archon_ignores(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Archon only shards the parameters of Qwen3.5 and logs that it ignores the rest."""
    return m.model_type in _ARCHON_UNSPLIT and s.t * s.c * s.e > 1


@rule(
    "AC411",
    "c",
    "c is 1 on a model with linear attention",
    message="c{s.c} with linear attention (gated delta net)",
    advice="megatron-core 0.17, which AReaL pins, has no context parallelism for these layers",
    sources={"megatron": "megatron/core/ssm/gated_delta_net.py, GatedDeltaNet (0.17)"},
)
def _linear_attention_over_c(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """The layers keep a state along the whole sequence; 0.18 learned to exchange heads for it."""
    return m.linear_key_heads is not None


@rule(
    "AC412",
    "t",
    "t divides the heads of linear attention and state-space layers, and their groups",
    message="{m.recurrent_heads} do not split over t{s.t}",
    advice="t must divide {m.recurrent_heads}",
    sources={
        "megatron": "megatron/core/ssm/mamba_mixer.py, MambaMixer.__init__; gated_delta_net.py",
    },
)
def _recurrent_heads_over_t(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Every rank computes whole heads, and Megatron-LM does not copy groups."""
    return any(number % s.t for number in m.recurrent_sizes)


@rule(
    "AC413",
    "t",
    "t divides the inner size of dense MLPs and shared experts",
    message="{m.mlp_sizes} do not split over t{s.t}",
    advice="t must divide the inner sizes; those of routed experts go by t of ffn",
    sources={
        "megatron": "megatron/core/extensions/transformer_engine.py, "
        "TELayerNormColumnParallelLinear.__init__"
    },
)
def _mlp_over_t(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Column-parallel layers hold whole columns on each rank (``divide``)."""
    return any(matrix.size % matrix.ranks for matrix in server_rules.dense_matrices(s, m))


@rule(
    "AC412",
    "c",
    "c splits or copies the groups of the state space of a tensor rank, and divides its heads",
    message="{m.recurrent_heads} over t{s.t} do not split over c{s.c}",
    advice="t x c must divide the heads, and c the groups of a tensor rank or be a multiple",
    sources={"megatron": "megatron/core/ssm/mamba_context_parallel.py, MambaContextParallel"},
)
def _state_space_over_c(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Heads go over c; groups are split, or copied where c is a multiple of them."""
    if m.mamba_heads and m.mamba_heads % s.t == 0 and m.mamba_heads // s.t % s.c:
        return True
    groups = m.mamba_groups // s.t if m.mamba_groups and m.mamba_groups % s.t == 0 else s.c
    return groups % s.c != 0 and s.c % groups != 0


@rule(
    "AC459",
    "",
    "the model type is one whose class is known",
    message="the model type {m.model_type} is not known: rules of its own are not checked",
    advice="what its config.json says was checked; try the layout on one node first",
    sources=dict.fromkeys(BACKENDS, "transformers, models/*/configuration_*.py"),
)
def _unknown_type(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """A type that neither transformers nor the table of remote code has may have other defaults."""
    return bool(m.model_type) and not is_known_type(m.model_type)


assert server_types.RULES_OF_TYPES
assert server_rules.RULES_OF_SERVERS  # added to the table when they are imported

RULES: tuple[Rule, ...] = tuple(sorted(TABLE, key=lambda rule: rule.code))
"""The rules, errors first. The documentation lists them from here."""

_UNSPLIT = "archon, parameters only"
_RULES_OF = {name: tuple(rule for rule in RULES if name in rule.sources) for name in BACKENDS}
_RULES_OF[_UNSPLIT] = tuple(r for r in _RULES_OF["archon"] if r.dim not in ("t", "c", "e"))
_ERRORS_OF = {
    name: tuple(rule for rule in rules if rule.severity == "error")
    for name, rules in _RULES_OF.items()
}
_TESTS_OF = {
    name: tuple((Sizes._fields.index(rule.dim), rule.breaks) for rule in rules)
    for name, rules in _ERRORS_OF.items()
}


def rules_of(backend: str, facts: ModelFacts) -> tuple[Rule, ...]:
    """The rules that hold for `backend` with this model."""
    return _RULES_OF[_key(backend, facts)]


def errors_of(backend: str, facts: ModelFacts) -> tuple[Rule, ...]:
    """Those of `rules_of` that stop the backend."""
    return _ERRORS_OF[_key(backend, facts)]


def tests_of(backend: str, facts: ModelFacts) -> tuple[tuple[int, Breaks], ...]:
    """`errors_of` as the index of a dimension in `Sizes` and what to ask where it is over 1."""
    return _TESTS_OF[_key(backend, facts)]


def _key(backend: str, facts: ModelFacts) -> str:
    """Whose rules hold: Archon never splits Qwen3.5, so the rules on t, c and e fall away."""
    if backend == "archon" and facts.model_type in _ARCHON_UNSPLIT:
        return _UNSPLIT
    return backend
