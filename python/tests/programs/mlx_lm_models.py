"""Builds model files of mlx_lm with small configurations and writes their logits: ``mlx_lm_models.py OUT MODEL...``.

Run by ``test_mlx_lm_models.py``, once with each package, in a process of its own. Weights depend on names only.
"""

import dataclasses
import importlib
import sys
import zlib

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

# Values of the fields that configurations have in common.
SIZES = dict(
    hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
    head_dim=16, vocab_size=100, rms_norm_eps=1e-5, layer_norm_eps=1e-5, layer_norm_epsilon=1e-5, norm_eps=1e-5,
    rope_theta=1e4, max_position_embeddings=256, tie_word_embeddings=False, attention_bias=True, mlp_bias=False,
    partial_rotary_factor=0.5, sliding_window=8, sliding_window_pattern=2, query_pre_attn_scalar=16,
    rope_local_base_freq=1e4, hidden_act="silu", num_experts=4, n_routed_experts=4, num_local_experts=4,
    num_experts_per_tok=2, num_shared_experts=1, n_shared_experts=1, moe_intermediate_size=32,
    shared_expert_intermediate_size=32, first_k_dense_replace=1, n_group=1, topk_group=1,
    routed_scaling_factor=1.5, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], kv_lora_rank=32,
    q_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, full_attention_interval=2,
    linear_conv_kernel_dim=4, linear_key_head_dim=32, linear_num_key_heads=2, linear_num_value_heads=4,
    linear_value_head_dim=16, n_embd=64, n_layer=4, n_head=4, n_positions=256, n_ctx=256, rotary_pct=0.5,
    rotary_emb_base=10000, state_size=32, ssm_state_size=32, conv_kernel=4, use_bias=False, use_conv_bias=True,
    time_step_rank=8, time_step_limit=(0.001, 100.0), n_groups=2, attention_window_size=8, conv1d_width=4,
    logits_soft_cap=30.0, a_low_rank_dim=8, decay_low_rank_dim=8, gate_low_rank_dim=8, v_low_rank_dim=8,
    attention_multiplier=0.25, embedding_multiplier=2.0, logits_scaling=2.0, residual_multiplier=0.5,
    use_qk_norm=True, use_qkv_bias=True, num_layers=4, dim_model_base=32, scale_depth=1.4, scale_emb=2.0,
)  # fmt: skip

LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
LLAMA3["original_max_position_embeddings"] = 64
KINDS = ["full_attention", "sliding_attention"] * 2
MAMBA = dict(
    mamba_d_conv=4, mamba_d_ssm=64, mamba_d_state=16, mamba_d_head=16, mamba_n_heads=4, mamba_n_groups=1, mamba_expand=2,
    mamba_dt_rank=8, mamba_proj_bias=False, mamba_chunk_size=32, mamba_num_heads=4, mamba_head_dim=16, chunk_size=32,
)  # fmt: skip
SPECIAL = {
    "falcon_h1": MAMBA,
    "glm4_moe": dict(rope_scaling=None),
    "gpt2": dict(num_key_value_heads=4),
    "gpt_neox": dict(num_key_value_heads=4),
    "gpt_oss": dict(layer_types=KINDS),
    "jamba": {**MAMBA, "attn_layer_offset": 1, "attn_layer_period": 2, "expert_layer_offset": 1, "expert_layer_period": 2},
    "lfm2": dict(
        conv_bias=False, conv_L_cache=3, block_dim=64, block_ff_dim=128, block_multiple_of=32, full_attn_idxs=[0, 2],
        block_ffn_dim_multiplier=1.0, block_auto_adjust_ff_dim=False,
    ),
    "llama": dict(layer_types=KINDS),
    "mamba2": dict(num_heads=8),
    "nemotron_h": {**MAMBA, "hybrid_override_pattern": ["M", "*", "M", "-"]},
    "olmo3": dict(layer_types=KINDS),
    "phi": dict(num_key_value_heads=4),
    "plamo2": {**MAMBA, "mamba_num_heads": 4},
    "recurrent_gemma": dict(block_types=["recurrent", "recurrent", "attention"], num_key_value_heads=1),
    "rwkv7": dict(head_dim=32),
    "seed_oss": dict(rope_scaling=LLAMA3),
}


def build(name):
    module = importlib.import_module(f"mlx_lm.models.{name}")
    fields = {field.name for field in dataclasses.fields(module.ModelArgs)}
    config = {key: value for key, value in SIZES.items() if key in fields}
    model = module.Model(module.ModelArgs.from_dict({**config, **SPECIAL.get(name, {}), "model_type": name}))
    weights = []
    for key, value in tree_flatten(model.parameters()):
        if mx.issubdtype(value.dtype, mx.floating):
            numbers = np.random.default_rng(zlib.crc32(key.encode())).standard_normal(value.shape)
            numbers = numbers / np.sqrt(value.shape[-1]) if value.ndim > 1 else 0.2 * numbers + ("norm" in key)
            weights.append((key, mx.array(numbers.astype(np.float32)).astype(value.dtype)))
    model.load_weights(weights, strict=False)
    return model.eval()


def decode(model, steps=4):
    """The logits of a prompt of two sequences and of the tokens that follow, greedily."""
    cache = make_prompt_cache(model)
    tokens = mx.array(np.random.default_rng(1).integers(0, 90, (2, 13)).astype(np.int32))
    logits = []
    for _ in range(steps):
        logits.append(model(tokens, cache=cache)[:, -1].astype(mx.float32))
        tokens = mx.argmax(logits[-1], axis=-1, keepdims=True)
        mx.eval(tokens)
    return np.array(mx.stack(logits))


def fits(_, layer):
    """Whether a layer can be quantized: its rows are multiples of a group."""
    return hasattr(layer, "to_quantized") and layer.weight.shape[-1] % 32 == 0


def main(out, names):
    if mx.__name__ == "mlx.core":
        # MLX calls a C++ compiler for each function, which takes longer than all the rest.
        mx.disable_compile()
    results = {}
    for name in names:
        model = build(name)
        results[name] = decode(model)
        nn.quantize(model, 32, 4, class_predicate=fits)
        results[name + " quantized"] = decode(model)
    np.savez(out, **results)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
