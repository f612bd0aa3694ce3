"""The same work on a GPU by Hesper, MLX and (on NVIDIA GPUs) PyTorch: one process each, one after the other, and their ratios.

    python crates/hesper-bench/peers/gpu.py                     every peer that is installed, then a table
    python crates/hesper-bench/peers/gpu.py --only rows,decode  some of the work
    python crates/hesper-bench/peers/gpu.py --peer mlx          one peer: a JSON line for each figure

Times are medians in milliseconds, over repetitions that end with the device idle; each is printed on standard error as it
is measured. ``--sizes other`` uses a second set of sizes.
"""

import argparse
import importlib
import importlib.util
import json
import statistics
import subprocess
import sys
import time

PARTS = ["products", "chain", "rows", "indexing", "functions", "packed", "attention", "small", "kernel", "convolution"]
PARTS += ["linalg", "training", "decode"]
# The largest matrices whose eigenvalues and singular values are computed.
SPECTRAL = 1024
SIZES = {
    "main": dict(square=(1024, 4096, 8192), flat=1 << 28, rows=(16384, 8192), sort=1 << 24, packed=(14336, 4096),
                 tables=(4096, 200_000), points=100_000, width=4096, top=(8192, 8192), fft=(4096, 4096),
                 matrices=((64, 32), (1, 1024), (1, 4096))),
    "other": dict(square=(768, 3000, 6144), flat=150_000_001, rows=(10000, 5000), sort=10_000_000, packed=(11008, 5120),
                  tables=(5000, 150_000), points=70_000, width=2000, top=(3000, 20_000), fft=(10_000, 1024),
                  matrices=((1000, 24), (1, 700), (1, 3000))),
}
# Batches, queries and keys of attention with 32 query heads and 8 key heads of 128.
ATTENTION = ((1, 1, 4096), (1, 1, 32768), (4, 1, 10000), (32, 1, 4096), (2, 2000, 2000), (1, 4096, 4096))


def median(work, wait, budget=0.5, inner=1):
    work(), wait(), work(), wait()
    times, end = [], time.perf_counter() + budget
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 200):
        start = time.perf_counter()
        work(), wait()
        times.append((time.perf_counter() - start) * 1e3 / inner)
    return statistics.median(times)


def emit(name, ms, **more):
    print(json.dumps(dict(work=name, ms=round(ms, 5), **more)), flush=True)


