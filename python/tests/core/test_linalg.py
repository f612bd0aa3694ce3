"""Linear algebra against the reference and against NumPy."""

import numpy as np
import pytest

import hesper.core as mx

SHAPES = [(1, 1), (2, 2), (4, 4), (5, 3), (3, 5), (2, 3, 6, 6), (2, 9, 4)]
SQUARE = [shape for shape in SHAPES if shape[-1] == shape[-2]]


def numbers(shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def well(shape, seed=0):
    """A matrix far from singular."""
    return numbers(shape, seed) + 3 * shape[-1] * np.eye(shape[-1], dtype=np.float32)


def near(ours, theirs, atol=2e-4):
    ours, theirs = np.array(ours), np.array(theirs)
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, atol=atol, rtol=1e-3)


@pytest.mark.parametrize("shape", SQUARE)
@pytest.mark.parametrize("name", ["inv", "tri_inv", "pinv", "det", "cholesky_inv"])
def test_functions_of_square_matrices_agree_with_the_reference(mlx, name, shape):
    a = well(shape)
    ours = getattr(mx.linalg, name)(mx.array(a))
    with_mlx = getattr(mlx.linalg, name)(mlx.array(a), stream=mlx.cpu)
    if name == "det":
        np.testing.assert_allclose(np.array(ours), np.array(with_mlx), rtol=1e-3)
    else:
        near(ours, with_mlx)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("shape", SQUARE)
def test_triangles_agree_with_the_reference(mlx, shape, upper):
    a = well(shape)
    symmetric = (a @ np.swapaxes(a, -1, -2) / shape[-1]).astype(np.float32)
    ours, theirs = mx.linalg, mlx.linalg
    near(ours.tri_inv(mx.array(a), upper), theirs.tri_inv(mlx.array(a), upper, stream=mlx.cpu))
    near(
        ours.cholesky(mx.array(symmetric), upper=upper),
        theirs.cholesky(mlx.array(symmetric), upper=upper, stream=mlx.cpu),
    )
    b = numbers((shape[-1], 2))
    near(
        ours.solve_triangular(mx.array(a), mx.array(b), upper=upper),
        theirs.solve_triangular(mlx.array(a), mlx.array(b), upper=upper, stream=mlx.cpu),
    )
    name = "U" if upper else "L"
    near(
        ours.eigvalsh(mx.array(a), name),
        theirs.eigvalsh(mlx.array(a), name, stream=mlx.cpu),
        atol=1e-3,
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_factors_multiply_to_the_matrix(mlx, shape):
    a = numbers(shape)
    x = mx.array(a)
    q, r = mx.linalg.qr(x)
    theirs = mlx.linalg.qr(mlx.array(a), stream=mlx.cpu)
    assert (q.shape, r.shape) == (theirs[0].shape, theirs[1].shape)
    np.testing.assert_allclose(np.array(q @ r), a, atol=1e-4)
    # Signs are free.
    near(mx.abs(r), mlx.abs(theirs[1]))
    u, s, vt = mx.linalg.svd(x)
    theirs = mlx.linalg.svd(mlx.array(a), stream=mlx.cpu)
    assert [part.shape for part in (u, s, vt)] == [part.shape for part in theirs]
    near(s, theirs[1])
    near(mx.linalg.svd(x, compute_uv=False), theirs[1])
    k = s.shape[-1]
    again = (np.array(u)[..., :k] * np.array(s)[..., None, :]) @ np.array(vt)[..., :k, :]
    np.testing.assert_allclose(again, a, atol=1e-4)
    p, lower, upper = mx.linalg.lu(x)
    theirs = mlx.linalg.lu(mlx.array(a), stream=mlx.cpu)
    near(lower, theirs[1])
    near(upper, theirs[2])
    assert p.tolist() == theirs[0].tolist()
    factors, swaps = mx.linalg.lu_factor(x)
    theirs = mlx.linalg.lu_factor(mlx.array(a), stream=mlx.cpu)
    near(factors, theirs[0])
    assert swaps.tolist() == theirs[1].tolist() and swaps.dtype == mx.uint32
    near(mx.linalg.pinv(x), mlx.linalg.pinv(mlx.array(a), stream=mlx.cpu), atol=1e-2)


@pytest.mark.parametrize("shape", SQUARE)
def test_eigenvectors_are_stretched(shape):
    a = numbers(shape)
    symmetric = a + np.swapaxes(a, -1, -2)
    values, vectors = mx.linalg.eigh(mx.array(symmetric))
    assert values.dtype == vectors.dtype == mx.float32
    w, v = np.array(values), np.array(vectors)
    np.testing.assert_allclose(symmetric @ v, v * w[..., None, :], atol=1e-4)
    values, vectors = mx.linalg.eig(mx.array(a))
    assert values.dtype == vectors.dtype == mx.complex64
    w, v = np.array(values), np.array(vectors)
    np.testing.assert_allclose(a @ v, v * w[..., None, :], atol=1e-3)
    np.testing.assert_allclose(np.sort_complex(np.array(mx.linalg.eigvals(mx.array(a)))), np.sort_complex(w), atol=1e-3)


def test_equations_are_solved_for_vectors_and_matrices(mlx):
    a = well((4, 4))
    for b in (numbers((4,)), numbers((4, 3))):
        near(
            mx.linalg.solve(mx.array(a), mx.array(b)),
            mlx.linalg.solve(mlx.array(a), mlx.array(b), stream=mlx.cpu),
        )
    batch = well((3, 4, 4))
    b = numbers((3, 4, 2))
    near(mx.linalg.solve(mx.array(batch), mx.array(b)), np.linalg.solve(batch, b))
    # Right sides broadcast over a batch.
    assert mx.linalg.solve(mx.array(a), mx.array(b)).shape == (3, 4, 2)


def test_double_precision_stays_double():
    a = numbers((6, 6), dtype=np.float64)
    x = mx.array(a, mx.float64)
    assert mx.linalg.inv(x).dtype == mx.float64
    np.testing.assert_allclose(np.array(mx.linalg.inv(x)) @ a, np.eye(6), atol=1e-10)
    assert mx.linalg.eigvals(x).dtype == mx.complex128


@pytest.mark.parametrize("axis", [-1, 0])
def test_cross_products(mlx, axis):
    a, b = numbers((3, 3)), numbers((3, 3), 1)
    near(mx.linalg.cross(mx.array(a), mx.array(b), axis), mlx.linalg.cross(mlx.array(a), mlx.array(b), axis))
    assert mx.linalg.cross(mx.array([1, 2]), mx.array([4, 5, 6])).tolist() == [12, -6, -3]


@pytest.mark.parametrize("order", [None, 0, 1, 2, 3.5, "fro", "nuc", float("inf"), -1, -2])
@pytest.mark.parametrize("axis", [None, -1, (0, 1)])
def test_norms_agree_with_the_reference(mlx, order, axis):
    a = numbers((4, 3))

    def outcome(module, array):
        try:
            result = module.linalg.norm(array, order, axis, stream=module.cpu)
            return np.array(result)
        except ValueError:
            return "refused"

    ours, theirs = outcome(mx, mx.array(a)), outcome(mlx, mlx.array(a))
    if isinstance(theirs, str):
        assert isinstance(ours, str)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)


