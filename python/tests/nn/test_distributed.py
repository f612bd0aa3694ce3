"""Distributed layers: compared with MLX in one process, and on several simulated ones."""

import numpy as np
import pytest
from differential import HESPER, STAND_IN, attempt, compare, needs_mlx, needs_same_random, set_numbers, to_numpy
from hesper.nn.layers import distributed, fully_sharded
from hesper.nn.utils import average_gradients, clip_grad_norm_sharded

mx, nn, utils = HESPER.mx, HESPER.nn, HESPER.utils

LINEAR = ["AllToShardedLinear", "ShardedToAllLinear"]
QUANTIZED = ["QuantizedAllToShardedLinear", "QuantizedShardedToAllLinear"]


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("bias", [True, False])
def test_linear_in_one_process(name, bias):
    def scenario(lib):
        layer = set_numbers(lib, getattr(lib.nn, name)(6, 4, bias))
        x = lib.normal(3, 6)
        loss = lambda x: lib.mx.square(layer(x)).sum()  # noqa: E731
        return layer, repr(layer), layer(x), lib.mx.grad(loss)(x), lib.nn.value_and_grad(layer, loss)(x)

    compare(scenario, tol=1e-5)


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("segments", [1, 2, 5, [2], [0.5], [0.25, 0.5], [1, 3]])
def test_distributing_a_linear_layer_in_one_process(name, segments):
    def scenario(lib):
        linear = set_numbers(lib, lib.nn.Linear(4, 4))
        cls = getattr(lib.nn, name)
        return attempt(cls.from_linear, linear, segments=segments), attempt(cls.from_linear, linear, 1)

    compare(scenario)


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("settings", [{}, {"bias": False, "group_size": 32, "bits": 8}, {"mode": "mxfp4", "group_size": 32},
                                      {"mode": "mxfp4"}])  # fmt: skip
