"""Fuzzes what Python hands to Hesper: indices, DLPack capsules, pickles.

    python fuzz.py [index|dlpack|pickle ...] [--seconds N] [--seed S]

Every input is a function of its seed, which is printed with what is found; `--seconds 0 --seed S` runs that one input again.
Indices are compared with NumPy. Capsules and pickles are answered with an array or an exception; the process lives.
"""

import argparse
import ctypes
import gc
import io
import pickle
import random
import sys
import time

import numpy as np
from dlpack import Deleter, Managed, Tensor, Versioned, int64s, new_capsule

import hesper.core as mx


class Finding(Exception):
    """Something that must not happen."""


# Indices


def some_slice(rng):
    bound = lambda: rng.choice([None, None, *range(-6, 7), 2**62, -(2**62)])
    return slice(bound(), bound(), rng.choice([None, 1, 1, 2, -1, -2, 3, 2**62]))


def some_index(rng, shape):
    """An index as NumPy and as Hesper take it, and whether both have to agree on it."""
    ours, numpys, plain, axis = [], [], True, 0
    seen_ellipsis = False
    for _ in range(rng.randrange(len(shape) + 2)):
        left = len(shape) - axis
        length = shape[axis] if left > 0 else 1
        kind = rng.randrange(10)
        if kind < 3:
            item = other = some_slice(rng)
            axis += 1
        elif kind < 5:
            item = other = rng.randrange(-length, length) if length and rng.random() < 0.9 else rng.randrange(-9, 9)
            axis += 1
        elif kind == 5:
            item = other = None
        elif kind == 6 and not seen_ellipsis:
            item = other = ...
            seen_ellipsis = True
            # An ellipsis of no axes separates lists in NumPy, but not in MLX.
            plain = False
            axis = len(shape)
        elif kind < 9 and length > 0:
            dims = rng.choice([(), (1,), (2,), (3,), (2, 2), (0,)])
            other = np.array([rng.randrange(-length, length) for _ in range(int(np.prod(dims)))], dtype=np.int32)
            other = other.reshape(dims)
            item = rng.choice([mx.array, lambda x: x, lambda x: x.tolist()])(other)
            if dims == (0,):
                item = mx.array(other)
            plain = plain and dims != ()
            axis += 1
        else:
            rank = min(rng.randrange(1, 3), max(left, 1))
            dims = shape[axis : axis + rank] if rng.random() < 0.8 and left > 0 else (rng.randrange(4),)
            other = np.array([rng.random() < 0.5 for _ in range(int(np.prod(dims)))], dtype=bool).reshape(dims)
            item = mx.array(other)
            axis += len(dims)
            plain = False
        ours.append(item)
        numpys.append(other)
    if len(ours) == 1 and rng.random() < 0.5:
        return ours[0], numpys[0], plain
    return tuple(ours), tuple(numpys), plain


ODD = [True, False, 1.5, "x", b"x", 2**64, -(2**63) - 1, object(), (0, (1,)), [[]], [1, None], {}, 1j, float("nan")]


def same(what, found, wanted, index):
    found = np.array(found)
    if found.shape != wanted.shape or not np.array_equal(found, wanted):
        raise Finding(f"{what} with {index!r}: {found.tolist()} of shape {found.shape} instead of {wanted.tolist()} of shape {wanted.shape}")


