"""The base class of layers and models."""

import copy
import pickle

import numpy as np
import pytest
from differential import (
    HESPER,
    attempt,
    compare,
    dtype_name,
    set_numbers,
    to_numpy,
)


def mixed(lib):
    """A model with arrays and layers in all kinds of containers."""
    mx, nn = lib.mx, lib.nn

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = mx.zeros((2,))
            self.layers = [nn.Linear(2, 2), nn.ReLU(), 3, [mx.ones(1), "text"]]
            self.table = {"x": nn.Linear(2, 3), "n": 4, "z": mx.ones(1), "_p": mx.ones(2)}
            self.pair = (nn.ReLU(), mx.ones((1,)))
            self._hidden = mx.ones((3,))
            self._sub = nn.LayerNorm(2)
            self.norm = nn.LayerNorm(2)
            self.scales = [mx.ones(1), mx.ones(2)]
            self.number = 3
            self.nothing = None

    return set_numbers(lib, Mixed())


def small(lib):
    mx, nn = lib.mx, lib.nn

    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = mx.zeros((2,))
            self.l = [nn.Linear(2, 2), nn.ReLU()]
            self.d = {"x": nn.Linear(2, 2)}
            self.n = nn.LayerNorm(2)
            self.sc = [mx.ones(1), mx.ones(2)]

    return set_numbers(lib, Small())


def frozen_names(model):
    return {name: sorted(map(str, module._no_grad)) for name, module in model.named_modules()}


def test_traversals_of_a_mixed_model():
    def scenario(lib):
        m = mixed(lib)
        return {
            "parameters": m.parameters(),
            "trainable": m.trainable_parameters(),
            "children": m.children(),
            "leaves": m.leaf_modules(),
            "names": [name for name, _ in m.named_modules()],
            "modules": [type(x).__name__ for x in m.modules()],
            "repr": repr(m),
            "items": list(m),
            "attributes": sorted(vars(m)),
            "state": m.state is m,
        }

    compare(scenario)


def test_filters_are_asked_with_the_same_names_in_the_same_order():
    def scenario(lib):
        calls = []

        def keep(module, key, value):
            calls.append((type(module).__name__, key, type(value).__name__))
            return True

        everything = mixed(lib).filter_and_map(keep, map_fn=lambda v: type(v).__name__)
        some = mixed(lib).filter_and_map(lambda m, k, v: not k.endswith("x"))
        return calls, everything, some

    compare(scenario)


def test_a_leaf_that_is_neither_module_nor_container_is_an_error():
    compare(
        lambda lib: attempt(
            mixed(lib).filter_and_map, lambda m, k, v: True, is_leaf_fn=lambda m, k, v: False
        )
    )


def test_static_filters():
    def scenario(lib):
        m, mx = lib.nn.Module(), lib.mx
        values = [mx.ones(1), [1], {"a": 1}, (1,), lib.nn.ReLU(), 3]
        return [
            [
                [f(m, key, v) for key in ("a", "_a")]
                for f in (m.valid_child_filter, m.valid_parameter_filter, m.trainable_parameter_filter)
            ]
            + [m.is_module(v)]
            for v in values
        ]

    compare(scenario)


def test_attributes_and_items():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn
        m = small(lib)
        log = [attempt(getattr, m, "missing"), attempt(m.__getitem__, "missing")]
        log.append(attempt(delattr, m, "missing"))
        m.value = 1
        log.append(("value" in m, "value" in vars(m)))
        m.value = mx.ones(1)
        log.append(("value" in m, "value" in vars(m)))
        m.value = None
        log.append(("value" in m, "value" in vars(m), m.value))
        del m.value
        log.append(hasattr(m, "value"))
        del m.a
        log.append(("a" in m, hasattr(m, "a")))
        log.append([attempt(setattr, m, name, v) for name in ("training", "state") for v in (1, [1])])
        m["raw"] = 0
        log.append(m.raw)

        class WithProperty(nn.Module):
            @property
            def broken(self):
                return self.inner

        class WithClassAttribute(nn.Module):
            x = 5

        log.append(attempt(getattr, WithProperty(), "broken"))
        log.append(attempt(setattr, WithClassAttribute(), "x", mx.ones(1)))
        log.append((bool(nn.Module()), len(nn.Linear(1, 1)), attempt(hash, nn.ReLU()), nn.ReLU() == nn.Tanh()))
        log.append(attempt(nn.Module, 3))
        log.append(attempt(nn.Module(), 3))
        return log

    compare(scenario)


