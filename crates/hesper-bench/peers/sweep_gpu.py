"""Every op at five sizes, in two types, contiguous and transposed, beside PyTorch (and NumPy on the CPU), in one process.

    python crates/hesper-bench/peers/sweep_gpu.py                          on the GPU
    python crates/hesper-bench/peers/sweep_gpu.py --device cpu             on the CPU, beside NumPy too
    python crates/hesper-bench/peers/sweep_gpu.py --only sum,sort --sizes 10,21
    python crates/hesper-bench/peers/sweep_gpu.py --out sweep.jsonl --png docs/sweep-gpu.png
    python crates/hesper-bench/peers/sweep_gpu.py --report sweep.jsonl     the report on cases that were measured before

`--serve` measures the peers alone, for the program `sweep` of hesper-bench: a request is a line of name, type, size, layout and
seconds, separated by tabs; the reply has the name and the microseconds of each peer.

A case is measured in rounds that alternate between the libraries; its time is the best round. A round launches several
calls and ends with the device idle. The ratio is the best peer's time over Hesper's: above one Hesper is ahead. The
report has the geometric mean for each size and the fifty worst cases that take longer than ten microseconds. Cases
that the time limit leaves out are counted.
"""

import argparse
import json
import math
import sys
import time

SIZES = [0, 10, 16, 21, 27]
DTYPES = ["float32", "bfloat16"]
LAYOUTS = ["contiguous", "transposed"]


def same(name):
    """An op with the same name in all libraries."""
    return name, name, name


# Names of element-wise ops: Hesper, PyTorch, NumPy. None: the library has no such op.
UNARY = [
    same("abs"), same("arccos"), same("arccosh"), same("arcsin"), same("arcsinh"), same("arctan"), same("arctanh"),
    same("ceil"), same("cos"), same("cosh"), ("erf", "erf", None), ("erfinv", "erfinv", None), same("exp"), same("expm1"),
    same("floor"), same("isfinite"), same("isinf"), same("isnan"), same("log"), same("log10"), same("log1p"),
    same("log2"), same("logical_not"), same("negative"), same("reciprocal"), same("round"), ("rsqrt", "rsqrt", None),
    ("sigmoid", "sigmoid", None), same("sign"), same("sin"), same("sinh"), same("sqrt"), same("square"), same("tan"),
    same("tanh"),
]
BINARY = [
    same("add"), same("subtract"), same("multiply"), same("divide"), ("power", "pow", "power"), same("maximum"),
    same("minimum"), same("floor_divide"), same("remainder"), same("arctan2"), same("logaddexp"),
    ("equal", "eq", "equal"), ("not_equal", "ne", "not_equal"), ("less", "lt", "less"), ("greater", "gt", "greater"),
    ("less_equal", "le", "less_equal"), ("greater_equal", "ge", "greater_equal"), same("logical_and"), same("logical_or"),
]
# Reductions, over everything, rows and columns.
REDUCTIONS = [
    same("sum"), same("mean"), same("prod"), ("max", "amax", "max"), ("min", "amin", "min"), same("var"), same("std"),
    same("argmax"), same("argmin"), same("all"), same("any"), ("logsumexp", "logsumexp", None),
]