def by_arrays(package, parts, size):
    """Hesper and MLX: the same code."""
    mx = importlib.import_module(f"{package}.core")
    nn, optimizers = importlib.import_module(f"{package}.nn"), importlib.import_module(f"{package}.optimizers")
    half = mx.bfloat16

    def draw(*shape, dtype=half):
        array = mx.random.normal(shape).astype(dtype)
        mx.eval(array)
        return array

    def measure(name, function, many=1, **more):
        emit(name, median(lambda: mx.eval([function() for _ in range(many)]), mx.synchronize, inner=many), **more)

    if "products" in parts:
        for n in size["square"]:
            for dtype in (half, mx.float32):
                a, b = draw(n, n, dtype=dtype), draw(n, n, dtype=dtype)
                measure(f"product {str(dtype).rpartition('.')[2]} {n}", lambda: a @ b, 10)
    if "chain" in parts:
        x = draw(size["flat"])

        def chain(x):
            return mx.tanh(x * 1.5 + 0.5) * mx.sigmoid(x) + x

        start = time.perf_counter()
        mx.eval(chain(x))
        emit("chain, first call", (time.perf_counter() - start) * 1e3)
        measure("chain", lambda: chain(x))
        compiled = mx.compile(chain)
        measure("chain, compiled", lambda: compiled(x))
    if "rows" in parts:
        x, w = draw(*size["rows"]), mx.ones((size["rows"][1],), half)
        for name, function in {
            "sum": lambda: x.sum(),
            "sum of columns": lambda: x.sum(0),
            "sum of rows": lambda: x.sum(1),
            "softmax": lambda: mx.softmax(x, axis=-1),
            "rms_norm": lambda: mx.fast.rms_norm(x, w, 1e-5),
            "layer_norm": lambda: mx.fast.layer_norm(x, w, w, 1e-5),
            "argmax": lambda: mx.argmax(x, axis=-1),
            "cumsum": lambda: mx.cumsum(x, axis=-1),
            "transpose": lambda: mx.contiguous(x.T),
        }.items():
            measure(name, function)
        y = draw(size["sort"], dtype=mx.float32)
        measure("sort", lambda: mx.sort(y))
    if "indexing" in parts:
        for length in size["tables"]:
            table, rows = draw(length, size["width"]), mx.random.randint(0, length, (size["points"],))
            mx.eval(rows)
            measure(f"rows gathered from {length}", lambda: table[rows])
            updates = draw(size["points"], size["width"])
            measure(f"rows added to {length}", lambda: table.at[rows].add(updates))
        x = draw(*size["top"], dtype=mx.float32)
        measure("top 50 of rows", lambda: mx.topk(x, 50, axis=-1))
        measure("indices of the top 50", lambda: mx.argpartition(x, -50, axis=-1)[..., -50:])
    if "functions" in parts:
        x, y = draw(*size["fft"], dtype=mx.float32), draw(4096, 4096)
        key = mx.random.key(1)
        measure("Fourier transform of rows", lambda: mx.fft.fft(x))
        measure("real Fourier transform of rows", lambda: mx.fft.rfft(x))
        measure("Fourier transform of both axes", lambda: mx.fft.fft2(x))
        measure("normal numbers", lambda: mx.random.normal((1 << 26,), key=key))
        measure("gelu(x) * x", lambda: nn.gelu(y) * y)
        measure("gelu(x) * x, 20 at once", lambda: nn.gelu(y) * y, 20)
        measure("x * x, 20 at once", lambda: y * y, 20)
        wide = draw(7000, 12288)
        measure("softmax of 7000 x 12288", lambda: mx.softmax(wide, axis=-1))
    if "packed" in parts:
        rows, columns = size["packed"]
        packed = mx.quantize(draw(rows, columns), group_size=64, bits=4)
        mx.eval(packed)
        for m in (1, 8, 32, 512, 4096):
            x = draw(m, columns)
            options = dict(transpose=True, group_size=64, bits=4)
            measure(f"4-bit product, {m} rows", lambda: mx.quantized_matmul(x, *packed, **options), 20)
    if "attention" in parts:
        for batch, queries, keys in ATTENTION:
            q, k, v = draw(batch, 32, queries, 128), draw(batch, 8, keys, 128), draw(batch, 8, keys, 128)
            options = dict(scale=0.088, mask="causal" if queries > 1 else None)
            attend = mx.fast.scaled_dot_product_attention
            measure(f"attention {batch}x{queries} over {keys}", lambda: attend(q, k, v, **options), 10)
    if "small" in parts:
        x = mx.zeros((16,))
        mx.eval(x)

        def adds():
            y = x
            for _ in range(2000):
                y = y + 1.0
            return y

        emit("an add of 16 numbers", median(lambda: mx.eval(adds()), mx.synchronize, inner=2000))

        def waits():
            for _ in range(200):
                mx.eval(x + 1.0)
                mx.synchronize()

        emit("an add, waited for", median(waits, mx.synchronize, inner=200))
    if "kernel" in parts:
        n, language = 1 << 26, "Metal" if mx.metal.is_available() else "CUDA"
        rank = {"Metal": "thread_position_in_grid.x", "CUDA": "cooperative_groups::this_grid().thread_rank()"}[language]
        text = f"auto i = {rank}; if (i < {n}) out[i] = inp[i] * T(2) + T(1);"
        make = mx.fast.metal_kernel if language == "Metal" else mx.fast.cuda_kernel
        kernel = make(name="affine", input_names=["inp"], output_names=["out"], source=text)
        x = draw(n, dtype=mx.float32)
        call = dict(template=[("T", x.dtype)], grid=(n, 1, 1), threadgroup=(256, 1, 1), output_shapes=[x.shape])
        measure(f"kernel of {language} text", lambda: kernel(inputs=[x], output_dtypes=[x.dtype], **call)[0])
    if "convolution" in parts:
        x, w = draw(32, 56, 56, 256), draw(256, 3, 3, 256)
        measure("convolution 3x3", lambda: mx.conv2d(x, w, padding=1))
    if "linalg" in parts:
        for batch, n in size["matrices"]:
            a, b = draw(batch, n, n, dtype=mx.float32), draw(batch, n, 1, dtype=mx.float32)
            positive = a @ mx.swapaxes(a, -1, -2) / n + mx.eye(n)
            mx.eval(positive)
            try:
                mx.eval(mx.linalg.inv(positive))
                where = {}
            except (RuntimeError, ValueError):
                # Not on the GPU: the host computes them.
                where = dict(stream=mx.cpu)
                if n > SPECTRAL:
                    continue
            work = {
                "cholesky": lambda: mx.linalg.cholesky(positive, **where),
                "solve": lambda: mx.linalg.solve(positive, b, **where),
                "inverse": lambda: mx.linalg.inv(positive, **where),
                "qr": lambda: mx.linalg.qr(a, **where),
            }
            if n <= SPECTRAL:
                work["eigh"] = lambda: mx.linalg.eigh(positive, **where)
                work["svd"] = lambda: mx.linalg.svd(a, **where)
            for name, function in work.items():
                measure(f"{name} {batch}x{n}", function)
    if "training" in parts:
        layers = [nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 1024)]
        model, optimizer = nn.Sequential(*layers), optimizers.AdamW(1e-4)
        model.set_dtype(half)
        x, y = draw(256, 1024), draw(256, 1024)
        mx.eval(model.parameters())
        gradient = nn.value_and_grad(model, lambda x, y: ((model(x) - y) ** 2).mean())
        state = [model.state, optimizer.state]

        def step(x, y):
            loss, gradients = gradient(x, y)
            optimizer.update(model, gradients)
            return loss

        emit("training step", median(lambda: mx.eval(step(x, y), state), mx.synchronize))
        compiled = mx.compile(step, inputs=state, outputs=state)
        emit("training step, compiled", median(lambda: mx.eval(compiled(x, y), state), mx.synchronize))
    if "decode" in parts:
        decode_by_arrays(mx, nn)