def test_quantized_settings_in_one_process(name, settings):
    def scenario(lib):
        layer = attempt(getattr(lib.nn, name), 64, 32, **settings)
        if isinstance(layer, str):
            return layer
        shapes = {n: tuple(x.shape) for n, x in layer.parameters().items()}
        return repr(layer), shapes, sorted(layer._no_grad), layer.unfreeze(), sorted(layer._no_grad), sorted(vars(layer))

    compare(scenario)


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("mode", ["affine", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("segments", [1, 2])
def test_distributing_a_quantized_layer_in_one_process(name, mode, segments):
    def scenario(lib):
        linear = set_numbers(lib, lib.nn.Linear(128, 32)).to_quantized(mode=mode)
        layer = getattr(lib.nn, name).from_quantized_linear(linear, segments=segments)
        return layer, layer(lib.normal(3, 128)), sorted(layer._no_grad)

    compare(scenario, tol=1e-5)


def test_a_plain_layer_has_no_quantization_to_distribute():
    compare(
        lambda lib: [
            attempt(getattr(lib.nn, name).from_quantized_linear, lib.nn.Linear(64, 32)) for name in QUANTIZED
        ]
    )


def test_sharding_functions_in_one_process():
    def scenario(lib):
        import importlib

        d = importlib.import_module(f"{lib.name}.nn.layers.distributed")
        linear = set_numbers(lib, lib.nn.Linear(64, 32))
        kinds = ["all-to-sharded", "sharded-to-all", "nothing", None]
        axes = [lambda p, w: None, lambda p, w: 0, lambda p, w: (0, 2)]
        return [
            [attempt(d.shard_linear, linear, kind) for kind in kinds],
            [attempt(d.shard_linear, linear.to_quantized(), kind) for kind in kinds],
            [attempt(d.shard_inplace, linear, kind) for kind in kinds + axes],
            linear,
        ]

    compare(scenario)


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_fully_sharded_module_in_one_process(dtype):
    def scenario(lib):
        inner = set_numbers(lib, lib.nn.Sequential(lib.nn.Linear(4, 6), lib.nn.ReLU(), lib.nn.Linear(6, 2)))
        m = lib.nn.FullyShardedModule(inner, compute_dtype=dtype and getattr(lib.mx, dtype))
        x = lib.normal(3, 4)
        loss = lambda x: lib.mx.square(m(x)).sum()  # noqa: E731
        return [
            repr(m), m(x), m(x.astype(lib.mx.bfloat16)), lib.nn.value_and_grad(m, loss)(x), m.parameters(),
            sorted(vars(m)), lib.nn.fully_shard(inner) is inner, lib.nn.fully_shard(m) is m,
            attempt(m.as_linear, x), attempt(getattr, m, "layers"),
            repr(lib.nn.FullyShardedModule(lib.nn.ReLU())),
        ]  # fmt: skip

    compare(scenario, tol=2e-2 if dtype else 1e-5)


def test_a_fully_sharded_module_without_parameters_is_called_as_it_is():
    assert nn.FullyShardedModule(nn.ReLU())(mx.array([-1.0, 2.0])).tolist() == [0.0, 2.0]


def test_fully_sharded_embedding_in_one_process():
    def scenario(lib):
        m = lib.nn.FullyShardedModule(set_numbers(lib, lib.nn.Embedding(5, 4)))
        return m(lib.array([1, 2])), m.as_linear(lib.normal(3, 4))

    compare(scenario)


def test_gradients_in_one_process_are_their_average():
    def scenario(lib):
        gradients = {"a": lib.mx.ones(2), "b": [lib.mx.ones(3)]}
        f = lib.nn.average_gradients
        return f(gradients) is gradients, f(gradients, all_reduce_size=0) is gradients, f({}), f(3)

    compare(scenario)


@needs_mlx
@needs_same_random
@pytest.mark.parametrize("name", LINEAR)
def test_distributed_layers_start_like_linear_ones(name):
    def scenario(lib):
        lib.mx.random.seed(1)
        return getattr(lib.nn, name)(4, 6).parameters()

    compare(scenario)


# Several processes, simulated: each rank runs in turn with a group that knows
# its rank and collectives that look up what the other ranks would send.


class Group:
    def __init__(self, rank, size):
        self._rank, self._size = rank, size

    def rank(self):
        return self._rank

    def size(self):
        return self._size


def groups(size):
    return [Group(rank, size) for rank in range(size)]


@pytest.mark.parametrize("segments", [1, 2, [2], [0.5]])
def test_shards_of_all_ranks_make_the_whole_layer(segments):
    linear = set_numbers(HESPER, nn.Linear(8, 4))
    x = HESPER.normal(3, 8)
    whole = to_numpy(linear(x))

    parts = [nn.AllToShardedLinear.from_linear(linear, segments=segments, group=g) for g in groups(2)]
    assert all(part.weight.shape == (2, 8) and "output_dims=4" in repr(part) for part in parts)
    outputs = [to_numpy(x @ part.weight.T + part.bias) for part in parts]
    if segments == 1:
        np.testing.assert_allclose(np.concatenate(outputs, axis=1), whole, rtol=1e-5, atol=1e-6)
    else:
        # Each rank has half of each of the two segments.
        joined = np.concatenate([outputs[0][:, :1], outputs[1][:, :1], outputs[0][:, 1:], outputs[1][:, 1:]], axis=1)
        np.testing.assert_allclose(joined, whole, rtol=1e-5, atol=1e-6)

    parts = [nn.ShardedToAllLinear.from_linear(linear, group=g) for g in groups(2)]
    assert all(part.weight.shape == (4, 4) and "input_dims=8" in repr(part) for part in parts)
    total = sum(to_numpy(x[:, 4 * i : 4 * i + 4] @ part.weight.T) for i, part in enumerate(parts))
    np.testing.assert_allclose(total + to_numpy(linear.bias), whole, rtol=1e-5, atol=1e-6)


def test_shards_of_a_quantized_layer_make_the_whole_layer():
    linear = set_numbers(HESPER, nn.Linear(128, 8)).to_quantized()
    x = HESPER.normal(3, 128)
    whole = to_numpy(linear(x))
    parts = [nn.QuantizedAllToShardedLinear.from_quantized_linear(linear, group=g) for g in groups(2)]
    assert all("output_dims=8" in repr(part) and part.bias.shape == (4,) for part in parts)
    outputs = [to_numpy(part._matmul(x) + part.bias) for part in parts]
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), whole, rtol=1e-4, atol=1e-5)
    parts = [nn.QuantizedShardedToAllLinear.from_quantized_linear(linear, group=g) for g in groups(2)]
    assert all("input_dims=128" in repr(part) and part.bias.shape == (8,) for part in parts)
    total = sum(to_numpy(part._matmul(x[:, 64 * i : 64 * i + 64])) for i, part in enumerate(parts))
    np.testing.assert_allclose(total + to_numpy(linear.bias), whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name, sizes", [("AllToShardedLinear", (4, 5)), ("ShardedToAllLinear", (5, 4)),
                                         ("QuantizedAllToShardedLinear", (64, 5)), ("QuantizedShardedToAllLinear", (65, 4))])  # fmt: skip