def cases():
    """Name, the three functions of (library, inputs), and the largest size as an exponent of two."""
    def call(name, *order, **options):
        return lambda m, a: getattr(m, name)(*(a[key] for key in order), **options)

    for names in UNARY:
        yield names[0], *(name and call(name, "x") for name in names), 27
    for names in BINARY:
        yield names[0], *(name and call(name, "x", "y") for name in names), 27
    for ours, torch_name, numpy_name in REDUCTIONS:
        for where, axis in [("rows", -1), ("columns", 0), ("all", None)]:
            if ours in ("prod", "all", "any", "argmax", "argmin", "logsumexp") and where == "all":
                continue
            yield (
                f"{ours} {where}",
                lambda m, a, f=ours, axis=axis: getattr(m, f)(a["x"], axis=axis),
                lambda m, a, f=torch_name, axis=axis: getattr(m, f)(a["x"], **({} if axis is None else {"dim": axis})),
                numpy_name and (lambda m, a, f=numpy_name, axis=axis: getattr(m, f)(a["x"], axis=axis)),
                27,
            )
    for name, peer in [("cumsum", "cumsum"), ("cumprod", "cumprod")]:
        for where, axis in [("rows", -1), ("columns", 0)]:
            yield (
                f"{name} {where}",
                lambda m, a, f=name, axis=axis: getattr(m, f)(a["x"], axis=axis),
                lambda m, a, f=peer, axis=axis: getattr(m, f)(a["x"], dim=axis),
                lambda m, a, f=peer, axis=axis: getattr(m, f)(a["x"], axis=axis),
                27,
            )
    yield "softmax", *[lambda m, a: m.softmax(a["x"], -1)] * 2, None, 27
    yield "sort", lambda m, a: m.sort(a["x"], -1), lambda m, a: m.sort(a["x"], -1)[0], lambda m, a: m.sort(a["x"], -1), 24
    yield "argsort", *[lambda m, a: m.argsort(a["x"], -1)] * 3, 24
    yield "topk", lambda m, a: m.topk(a["x"], min(8, a["n"])), lambda m, a: m.topk(a["x"], min(8, a["n"]))[0], None, 24
    yield "matmul", *[lambda m, a: m.matmul(a["x"], a["back"])] * 3, 22
    yield "matrix times vector", *[lambda m, a: m.matmul(a["x"], a["row"])] * 3, 27
    yield "where", *[lambda m, a: m.where(a["mask"], a["x"], a["y"])] * 3, 27
    yield "clip", lambda m, a: m.clip(a["x"], 0.2, 0.7), lambda m, a: m.clamp(a["x"], 0.2, 0.7), lambda m, a: m.clip(
        a["x"], 0.2, 0.7
    ), 27
    yield "copy", lambda m, a: m.contiguous(a["x"] + 0), lambda m, a: (a["x"] + 0).contiguous(), lambda m, a: m.ascontiguousarray(
        a["x"] + 0
    ), 27
    yield "transpose copy", lambda m, a: m.contiguous(a["x"].T), lambda m, a: a["x"].T.clone(
        memory_format=a["contiguous"]
    ), lambda m, a: a["x"].T.copy(), 27
    yield "cast", lambda m, a: a["x"].astype(m.float16), lambda m, a: a["x"].to(m.float16), lambda m, a: a["x"].astype(
        m.float16
    ), 27
    yield "concatenate", lambda m, a: m.concatenate([a["x"], a["y"]], 1), lambda m, a: m.cat(
        [a["x"], a["y"]], 1
    ), lambda m, a: m.concatenate([a["x"], a["y"]], 1), 26
    yield "stack", *[lambda m, a: m.stack([a["x"], a["y"]])] * 3, 26
    yield "take rows", lambda m, a: m.take(a["x"], a["rows"], axis=0), lambda m, a: a["x"][a["rows"]], lambda m, a: m.take(
        a["x"], a["rows"], axis=0
    ), 27
    yield "add at rows", lambda m, a: a["x"].at[a["rows"]].add(a["y"]), lambda m, a: a["x"].index_add(
        0, a["rows"], a["y"]
    ), None, 24
    yield "roll", lambda m, a: m.roll(a["x"], 3, 1), lambda m, a: m.roll(a["x"], 3, 1), lambda m, a: m.roll(a["x"], 3, 1), 27
    yield "repeat", lambda m, a: m.repeat(a["x"], 2, 1), lambda m, a: m.repeat_interleave(
        a["x"], 2, 1
    ), lambda m, a: m.repeat(a["x"], 2, 1), 26
    yield "tile", *[lambda m, a: m.tile(a["x"], (2, 1))] * 3, 26
    yield "broadcast add", *[lambda m, a: a["x"] + a["row"]] * 3, 27
    yield "gelu chain", lambda m, a: 0.5 * a["x"] * (1 + m.tanh(0.8 * (a["x"] + 0.04 * a["x"] ** 3))), lambda m, a: (
        0.5 * a["x"] * (1 + m.tanh(0.8 * (a["x"] + 0.04 * a["x"] ** 3)))
    ), lambda m, a: 0.5 * a["x"] * (1 + m.tanh(0.8 * (a["x"] + 0.04 * a["x"] ** 3))), 27
    yield "rms_norm", lambda m, a: m.fast.rms_norm(a["x"], a["row"], 1e-5), lambda m, a: m.nn.functional.rms_norm(
        a["x"], (a["n"],), a["row"], 1e-5
    ), None, 27
    yield "layer_norm", lambda m, a: m.fast.layer_norm(a["x"], a["row"], a["row"], 1e-5), lambda m, a: (
        m.nn.functional.layer_norm(a["x"], (a["n"],), a["row"], a["row"], 1e-5)
    ), None, 27
    yield "random uniform", lambda m, a: m.random.uniform(shape=a["shape"]), lambda m, a: m.rand(
        a["shape"], device=a["x"].device
    ), lambda m, a: a["draw"].random(a["shape"], dtype=m.float32), 27
    yield "random normal", lambda m, a: m.random.normal(shape=a["shape"]), lambda m, a: m.randn(
        a["shape"], device=a["x"].device
    ), lambda m, a: a["draw"].standard_normal(a["shape"], dtype=m.float32), 27
    yield "fft", *[lambda m, a: m.fft.fft(a["x"])] * 3, 24