def decode_by_arrays(mx, nn):
    """A decoder of Llama's shape with random weights, by mlx_lm's model."""
    from mlx_lm.models import llama
    from mlx_lm.models.cache import make_prompt_cache

    shape = dict(hidden_size=4096, num_hidden_layers=32, intermediate_size=14336, num_attention_heads=32)
    rest = dict(rms_norm_eps=1e-5, vocab_size=128256, num_key_value_heads=8, rope_theta=500000.0)
    arguments = llama.ModelArgs(model_type="llama", tie_word_embeddings=False, **shape, **rest)
    for bits in (16, 4):
        model = llama.Model(arguments)
        model.set_dtype(mx.bfloat16)
        if bits == 4:
            nn.quantize(model, group_size=64, bits=4)
        mx.eval(model.parameters())
        for batch in (1, 16, 64):
            tokens = mx.random.randint(0, 32000, (batch, 512))
            for _ in range(2):
                cache = make_prompt_cache(model)
                start = time.perf_counter()
                last = mx.argmax(model(tokens, cache=cache)[:, -1], axis=-1)
                mx.eval(last)
                prompt = time.perf_counter() - start
            emit(f"decoder {bits}-bit, prompt of 512 x {batch}", prompt * 1e3)

            def follow(token):
                return mx.argmax(model(token[:, None], cache=cache)[:, -1], axis=-1)

            for _ in range(4):
                last = follow(last)
                mx.eval(last)
            steps, start = 48, time.perf_counter()
            last = follow(last)
            mx.async_eval(last)
            for _ in range(steps):
                ahead = follow(last)
                mx.async_eval(ahead)
                mx.eval(last)
                last = ahead
            mx.eval(last)
            emit(f"decoder {bits}-bit, step of {batch}", (time.perf_counter() - start) * 1e3 / (steps + 1))
        del model