def test_features_that_cannot_be_divided_are_an_error(name, sizes):
    with pytest.raises(ValueError, match="cannot shard"):
        getattr(nn, name)(*sizes, group=Group(0, 2))


def test_all_to_sharded_layers_sum_the_gradient_of_their_input(monkeypatch):
    monkeypatch.setattr(mx.distributed, "all_sum", lambda x, group=None, stream=None: 10 * x)
    layer = nn.AllToShardedLinear(4, 2, group=Group(0, 2))
    gradient = mx.grad(lambda x: layer(x).sum())(mx.ones((1, 4)))
    np.testing.assert_allclose(to_numpy(gradient)[0], 10 * to_numpy(layer.weight).sum(axis=0), rtol=1e-5)


def test_sharded_to_all_layers_sum_their_output_before_the_bias(monkeypatch):
    monkeypatch.setattr(mx.distributed, "all_sum", lambda x, group=None, stream=None: 10 * x)
    layer = set_numbers(HESPER, nn.ShardedToAllLinear(4, 2, group=Group(0, 2)))
    x = HESPER.normal(3, 2)
    expected = 10 * to_numpy(x) @ to_numpy(layer.weight).T + to_numpy(layer.bias)
    np.testing.assert_allclose(to_numpy(layer(x)), expected, rtol=1e-5, atol=1e-5)


COMMUNICATING = {
    "output": lambda: nn.ShardedToAllLinear(4, 2, group=Group(0, 2))(mx.ones((1, 2))),
    "quantized output": lambda: nn.QuantizedShardedToAllLinear(128, 2, group=Group(0, 2))(mx.ones((1, 64))),
    "gradient": lambda: mx.grad(lambda x: nn.AllToShardedLinear(4, 2, group=Group(0, 2))(x).sum())(mx.ones((1, 4))),
    "parameters": lambda: nn.fully_shard(nn.Linear(4, 2), group=Group(0, 2))(mx.ones((1, 4))),
    "average": lambda: average_gradients({"w": mx.ones(2)}, group=Group(0, 2)),
    "norm": lambda: clip_grad_norm_sharded({"w": mx.ones(2)}, 1.0, group=Group(0, 2)),
}


@pytest.mark.skipif(STAND_IN, reason="the collectives are those of mlx.core")
@pytest.mark.parametrize("name", COMMUNICATING)
def test_communication_with_another_process_is_an_error_that_names_what_is_missing(name):
    with pytest.raises(RuntimeError, match="over 2 processes.*no backend"):
        COMMUNICATING[name]()


def test_a_failed_gather_leaves_the_shards_in_place():
    module = nn.fully_shard(nn.Linear(4, 2), group=Group(0, 2))
    before = module.module.weight
    assert attempt(module, mx.ones((1, 4))).startswith("raised")
    assert module.module.weight is before


