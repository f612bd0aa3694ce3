"""Libraries that take arrays of the standard run on Hesper's arrays; skipped where they are absent."""

import os
import subprocess
import sys

import hesper.array_api as xp
import numpy as np
import pytest


def run(program):
    """SciPy reads its setting when it is imported, so that it needs a process of its own."""
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_array_api_compat_finds_the_namespace():
    # The package array-api has stubs of this name, which import as an empty module.
    pytest.importorskip("array_api_compat.common", reason="array-api-compat is not installed")
    compat = pytest.importorskip("array_api_compat")
    x = xp.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert compat.array_namespace(x, x) is xp
    assert compat.is_array_api_obj(x) and compat.device(x) == x.device
    assert compat.to_device(x, x.device).tolist() == x.tolist() and compat.size(x) == 4


def test_scipy_computes_on_arrays():
    pytest.importorskip("scipy", reason="SciPy is not installed")
    run(
        """
import numpy as np, scipy.special, scipy.stats, scipy.signal, scipy.fft, scipy.cluster.vq
import hesper.array_api as xp
x = xp.asarray(np.random.default_rng(0).normal(size=(6, 8)))
y = np.from_dlpack(x)
for ours, theirs in [
    (scipy.special.logsumexp(x, axis=1), scipy.special.logsumexp(y, axis=1)),
    (scipy.special.softmax(x, axis=0), scipy.special.softmax(y, axis=0)),
    (scipy.stats.skew(x, axis=1), scipy.stats.skew(y, axis=1)),
    (scipy.stats.zscore(x), scipy.stats.zscore(y)),
    (scipy.fft.rfft(x), scipy.fft.rfft(y)),
    (scipy.fft.fftn(x + 0j), scipy.fft.fftn(y + 0j)),
    (scipy.cluster.vq.whiten(x), scipy.cluster.vq.whiten(y)),
]:
    assert type(ours) is type(x), type(ours)
    np.testing.assert_allclose(np.from_dlpack(ours), theirs, rtol=1e-10)
"""
    )


def test_scipy_computes_more_on_arrays():
    pytest.importorskip("scipy", reason="SciPy is not installed")
    run(
        """
import numpy as np, scipy.special, scipy.stats, scipy.signal, scipy.optimize, scipy.differentiate
import scipy.ndimage, scipy.cluster.hierarchy
import hesper.array_api as xp
rng = np.random.default_rng(0)
data, row = rng.normal(size=(6, 8)), rng.normal(size=64)
x, v = xp.asarray(data), xp.asarray(row)
for name, call in {
    "entr": lambda m, x, v: scipy.special.entr(m.abs(x)),
    "xlogy": lambda m, x, v: scipy.special.xlogy(m.abs(x), m.abs(x)),
    "ttest_ind": lambda m, x, v: scipy.stats.ttest_ind(x, x + 1).statistic,
    "pearsonr": lambda m, x, v: scipy.stats.pearsonr(v, v**2 + v).statistic,
    "rankdata": lambda m, x, v: scipy.stats.rankdata(v),
    "directional_stats": lambda m, x, v: scipy.stats.directional_stats(x[:, :3]).mean_direction,
    "detrend": lambda m, x, v: scipy.signal.detrend(v),
    "fftconvolve": lambda m, x, v: scipy.signal.fftconvolve(v, v[:5]),
    "savgol_filter": lambda m, x, v: scipy.signal.savgol_filter(v, 5, 2),
    "derivative": lambda m, x, v: scipy.differentiate.derivative(m.exp, v[:3]).df,
    "rosen": lambda m, x, v: scipy.optimize.rosen_der(v),
    "gaussian_filter": lambda m, x, v: scipy.ndimage.gaussian_filter(x, 2),
    "linkage": lambda m, x, v: scipy.cluster.hierarchy.linkage(x),
}.items():
    ours, theirs = call(xp, x, v), call(np, data, row)
    assert type(ours) is type(x), (name, type(ours))
    np.testing.assert_allclose(np.from_dlpack(ours), theirs, rtol=1e-7, atol=1e-9, err_msg=name)
"""
    )


def test_scikit_learn_computes_on_arrays():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    pytest.importorskip("array_api_compat", reason="array-api-compat is not installed")
    run(
        """
import numpy as np, sklearn
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.metrics import mean_squared_error, accuracy_score
import hesper.array_api as xp
rng = np.random.default_rng(0)
data, target = rng.normal(size=(40, 5)), rng.normal(size=40)
x, y = xp.asarray(data), xp.asarray(target)
with sklearn.config_context(array_api_dispatch=True):
    reduced = PCA(n_components=2, svd_solver="full").fit_transform(x)
    scaled = MinMaxScaler().fit_transform(x)
    predicted = Ridge(solver="svd").fit(x, y).predict(x)
    error = mean_squared_error(y, predicted)
    accuracy = accuracy_score(xp.asarray([0, 1, 1]), xp.asarray([0, 1, 0]))
assert all(type(part) is type(x) for part in (reduced, scaled, predicted))
near = dict(rtol=1e-8, atol=1e-10)
theirs = PCA(n_components=2, svd_solver="full").fit_transform(data)
np.testing.assert_allclose(np.abs(np.from_dlpack(reduced)), np.abs(theirs), **near)
np.testing.assert_allclose(np.from_dlpack(scaled), MinMaxScaler().fit_transform(data), **near)
theirs = Ridge(solver="svd").fit(data, target).predict(data)
np.testing.assert_allclose(np.from_dlpack(predicted), theirs, **near)
assert abs(float(error) - mean_squared_error(target, theirs)) < 1e-10 and abs(float(accuracy) - 2 / 3) < 1e-6
"""
    )