def test_a_model_that_forgot_to_call_its_base_class():
    def scenario(lib):
        class Forgetful(lib.nn.Module):
            def __init__(self):
                self.x = lib.mx.ones(1)

        m = Forgetful()
        return [
            repr(m),
            m.parameters(),
            *(attempt(getattr(m, f)) for f in ("trainable_parameters", "freeze", "eval")),
        ]

    compare(scenario)


FREEZE = [
    {}, {"keys": "bias"}, {"keys": ["bias", "a"]}, {"recurse": False}, {"keys": "sc"},
    {"keys": "sc.0"}, {"keys": "n"}, {"keys": "zz"}, {"keys": "zz", "strict": True},
    {"keys": "bias", "strict": True}, {"keys": ["weight", "bias"], "strict": True},
    {"keys": "a", "strict": True, "recurse": False}, {"keys": "l", "recurse": False},
    {"keys": "sc.0", "strict": True, "recurse": False}, {"keys": [], "strict": True},
    {"keys": ("a",)}, {"keys": ["a", "nope"], "strict": True},
]  # fmt: skip


@pytest.mark.parametrize("arguments", FREEZE, ids=repr)
def test_freezing_and_unfreezing(arguments):
    def scenario(lib):
        results = []
        m = small(lib)
        r = attempt(m.freeze, **arguments)
        results += [r if isinstance(r, str) else r is m, frozen_names(m), m.trainable_parameters()]
        m = small(lib).freeze()
        r = attempt(m.unfreeze, **arguments)
        results += [r if isinstance(r, str) else r is m, frozen_names(m), m.trainable_parameters()]
        return results

    compare(scenario)


def test_freeze_takes_keywords_only():
    with pytest.raises(TypeError):
        HESPER.nn.Linear(1, 1).freeze("weight")


UPDATES = [
    lambda mx, nn: {"a": mx.ones(3)},
    lambda mx, nn: {"zz": mx.ones(1)},
    lambda mx, nn: {"a": 3},
    lambda mx, nn: {"a": {"b": 1}},
    lambda mx, nn: {"l": [{"weight": mx.ones((1, 1))}]},
    lambda mx, nn: {"l": [{}, {}, {"weight": mx.ones((1, 1))}]},
    lambda mx, nn: {"l": {}},
    lambda mx, nn: {"l": mx.ones(1)},
    lambda mx, nn: {"n": mx.ones(1)},
    lambda mx, nn: {"n": {"weight": mx.ones(2), "q": mx.ones(1)}},
    lambda mx, nn: {"l": [{"zork": mx.ones(1)}]},
    lambda mx, nn: {"l": "text"},
    lambda mx, nn: {"d": {"x": {"weight": mx.ones((1, 1))}, "y": mx.ones(1)}},
    lambda mx, nn: {"sc": [mx.ones(5), mx.ones(6), mx.ones(7)]},
    lambda mx, nn: {"sc": (mx.ones(5),)},
    lambda mx, nn: {"sc": [{}, mx.zeros(3)]},
    lambda mx, nn: {"sc": [mx.zeros(3)]},
    lambda mx, nn: {},
    lambda mx, nn: 3,
    lambda mx, nn: "text",
    lambda mx, nn: {"d": [1]},
    lambda mx, nn: {"a": None},
    lambda mx, nn: {"training": mx.ones(1)},
    lambda mx, nn: {"l": {"0": {"weight": mx.ones((1, 1))}}},
    lambda mx, nn: {"d": {"x": mx.ones(1)}},
    lambda mx, nn: {"l": [mx.ones(1)]},
    lambda mx, nn: {"a": nn.ReLU()},
    lambda mx, nn: [],
    lambda mx, nn: [1],
]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("index", range(len(UPDATES)))
def test_updating_parameters(index, strict):
    def scenario(lib):
        m = small(lib)
        r = attempt(m.update, UPDATES[index](lib.mx, lib.nn), strict=strict)
        return r if isinstance(r, str) else (r is m, dict(m))

    compare(scenario)


