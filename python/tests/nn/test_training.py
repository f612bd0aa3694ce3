"""Gradients of models and checkpointing."""

import numpy as np
import pytest
from differential import HESPER, attempt, compare, set_numbers, to_numpy
from hesper.nn.utils import checkpoint


def model_of(lib):
    nn = lib.nn
    model = set_numbers(lib, nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)))
    model.layers[0].freeze(keys="bias")
    return model


def test_value_and_grad_of_a_scalar_and_of_a_tuple():
    def scenario(lib):
        model = model_of(lib)
        x = lib.normal(2, 3)
        scalar = lib.nn.value_and_grad(model, lambda x: model(x).sum())
        several = lib.nn.value_and_grad(model, lambda x: (model(x).sum(), 3, {"x": x}))
        other = lib.nn.value_and_grad(model, lambda m, x, scale=1: m(x).sum() * scale)
        model_after = lambda: model.parameters()  # noqa: E731
        return scalar(x), several(x), other(model, x, scale=2), model_after()

    compare(scenario)


def test_errors_of_value_and_grad():
    def scenario(lib):
        model = model_of(lib)

        def fails(x):
            raise KeyError("inside")

        log = [attempt(lib.nn.value_and_grad(model, fails), lib.normal(2, 3)), model.parameters()]
        model.freeze()
        log.append(attempt(lib.nn.value_and_grad(model, lambda x: model(x).sum()), lib.normal(2, 3)))
        log.append(attempt(lambda: lib.nn.value_and_grad(3, lambda x: x.sum())(lib.normal(2))))
        return log

    compare(scenario)


def test_the_transformed_function_keeps_name_and_documentation():
    def loss(x):
        """The loss."""

    transformed = HESPER.nn.value_and_grad(model_of(HESPER), loss)
    assert transformed.__name__ == "loss" and transformed.__doc__ == "The loss."


def test_parameters_that_a_function_changes_stay_changed():
    def scenario(lib):
        layer = set_numbers(lib, lib.nn.Linear(2, 1))

        def fn(x):
            layer.weight = layer.weight * 2
            return layer(x).sum()

        value = lib.nn.value_and_grad(layer, fn)(lib.normal(3, 2))
        return value, layer.weight

    compare(scenario)


def test_running_statistics_are_updated_while_differentiating():
    def scenario(lib):
        nn = lib.nn
        model = set_numbers(lib, nn.Sequential(nn.Linear(3, 4), nn.BatchNorm(4), nn.Linear(4, 1)))
        step = nn.value_and_grad(model, lambda x: lib.mx.square(model(x)).mean())
        return step(lib.normal(5, 3)), step(lib.normal(5, 3, seed=1)), model.parameters()

    compare(scenario, tol=1e-4)


@pytest.mark.parametrize("named", [True, False])
def test_checkpointing_changes_no_gradient_and_leaves_the_module_alone(named):
    mx, nn = HESPER.mx, HESPER.nn
    model = model_of(HESPER)
    x = HESPER.normal(5, 3)
    before = model.layers[0].weight

    def run(x, scale=1.0):
        """Run the model."""
        return model(x) * scale

    function = checkpoint(model, run) if named else checkpoint(model)
    if named:
        assert function.__name__ == "run"
        np.testing.assert_allclose(to_numpy(function(x, scale=2.0)), 2 * to_numpy(model(x)), rtol=1e-6)
    np.testing.assert_allclose(to_numpy(function(x)), to_numpy(model(x)), rtol=1e-6)
    assert model.layers[0].weight is before
    plain = nn.value_and_grad(model, lambda x: mx.square(model(x)).sum())(x)
    again = nn.value_and_grad(model, lambda x: mx.square(function(x)).sum())(x)
    np.testing.assert_allclose(plain[0].item(), again[0].item(), rtol=1e-6)
    for (name, a), (_, b) in zip(*(HESPER.utils.tree_flatten(g) for _, g in (plain, again))):
        np.testing.assert_allclose(to_numpy(a), to_numpy(b), rtol=1e-5, atol=1e-6, err_msg=name)
