"""The names, signatures and types of ``hesper.array_api`` are those of the standard."""

import inspect
import math
from operator import attrgetter

import hesper.array_api as xp
import hesper.core as mx
import pytest

SIGNATURES = """
astype(x, dtype, /, *, copy=True, device=None)
can_cast(from_, to, /)
finfo(type, /)
iinfo(type, /)
isdtype(dtype, kind)
result_type(*arrays_and_dtypes)
cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False)
cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False)
max(x, /, *, axis=None, keepdims=False)
mean(x, /, *, axis=None, keepdims=False)
min(x, /, *, axis=None, keepdims=False)
prod(x, /, *, axis=None, dtype=None, keepdims=False)
std(x, /, *, axis=None, correction=0.0, keepdims=False)
sum(x, /, *, axis=None, dtype=None, keepdims=False)
var(x, /, *, axis=None, correction=0.0, keepdims=False)
arange(start, /, stop=None, step=1, *, dtype=None, device=None)
asarray(obj, /, *, dtype=None, device=None, copy=None)
empty(shape, *, dtype=None, device=None)
empty_like(x, /, *, dtype=None, device=None)
eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)
from_dlpack(x, /, *, device=None, copy=None)
full(shape, fill_value, *, dtype=None, device=None)
full_like(x, /, fill_value, *, dtype=None, device=None)
linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True)
meshgrid(*arrays, indexing='xy')
ones(shape, *, dtype=None, device=None)
ones_like(x, /, *, dtype=None, device=None)
tril(x, /, *, k=0)
triu(x, /, *, k=0)
zeros(shape, *, dtype=None, device=None)
zeros_like(x, /, *, dtype=None, device=None)
argsort(x, /, *, axis=-1, descending=False, stable=True)
sort(x, /, *, axis=-1, descending=False, stable=True)
abs(x, /)
acos(x, /)
acosh(x, /)
add(x1, x2, /)
asin(x, /)
asinh(x, /)
atan(x, /)
atan2(x1, x2, /)
atanh(x, /)
bitwise_and(x1, x2, /)
bitwise_left_shift(x1, x2, /)
bitwise_invert(x, /)
bitwise_or(x1, x2, /)
bitwise_right_shift(x1, x2, /)
bitwise_xor(x1, x2, /)
ceil(x, /)
clip(x, /, min=None, max=None)
conj(x, /)
copysign(x1, x2, /)
cos(x, /)
cosh(x, /)
divide(x1, x2, /)
equal(x1, x2, /)
exp(x, /)
expm1(x, /)
floor(x, /)
floor_divide(x1, x2, /)
greater(x1, x2, /)
greater_equal(x1, x2, /)
hypot(x1, x2, /)
imag(x, /)
isfinite(x, /)
isinf(x, /)
isnan(x, /)
less(x1, x2, /)
less_equal(x1, x2, /)
log(x, /)
log1p(x, /)
log2(x, /)
log10(x, /)
logaddexp(x1, x2, /)
logical_and(x1, x2, /)
logical_not(x, /)
logical_or(x1, x2, /)
logical_xor(x1, x2, /)
maximum(x1, x2, /)
minimum(x1, x2, /)
multiply(x1, x2, /)
negative(x, /)
nextafter(x1, x2, /)
not_equal(x1, x2, /)
positive(x, /)
pow(x1, x2, /)
real(x, /)
reciprocal(x, /)
remainder(x1, x2, /)
round(x, /)
sign(x, /)
signbit(x, /)
sin(x, /)
sinh(x, /)
square(x, /)
sqrt(x, /)
subtract(x1, x2, /)
tan(x, /)
tanh(x, /)
trunc(x, /)
argmax(x, /, *, axis=None, keepdims=False)
argmin(x, /, *, axis=None, keepdims=False)
count_nonzero(x, /, *, axis=None, keepdims=False)
nonzero(x, /)
searchsorted(x1, x2, /, *, side='left', sorter=None)
where(condition, x1, x2, /)
all(x, /, *, axis=None, keepdims=False)
any(x, /, *, axis=None, keepdims=False)
diff(x, /, *, axis=-1, n=1, prepend=None, append=None)
__array_namespace_info__()
take(x, indices, /, *, axis=None)
take_along_axis(x, indices, /, *, axis=-1)
matmul(x1, x2, /)
matrix_transpose(x, /)
tensordot(x1, x2, /, *, axes=2)
vecdot(x1, x2, /, *, axis=-1)
broadcast_arrays(*arrays)
broadcast_to(x, /, shape)
concat(arrays, /, *, axis=0)
expand_dims(x, /, axis=0)
flip(x, /, *, axis=None)
moveaxis(x, source, destination, /)
permute_dims(x, /, axes)
repeat(x, repeats, /, *, axis=None)
reshape(x, /, shape, *, copy=None)
roll(x, /, shift, *, axis=None)
squeeze(x, /, axis)
stack(arrays, /, *, axis=0)
tile(x, repetitions, /)
unstack(x, /, *, axis=0)
unique_all(x, /)
unique_counts(x, /)
unique_inverse(x, /)
unique_values(x, /)
linalg.cholesky(x, /, *, upper=False)
linalg.cross(x1, x2, /, *, axis=-1)
linalg.det(x, /)
linalg.diagonal(x, /, *, offset=0)
linalg.eigh(x, /)
linalg.eigvalsh(x, /)
linalg.inv(x, /)
linalg.matmul(x1, x2, /)
linalg.matrix_norm(x, /, *, keepdims=False, ord='fro')
linalg.matrix_power(x, n, /)
linalg.matrix_rank(x, /, *, rtol=None)
linalg.matrix_transpose(x, /)
linalg.outer(x1, x2, /)
linalg.pinv(x, /, *, rtol=None)
linalg.qr(x, /, *, mode='reduced')
linalg.slogdet(x, /)
linalg.solve(x1, x2, /)
linalg.svd(x, /, *, full_matrices=True)
linalg.svdvals(x, /)
linalg.tensordot(x1, x2, /, *, axes=2)
linalg.trace(x, /, *, offset=0, dtype=None)
linalg.vecdot(x1, x2, /, *, axis=-1)
linalg.vector_norm(x, /, *, axis=None, keepdims=False, ord=2)
fft.fft(x, /, *, n=None, axis=-1, norm='backward')
fft.ifft(x, /, *, n=None, axis=-1, norm='backward')
fft.fftn(x, /, *, s=None, axes=None, norm='backward')
fft.ifftn(x, /, *, s=None, axes=None, norm='backward')
fft.rfft(x, /, *, n=None, axis=-1, norm='backward')
fft.irfft(x, /, *, n=None, axis=-1, norm='backward')
fft.rfftn(x, /, *, s=None, axes=None, norm='backward')
fft.irfftn(x, /, *, s=None, axes=None, norm='backward')
fft.hfft(x, /, *, n=None, axis=-1, norm='backward')
fft.ihfft(x, /, *, n=None, axis=-1, norm='backward')
fft.fftfreq(n, /, *, d=1.0, dtype=None, device=None)
fft.rfftfreq(n, /, *, d=1.0, dtype=None, device=None)
fft.fftshift(x, /, *, axes=None)
fft.ifftshift(x, /, *, axes=None)
"""
DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128".split()
METHODS = """abs add and eq floordiv ge getitem gt invert le lshift lt matmul mod mul ne neg or pos pow rshift setitem sub
truediv xor bool complex dlpack dlpack_device float index int array_namespace""".split()
REFLECTED = "add and floordiv lshift matmul mod mul or pow rshift sub truediv xor".split()