MODULE_UPDATES = [
    lambda mx, nn: {"n": nn.ReLU()},
    lambda mx, nn: {"a": nn.ReLU()},
    lambda mx, nn: {"zz": nn.ReLU()},
    lambda mx, nn: {"n": 3},
    lambda mx, nn: {"l": [nn.Tanh()]},
    lambda mx, nn: {"l": [nn.Tanh(), nn.Tanh(), nn.Tanh()]},
    lambda mx, nn: {"l": [{}, nn.Tanh()]},
    lambda mx, nn: {"l": {"weight": nn.ReLU()}},
    lambda mx, nn: {"d": {"x": nn.ReLU()}},
    lambda mx, nn: {"d": {"y": nn.ReLU()}},
    lambda mx, nn: {"d": nn.ReLU()},
    lambda mx, nn: {"n": mx.ones(1)},
    lambda mx, nn: {"n": {"weight": nn.ReLU()}},
    lambda mx, nn: {"n": {"q": nn.ReLU()}},
    lambda mx, nn: {"n": {"weight": mx.ones((1, 1))}},
    lambda mx, nn: {"l": [3]},
    lambda mx, nn: {"l": [mx.ones(1)]},
    lambda mx, nn: 3,
    lambda mx, nn: {"n": {}},
    lambda mx, nn: {"d": {"x": 4}},
    lambda mx, nn: {"sc": [nn.ReLU()]},
    lambda mx, nn: {"l": "text"},
    lambda mx, nn: {"n": None},
    lambda mx, nn: {"n": [nn.ReLU()]},
]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("index", range(len(MODULE_UPDATES)))
def test_updating_modules(index, strict):
    def scenario(lib):
        m = small(lib)
        r = attempt(m.update_modules, MODULE_UPDATES[index](lib.mx, lib.nn), strict=strict)
        return r if isinstance(r, str) else (r is m, dict(m))

    compare(scenario)


def weights_for(lib):
    ones = lambda *shape: lib.mx.ones(shape)  # noqa: E731
    full = [
        ("layers.0.weight", ones(2, 2)),
        ("layers.0.bias", ones(2)),
        ("layers.1.weight", ones(3, 2)),
        ("layers.1.bias", ones(3)),
    ]
    return {
        "full": full,
        "one missing": full[:-1],
        "two missing": full[:2],
        "one unknown": full + [("x", ones(1))],
        "two unknown": full + [("x", ones(1)), ("y.z", ones(1))],
        "other shape": full[:-1] + [("layers.1.bias", ones(4))],
        "no array": full[:-1] + [("layers.1.bias", 3)],
        "other type": full[:-1] + [("layers.1.bias", ones(3).astype(lib.mx.int32))],
        "none": [],
        "a dict": dict(full),
        "beyond the list": [("layers.2.weight", ones(1))],
        "a tuple": tuple(full),
        "a number": 5,
        "no such npz": "nowhere.npz",
        "no such safetensors": "nowhere.safetensors",
        "unknown format": "nowhere.xyz",
    }


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("case", list(weights_for(HESPER)))
def test_loading_weights(case, strict):
    def scenario(lib):
        m = set_numbers(lib, lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.Linear(2, 3)))
        r = attempt(m.load_weights, weights_for(lib)[case], strict=strict)
        return r if isinstance(r, str) else (r is m, m.parameters())

    compare(scenario)


def test_a_weight_that_is_given_twice_is_an_error():
    layer = HESPER.nn.Linear(1, 1, bias=False)
    twice = [("weight", HESPER.mx.ones((1, 1)))] * 2
    with pytest.raises(ValueError, match="same path"):
        layer.load_weights(twice)


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_weights_survive_a_file(tmp_path, ending):
    nn = HESPER.nn
    a = set_numbers(HESPER, nn.TransformerEncoderLayer(8, 2))
    for path in (str(tmp_path / f"weights.{ending}"), tmp_path / f"path.{ending}"):
        a.save_weights(path)
        b = nn.TransformerEncoderLayer(8, 2).load_weights(path)
        for (name, x), (_, y) in zip(*(HESPER.utils.tree_flatten(m.parameters()) for m in (a, b))):
            np.testing.assert_array_equal(to_numpy(x), to_numpy(y), err_msg=name)