class Hesper:
    name = "hesper"

    def __init__(self, device):
        import hesper.core as mx

        self.m = mx
        mx.set_default_device(mx.gpu if device == "gpu" else mx.cpu)
        self.wait = mx.synchronize

    def inputs(self, log2, dtype, layout):
        mx, kind = self.m, getattr(self.m, dtype)
        rows, cols = 1 << log2 // 2, 1 << log2 - log2 // 2
        stored = (cols, rows) if layout == "transposed" else (rows, cols)
        def draw(shape):
            return mx.random.uniform(0.1, 0.9, shape).astype(kind)

        a = {"x": draw(stored), "y": draw(stored), "row": draw((cols,)), "back": draw((cols, rows))}
        a |= {"rows": mx.random.randint(0, rows, (rows,)), "mask": draw(stored) > 0.5}
        mx.eval(list(a.values()))
        if layout == "transposed":
            a |= {key: a[key].T for key in ("x", "y", "mask")}
        return a | {"n": cols, "shape": (rows, cols)}

    def run(self, function, a, calls):
        for _ in range(calls):
            self.m.async_eval(function(self.m, a))
        self.wait()


class Torch:
    name = "torch"

    def __init__(self, device):
        import torch

        self.m, self.device = torch, "cuda" if device == "gpu" else "cpu"
        self.wait = torch.cuda.synchronize if device == "gpu" else lambda: None

    def inputs(self, log2, dtype, layout):
        torch, kind = self.m, getattr(self.m, dtype)
        rows, cols = 1 << log2 // 2, 1 << log2 - log2 // 2
        stored = (cols, rows) if layout == "transposed" else (rows, cols)
        def draw(shape):
            return (torch.rand(shape, device=self.device) * 0.8 + 0.1).to(kind)

        a = {"x": draw(stored), "y": draw(stored), "row": draw((cols,)), "back": draw((cols, rows))}
        a |= {"rows": torch.randint(0, rows, (rows,), device=self.device), "mask": draw(stored) > 0.5}
        if layout == "transposed":
            a |= {key: a[key].T for key in ("x", "y", "mask")}
        return a | {"n": cols, "shape": (rows, cols), "contiguous": torch.contiguous_format}

    def run(self, function, a, calls):
        for _ in range(calls):
            function(self.m, a)
        self.wait()


class Numpy:
    name = "numpy"

    def __init__(self, _):
        import numpy

        self.m = numpy

    def inputs(self, log2, dtype, layout):
        if dtype == "bfloat16":
            return None
        np = self.m
        rows, cols = 1 << log2 // 2, 1 << log2 - log2 // 2
        stored = (cols, rows) if layout == "transposed" else (rows, cols)
        rng = np.random.default_rng(1)
        def draw(shape):
            return rng.random(shape, dtype=np.float32) * np.float32(0.8) + np.float32(0.1)

        a = {"x": draw(stored), "y": draw(stored), "row": draw((cols,)), "back": draw((cols, rows))}
        a |= {"rows": rng.integers(0, rows, rows), "mask": draw(stored) > 0.5}
        if layout == "transposed":
            a |= {key: a[key].T for key in ("x", "y", "mask")}
        return a | {"n": cols, "shape": (rows, cols), "draw": rng}

    def run(self, function, a, calls):
        for _ in range(calls):
            function(self.m, a)


