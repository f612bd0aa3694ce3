"""Optimizers and schedules compared with those of MLX over several steps."""

import numpy as np
import pytest
from differential import HESPER, MLX, attempt, compare, in_order, needs_mlx, set_numbers, to_numpy

OPTIMIZERS = {
    "sgd": lambda o: o.SGD(0.1),
    "sgd with an integer rate": lambda o: o.SGD(1),
    "sgd with decay": lambda o: o.SGD(0.1, weight_decay=0.1),
    "sgd with momentum": lambda o: o.SGD(0.1, momentum=0.9),
    "sgd with nesterov": lambda o: o.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "sgd with dampening": lambda o: o.SGD(0.1, momentum=0.9, dampening=0.5, weight_decay=0.01),
    "rmsprop": lambda o: o.RMSprop(0.1),
    "rmsprop with settings": lambda o: o.RMSprop(0.1, 0.5, 1e-3),
    "adagrad": lambda o: o.Adagrad(0.1),
    "adagrad with settings": lambda o: o.Adagrad(0.1, 1e-2),
    "adadelta": lambda o: o.AdaDelta(0.1),
    "adadelta with settings": lambda o: o.AdaDelta(0.1, 0.5, 1e-3),
    "adam": lambda o: o.Adam(0.1),
    "adam with settings": lambda o: o.Adam(0.1, [0.5, 0.7], 1e-3),
    "adam, corrected": lambda o: o.Adam(0.1, bias_correction=True),
    "adamw": lambda o: o.AdamW(0.1),
    "adamw, corrected": lambda o: o.AdamW(0.1, (0.8, 0.9), weight_decay=0.2, bias_correction=True),
    "adamax": lambda o: o.Adamax(0.1),
    "adamax with settings": lambda o: o.Adamax(0.1, [0.5, 0.7], 1e-3),
    "lion": lambda o: o.Lion(0.1),
    "lion with decay": lambda o: o.Lion(0.1, [0.5, 0.7], 0.1),
    "adafactor": lambda o: o.Adafactor(),
    "adafactor with warm-up": lambda o: o.Adafactor(warmup_init=True),
    "adafactor with a rate": lambda o: o.Adafactor(0.1, relative_step=False),
    "adafactor with everything": lambda o: o.Adafactor(
        0.1, (1e-20, 1e-2), 0.5, -0.6, 0.9, 0.1, scale_parameter=False, relative_step=False
    ),
    "adafactor with a schedule": lambda o: o.Adafactor(o.linear_schedule(0.1, 0.2, 3), relative_step=False, beta_1=0.5),
    "muon": lambda o: o.Muon(0.1),
    "muon without nesterov": lambda o: o.Muon(0.1, 0.5, 0.0, False, 3),
    "scheduled sgd": lambda o: o.SGD(o.cosine_decay(0.1, 4, 0.01), momentum=0.5),
    "scheduled adam": lambda o: o.Adam(o.join_schedules([o.linear_schedule(0, 0.1, 2), o.step_decay(0.1, 0.5, 1)], [2])),
    "two optimizers": lambda o: o.MultiOptimizer([o.SGD(0.1), o.Adam(0.2)], [lambda p, g: g.ndim >= 2]),
    "three optimizers": lambda o: o.MultiOptimizer(
        [o.Muon(0.1), o.Lion(0.2), o.SGD(0.3)], [lambda p, g: g.ndim == 2, lambda p, g: p.startswith("list")]
    ),
    "one optimizer for all": lambda o: o.MultiOptimizer([o.SGD(0.1), o.Adam(0.2)], [lambda p, g: True]),
}

SHAPES = {"vector": (5,), "matrix": (3, 4), "tall": (6, 2), "kernel": (2, 3, 3, 2), "scalar": ()}


def tree(lib, seed, dtype=None):
    """A tree of arrays, and one with the same structure for every seed."""
    arrays = {n: lib.normal(*s, seed=seed + i, dtype=dtype) for i, (n, s) in enumerate(SHAPES.items())}
    arrays["list"] = [{"w": lib.normal(2, seed=seed + 8, dtype=dtype)}, lib.normal(2, 2, seed=seed + 9, dtype=dtype)]
    return arrays