@pytest.mark.parametrize("layers", [(8,), (8, 2)])
def test_fully_sharded_ranks_gather_the_whole_and_scatter_the_mean(monkeypatch, layers):
    """Both ranks see the same data, so the mean of their gradients is the gradient."""
    sizes = [4, *layers]

    def build():
        return set_numbers(HESPER, nn.Sequential(*(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))))

    messages = {}

    def all_gather(x, group=None, stream=None):
        messages[group.rank()] = x
        return mx.concatenate([messages.get(rank, x) for rank in range(group.size())], axis=0)

    def sum_scatter(x, group=None, stream=None):
        return group.size() * x[group.rank() : group.rank() + 1]

    monkeypatch.setattr(mx.distributed, "all_gather", all_gather)
    monkeypatch.setattr(mx.distributed, "sum_scatter", sum_scatter)

    x = HESPER.normal(3, 4)
    plain = build()
    ranks = [nn.fully_shard(build(), group=g) for g in groups(2)]
    assert all(isinstance(m, nn.FullyShardedModule) for m in ranks)
    assert ranks[0].module.layers[0].weight.shape == (4, 4)
    # The first round tells each rank what the other has.
    for m in ranks:
        m(x)
    for m in ranks:
        np.testing.assert_allclose(to_numpy(m(x)), to_numpy(plain(x)), rtol=1e-5, atol=1e-6)
        assert m.module.layers[0].weight.shape == (4, 4)

    _, whole = nn.value_and_grad(plain, lambda: mx.square(plain(x)).sum())()
    shards = [nn.value_and_grad(m, lambda m=m: mx.square(m(x)).sum())()[1] for m in ranks]
    for name, gradient in utils.tree_flatten(whole):
        parts = [to_numpy(utils.tree_flatten(s["module"], destination={})[name]) for s in shards]
        np.testing.assert_allclose(np.concatenate(parts), to_numpy(gradient), rtol=1e-4, atol=1e-5, err_msg=name)


def test_parameters_that_cannot_be_sharded_are_an_error():
    with pytest.raises(ValueError, match="layers.0.weight"):
        nn.FullyShardedModule(nn.Sequential(nn.Linear(4, 3)), group=Group(0, 2))


def test_nested_fully_sharded_modules_keep_their_own_parameters():
    inner = nn.FullyShardedModule(nn.Linear(4, 4))
    outer = nn.FullyShardedModule(nn.Sequential(inner, nn.Linear(4, 2)))
    assert outer._paths == ["layers.1.weight", "layers.1.bias"]
    assert outer(mx.ones((1, 4))).shape == (1, 2)
    assert fully_sharded.fully_shard(outer, group=Group(0, 2)) is outer


@pytest.mark.parametrize("limit", [-1, 0, 1, 16, 40, 10**6])
def test_gradients_are_averaged_in_messages_of_any_size(monkeypatch, limit):
    sent = []

    def all_sum(x, group=None, stream=None):
        sent.append(x.size)
        return 3 * x

    monkeypatch.setattr(mx.distributed, "all_sum", all_sum)
    tree = {"a": HESPER.normal(2, 3), "b": [HESPER.normal(5, seed=1), HESPER.normal(4, seed=2)], "c": HESPER.normal(1)}
    result = average_gradients(tree, group=Group(0, 3), all_reduce_size=limit)
    for (name, x), (other, y) in zip(utils.tree_flatten(tree), utils.tree_flatten(result)):
        assert name == other
        np.testing.assert_allclose(to_numpy(x), to_numpy(y), rtol=1e-6)
    assert sum(sent) == 16
    assert len(sent) == (1 if limit == 10**6 else 4 if limit <= 16 else len(sent))


def test_gradients_of_different_types_travel_alone(monkeypatch):
    monkeypatch.setattr(mx.distributed, "all_sum", lambda x, group=None, stream=None: 2 * x)
    tree = {"a": mx.ones(2), "b": mx.ones(2, dtype=mx.float16)}
    result = average_gradients(tree, group=Group(0, 2))
    assert result["b"].dtype == mx.float16 and result["a"].tolist() == [1, 1]


def test_the_norm_of_sharded_gradients_is_that_of_all_shards(monkeypatch):
    monkeypatch.setattr(mx.distributed, "all_sum", lambda x, group=None, stream=None: 4 * x)
    clipped, norm = clip_grad_norm_sharded({"w": HESPER.array([3.0, 4.0])}, 1.0, group=Group(0, 4))
    np.testing.assert_allclose(norm.item(), 10.0, rtol=1e-6)
    np.testing.assert_allclose(to_numpy(clipped["w"]), [0.3, 0.4], rtol=1e-5)


def test_summing_gradients_of_one_process_is_the_identity():
    x = mx.ones(2)
    assert distributed.sum_gradients(Group(0, 1))(x) is x
