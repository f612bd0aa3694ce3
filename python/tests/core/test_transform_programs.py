"""Programs with transformations, written and generated, against the reference and against themselves compiled."""

import functools
import random

import numpy as np
import pytest

import hesper.core as mx


def numbers(core, *shape):
    values = np.sin(np.arange(int(np.prod(shape)) or 1) * 1.7 + 0.3).reshape(shape)
    return core.array(values.astype(np.float32))


def comparable(core, value):
    """A tree of arrays as plain Python, with types and shapes."""
    if isinstance(value, core.array):
        return ("array", repr(value.dtype).split(".")[-1], tuple(value.shape), np.array(value))
    if isinstance(value, dict):
        return {key: comparable(core, one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(comparable(core, one) for one in value)
    return value


def assert_same(own, other, label):
    assert type(own) is type(other), (label, own, other)
    if isinstance(own, dict):
        assert list(own) == list(other), label
        for key in own:
            assert_same(own[key], other[key], label)
    elif isinstance(own, (list, tuple)):
        assert len(own) == len(other), (label, own, other)
        for one, two in zip(own, other):
            assert_same(one, two, label)
    elif isinstance(own, np.ndarray):
        np.testing.assert_allclose(own, other, rtol=2e-4, atol=1e-5, err_msg=label)
    else:
        assert own == other, (label, own, other)


def outcome(core, program):
    """What a program gives, or the type of its exception."""
    try:
        return comparable(core, program(core))
    except Exception as error:
        return type(error).__name__


PROGRAMS = {}


def program(name):
    def add(function):
        assert name not in PROGRAMS
        PROGRAMS[name] = function
        return function

    return add


def written():
    """Arguments, trees, axes, errors."""

    def x(m):
        return numbers(m, 2, 3)

    def product(a, b):
        return (a * b).sum()

    for name, options in {
        "tuple": {"argnums": (0, 1)},
        "list": {"argnums": [1]},
        "twice": {"argnums": (0, 0)},
        "too large": {"argnums": 5},
        "negative": {"argnums": -1},
        "none": {"argnums": ()},
    }.items():
        program(f"argnums: {name}")(
            lambda m, options=options: m.grad(product, **options)(x(m), x(m) + 1)
        )
    for name, options in {
        "one": {"argnames": "b"},
        "list": {"argnames": ["b"]},
        "beside numbers": {"argnums": 0, "argnames": ["b"]},
        "missing": {"argnames": ["c"]},
    }.items():
        program(f"argnames: {name}")(
            lambda m, options=options: m.grad(product, **options)(x(m), b=x(m) + 1)
        )
    for name, function in {
        "tuple": lambda a: ((a * a).sum(), a + 1),
        "list": lambda a: [(a * a).sum(), a + 1],
        "mixed": lambda a: ((a * a).sum(), "s", 3, None, {"k": a}),
        "dict": lambda a: {"l": (a * a).sum()},
        "number": lambda a: 3.0,
        "nothing": lambda a: None,
        "vector": lambda a: a,
        "one element of two axes": lambda a: a.sum(keepdims=True),
        "complex": lambda a: (a * 1j).sum(),
    }.items():
        program(f"value: {name}")(lambda m, function=function: m.value_and_grad(function)(x(m)))
        program(f"gradient: {name}")(lambda m, function=function: m.grad(function)(x(m)))
    for name, tree in {
        "dict": lambda m: {"a": x(m), "b": x(m) + 1},
        "nested": lambda m: {"a": x(m), "b": x(m), "c": [x(m), (x(m), {"d": x(m)})]},
        "with nothing": lambda m: {"a": x(m), "b": x(m), "c": None},
        "with text": lambda m: {"a": x(m), "b": x(m), "c": "s"},
        "with a number": lambda m: {"a": x(m), "b": 2.0},
        "with empty lists": lambda m: {"a": x(m), "b": x(m), "c": [], "d": {}},
    }.items():
        program(f"tree: {name}")(lambda m, tree=tree: m.grad(lambda t: (t["a"] * t["b"]).sum())(tree(m)))
    program("python number")(lambda m: m.grad(lambda a: a * a)(3.0))
    program("keywords")(
        lambda m: m.value_and_grad(lambda a, *, k=2, flag=False: (a * k).sum() if flag else a.sum())(
            x(m), k=3, flag=True
        )
    )
    program("many")(
        lambda m: m.value_and_grad(lambda *a: sum(one.sum() for one in a), argnums=(0, 2))(x(m), x(m), x(m))
    )
    program("unused")(lambda m: m.grad(lambda a, b: a.sum(), argnums=(0, 1))(x(m), x(m)))
    program("third")(lambda m: m.grad(m.grad(m.grad(lambda a: m.sin(a) * a)))(m.array(2.0)))
    program("complex")(lambda m: m.grad(lambda a: m.abs(a).sum())(m.array([1 + 2j, 3 - 1j])))

    @program("evaluated while differentiated")
    def _(m):
        def f(a):
            b = a * 2
            m.eval(b)
            return (b * a).sum() if a.sum().item() > 0 else b.sum()

        return m.grad(f)(x(m))

    def two(a, b):
        return a * b, a + b

    program("vjp")(lambda m: m.vjp(two, [x(m), x(m)], [x(m), x(m)]))
    program("vjp of tuples")(lambda m: m.vjp(lambda a: a * a, (x(m),), (x(m),)))
    program("vjp, too few")(lambda m: m.vjp(lambda a: (a * a, a), [x(m)], [x(m)]))
    program("vjp, other shape")(lambda m: m.vjp(lambda a: a * a, [x(m)], [m.ones((3,))]))
    program("vjp, no list")(lambda m: m.vjp(lambda a: a * a, x(m), x(m)))
    program("jvp")(lambda m: m.jvp(two, [x(m), x(m)], [x(m), x(m)]))
    program("jvp, too few")(lambda m: m.jvp(two, [x(m), x(m)], [x(m)]))
    program("jvp, other shape")(lambda m: m.jvp(lambda a: a * 2, [x(m)], [m.ones((3,))]))
    program("hessian")(
        lambda m: m.vmap(lambda t: m.jvp(m.grad(lambda a: (a**3).sum()), [x(m)[0]], [t])[1][0])(m.eye(3))
    )

    def plus(a, b):
        return a + b

    program("vmap")(lambda m: m.vmap(plus)(x(m), x(m)))
    program("vmap, one argument fixed")(lambda m: m.vmap(plus, in_axes=(0, None))(x(m), m.ones(3)))
    program("vmap, last axis")(lambda m: m.vmap(lambda a: a.sum(), in_axes=-1)(x(m)))
    for place in (0, 1, -1):
        program(f"vmap, result at {place}")(
            lambda m, place=place: m.vmap(lambda a: a * 2, out_axes=place)(x(m))
        )
    program("vmap, places for two")(lambda m: m.vmap(lambda a: (a * 2, a.sum()), out_axes=(1, 0))(x(m)))
    program("vmap, constants")(lambda m: m.vmap(lambda a: (a * 2, m.ones(2)), out_axes=(0, None))(x(m)))
    program("vmap, constants along an axis")(
        lambda m: m.vmap(lambda a: (a * 2, m.ones(2)), out_axes=(0, 1))(x(m))
    )
    program("vmap of a dict")(lambda m: m.vmap(lambda d: d["a"] + d["b"])({"a": x(m), "b": x(m)}))
    program("vmap to a dict")(lambda m: m.vmap(lambda a: {"x": a, "y": a.sum()})(x(m)))
    program("vmap to a dict by a dict")(
        lambda m: m.vmap(lambda a: {"x": a, "y": a.sum()}, out_axes={"x": 1, "y": 0})(x(m))
    )
    program("vmap, lengths differ")(lambda m: m.vmap(plus)(x(m), m.ones((4, 3))))
    program("vmap, no axis")(lambda m: m.vmap(lambda a: a)(m.array(1.0)))
    program("vmap, no array")(lambda m: m.vmap(lambda a: 3.0)(x(m)))
    program("vmap, keywords")(lambda m: m.vmap(lambda a, k=1: a * k)(x(m), k=2))
    program("vmap, twice")(
        lambda m: m.vmap(m.vmap(lambda a, b: a * b, in_axes=(None, 0)), in_axes=(0, None))(x(m), x(m))
    )
    program("vmap, evaluated")(lambda m: m.vmap(lambda a: (m.eval(a), a)[1])(x(m)))

    def keys(m):
        return m.random.split(m.random.key(3), 4)

    program("vmap of keys")(lambda m: m.vmap(lambda k: m.random.uniform(shape=(3,), key=k))(keys(m)))
    program("vmap of normal keys")(lambda m: m.vmap(lambda k: m.random.normal(shape=(2, 3), key=k))(keys(m)))
    program("vmap of integer keys")(
        lambda m: m.vmap(lambda k: m.random.randint(0, 10, shape=(3,), key=k))(keys(m))
    )

    @program("state")
    def _(m):
        state = [m.array(1.0), {"a": m.array([1.0, 2.0])}]

        def f(a):
            state[0] = state[0] + a.sum()
            state[1]["a"] = state[1]["a"] * 2
            return a + state[0]

        g = m.compile(f, inputs=state, outputs=state)
        return [g(x(m)) for _ in range(3)], state

    @program("random state")
    def _(m):
        m.random.seed(7)
        state = [m.random.state]
        g = m.compile(lambda a: a + m.random.uniform(shape=(3,)), inputs=state, outputs=state)
        return [g(x(m)) for _ in range(3)]

    program("compiled, trees")(
        lambda m: m.compile(lambda d: {"r": d["a"] + d["b"][0], "t": (d["a"],)})({"a": x(m), "b": [x(m)]})
    )
    program("compiled, constants")(lambda m: [m.compile(lambda a, n: a * n)(x(m), n) for n in (1, 2, 3.0, True)])
    program("compiled, nothing")(lambda m: m.compile(lambda a, b: a if b is None else a + b)(x(m), None))
    program("compiled in compiled")(lambda m: m.compile(lambda a: m.compile(lambda b: b * 2)(a) + 1)(x(m)))
    program("compiled, tangents")(lambda m: m.jvp(m.compile(lambda a: a**3), [x(m)], [x(m)]))
    program("compiled by a decorator")(
        lambda m: functools.partial(m.compile, shapeless=True)(lambda a: a + 1)(x(m))
    )

    def again(m):
        return m.checkpoint(lambda a, b: {"r": m.sin(a) * b})

    program("checkpoint")(
        lambda m: m.grad(lambda a, b: again(m)(a, b)["r"].sum(), argnums=(0, 1))(x(m), x(m) + 1)
    )
    program("checkpoint, compiled")(lambda m: m.compile(m.grad(lambda a: again(m)(a, a)["r"].sum()))(x(m)))
    program("checkpoint, mapped")(lambda m: m.vmap(again(m))(x(m), x(m)))

    @program("set items")
    def _(m):
        def f(a):
            b = a * 1
            b[0] = a[1] * 2
            b[:, 1] += 3
            return (b * b).sum()

        return m.grad(f)(x(m))

    @program("set items, mapped")
    def _(m):
        def f(a, i):
            b = m.zeros((3,))
            b[1] = a[0]
            c = a * 1
            c[i] = 9.0
            return b + c

        return m.vmap(f)(x(m), m.array([0, 2]))

    program("updates")(lambda m: m.grad(lambda a: (a.at[m.array([0, 0])].minimum(0.1) ** 2).sum())(x(m)))
    program("order")(lambda m: m.grad(lambda a: m.depends(a * 2, [a * 3]).sum())(x(m)))


def ruled(m, rules):
    """A function with some rules of its own."""

    @m.custom_function
    def f(x, y):
        return m.sin(x) * y

    if "vjp" in rules:
        f.vjp(lambda primals, cotangent, output: (cotangent * 10, cotangent * 20))
    if "jvp" in rules:
        f.jvp(lambda primals, tangents: tangents[0] * 100 + tangents[1])
    if "vmap" in rules:
        f.vmap(lambda inputs, axes: (inputs[0] * 7 + inputs[1], axes[0]))
    return f


def custom():
    """Custom functions with all sets of rules, in all transformations."""

    def x(m):
        return numbers(m, 2, 3)

    uses = {
        "called": lambda m, f: f(x(m), x(m)),
        "gradient": lambda m, f: m.grad(lambda a, b: f(a, b).sum(), argnums=(0, 1))(x(m), x(m)),
        "tangents": lambda m, f: m.jvp(f, [x(m), x(m)], [x(m), x(m)]),
        "mapped": lambda m, f: m.vmap(f)(x(m), x(m)),
        "mapped twice": lambda m, f: m.vmap(m.vmap(f))(numbers(m, 2, 3, 4), numbers(m, 2, 3, 4)),
        "gradient, mapped": lambda m, f: m.vmap(m.grad(lambda a, b: f(a, b).sum()))(x(m), x(m)),
        "gradient, compiled": lambda m, f: m.compile(m.grad(lambda a, b: f(a, b).sum()))(x(m), x(m)),
        "second": lambda m, f: m.grad(lambda a: m.grad(lambda b: f(b, b).sum())(a).sum())(x(m)),
    }
    for rules in [(), ("vjp",), ("jvp",), ("vmap",), ("vjp", "jvp"), ("vjp", "vmap"), ("vjp", "jvp", "vmap")]:
        for name, use in uses.items():
            label = f"custom function with {' and '.join(rules) or 'nothing'}: {name}"
            program(label)(lambda m, rules=rules, use=use: use(m, ruled(m, rules)))


written()
custom()


@pytest.fixture(scope="module")
def reference(mlx):
    """The reference without its compiler, which takes seconds for each function."""
    mlx.set_default_device(mlx.cpu)
    mlx.disable_compile()
    return mlx


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_the_reference_gives(reference, name):
    assert_same(outcome(mx, PROGRAMS[name]), outcome(reference, PROGRAMS[name]), name)


def test_a_rule_for_cotangents_counts_inside_of_vmap():
    f = ruled(mx, ("vjp",))
    found = mx.grad(lambda a: mx.vmap(f)(a, a).sum())(numbers(mx, 2, 3))
    np.testing.assert_array_equal(np.array(found), np.full((2, 3), 30.0))


UNARY = ["sin", "cos", "tanh", "sigmoid", "square", "negative", "erf", "exp", "arctan", "log1p"]
BINARY = ["add", "subtract", "multiply", "maximum", "minimum", "logaddexp"]


def generated(seed):
    """A function of two arrays in terms of a module, as a list of steps; the same for the same seed."""
    choose = random.Random(seed)
    steps = []
    for count in range(2, 3 + choose.randrange(3, 10)):
        late = [max(0, count - 1 - choose.randrange(3)) for _ in range(2)]
        steps.append((choose.randrange(10), *late, choose.choice(UNARY), choose.choice(BINARY)))
    return steps


def run(m, steps, x, y):
    """Runs the steps; arrays stay of shape (2, 3) at the end of each."""
    arrays = [x, y]
    for kind, a, b, unary, binary in steps:
        one, two = arrays[a], arrays[b]
        if kind < 4:
            # Nothing leaves the range where all functions are smooth and small.
            made = getattr(m, unary)(m.abs(one) + 0.1 if unary == "log1p" else m.tanh(one))
        elif kind < 7:
            made = getattr(m, binary)(one, two)
        elif kind == 7:
            made = m.where(one > 0.1, one * 0.5, two)
        elif kind == 8:
            made = m.softmax(one, axis=-1) + two.sum(axis=0, keepdims=True)
        else:
            made = (one @ two.T) @ one
        arrays.append(m.tanh(made * 0.5) if kind > 6 else made)
    return arrays[-1]


def test_generated_programs_are_differentiated_and_mapped_as_the_reference_does(reference):
    for seed in range(120):
        steps = generated(seed)

        def all_of(m):
            x, y = numbers(m, 2, 3), m.cos(numbers(m, 2, 3) * 2)

            def loss(a, b):
                return m.tanh(run(m, steps, a, b)).sum()

            tangents = m.jvp(lambda a, b: run(m, steps, a, b), [x, y], [y, x])
            mapped = m.vmap(lambda a, b: run(m, steps, a, b), in_axes=(0, None))(m.stack([x, y]), y)
            return m.value_and_grad(loss, argnums=(0, 1))(x, y), tangents, mapped

        assert_same(comparable(mx, all_of(mx)), comparable(reference, all_of(reference)), f"seed {seed}: {steps}")


def test_generated_programs_give_the_same_bits_compiled():
    for seed in range(1000, 1200):
        steps = generated(seed)
        x, y = numbers(mx, 2, 3), mx.cos(numbers(mx, 2, 3) * 2)
        plain = mx.grad(lambda a, b: mx.tanh(run(mx, steps, a, b)).sum(), argnums=(0, 1))
        for f, g in [(lambda a, b: run(mx, steps, a, b),) * 2, (plain, plain)]:
            expected, found = f(x, y), mx.compile(g)(x, y)
            for one, two in zip(*(([e] if isinstance(e, mx.array) else e) for e in (expected, found))):
                assert np.array_equal(np.array(one), np.array(two), equal_nan=True), f"seed {seed}: {steps}"