def fuzz_index(rng):
    shape = tuple(rng.choice([0, 1, 2, 3, 4, 5]) for _ in range(rng.randrange(5)))
    numpys = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    ours = mx.array(numpys)
    if rng.random() < 0.3:
        numpys, ours = numpys.T, ours.T
    index, other, plain = some_index(rng, numpys.shape)
    if rng.random() < 0.1:
        odd = rng.choice(ODD)
        for use in (lambda: ours[odd].tolist(), lambda: ours[(..., odd)].tolist(), lambda: ours.at[odd].add(1).tolist()):
            try:
                use()
            except Exception:
                pass
        return
    try:
        wanted = numpys[other]
    except (IndexError, ValueError):
        wanted = None
    try:
        found = ours[index]
        mx.eval(found)
    except Exception as error:
        if wanted is not None and plain:
            raise Finding(f"shape {numpys.shape} with {index!r}: {error!r}, but NumPy takes it") from error
        return
    if wanted is None:
        if plain:
            raise Finding(f"shape {numpys.shape} with {index!r}: {found.shape}, but NumPy refuses it")
        return
    if plain:
        same(f"shape {numpys.shape}", found, wanted, index)
    # An assignment of a number for each element, if no element is named twice.
    value = rng.choice([7, np.arange(found.size, dtype=np.int32).reshape(found.shape)])
    # Values of the same shape are taken even where shapes are no longer in the order of NumPy.
    if not plain and not np.isscalar(value) or np.unique(wanted).size != wanted.size:
        value = 7
    copy, target = numpys.copy(), mx.array(ours)
    copy[other] = value
    target[index] = value if np.isscalar(value) else mx.array(value)
    same(f"assignment, shape {numpys.shape}", target, copy, index)
    same("the array after an assignment to its copy", ours, numpys, index)
    added = numpys.copy()
    np.add.at(added, other, 1)
    same(f"at[].add, shape {numpys.shape}", ours.at[index].add(1), added, index)


# DLPack

MEMORY = (ctypes.c_uint8 * (1 << 16))(*(i * 7 % 2 for i in range(1 << 16)))
BASE = ctypes.addressof(MEMORY) + 4096 & ~63
# Names and structures live as long as the process: a consumer may ask for either at any time.
KEPT = []


class Producer:
    """Gives away a capsule."""

    def __init__(self, capsule, device):
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


def some_tensor(rng):
    """A tensor that lies within the memory, or says what no tensor can be."""
    ndim = rng.randrange(5)
    shape = [rng.randrange(5) for _ in range(ndim)]
    strides, step = [0] * ndim, 1
    for axis in reversed(range(ndim)):
        strides[axis] = step if rng.random() < 0.8 else rng.choice([0, -1, 2, 3])
        step *= max(shape[axis], 1)
    code, bits = rng.choice([(0, 32), (1, 8), (2, 32), (2, 16), (2, 64), (4, 16), (5, 64), (6, 8)])
    tensor = Tensor(BASE + 8192, 1, 0, ndim, code, bits, 1, None, None, rng.choice([0, 0, 64, 4, 1]))
    if rng.random() < 0.5:
        broken = rng.randrange(10)
        if broken == 0:
            tensor.ndim = rng.choice([-1, -(2**31), 2**31 - 1, 1000])
            shape = shape or [1]
        elif broken == 1:
            tensor.code = rng.randrange(256)
        elif broken == 2:
            tensor.bits = rng.choice([0, 1, 7, 128, 255, 4])
        elif broken == 3:
            tensor.lanes = rng.choice([0, 2, 65535])
        elif broken == 4 and ndim:
            shape[rng.randrange(ndim)] = rng.choice([-1, -(2**63), 2**62, 2**63 - 1])
            # No memory is that large: the strides say zero, or there is an empty axis.
            strides = [0] * ndim
        elif broken == 5 and ndim:
            strides[rng.randrange(ndim)] = rng.choice([2**62, -(2**63), 2**63 - 1])
            shape = [min(n, 1) for n in shape]
        elif broken == 6:
            tensor.device_type = rng.choice([0, 2, 8, -1, 99])
        elif broken == 7:
            tensor.data = None
            shape = [0] * ndim
        elif broken == 8:
            tensor.byte_offset = rng.choice([2**64 - 1, 2**63])
            shape = [0] * max(ndim, 1)
            tensor.ndim = len(shape)
        else:
            return tensor, None, None
    return tensor, shape, strides if rng.random() < 0.7 else None