def by_torch(parts, size):
    import torch
    import torch.nn.functional as F

    if not torch.cuda.is_available():
        sys.exit("PyTorch is measured on NVIDIA GPUs alone")
    half, wait = torch.bfloat16, torch.cuda.synchronize
    torch.set_default_device("cuda")

    def draw(*shape, dtype=half):
        return torch.randn(*shape).to(dtype)

    def measure(name, function, many=1):
        def work():
            for _ in range(many):
                function()

        with torch.no_grad():
            emit(name, median(work, wait, inner=many))

    if "products" in parts:
        for n in size["square"]:
            for dtype in (half, torch.float32):
                a, b = draw(n, n, dtype=dtype), draw(n, n, dtype=dtype)
                measure(f"product {str(dtype).rpartition('.')[2]} {n}", lambda: a @ b, 10)
    if "chain" in parts:
        x = draw(size["flat"])

        def chain(x):
            return torch.tanh(x * 1.5 + 0.5) * torch.sigmoid(x) + x

        measure("chain", lambda: chain(x))
        compiled = torch.compile(chain)
        measure("chain, compiled", lambda: compiled(x))
    if "rows" in parts:
        x, w = draw(*size["rows"]), torch.ones(size["rows"][1], dtype=half)
        width = (size["rows"][1],)
        for name, function in {
            "sum": lambda: x.sum(),
            "sum of columns": lambda: x.sum(0),
            "sum of rows": lambda: x.sum(1),
            "softmax": lambda: torch.softmax(x, -1),
            "rms_norm": lambda: F.rms_norm(x, width, w, 1e-5),
            "layer_norm": lambda: F.layer_norm(x, width, w, w, 1e-5),
            "argmax": lambda: x.argmax(-1),
            "cumsum": lambda: x.cumsum(-1),
            "transpose": lambda: x.T.contiguous(),
        }.items():
            measure(name, function)
        y = draw(size["sort"], dtype=torch.float32)
        measure("sort", lambda: y.sort())
    if "indexing" in parts:
        for length in size["tables"]:
            table, rows = draw(length, size["width"]), torch.randint(0, length, (size["points"],))
            measure(f"rows gathered from {length}", lambda: table[rows])
            updates = draw(size["points"], size["width"])
            measure(f"rows added to {length}", lambda: table.index_add(0, rows, updates))
        x = draw(*size["top"], dtype=torch.float32)
        measure("top 50 of rows", lambda: x.topk(50, -1))
        measure("indices of the top 50", lambda: x.topk(50, -1))
    if "functions" in parts:
        x, y = draw(*size["fft"], dtype=torch.float32), draw(4096, 4096)
        measure("Fourier transform of rows", lambda: torch.fft.fft(x))
        measure("real Fourier transform of rows", lambda: torch.fft.rfft(x))
        measure("Fourier transform of both axes", lambda: torch.fft.fft2(x))
        measure("normal numbers", lambda: torch.randn(1 << 26))
        measure("gelu(x) * x", lambda: F.gelu(y) * y)
        measure("gelu(x) * x, 20 at once", lambda: F.gelu(y) * y, 20)
        measure("x * x, 20 at once", lambda: y * y, 20)
        wide = draw(7000, 12288)
        measure("softmax of 7000 x 12288", lambda: torch.softmax(wide, -1))
    if "attention" in parts:
        for batch, queries, keys in ATTENTION:
            q, k, v = draw(batch, 32, queries, 128), draw(batch, 8, keys, 128), draw(batch, 8, keys, 128)
            attend, options = F.scaled_dot_product_attention, dict(is_causal=queries > 1, enable_gqa=True)
            measure(f"attention {batch}x{queries} over {keys}", lambda: attend(q, k, v, **options), 10)
    if "small" in parts:
        x = torch.zeros(16)

        def adds():
            y = x
            for _ in range(2000):
                y = y + 1.0

        emit("an add of 16 numbers", median(adds, wait, inner=2000))

        def waits():
            for _ in range(200):
                x + 1.0
                wait()

        emit("an add, waited for", median(waits, wait, inner=200))
    if "convolution" in parts:
        last = dict(memory_format=torch.channels_last)
        x, w = draw(32, 256, 56, 56).to(**last), draw(256, 256, 3, 3).to(**last)
        measure("convolution 3x3", lambda: F.conv2d(x, w, padding=1))
    if "linalg" in parts:
        for batch, n in size["matrices"]:
            a, b = draw(batch, n, n, dtype=torch.float32), draw(batch, n, 1, dtype=torch.float32)
            positive = a @ a.mT / n + torch.eye(n)
            work = {
                "cholesky": lambda: torch.linalg.cholesky(positive),
                "solve": lambda: torch.linalg.solve(positive, b),
                "inverse": lambda: torch.linalg.inv(positive),
                "qr": lambda: torch.linalg.qr(a),
            }
            if n <= SPECTRAL:
                work["eigh"] = lambda: torch.linalg.eigh(positive)
                work["svd"] = lambda: torch.linalg.svd(a)
            for name, function in work.items():
                measure(f"{name} {batch}x{n}", function)
    if "training" in parts:
        L, G = torch.nn.Linear, torch.nn.GELU
        model = torch.nn.Sequential(L(1024, 4096), G(), L(4096, 4096), G(), L(4096, 1024)).to(half)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
        x, y = draw(256, 1024), draw(256, 1024)

        def step(model):
            loss = ((model(x) - y) ** 2).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()

        emit("training step", median(lambda: step(model), wait))
        compiled = torch.compile(model, mode="reduce-overhead")
        emit("training step, compiled", median(lambda: step(compiled), wait))