@pytest.mark.parametrize("name", ["w.xyz", "w", "w.npy"])
def test_weights_are_not_saved_in_unknown_formats(tmp_path, name):
    compare(
        lambda lib: attempt(lib.nn.Linear(1, 1).save_weights, str(tmp_path / name))
    )


def test_applying_functions_to_parameters_and_modules():
    def scenario(lib):
        m = small(lib)
        names = []
        m.apply_to_modules(lambda name, module: names.append((name, type(module).__name__)))
        doubled = m.apply(lambda x: x * 2)
        biased = small(lib).apply(lambda x: x + 1, filter_fn=lambda m, k, v: k != "weight")
        return names, doubled is m, doubled, biased, attempt(m.apply, lambda x: 3)

    compare(scenario)


def test_shared_modules_are_visited_under_each_name():
    def scenario(lib):
        class Shared(lib.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = lib.nn.ReLU()
                self.b = self.a
                self.c = lib.nn.Sequential(self.a, lib.nn.Tanh())

        m = Shared()
        return [name for name, _ in m.named_modules()], len(m.modules()), repr(m), m.leaf_modules()

    compare(scenario)


def test_changing_types():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn
        m = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64).to_quantized())
        log = []
        for arguments in ((mx.float16,), (mx.float32, None), (mx.bfloat16, lambda d: d == mx.float32)):
            log.append(m.layers[0].set_dtype(*arguments))
            log.append(dtype_name(m.layers[0].weight))
        m.set_dtype(mx.float16)
        return log, [(name, dtype_name(x)) for name, x in lib.utils.tree_flatten(m.parameters())]

    compare(scenario)


def test_training_mode_reaches_all_modules():
    def scenario(lib):
        m = lib.nn.Sequential(lib.nn.Dropout(), lib.nn.Sequential(lib.nn.BatchNorm(2)))
        log = [m.training]
        for change in (m.eval, m.train, lambda: m.train(False), lambda: m.train(mode=True)):
            log.append((change() is m, [x.training for x in m.modules()]))
        return log

    compare(scenario)


def test_modules_can_be_copied_and_pickled():
    layer = set_numbers(HESPER, HESPER.nn.Linear(2, 3)).freeze(keys="bias")
    for duplicate in (copy.deepcopy(layer), copy.copy(layer), pickle.loads(pickle.dumps(layer))):
        assert repr(duplicate) == repr(layer)
        assert list(duplicate.trainable_parameters()) == ["weight"]
        np.testing.assert_array_equal(to_numpy(duplicate.weight), to_numpy(layer.weight))
    deep = copy.deepcopy(layer)
    deep.weight = HESPER.mx.zeros((3, 2))
    deep.unfreeze()
    assert to_numpy(layer.weight).any() and layer._no_grad == {"bias"}


@pytest.mark.parametrize(
    "make",
    [
        lambda nn: nn.TransformerEncoderLayer(8, 2, activation=nn.gelu),
        lambda nn: nn.Transformer(8, 2, 1, 1),
        lambda nn: nn.Sequential(nn.MaxPool2d(2), nn.AvgPool1d(2), nn.RNN(2, 2), nn.GELU(), nn.Upsample(2)),
        lambda nn: nn.Sequential(nn.relu, nn.Linear(64, 2).to_quantized(), nn.BatchNorm(2)),
    ],
)
def test_models_can_be_copied_and_pickled(make):
    model = make(HESPER.nn)
    for duplicate in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert repr(duplicate) == repr(model)
        pairs = zip(*(HESPER.utils.tree_flatten(m.parameters()) for m in (model, duplicate)))
        assert all(np.array_equal(to_numpy(a), to_numpy(b)) for (_, a), (_, b) in pairs)


