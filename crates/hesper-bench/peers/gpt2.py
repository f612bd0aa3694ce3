"""A training step of GPT-2 small on an NVIDIA GPU by Hesper and by PyTorch, compiled: one process each, in turn, and their ratio.

    python crates/hesper-bench/peers/gpt2.py --hesper target/release/gpt2     both, --rounds times, then a table
    python crates/hesper-bench/peers/gpt2.py --peer torch [--pure]            PyTorch alone: a line of JSON

Sizes are those of ``hesper-bench --bin gpt2``. PyTorch runs `torch.compile`, flash attention and the fused AdamW; parameters are
float32 under autocast to bfloat16, or bfloat16 with ``--pure``. Each step reads its loss, as the trainer of Hesper does;
``free_ms`` is a step of PyTorch without that.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

DIMS, HEADS, VOCABULARY = 768, 12, 50304


def torch_step(options):
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(DIMS), nn.LayerNorm(DIMS)
            self.c_attn, self.c_proj = nn.Linear(DIMS, 3 * DIMS), nn.Linear(DIMS, DIMS)
            self.c_fc, self.mlp_proj = nn.Linear(DIMS, 4 * DIMS), nn.Linear(4 * DIMS, DIMS)

        def forward(self, x):
            batch, length, _ = x.shape
            parts = self.c_attn(self.ln_1(x)).split(DIMS, dim=2)
            q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in parts)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, DIMS))
            return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(VOCABULARY, DIMS), nn.Embedding(options.length, DIMS)
            self.blocks = nn.ModuleList(Block() for _ in range(options.layers))
            self.ln_f = nn.LayerNorm(DIMS)
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, ids, targets):
            x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
            for block in self.blocks:
                x = block(x)
            logits = F.linear(self.ln_f(x), self.wte.weight)
            return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))

    model = Gpt2().cuda()
    if options.pure:
        model = model.to(torch.bfloat16)
    count = sum(parameter.numel() for parameter in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, fused=True)
    compiled = torch.compile(model)
    shape = (options.batch, options.length)
    ids, targets = (torch.randint(0, VOCABULARY, shape, device="cuda") for _ in range(2))

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=not options.pure):
            loss = compiled(ids, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    times, losses = [], []
    for _ in range(options.steps):
        start = time.perf_counter()
        losses.append(step().item())
        times.append((time.perf_counter() - start) * 1e3)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(options.steps):
        step()
    torch.cuda.synchronize()
    free = (time.perf_counter() - start) * 1e3 / options.steps
    rest = times[options.steps // 4:]
    print(json.dumps(dict(
        peer="torch", version=torch.__version__, precision="pure" if options.pure else "mixed", parameters=count,
        batch=options.batch, length=options.length, layers=options.layers, first_ms=round(times[0], 1),
        median_ms=round(statistics.median(rest), 3), min_ms=round(min(rest), 3), free_ms=round(free, 3),
        first_loss=round(losses[0], 4), loss=round(losses[-1], 4),
        peak_gib=round(torch.cuda.max_memory_allocated() / 2**30, 2))), flush=True)


def both(options):
    sizes = [f"--{name}={getattr(options, name)}" for name in ("batch", "length", "layers", "steps")]
    spaced = [word for size in sizes for word in size.split("=")]
    lines = {}
    for pure in ([], ["--pure"]):
        for _ in range(options.rounds):
            for command in ([options.hesper, *spaced], [sys.executable, __file__, "--peer", "torch", *spaced]):
                line = subprocess.run([*command, *pure], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1]
                print(line, flush=True)
                found = json.loads(line)
                lines.setdefault((found["precision"], found["peer"]), []).append(found)
    print("| precision | Hesper, ms | PyTorch, ms | without reading the loss, ms | ratio |\n|---|---|---|---|---|")
    for precision in ("mixed", "pure"):
        hesper, torch = (lines[precision, peer] for peer in ("hesper", "torch"))
        own, other = (min(line["median_ms"] for line in found) for found in (hesper, torch))
        free = min(line["free_ms"] for line in torch)
        print(f"| {precision} | {own:.2f} | {other:.2f} | {free:.2f} | {other / own:.2f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hesper", help="the gpt2 program of hesper-bench")
    parser.add_argument("--peer", choices=["torch"])
    parser.add_argument("--pure", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    for name, default in dict(batch=8, length=1024, layers=12, steps=30).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    torch_step(given) if given.peer else both(given)