def timed(library, function, a, calls):
    begin = time.perf_counter()
    library.run(function, a, calls)
    return (time.perf_counter() - begin) / calls


def measure(libraries, functions, inputs, budget):
    """The best time of each library in seconds, or why there is none. The rounds of the libraries alternate."""
    best, calls = {}, {}
    for library in libraries:
        function, a = functions[library.name], inputs[library.name]
        if function is None or a is None:
            continue
        try:
            first = timed(library, function, a, 1)
            found = [time for time in best.values() if isinstance(time, float)]
            if found and first > max(budget, 4 * min(found)):
                best[library.name] = first  # Far behind: more calls would only take time.
                continue
            first = min(first, timed(library, function, a, 1))
            best[library.name] = first
            if first <= budget:
                calls[library.name] = max(1, min(50, int(budget / 8 / max(first, 1e-7))))
        except Exception as error:  # An op that a library lacks, or lacks for this type.
            best[library.name] = f"{type(error).__name__}: {str(error)[:120]}"
    timable = [library for library in libraries if library.name in calls]
    end = time.perf_counter() + budget * len(timable)
    for _ in range(40):
        for library in timable:
            name = library.name
            best[name] = min(best[name], timed(library, functions[name], inputs[name], calls[name]))
        if time.perf_counter() > end:
            break
    return best


def warm_up(libraries, table, log2, inputs):
    """Calls every function three times, so that kernels compiled in the background are ready for the measurement."""
    for _, ours, torch_function, numpy_function, largest in table:
        functions = {"hesper": ours, "torch": torch_function, "numpy": numpy_function}
        for library in libraries if log2 <= largest else []:
            function, a = functions[library.name], inputs[library.name]
            if function is None or a is None:
                continue
            try:
                library.run(function, a, 3)
            except Exception:  # Reported when it is measured.
                pass
    time.sleep(1)


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else float("nan")


def report(lines, left_out):
    rated = [line for line in lines if line["ratio"]]
    whole = mean([line["ratio"] for line in rated])
    print(f"{len(rated)} cases with a peer, geometric mean {whole:.2f}; {left_out} left out")
    for log2 in sorted({line["log2"] for line in rated}):
        some = [line["ratio"] for line in rated if line["log2"] == log2]
        print(f"  2^{log2:<3} {mean(some):6.2f}  ahead in {sum(r >= 1 for r in some)} of {len(some)}")
    for line in [line for line in lines if line["failed"]]:
        print("  failed:", line["op"], line["dtype"], f"2^{line['log2']}", line["layout"], line["failed"])
    print("worst, of those above 10 us:")
    slow = [line for line in rated if line["us"]["hesper"] > 10]
    for line in sorted(slow, key=lambda line: line["ratio"])[:50]:
        times = "  ".join(f"{name} {us:.1f}" for name, us in line["us"].items())
        case = f"{line['op']:20} {line['dtype']:9} 2^{line['log2']:<3} {line['layout']:11}"
        print(f"  {line['ratio']:5.2f}  {case} us: {times}")


