"""The overhead of one call on tiny arrays, of Hesper and of MLX in one process.

``python python/bench/overhead.py`` prints microseconds for each kind of call and the ratio, each the best of many short
rounds: other processes may share the machine.
"""

import time

import hesper.core as hesper

try:
    import mlx.core as mlx
except ImportError:
    mlx = None

ROUNDS, CALLS = 40, 400


def cases(core):
    """The kinds of calls, as functions without arguments."""
    x, y = core.array([1.0, 2.0, 3.0, 4.0]), core.array([4.0, 3.0, 2.0, 1.0])
    core.eval(x, y)
    numbers = [1.0, 2.0, 3.0, 4.0]

    def build():
        return x + y

    def build_with_number():
        return x * 2.0

    def build_function():
        return core.exp(x)

    def build_method():
        return x.sum(0)

    def build_index():
        return x[1:3]

    def build_chain():
        return core.tanh((x + y) * 2.0 - x)

    def make():
        return core.array(numbers)

    def evaluate():
        z = x + y
        core.eval(z)

    def evaluate_chain():
        z = core.tanh((x + y) * 2.0 - x)
        core.eval(z)

    def number():
        return (x[0] + 1.0).item()

    return [
        build,
        build_with_number,
        build_function,
        build_method,
        build_index,
        build_chain,
        make,
        evaluate,
        evaluate_chain,
        number,
    ]


def cost(function, calls: int) -> float:
    """Microseconds of a call in this round."""
    started = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - started) / calls * 1e6


def measure() -> list[tuple[str, float, float | None]]:
    """(kind, Hesper's microseconds, MLX's) for every kind of call."""
    own = cases(hesper)
    other = cases(mlx) if mlx else [None] * len(own)
    results = []
    for mine, theirs in zip(own, other):
        best, reference = float("inf"), float("inf")
        for _ in range(ROUNDS):
            best = min(best, cost(mine, CALLS))
            if theirs:
                reference = min(reference, cost(theirs, CALLS))
        results.append((mine.__name__, best, reference if theirs else None))
    return results


if __name__ == "__main__":
    for name, best, reference in measure():
        beside = f"{reference:8.2f} us   {best / reference:5.2f}x" if reference else ""
        print(f"{name:20} {best:8.2f} us {beside}")
