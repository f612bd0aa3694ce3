"""Peaks of memory on a CPU: a batch of texts, and training steps. One process for each figure.

    python memory.py [--model MODEL.gguf] [--texts 64] [--prompt 136] [--tokens 8] [--steps 5]
                     [--only batch,mlp,transformer] [--hesper PYTHON] [--mlx PYTHON] [--torch PYTHON] [--llama PYTHON]

Each option of a package names an interpreter that has it; packages without one are left out. `resident` is the highest
resident memory of the process above what it was with all imports done, MB: weights, activations, caches and what the allocator
keeps. `counted` is the highest count of the package's own allocator, where it has one: of Hesper and MLX `get_peak_memory`.
Mapped weights are resident as far as they are read, and not counted.
"""

import argparse
import json
import os
import subprocess
import sys



def resident(key):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024


class Peak:
    """Measures from its construction on."""

    def __init__(self):
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        self.base = resident("VmRSS")

    def report(self, counted=None):
        own = None if counted is None else round(counted / 1e6, 1)
        print(json.dumps({"resident": round((resident("VmHWM") - self.base) / 1e6, 1), "counted": own}))


def prompts(args, vocabulary):
    return [[(at * 104_729 + text * 31 + 5) % vocabulary for at in range(args.prompt)] for text in range(args.texts)]


def batch_hesper(args):
    import hesper.core as mx
    from hesper import lm

    mx.set_default_device(mx.cpu)
    peak = Peak()
    model, tokenizer = lm.load(args.model)
    texts = prompts(args, args.vocabulary)
    lm.batch_generate(model, tokenizer, texts, max_tokens=args.tokens)
    peak.report(mx.get_peak_memory())


def batch_llama(args):
    import numpy as np  # noqa: F401: imported before the measurement
    from llama import Llama

    peak = Peak()
    room = args.texts * (args.prompt + args.tokens)
    llama = Llama(args.model, args.threads, context=room, sequences=args.texts)
    lasts = []
    for text, ids in enumerate(prompts(args, args.vocabulary)):
        llama.run([(token, at, text, at == args.prompt - 1) for at, token in enumerate(ids)])
        lasts.append(llama.best(args.prompt - 1))
    for at in range(args.prompt, args.prompt + args.tokens - 1):
        llama.run([(token, at, text, True) for text, token in enumerate(lasts)])
        lasts = [llama.best(text) for text in range(args.texts)]
    peak.report()


def batch_mlx(args):
    import mlx.core as mx
    import mlx.nn as nn
    from mlx_lm.generate import BatchGenerator
    from mlx_lm.models import llama

    mx.set_default_device(mx.cpu)
    peak = Peak()
    weights, metadata = mx.load(args.model, return_metadata=True)

    def setting(key):
        value = metadata["llama." + key]
        return value.item() if isinstance(value, mx.array) else value

    names = [
        ("blk.", "model.layers."), ("ffn_gate", "mlp.gate_proj"), ("ffn_down", "mlp.down_proj"),
        ("ffn_up", "mlp.up_proj"), ("attn_q", "self_attn.q_proj"), ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"), ("attn_output", "self_attn.o_proj"), ("attn_norm", "input_layernorm"),
        ("ffn_norm", "post_attention_layernorm"), ("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"),
    ]  # fmt: skip
    arguments = llama.ModelArgs(
        model_type="llama",
        hidden_size=int(setting("embedding_length")),
        num_hidden_layers=int(setting("block_count")),
        intermediate_size=int(setting("feed_forward_length")),
        num_attention_heads=int(setting("attention.head_count")),
        num_key_value_heads=int(setting("attention.head_count_kv")),
        rms_norm_eps=float(setting("attention.layer_norm_rms_epsilon")),
        vocab_size=weights["token_embd.weight"].shape[0],
        rope_theta=float(setting("rope.freq_base")),
        rope_traditional=True,
        tie_word_embeddings="output.weight" not in weights,
    )
    model, renamed = llama.Model(arguments), {}
    for name, value in weights.items():
        for old, new in names:
            name = name.replace(old, new)
        if not name.startswith("rope_freqs"):
            renamed[name] = value.astype(mx.float32) if value.dtype == mx.float16 else value
    del weights

    # Matrices of Q4_1 and Q8_0 are loaded as codes of 4 and 8 bits in groups of 32; others are quantized here.
    def bits(name):
        return renamed[name].shape[-1] * 32 // (renamed[name.replace(".weight", ".scales")].shape[-1] * 32)

    for name in [name for name in renamed if name.endswith(".weight") and renamed[name].ndim == 2]:
        if name.replace(".weight", ".scales") not in renamed:
            parts = mx.quantize(renamed[name], group_size=32, bits=4)
            for part, value in zip(["weight", "scales", "biases"], parts):
                renamed[name.replace(".weight", "." + part)] = value

    def predicate(path, module):
        return hasattr(module, "to_quantized") and {"group_size": 32, "bits": bits(path + ".weight")}

    nn.quantize(model, group_size=32, bits=4, class_predicate=predicate)
    model.load_weights(list(renamed.items()))
    del renamed
    mx.eval(model.parameters())
    generator = BatchGenerator(model, max_tokens=args.tokens, completion_batch_size=args.texts)
    generator.insert(prompts(args, args.vocabulary), [args.tokens] * args.texts)
    count = 0
    while events := generator.next_generated():
        count += len(events)
    assert count >= args.texts * args.tokens, count
    peak.report(mx.get_peak_memory())