def test_what_the_reference_refuses_is_refused_alike(mlx):
    flat, whole, vector = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[1, 2], [3, 4]], [1.0, 2.0]
    cases = [
        (name, (value,))
        for name in ("inv", "cholesky", "eigh", "eig", "eigvals", "eigvalsh", "cholesky_inv", "tri_inv")
        for value in (flat, whole, vector)
    ]
    cases += [(name, (value,)) for name in ("qr", "svd", "lu", "lu_factor", "pinv") for value in (whole, vector)]
    cases += [("det", (flat,)), ("slogdet", (vector,)), ("cross", ([1.0] * 4, [1.0] * 4))]
    cases += [("solve", ([[1.0, 0.0], [0.0, 1.0]], [1.0, 2.0, 3.0])), ("solve", (flat, vector))]
    for name, arguments in cases:
        kinds = []
        for module in (mx, mlx):
            with pytest.raises((ValueError, RuntimeError)) as caught:
                module.eval(getattr(module.linalg, name)(*map(module.array, arguments), stream=module.cpu))
            kinds.append(caught.type)
        assert kinds[0] == kinds[1], (name, arguments, kinds)


def test_singular_matrices_are_a_fault_of_their_own_array_alone():
    bad = mx.linalg.inv(mx.array([[1.0, 2.0], [2.0, 4.0]]))
    good = mx.linalg.inv(mx.array([[2.0, 0.0], [0.0, 4.0]]))
    with pytest.raises(RuntimeError, match="singular"):
        mx.eval(bad)
    assert good.tolist() == [[0.5, 0.0], [0.0, 0.25]]
    with pytest.raises(RuntimeError, match="singular"):
        bad.tolist()


def test_empty_matrices_do_not_crash():
    none = mx.zeros((0, 0))
    assert mx.linalg.inv(none).shape == mx.linalg.cholesky(none).shape == (0, 0)
    assert mx.linalg.det(none).item() == 1.0
    assert [part.shape for part in mx.linalg.svd(mx.zeros((2, 0, 3)))] == [(2, 0, 0), (2, 0), (2, 3, 3)]