@pytest.mark.parametrize("line", SIGNATURES.split("\n")[1:-1])
def test_a_function_has_the_signature_of_the_standard(line):
    name, _, parameters = line.partition("(")
    function = attrgetter(name)(xp)
    assert str(inspect.signature(function)) == "(" + parameters
    assert function.__doc__ and function.__name__ == name.rpartition(".")[2]


def test_constants_types_and_methods_are_there():
    assert (xp.e, xp.pi, xp.inf, xp.newaxis) == (math.e, math.pi, math.inf, None)
    assert math.isnan(xp.nan)
    assert xp.__array_api_version__ == "2024.12"
    assert all(isinstance(getattr(xp, name), mx.Dtype) for name in DTYPES)
    for name in METHODS + ["r" + name for name in REFLECTED] + ["i" + name for name in REFLECTED]:
        assert callable(getattr(mx.array, f"__{name}__")), name
    assert set(DTYPES) <= set(xp.__all__) and all(hasattr(xp, name) for name in xp.__all__)


def test_an_array_names_its_namespace_for_every_version_of_the_standard():
    x = xp.asarray(1.0)
    assert x.__array_namespace__() is xp
    for version in ["2021.12", "2022.12", "2023.12", "2024.12"]:
        assert x.__array_namespace__(api_version=version) is xp
    with pytest.raises(ValueError, match="1999.12"):
        x.__array_namespace__(api_version="1999.12")