def steps(lib, name, dtype=None, count=5, gradient_dtype=None):
    optimizer = OPTIMIZERS[name](lib.optim)
    parameters, log = tree(lib, 100, dtype), []
    for step in range(count):
        parameters = optimizer.apply_gradients(tree(lib, step, gradient_dtype or dtype), parameters)
        log.append((parameters, optimizer.state, attempt(lambda: optimizer.learning_rate)))
        lib.mx.eval(parameters, optimizer.state)
    return in_order(log)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_trajectory(name):
    compare(lambda lib: steps(lib, name), tol=1e-5)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtypes", [("float16", None), ("bfloat16", None), ("float32", "bfloat16")], ids=str)
def test_trajectory_in_half_precision(name, dtypes):
    compare(lambda lib: steps(lib, name, dtypes[0], 2, dtypes[1]), tol=2e-2)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_initial_state(name):
    def scenario(lib):
        optimizer = OPTIMIZERS[name](lib.optim)
        before = sorted(vars(optimizer))
        optimizer.init(tree(lib, 0))
        return before, in_order(optimizer.state), attempt(lambda: optimizer.learning_rate), attempt(lambda: optimizer.step)

    compare(scenario)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updating_a_model(name):
    def scenario(lib):
        nn = lib.nn
        model = set_numbers(lib, nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.LayerNorm(6), nn.Linear(6, 2)))
        model.layers[3].freeze(keys="bias")
        optimizer = OPTIMIZERS[name](lib.optim)
        step = nn.value_and_grad(model, lambda x, y: nn.losses.mse_loss(model(x), y))
        losses = []
        for i in range(4):
            loss, gradients = step(lib.normal(8, 4, seed=i), lib.normal(8, 2, seed=50 + i))
            optimizer.update(model, gradients)
            losses.append(loss)
            lib.mx.eval(model.parameters(), optimizer.state)
        return losses, model.parameters()

    compare(scenario, tol=1e-4)


@needs_mlx
@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if "optimizer" not in n])
def test_state_of_one_library_goes_on_in_the_other(name):
    def cross(state):
        pairs = MLX.utils.tree_flatten(state)
        return HESPER.utils.tree_unflatten(
            [(k, HESPER.mx.array(to_numpy(v)).astype(getattr(HESPER.mx, str(v.dtype).split(".")[-1]))) for k, v in pairs]
        )

    theirs, ours = (OPTIMIZERS[name](lib.optim) for lib in (MLX, HESPER))
    for step in range(2):
        expected = theirs.apply_gradients(tree(MLX, step), tree(MLX, 100))
    ours.state = cross(theirs.state)
    expected = theirs.apply_gradients(tree(MLX, 7), tree(MLX, 100))
    actual = ours.apply_gradients(tree(HESPER, 7), tree(HESPER, 100))
    compare(lambda lib: in_order(actual if lib is HESPER else expected), tol=1e-5)
    assert ours.step.item() == 3


def test_a_state_that_exists_is_kept_and_what_is_missing_is_added():
    def scenario(lib):
        mx, optim = lib.mx, lib.optim
        optimizer = optim.Adam(0.1)
        optimizer.init({"a": mx.ones(2)})
        optimizer.state["a"]["m"] = mx.ones(2)
        optimizer.init({"a": mx.ones(2), "b": [mx.ones(1)]})
        optimizer.init({"b": [mx.ones(1), {"c": mx.ones(2)}]})
        other = optim.Adam(0.2)
        other.state = optimizer.state
        return [
            optimizer.state, other.learning_rate, other.apply_gradients({"a": mx.ones(2)}, {"a": mx.ones(2)}), other.state,
            attempt(optimizer.apply_gradients, {"q": mx.ones(1)}, {"q": mx.ones(1)}),
            attempt(optim.SGD(0.1).apply_gradients, {"q": mx.ones(1)}, {"a": mx.ones(1)}),
        ]  # fmt: skip

    compare(scenario)