def test_a_model_can_be_updated_with_its_own_parameters():
    compare(lambda lib: mixed(lib).update(mixed(lib).parameters()))


def test_nested_representations_are_indented():
    def scenario(lib):
        class Inner(lib.nn.Module):
            def _extra_repr(self):
                return "one\ntwo"

        class Outer(lib.nn.Module):
            def __init__(self):
                super().__init__()
                self.e = Inner()
                self.f = lib.nn.Sequential(Inner())

            def _extra_repr(self):
                return "extra=1"

        return repr(Outer()), str(Outer()), repr(lib.nn.Sequential())

    compare(scenario)


def test_lookups_of_attributes_follow_the_class_then_the_instance_then_the_items():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn

        class Wrapped(nn.Module):
            kind = "class"

            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(2, 2)
                self.number = 3

            @property
            def broken(self):
                raise AttributeError("this property has no value yet")

            @property
            def features(self):
                return self.inner.weight.shape[0]

        m = Wrapped()
        m["kind"] = mx.ones(1)
        m["number"] = mx.ones(1)
        m["broken"] = mx.ones(3)
        m["nothing"] = None
        m["update"] = mx.ones(1)
        found = [m.kind, m.number, m.broken.shape, m.features, callable(m.update), m.inner is m["inner"]]
        missing = [attempt(lambda name=name: getattr(m, name)) for name in ("nothing", "absent")]
        assert [hasattr(m, name) for name in ("inner", "nothing", "absent", "broken")] == [True, False, False, True]
        return found, [type(error).__name__ for error in missing], getattr(m, "absent", 5)

    compare(scenario)


def test_a_class_may_add_lookups_of_its_own():
    def scenario(lib):
        nn = lib.nn

        class Around(nn.Module):
            def __init__(self, inner):
                super().__init__()
                self["inner"] = inner

            def __getattr__(self, name):
                try:
                    return super().__getattr__(name)
                except AttributeError:
                    return getattr(self["inner"], name)

        m = Around(nn.RMSNorm(3, eps=0.5))
        return m.inner is m["inner"], m.eps, m.weight.shape, hasattr(m, "absent"), hasattr(nn.Linear(2, 2), "absent")

    compare(scenario)


def test_modules_with_items_are_copied_and_pickled():
    nn = HESPER.nn
    layer = nn.Linear(2, 3)
    for other in (copy.copy(layer), copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(other) is nn.Linear and other.weight.shape == (3, 2) and other.training
        assert np.array_equal(to_numpy(other.weight), to_numpy(layer.weight))


@pytest.mark.parametrize("make", ["Linear", "QuantizedLinear", "RMSNorm"])
def test_calls_of_common_layers_check_their_arguments(make):
    mx, nn = HESPER.mx, HESPER.nn
    layer = getattr(nn, make)(*((64,) if make == "RMSNorm" else (64, 64)))
    x = mx.ones((2, 64))
    assert np.array_equal(to_numpy(layer(x)), to_numpy(layer(x=x)))
    for arguments, named in (((), {}), ((x, x), {}), ((x,), {"x": x}), ((), {"y": x}), (("text",), {}), ((None,), {})):
        with pytest.raises(TypeError):
            layer(*arguments, **named)
    kept = layer["weight"]
    del layer["weight"]
    with pytest.raises(KeyError, match="weight"):
        layer(x)
    layer["weight"] = "text"
    with pytest.raises(TypeError):
        layer(x)
    # The layer works again.
    layer["weight"] = kept
    assert layer(x).shape == (2, 64)
    with pytest.raises(ValueError):
        layer(mx.ones((2, 63)))


def test_changed_settings_of_a_layer_count_at_the_next_call():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn
        norm = nn.RMSNorm(4)
        x = mx.array([1.0, 2.0, 3.0, 4.0])
        before = norm(x)
        norm.eps = 7.5
        after = norm(x)
        linear = nn.Linear(4, 2)
        linear.weight, linear.bias = mx.ones((2, 4)), mx.array([1.0, 2.0])
        biased = linear(x)
        del linear["bias"]
        return before, after, biased, linear(x)

    compare(scenario)