def test_the_namespace_says_what_it_has():
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert isinstance(info.devices(), list) and info.default_device() in info.devices()
    assert list(info.dtypes()) == DTYPES and all(info.dtypes()[name] == getattr(xp, name) for name in DTYPES)
    assert list(info.dtypes(kind=("bool", "complex floating"))) == ["bool", "complex64", "complex128"]
    defaults = info.default_dtypes(device=info.default_device())
    assert defaults["real floating"] == xp.asarray(0.0).dtype
    assert defaults["complex floating"] == xp.asarray(0j).dtype
    assert defaults["integral"] == xp.asarray(0).dtype
    assert defaults["indexing"] == xp.argmax(xp.asarray([1, 2])).dtype


def test_limits_of_types_are_those_of_the_format():
    for name in ["int8", "int16", "int32", "int64"]:
        bits, limits = int(name[3:]), xp.iinfo(getattr(xp, name))
        assert (limits.min, limits.max) == (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        assert xp.iinfo(getattr(xp, "u" + name)).max == 2**bits - 1
    for dtype, part, bits in [(xp.complex128, xp.float64, 64), (xp.complex64, xp.float32, 32)]:
        for described in [xp.finfo(dtype), xp.finfo(part), xp.finfo(xp.zeros(1, dtype=dtype))]:
            assert (described.bits, described.dtype) == (bits, part)
    assert xp.finfo(xp.float64).eps == 2.0**-52 and xp.finfo(xp.float64).smallest_normal == 2.0**-1022
    with pytest.raises(ValueError, match="int32"):
        xp.finfo(xp.int32)


def test_types_combine_as_in_the_standard():
    table = {
        ("int8", "uint8"): "int16",
        ("int16", "uint16"): "int32",
        ("int32", "uint32"): "int64",
        ("uint8", "uint64"): "uint64",
        ("float32", "float64"): "float64",
        ("complex64", "complex128"): "complex128",
        ("float64", "complex64"): "complex128",
        ("float32", "complex64"): "complex64",
    }
    for (one, other), both in table.items():
        one, other, both = getattr(xp, one), getattr(xp, other), getattr(xp, both)
        assert xp.result_type(one, other) == xp.result_type(other, one) == both
        assert (xp.zeros(1, dtype=one) + xp.ones(1, dtype=other)).dtype == both
        assert xp.can_cast(one, both) and (xp.can_cast(both, one) == (one == both))
    x = xp.zeros(2, dtype=xp.float64)
    assert xp.result_type(x, 1, 2.0) == xp.float64 and xp.result_type(x, 1j) == xp.complex128
    assert xp.result_type(xp.int8, 5) == xp.int8 and xp.result_type(xp.uint8, xp.int8, 3) == xp.int16
    assert (x * 1j).dtype == xp.complex128 and (1 + x).dtype == xp.float64
    with pytest.raises(ValueError, match="numbers alone"):
        xp.result_type(1, 2.0)


def test_astype_drops_no_imaginary_part():
    z = xp.asarray([1 + 2j])
    with pytest.raises(TypeError, match="real part"):
        xp.astype(z, xp.float32)
    assert xp.astype(z, xp.complex128).tolist() == [1 + 2j] and xp.astype(z, xp.bool).tolist() == [True]
    x = xp.asarray([1.5, -2.5])
    assert xp.astype(x, xp.float32, copy=False) is x and xp.astype(x, xp.float32) is not x
    assert xp.astype(x, xp.int8).tolist() == [1, -2]
