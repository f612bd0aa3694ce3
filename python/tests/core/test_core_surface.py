"""Every name and signature of ``mlx.core`` is there, but for those that are listed here."""

import copy
import pickle

import hesper.core as mx
import pytest

from surface import accepts, differences

# What is not there yet. Whoever adds something takes it off the list; the test says so.
MISSING = set()

# ``arange`` has two overloads, of which one names its first argument ``stop``; the default of ``from_fp8`` is a type,
# which a signature cannot show; ``save_gguf`` may leave its metadata out.
DIFFERENT = {"arange", "from_fp8", "save_gguf"}


def test_every_name_of_the_reference_is_there(mlx):
    missing, _ = differences(mx, mlx)
    assert set(missing) == MISSING


def test_every_signature_takes_the_calls_of_the_reference(mlx):
    _, differing = differences(mx, mlx)
    assert set(differing) == DIFFERENT


def test_a_signature_that_asks_for_more_is_noticed():
    other = [("both", "a", ""), ("keyword", "stream", "None")]
    assert accepts([("both", "a", ""), ("both", "stream", "None")], other)
    assert not accepts([("positional", "a", ""), ("keyword", "stream", "None")], other)
    assert not accepts([("both", "a", "")], other)


def test_the_array_api_says_what_there_is(mlx):
    info, other = mx.__array_namespace_info__(), mlx.__array_namespace_info__()
    for kind in [None, "bool", "integral", "numeric", "real floating", ("bool", "complex floating")]:
        theirs = {name: str(dtype).rpartition(".")[2] for name, dtype in other.dtypes(kind=kind).items()}
        assert {name: str(dtype).rpartition(".")[2] for name, dtype in info.dtypes(kind=kind).items()} == theirs
    assert info.default_dtypes().keys() == other.default_dtypes().keys()
    assert info.capabilities().keys() == other.capabilities().keys()
    assert mx.array([3, 4])[mx.array([False, True])].tolist() == [4] and info.capabilities()["boolean indexing"]
    assert type(info.devices()) is type(other.devices()) and info.default_device() in info.devices()
    with pytest.raises(ValueError, match="'real'"):
        info.dtypes(kind="real")
    with pytest.raises(TypeError, match="device"):
        info.dtypes(device="gpu")


def test_what_is_documented_by_place_alone_may_be_named_where_the_reference_takes_names(mlx):
    def calls(mx):
        x = mx.array([[1.0, 0.0, 2.0], [0.0, 3.0, 4.0]])
        yield mx.roll(x, 1, axis=1)
        yield mx.roll(x, shift=(1, 1), axis=(0, 1))
        yield mx.astype(x, dtype=mx.int32)
        yield mx.count_nonzero(x, 1)
        yield mx.vecdot(x, x, 0)

    for ours, theirs in zip(calls(mx), calls(mlx)):
        assert ours.tolist() == theirs.tolist()


def test_integers_have_the_type_and_the_gradients_of_the_reference(mlx):
    def values(mx):
        yield str(mx.arange(2**31 - 2, 2**31).dtype)
        yield str(mx.arange(2**31 - 2, 2**31 - 1).dtype)
        yield str(mx.arange(0, 5, 2**33).dtype)
        yield mx.grad(lambda x: (x * x).sum())(mx.array([1, 2]))
        yield mx.grad(lambda x: x * 1.5)(mx.array(2))
        yield mx.jvp(lambda x: x * x, [mx.array([1, 2])], [mx.array([3, 4])])[1][0]
        yield mx.grad(lambda x: (x.astype(mx.int32) * 2).sum())(mx.array([1.5, 2.5]))
        yield mx.grad(lambda x: mx.floor(x).astype(mx.int32).sum().astype(mx.float32))(mx.array([1.5, 2.5]))

    for ours, theirs in zip(values(mx), values(mlx)):
        assert str(ours).replace("hesper", "mlx") == str(theirs)
    with pytest.raises(TypeError):
        float(mx.array(1j))


def test_kinds_of_devices_and_types_are_enumerations_of_python(mlx):
    for one, other in ((mx.DeviceType, mlx.DeviceType), (mx.DtypeCategory, mlx.DtypeCategory)):
        assert [(repr(m), str(m), f"{m}", m.name, m.value) for m in one] == [
            (repr(m), str(m), f"{m}", m.name, m.value) for m in other
        ]
        for member in one:
            assert one(member.value) is member and one[member.name] is member
            assert pickle.loads(pickle.dumps(member)) is member and copy.deepcopy(member) is member
        with pytest.raises(ValueError):
            one(99)
    assert mx.cpu is mx.DeviceType.cpu and mx.cpu == mx.Device(mx.cpu) and mx.cpu != 0
    for wrong in ("cpu", 2, None):
        with pytest.raises(TypeError):
            mx.Device(wrong)


def test_functions_name_the_public_module_and_pickle_by_it():
    for module in (mx, mx.fast, mx.fft, mx.linalg, mx.metal, mx.random):
        for name in dir(module):
            function = getattr(module, name)
            if type(function) is type(len) and function.__name__ == name and not name.startswith("_"):
                assert function.__module__.startswith("hesper.core"), name
                assert pickle.loads(pickle.dumps(function)) is function
    assert mx.fft.fft.__module__ == "hesper.core.fft" and mx.add.__module__ == "hesper.core"