def test_the_base_class_leaves_the_work_to_others():
    def scenario(lib):
        o = lib.optim.Optimizer()
        w = lib.mx.ones(1)
        return [
            dict(o.state), sorted(vars(o)), attempt(o.init_single, w, {}), attempt(o.apply_single, w, w, {}),
            attempt(o.init, {"w": w}), attempt(o.apply_gradients, {"w": w}, {"w": w}), attempt(o.update, {}, {}),
            attempt(lambda: o.learning_rate),
        ]  # fmt: skip

    compare(scenario)


def test_learning_rates_can_be_set():
    def scenario(lib):
        o = lib.optim.Adam(0.1)
        log = [o.learning_rate]
        for value in (0.5, 1, lib.mx.array(0.25)):
            o.learning_rate = value
            log.append(o.learning_rate)
        log.append(attempt(setattr, o, "step", 3))
        scheduled = lib.optim.SGD(lambda step: 0.1 * (step + 1))
        for _ in range(3):
            scheduled.update({}, {})
            log.append((scheduled.learning_rate, scheduled.step))
        return log

    compare(scenario)


INVALID = [
    lambda o: o.SGD(0.1, nesterov=True), lambda o: o.SGD(0.1, momentum=0.9, dampening=0.1, nesterov=True),
    lambda o: o.RMSprop(0.1, alpha=-1), lambda o: o.RMSprop(0.1, eps=-1), lambda o: o.AdaDelta(0.1, rho=-1),
    lambda o: o.AdaDelta(0.1, eps=-1), lambda o: o.Adagrad(0.1, eps=-1), lambda o: o.Adamax(0.1, eps=-1),
    lambda o: o.Adam(0.1, eps=-1), lambda o: o.MultiOptimizer([o.SGD(0.1)], [lambda p, g: True]),
    lambda o: o.MultiOptimizer([o.SGD(0.1), o.SGD(0.1)]), lambda o: o.linear_schedule(0, 1, 0),
    lambda o: o.linear_schedule(0, 1, -1), lambda o: o.cosine_decay(0.1, 0), lambda o: o.join_schedules([], []),
    lambda o: o.join_schedules([abs], [1]), lambda o: o.join_schedules([abs, abs], []),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(INVALID)))
def test_invalid_settings(index):
    compare(lambda lib: attempt(INVALID[index], lib.optim))


def test_learning_rates_that_are_no_numbers():
    compare(lambda lib: [attempt(lib.optim.SGD, value) for value in ("fast", None)])
    compare(
        lambda lib: attempt(
            lib.optim.Adafactor(relative_step=False).apply_gradients, {"w": lib.mx.ones(1)}, {"w": lib.mx.ones(1)}
        )
    )


def test_parameters_must_be_a_dictionary():
    with pytest.raises(TypeError, match="dictionary"):
        HESPER.optim.SGD(0.1).apply_gradients([HESPER.mx.ones(1)], [HESPER.mx.ones(1)])


def test_multi_optimizer():
    def scenario(lib):
        optim, asked = lib.optim, []
        first = lambda path, g: (asked.append(path), g.ndim == 2)[1]  # noqa: E731
        m = optim.MultiOptimizer([optim.SGD(0.1), optim.Adam(0.2)], [first])
        parameters = {"a": lib.normal(3), "b": {"c": lib.normal(2, 2)}, "l": [lib.normal(2), lib.normal(1, 1)]}
        m.init(parameters)
        log = [m.state, m.learning_rate, attempt(lambda: m.step), asked]
        log += [in_order(m.apply_gradients(parameters, parameters)), m.state]
        m.learning_rate = 0.7
        log.append([o.learning_rate for o in m.optimizers])
        other = optim.MultiOptimizer([optim.SGD(0.1), optim.Adam(0.2)], [lambda p, g: g.ndim == 2])
        other.state = m.state
        log += [other.state, attempt(setattr, other, "state", {}),
                attempt(setattr, other, "state", {"states": [{}]})]  # fmt: skip
        return log

    compare(scenario)