# Sizes of the training steps: an MLP 784-2048-2048-10 and a transformer of 4 layers.
MLP_SIZES, MLP_BATCH = [784, 2048, 2048, 10], 1024
WIDTH, HEADS, LAYERS, VOCABULARY, TEXTS, LENGTH = 256, 4, 4, 1000, 16, 256


def train_mlx(args, package, what, compiled):
    """A step in plain code of `mlx.nn`, by Hesper or by MLX."""
    import importlib
    from functools import partial

    mx, nn, optim = (importlib.import_module(f"{package}.{name}") for name in ("core", "nn", "optimizers"))
    mx.set_default_device(mx.cpu)

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(*pair) for pair in zip(MLP_SIZES, MLP_SIZES[1:])]

        def __call__(self, x):
            for layer in self.layers[:-1]:
                x = nn.relu(layer(x))
            return self.layers[-1](x)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = [nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)]
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def __call__(self, x):
            parts = mx.split(self.qkv(self.norms[0](x)), 3, axis=-1)
            q, k, v = (part.reshape(TEXTS, LENGTH, HEADS, -1).transpose(0, 2, 1, 3) for part in parts)
            y = mx.fast.scaled_dot_product_attention(q, k, v, scale=(WIDTH // HEADS) ** -0.5, mask="causal")
            x = x + self.out(y.transpose(0, 2, 1, 3).reshape(TEXTS, LENGTH, WIDTH))
            return x + self.down(nn.gelu(self.up(self.norms[1](x))))

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
            self.blocks = [Block() for _ in range(LAYERS)]
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

        def __call__(self, ids):
            x = self.embedding(ids) + self.places(mx.arange(LENGTH))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    peak = Peak()
    mx.random.seed(0)
    model, optimizer = (Mlp if what == "mlp" else Transformer)(), optim.AdamW(learning_rate=1e-3)
    mx.eval(model.parameters())
    optimizer.init(model.trainable_parameters())

    def loss(model, x, y):
        return nn.losses.cross_entropy(model(x), y, reduction="mean")

    def step(x, y):
        value, gradients = nn.value_and_grad(model, loss)(model, x, y)
        optimizer.update(model, gradients)
        return value

    state = [model.state, optimizer.state]
    step = partial(mx.compile, inputs=state, outputs=state)(step) if compiled else step
    for _ in range(args.steps):
        if what == "mlp":
            x, y = mx.random.normal((MLP_BATCH, MLP_SIZES[0])), mx.random.randint(0, MLP_SIZES[-1], (MLP_BATCH,))
        else:
            x, y = (mx.random.randint(0, VOCABULARY, (TEXTS, LENGTH)) for _ in range(2))
        mx.eval(x, y)
        mx.eval(step(x, y), state)
    peak.report(mx.get_peak_memory())


def train_torch(args, what, compiled):
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.set_num_threads(args.threads)

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(*pair) for pair in zip(MLP_SIZES, MLP_SIZES[1:]))

        def forward(self, x):
            for layer in self.layers[:-1]:
                x = F.relu(layer(x))
            return self.layers[-1](x)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            parts = self.qkv(self.norms[0](x)).split(WIDTH, dim=2)
            q, k, v = (part.view(TEXTS, LENGTH, HEADS, -1).transpose(1, 2) for part in parts)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(TEXTS, LENGTH, WIDTH))
            return x + self.down(F.gelu(self.up(self.norms[1](x))))

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

        def forward(self, ids):
            x = self.embedding(ids) + self.places(torch.arange(LENGTH))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    if compiled:
        # The compiler's modules are a part of the program; this loads them.
        torch.compile(lambda x: x + 1)(torch.ones(4))
    peak = Peak()
    model = (Mlp if what == "mlp" else Transformer)()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    forward = torch.compile(model) if compiled else model
    for _ in range(args.steps):
        if what == "mlp":
            x, y = torch.randn(MLP_BATCH, MLP_SIZES[0]), torch.randint(0, MLP_SIZES[-1], (MLP_BATCH,))
        else:
            x, y = (torch.randint(0, VOCABULARY, (TEXTS, LENGTH)) for _ in range(2))
        logits = forward(x)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))
        del logits
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()
    peak.report()