def heat_map(lines, path, title):
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        return print("no heat map: matplotlib is not installed", file=sys.stderr)
    ops = list(dict.fromkeys(line["op"] for line in lines))
    columns = list(dict.fromkeys((line["dtype"], line["layout"], line["log2"]) for line in lines))
    columns.sort(key=lambda c: (c[0], c[1], c[2]), reverse=False)
    grid = [[float("nan")] * len(columns) for _ in ops]
    for line in lines:
        if line["ratio"]:
            at = columns.index((line["dtype"], line["layout"], line["log2"]))
            grid[ops.index(line["op"])][at] = math.log2(line["ratio"])
    figure, axes = plt.subplots(figsize=(3 + 0.45 * len(columns), 1.5 + 0.16 * len(ops)))
    image = axes.imshow(grid, cmap="RdYlGn", vmin=-2, vmax=2, aspect="auto")
    axes.set_yticks(range(len(ops)), ops, fontsize=6)
    axes.set_xticks(range(len(columns)), [f"{d[:5]} {l[:5]} 2^{s}" for d, l, s in columns], fontsize=6, rotation=90)
    axes.set_title(title, fontsize=8)
    figure.colorbar(image, label="log2 of best peer / Hesper")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def serve(libraries):
    """Replies to requests until the input ends."""
    table = {op: {"torch": torch_function, "numpy": numpy_function} for op, _, torch_function, numpy_function, _ in cases()}
    print(" ".join(library.name for library in libraries), flush=True)
    drawn = None
    for request in sys.stdin:
        op, dtype, log2, layout, budget = request.rstrip("\n").split("\t")
        if drawn != (dtype, log2, layout):
            inputs = {library.name: library.inputs(int(log2), dtype, layout) for library in libraries}
            drawn = (dtype, log2, layout)
        best = measure(libraries, table[op], inputs, float(budget))
        print(" ".join(f"{name} {time * 1e6}" for name, time in best.items() if isinstance(time, float)), flush=True)


def installed(*kinds):
    """The libraries that can be imported."""
    found = []
    for kind, device in kinds:
        try:
            found.append(kind(device))
        except ImportError:
            pass
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--only", help="names of ops, or beginnings of them, separated by commas")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="exponents of two")
    parser.add_argument("--seconds", type=float, default=420, help="time limit")
    parser.add_argument("--budget", type=float, default=0.02, help="seconds for a case and a library")
    parser.add_argument("--out", help="a file for the cases, one JSON object a line")
    parser.add_argument("--png", help="a file for the heat map")
    parser.add_argument("--report", help="a file of cases to report on")
    parser.add_argument("--left-out", type=int, default=0, help="cases that are not in that file")
    parser.add_argument("--serve", action="store_true", help="measure the peers on request")
    options = parser.parse_args()
    title = f"every op beside its best peer, {options.device}"
    if options.serve:
        return serve(installed((Torch, options.device), (Numpy, None)))
    if options.report:
        with open(options.report) as file:
            lines = [json.loads(line) for line in file]
        report(lines, options.left_out)
        return heat_map(lines, options.png, title) if options.png else None
    libraries = [Hesper(options.device), Torch(options.device)] + ([Numpy(None)] if options.device == "cpu" else [])
    wanted = options.only and options.only.split(",")
    table = [case for case in cases() if not wanted or any(case[0].startswith(name) for name in wanted)]
    sizes = [int(size) for size in options.sizes.split(",")]
    end = time.perf_counter() + options.seconds
    lines, left_out = [], 0
    out = open(options.out, "w") if options.out else None
    for log2 in sizes:
        for dtype in DTYPES:
            for layout in LAYOUTS if log2 else LAYOUTS[:1]:
                if time.perf_counter() > end:
                    left_out += len(table)
                    continue
                inputs = {library.name: library.inputs(log2, dtype, layout) for library in libraries}
                warm_up(libraries, table, log2, inputs)
                for op, ours, torch_function, numpy_function, largest in table:
                    if log2 > largest:
                        continue
                    if time.perf_counter() > end:
                        left_out += 1
                        continue
                    functions = {"hesper": ours, "torch": torch_function, "numpy": numpy_function}
                    best = measure(libraries, functions, inputs, options.budget)
                    us = {name: time * 1e6 for name, time in best.items() if isinstance(time, float)}
                    peers = [time for name, time in us.items() if name != "hesper"]
                    ratio = min(peers) / us["hesper"] if peers and "hesper" in us else None
                    failed = best["hesper"] if isinstance(best.get("hesper"), str) else None
                    line = dict(op=op, dtype=dtype, log2=log2, layout=layout, us=us, ratio=ratio, failed=failed)
                    lines.append(line)
                    if out:
                        print(json.dumps(line), file=out, flush=True)
                print(f"2^{log2} {dtype} {layout}: {end - time.perf_counter():.0f} s left", file=sys.stderr, flush=True)
    report(lines, left_out)
    if options.png:
        heat_map(lines, options.png, title)


if __name__ == "__main__":
    main()