def table(figures):
    """A line for each workload: the times of all peers, and the best time of the others over Hesper's."""
    peers = list(figures)
    names = list(dict.fromkeys(name for found in figures.values() for name in found))
    print(f"{'ms':36}" + "".join(f"{peer:>12}" for peer in peers) + f"{'best/ours':>12}")
    for name in names:
        times = [figures[peer].get(name) for peer in peers]
        others = [time for peer, time in zip(peers, times) if peer != "hesper" and time is not None]
        ours = figures.get("hesper", {}).get(name)
        ratio = f"{min(others) / ours:12.2f}" if ours and others else " " * 12
        print(f"{name:36}" + "".join(" " * 12 if time is None else f"{time:12.4f}" for time in times) + ratio)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=["hesper", "mlx", "torch"])
    parser.add_argument("--only", default=",".join(PARTS), help="some of " + ",".join(PARTS))
    parser.add_argument("--sizes", choices=list(SIZES), default="main")
    chosen = parser.parse_args()
    parts, size = chosen.only.split(","), SIZES[chosen.sizes]
    if chosen.peer == "torch":
        return by_torch(parts, size)
    if chosen.peer == "hesper":
        importlib.import_module("hesper.mlx").install()
    if chosen.peer:
        return by_arrays("mlx", parts, size)
    figures = {}
    for peer in ("hesper", "mlx", "torch"):
        if importlib.util.find_spec(peer) is None:
            print(f"{peer} is not installed")
            continue
        command = [sys.executable, __file__, "--peer", peer, "--only", chosen.only, "--sizes", chosen.sizes]
        found = figures.setdefault(peer, {})
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            for line in child.stdout:
                if line.startswith("{"):
                    figure = json.loads(line)
                    found[figure["work"]] = figure["ms"]
                    print(f"{peer:8} {figure['work']:36} {figure['ms']:12.4f}", file=sys.stderr, flush=True)
        if child.returncode:
            print(f"{peer} exited with status {child.returncode} after {len(found)} figures")
    table(figures)


if __name__ == "__main__":
    main()