@pytest.mark.parametrize("name", ["sgd with momentum", "adam", "adafactor", "muon"])
def test_layers_without_parameters_are_passed_over(name):
    def scenario(lib):
        optimizer = OPTIMIZERS[name](lib.optim)
        gradients = {"layers": [{"w": lib.normal(2, 2)}, {}, {"w": lib.normal(3)}], "empty": {}}
        return optimizer.apply_gradients(gradients, gradients), optimizer.state

    compare(scenario, tol=1e-5)


def test_several_optimizers_pass_over_layers_without_parameters():
    nn, mx, optim = HESPER.nn, HESPER.mx, HESPER.optim
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2, bias=False), nn.ReLU(), nn.LayerNorm(2))
    before = HESPER.utils.tree_flatten(model.parameters())
    optimizer = optim.MultiOptimizer([optim.SGD(1.0), optim.Adam(1.0)], [lambda p, g: g.ndim == 2])
    _, gradients = nn.value_and_grad(model, lambda x: mx.square(model(x) - 1).sum())(HESPER.normal(4, 2))
    optimizer.update(model, gradients)
    after = HESPER.utils.tree_flatten(model.parameters())
    assert [name for name, _ in before] == [name for name, _ in after]
    assert repr(model).count("ReLU") == 2


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("limit", [0.1, 1.0, 100.0])
def test_clipping(dtype, limit):
    def scenario(lib):
        zero = {"a": lib.normal(3, dtype=dtype) * 0}
        whole = {"a": lib.array([3, 4])}
        return [lib.optim.clip_grad_norm(g, limit) for g in (tree(lib, 0, dtype), zero, whole, {})]

    compare(scenario, tol=1e-5)


SCHEDULES = {
    "exponential": lambda o: o.exponential_decay(0.1, 0.9),
    "step": lambda o: o.step_decay(0.1, 0.9, 10),
    "cosine": lambda o: o.cosine_decay(0.1, 10),
    "cosine to an end": lambda o: o.cosine_decay(0.1, 10, 0.01),
    "linear": lambda o: o.linear_schedule(0.1, 0.5, 10),
    "joined": lambda o: o.join_schedules(
        [o.linear_schedule(0, 0.1, 10), o.cosine_decay(0.1, 200), lambda s: s * 0 + 3], [10, 15]
    ),
    "joined of one": lambda o: o.join_schedules([o.exponential_decay(0.1, 0.5)], []),
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("dtype", ["int32", "uint64"])
def test_schedule(name, dtype):
    def scenario(lib):
        schedule = SCHEDULES[name](lib.optim)
        counts = [lib.mx.array(i).astype(getattr(lib.mx, dtype)) for i in (0, 1, 5, 9, 10, 11, 16, 300)]
        return [schedule(count) for count in counts], schedule(5)

    compare(scenario)


def test_a_step_can_be_compiled():
    nn, mx, optim = HESPER.nn, HESPER.mx, HESPER.optim
    model = set_numbers(HESPER, nn.Linear(4, 1))
    optimizer = optim.Adam(optim.linear_schedule(0.1, 0.01, 10))
    optimizer.init(model.trainable_parameters())
    state = [model.state, optimizer.state]

    def step(x, y):
        loss, gradients = nn.value_and_grad(model, lambda x, y: nn.losses.mse_loss(model(x), y))(x, y)
        optimizer.update(model, gradients)
        return loss

    compiled = mx.compile(step, inputs=state, outputs=state)
    losses = [compiled(HESPER.normal(16, 4), mx.ones((16, 1))).item() for _ in range(20)]
    mx.eval(state)
    assert losses[-1] < 0.5 * losses[0]
    assert optimizer.step.item() == 20
    assert np.isfinite(to_numpy(model.weight)).all()
