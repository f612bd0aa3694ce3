"""Losses compared with those of MLX."""

import numpy as np
import pytest
from differential import HESPER, assert_same, attempt, compare


def inputs(lib):
    rng = np.random.default_rng(5)
    return {
        "x": lib.array(rng.standard_normal((3, 4)).astype(np.float32)),
        "y": lib.array(rng.standard_normal((3, 4)).astype(np.float32)),
        "z": lib.array(rng.standard_normal((3, 4)).astype(np.float32)),
        "p": lib.array(rng.uniform(0.01, 0.99, (3, 4)).astype(np.float32)),
        "w": lib.array(rng.uniform(0.5, 2, (3,)).astype(np.float32)),
        "signs": lib.array(np.sign(rng.standard_normal((3, 4))).astype(np.int32)),
        "classes": lib.array(np.array([0, 3, -1], np.int32)),
        "columns": lib.array(np.array([0, 2, 1, 1], np.int32)),
        "bits": lib.array(rng.integers(0, 2, (3, 4)).astype(np.int32)),
        "hard": lib.array(np.array([[0.0, 1.0, 0.5, 1e-30]] * 3, np.float32)),
        "row": lib.array(np.zeros((1, 4), np.float32)),
    }


CASES = [
    ("cross_entropy", ("x", "classes"), {}),
    ("cross_entropy", ("x", "classes"), {"label_smoothing": 0.1}),
    ("cross_entropy", ("x", "classes"), {"weights": "w"}),
    ("cross_entropy", ("x", "classes"), {"weights": "w", "label_smoothing": 0.3}),
    ("cross_entropy", ("x", "p"), {}),
    ("cross_entropy", ("x", "p"), {"label_smoothing": 0.1, "weights": "w"}),
    ("cross_entropy", ("x", "columns"), {"axis": 0}),
    ("cross_entropy", ("x", "columns"), {"axis": 0, "label_smoothing": 0.2}),
    ("cross_entropy", ("x", "p"), {"axis": 0}),
    ("cross_entropy", ("x", "columns"), {}),
    ("cross_entropy", ("x", "row"), {}),
    ("cross_entropy", ("x", "classes"), {"weights": "columns"}),
    ("cross_entropy", ("x", "classes"), {"label_smoothing": 1.0}),
    ("cross_entropy", ("x", "classes"), {"label_smoothing": -0.1}),
    ("cross_entropy", ("x", "classes"), {"axis": 5}),
    ("cross_entropy", ("signs", "classes"), {}),
    ("binary_cross_entropy", ("x", "bits"), {}),
    ("binary_cross_entropy", ("x", "p"), {"weights": "p"}),
    ("binary_cross_entropy", ("p", "bits"), {"with_logits": False}),
    ("binary_cross_entropy", ("hard", "bits"), {"with_logits": False}),
    ("binary_cross_entropy", ("x", "row"), {}),
    ("binary_cross_entropy", ("x", "p"), {"weights": "row"}),
    ("l1_loss", ("x", "y"), {}),
    ("l1_loss", ("x", "row"), {}),
    ("mse_loss", ("x", "y"), {}),
    ("mse_loss", ("x", "row"), {}),
    ("nll_loss", ("x", "classes"), {}),
    ("nll_loss", ("x", "columns"), {"axis": 0}),
    ("gaussian_nll_loss", ("x", "y", "p"), {}),
    ("gaussian_nll_loss", ("x", "y", "x"), {"full": True, "eps": 1e-3}),
    ("gaussian_nll_loss", ("x", "row", "p"), {}),
    ("gaussian_nll_loss", ("x", "y", "row"), {}),
    ("kl_div_loss", ("x", "y"), {}),
    ("kl_div_loss", ("x", "y"), {"axis": 0}),
    ("smooth_l1_loss", ("x", "y"), {}),
    ("smooth_l1_loss", ("x", "y"), {"beta": 0.5}),
    ("smooth_l1_loss", ("x", "row"), {}),
    ("triplet_loss", ("x", "y", "z"), {}),
    ("triplet_loss", ("x", "y", "z"), {"axis": 0, "p": 3, "margin": 0.2, "eps": 1e-3}),
    ("hinge_loss", ("x", "signs"), {}),
    ("huber_loss", ("x", "y"), {}),
    ("huber_loss", ("x", "y"), {"delta": 0.3}),
    ("log_cosh_loss", ("x", "y"), {}),
    ("cosine_similarity_loss", ("x", "y"), {}),
    ("cosine_similarity_loss", ("x", "row"), {"axis": 0, "eps": 0.1}),
    ("margin_ranking_loss", ("x", "y", "signs"), {}),
    ("margin_ranking_loss", ("x", "y", "signs"), {"margin": 0.7}),
    ("margin_ranking_loss", ("x", "row", "signs"), {}),
    ("margin_ranking_loss", ("x", "y", "row"), {}),
]


