"""Writes a Llama of a GGUF file (Q4_0, Q4_1 or Q8_0) as a folder in MLX's layout, with the same numbers.

    python mlx_folder.py SmolLM2-135M-Instruct.Q4_1.gguf FOLDER

`mlx_lm` does not read GGUF files. Needs `mlx` and `tokenizers`.
"""

import json
import os
import sys

import mlx.core as mx
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
CONTROL = 3


def renamed(name):
    *path, leaf = name.split(".")
    if path[0] == "blk":
        return f"model.layers.{path[1]}.{LAYER[path[2]]}.{leaf}"
    return f"{WHOLE[path[0]]}.{leaf}"


def halves_together(rows, heads):
    """GGUF files hold rotated pairs of rows next to each other, MLX the halves of a head."""
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def tokenizer(metadata):
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    result = Tokenizer(models.BPE({token: at for at, token in enumerate(tokens)}, merges))
    digits = pre_tokenizers.Split(Regex(r"\p{N}"), "isolated")
    result.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    result.decoder = decoders.ByteLevel()
    kinds = metadata["tokenizer.ggml.token_type"].tolist()
    result.add_special_tokens([AddedToken(token, special=True) for token, kind in zip(tokens, kinds) if kind == CONTROL])
    return result


def bits(tensors, name):
    """The bits of a code: a word has 32, a scale is for 32 codes."""
    scales = tensors.get(f"{name}.scales")
    return None if scales is None else tensors[f"{name}.weight"].shape[1] // scales.shape[1]


def main(file, folder):
    weights, metadata = mx.load(file, return_metadata=True)

    def number(name):
        return metadata[f"llama.{name}"].item()

    heads = {"attn_q": number("attention.head_count"), "attn_k": number("attention.head_count_kv")}
    tensors = {}
    for name, value in weights.items():
        count = heads.get(name.split(".")[-2])
        tensors[renamed(name)] = halves_together(value, count) if count else value
    end = metadata["tokenizer.ggml.tokens"][metadata["tokenizer.ggml.eos_token_id"].item()]
    quantization = {"group_size": 32, "bits": bits(tensors, "model.layers.0.self_attn.q_proj")}
    for name in ["model.embed_tokens", "lm_head"]:
        own = bits(tensors, name)
        quantization[name] = own is not None and {"group_size": 32, "bits": own}
    config = {
        "model_type": "llama",
        "hidden_size": number("embedding_length"),
        "num_hidden_layers": number("block_count"),
        "intermediate_size": number("feed_forward_length"),
        "num_attention_heads": heads["attn_q"],
        "num_key_value_heads": heads["attn_k"],
        "rms_norm_eps": number("attention.layer_norm_rms_epsilon"),
        "vocab_size": number("vocab_size"),
        "max_position_embeddings": number("context_length"),
        "rope_theta": number("rope.freq_base"),
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"].item(),
        "quantization": quantization,
    }
    os.makedirs(folder, exist_ok=True)
    mx.save_safetensors(f"{folder}/model.safetensors", tensors, {"format": "mlx"})
    tokenizer(metadata).save(f"{folder}/tokenizer.json")
    own = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end}
    own["chat_template"] = metadata["tokenizer.chat_template"]
    for name, value in [("config.json", config), ("tokenizer_config.json", own)]:
        with open(f"{folder}/{name}", "w") as out:
            json.dump(value, out, indent=1)


main(*sys.argv[1:])