def child(args):
    peer, case = args.child.split(":")
    if case == "batch":
        {"hesper": batch_hesper, "llama": batch_llama, "mlx": batch_mlx}[peer](args)
        return
    what, mode = case.split("-")
    if peer == "torch":
        train_torch(args, what, mode == "compiled")
    else:
        train_mlx(args, peer, what, mode == "compiled")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", help="a GGUF file of a Llama model")
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=136, help="tokens of each prompt")
    parser.add_argument("--tokens", type=int, default=8, help="generated tokens of each text")
    parser.add_argument("--vocabulary", type=int, default=32000, help="prompts have tokens below it")
    parser.add_argument("--steps", type=int, default=5, help="training steps")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="batch,mlp,transformer")
    for peer in ["hesper", "mlx", "torch", "llama"]:
        parser.add_argument(f"--{peer}", metavar="PYTHON")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args)
    chosen, figures = args.only.split(","), []
    if "batch" in chosen and args.model:
        figures += [(peer, "batch") for peer in ["hesper", "llama", "mlx"]]
    for what in ["mlp", "transformer"]:
        modes = ["eager", "compiled"] if what in chosen else []
        figures += [(peer, f"{what}-{mode}") for mode in modes for peer in ["hesper", "mlx", "torch"]]
    threads = {name: str(args.threads) for name in ["HESPER_THREADS", "OMP_NUM_THREADS"]}
    print(f"{'case':22} {'package':8} {'resident, MB':>14} {'counted, MB':>14}")
    for peer, case in figures:
        if not (python := getattr(args, peer)):
            continue
        own = [f"--{name}={getattr(args, name)}" for name in ["texts", "prompt", "tokens", "vocabulary", "steps", "threads"]]
        own += [f"--model={args.model}"] if args.model else []
        command = [python, os.path.abspath(__file__), f"--child={peer}:{case}", *own]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **threads})
        if done.returncode:
            print(f"{case:22} {peer:8} failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}", flush=True)
            continue
        figure = json.loads(done.stdout.splitlines()[-1])
        counted = "" if figure["counted"] is None else figure["counted"]
        print(f"{case:22} {peer:8} {figure['resident']:14} {counted:>14}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