@pytest.mark.parametrize("name, names, options", CASES)
def test_loss(name, names, options):
    def scenario(lib):
        data, loss = inputs(lib), getattr(lib.nn.losses, name)
        options_ = {k: data[v] if isinstance(v, str) else v for k, v in options.items()}
        arguments = [data[n] for n in names]
        return [
            attempt(loss, *arguments, **options_, **reduction)
            for reduction in ({}, {"reduction": "none"}, {"reduction": "mean"}, {"reduction": "sum"}, {"reduction": "max"})
        ]

    compare(scenario, tol=5e-6)


@pytest.mark.parametrize("name, names, options", [c for c in CASES if c[1][0] == "x" and "row" not in str(c)])
def test_gradient_of_loss(name, names, options):
    def scenario(lib):
        data, loss = inputs(lib), getattr(lib.nn.losses, name)
        options_ = {k: data[v] if isinstance(v, str) else v for k, v in options.items()}
        rest = [data[n] for n in names[1:]]
        f = lambda x: loss(x, *rest, **options_, reduction="sum")  # noqa: E731
        result = attempt(f, data["x"])
        return result if isinstance(result, str) else lib.mx.grad(f)(data["x"])

    compare(scenario, tol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name, names", [("cross_entropy", ("x", "classes")), ("cross_entropy", ("x", "p")),
                                         ("huber_loss", ("x", "y")), ("log_cosh_loss", ("x", "y")),
                                         ("binary_cross_entropy", ("x", "p")), ("smooth_l1_loss", ("x", "y"))])  # fmt: skip
def test_loss_in_half_precision(name, names, dtype):
    def scenario(lib):
        data = inputs(lib)
        half = [data[n].astype(getattr(lib.mx, dtype)) if n in "xyz" else data[n] for n in names]
        return getattr(lib.nn.losses, name)(*half, reduction="none")

    compare(scenario)


def test_cross_entropy_of_a_vector_and_of_a_volume():
    def scenario(lib):
        f = lib.nn.losses.cross_entropy
        return f(lib.normal(4), lib.array(2)), f(lib.normal(2, 5, 3), lib.array(np.array([[0, 1, 2], [4, 3, 2]])), axis=1)

    compare(scenario)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_fused_cross_entropy_of_gpus_has_the_same_values_and_gradients(monkeypatch, dtype):
    from hesper.nn import losses

    logits = HESPER.normal(6, 5, dtype=dtype)
    targets = HESPER.array(np.array([0, 1, 2, 3, 4, 0]))
    weights = HESPER.array(np.arange(1, 7, dtype=np.float32))
    results = []
    for fused in (False, True):
        monkeypatch.setattr(losses, "_on_gpu", lambda fused=fused: fused)
        loss = losses.cross_entropy(logits, targets, weights)
        gradient = HESPER.mx.grad(lambda x: losses.cross_entropy(x, targets, reduction="mean"))(logits)
        results.append((losses.cross_entropy(logits, targets), loss, gradient))
    assert_same(results[1], results[0], tol=1e-5 if dtype == "float32" else 2e-2)