def fuzz_dlpack(rng):
    tensor, shape, strides = some_tensor(rng)
    if shape is not None:
        # More numbers of axes than there are would be read beyond the end, but for those that are refused by their count.
        block = int64s(shape + [1] * max(0, min(tensor.ndim, 2000) - len(shape)))
        KEPT.append(block)
        tensor.shape = ctypes.cast(block, ctypes.POINTER(ctypes.c_int64))
    if strides is not None:
        block = int64s(strides + [0] * max(0, min(tensor.ndim, 2000) - len(strides)))
        KEPT.append(block)
        tensor.strides = ctypes.cast(block, ctypes.POINTER(ctypes.c_int64))
    calls = []
    deleter = Deleter(lambda _: calls.append(1)) if rng.random() < 0.9 else Deleter()
    if rng.random() < 0.5:
        managed, name = Managed(tensor, None, deleter), b"dltensor"
    else:
        major = rng.choice([1, 1, 1, 0, 2, 2**32 - 1])
        managed = Versioned(major, 0, None, deleter, rng.choice([0, 1, 2, 3, 2**64 - 1]), tensor)
        name = b"dltensor_versioned"
    if rng.random() < 0.05:
        name = rng.choice([b"used_dltensor", b"", b"x"])
    KEPT.append((managed, deleter, name))
    producer = Producer(new_capsule(managed, name), rng.choice([(1, 0)] * 8 + [(2, 0), (0, 0), "x"]))
    try:
        array = rng.choice([mx.array, mx.asarray, mx.from_dlpack])(producer)
        mx.eval(array)
        # An array without elements may have as many rows as there are numbers.
        if max(array.shape, default=0) < 1 << 16:
            array.tolist()
        del array
    except Exception:
        pass
    producer = None
    gc.collect(0)
    if len(calls) > 1:
        raise Finding(f"the deleter was called {len(calls)} times")
    if len(KEPT) > 3000:
        mx.synchronize()
        del KEPT[:1500]


# Pickles


class Careful(pickle.Unpickler):
    """A changed pickle may name anything: only what a pickled array names is looked up."""

    def find_class(self, module, name):
        if module.startswith("hesper") or (module, name) in {("copyreg", "_reconstructor"), ("_codecs", "encode"), ("__builtin__", "bytes"), ("builtins", "bytes")}:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name}")


DTYPES = [mx.bool_, mx.uint8, mx.int32, mx.int64, mx.float16, mx.bfloat16, mx.float32, mx.complex64]


def fuzz_pickle(rng):
    shape = tuple(rng.randrange(4) for _ in range(rng.randrange(4)))
    array = mx.array(np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)).astype(rng.choice(DTYPES))
    if rng.random() < 0.3:
        state = (
            bytes(rng.randrange(256) for _ in range(rng.choice([0, 1, 4, 64]))),
            rng.choice([*DTYPES, None, "float32", 3]),
            rng.choice([[], [0], [-1], [2**62, 4], [2**63, 2], [1] * 100, [0, 2**62, 2**62], None, [4], [16], (2, 2)]),
        )
        before = array.tolist()
        try:
            array.__setstate__(rng.choice([state, state[:2], None, [*state], (*state, 1)]))
            array.tolist()
        except Exception:
            if array.tolist() != before:
                raise Finding(f"a refused state {state!r} changed the array") from None
        return
    data = bytearray(pickle.dumps(array, protocol=rng.randrange(2, 6)))
    plain = Careful(io.BytesIO(bytes(data))).load()
    if plain.dtype != array.dtype or plain.shape != array.shape or plain.tolist() != array.tolist():
        raise Finding(f"{plain!r} instead of {array!r}")
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data))
        change = rng.randrange(4)
        if change == 0:
            data[at] = rng.randrange(256)
        elif change == 1:
            data[at] ^= 1 << rng.randrange(8)
        elif change == 2:
            del data[at : at + rng.randrange(1, 5)]
        else:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 5)))
        if not data:
            return
    try:
        found = Careful(io.BytesIO(bytes(data))).load()
        if isinstance(found, mx.array) and found.size < 1 << 16:
            found.tolist()
    except Exception:
        pass


TARGETS = {"index": fuzz_index, "dlpack": fuzz_dlpack, "pickle": fuzz_pickle}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name in options.targets or TARGETS:
        run, count = TARGETS[name], 0
        until = time.monotonic() + options.seconds
        while True:
            seed = options.seed + count
            # What kills the process leaves its seed behind.
            sys.stdout.write(f"\r{name} {seed}")
            sys.stdout.flush()
            count += 1
            try:
                run(random.Random(seed))
            except BaseException as error:
                print(f"\nFAIL {name}: seed {seed}: {type(error).__name__}: {error}")
                if not isinstance(error, Finding):
                    raise
                return 1
            if time.monotonic() >= until:
                break
        print(f"\rok   {name}: {count} inputs from seed {options.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
