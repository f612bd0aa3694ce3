"""A program that uses each part of the installed package once; run by ``scripts/wheel-check`` in a fresh environment."""

import importlib.metadata
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import hesper
import hesper.core as mx
import hesper.lm
import hesper.nn as nn
import hesper.optimizers as optim
from hesper.utils import tree_flatten


def check_package():
    assert hesper.__version__ == mx.__version__ == importlib.metadata.version("hesper")
    folder = Path(hesper.__file__).parent
    assert "site-packages" in str(folder), folder
    missing = [name for name in ("py.typed", "_core.pyi", "core/__init__.pyi") if not (folder / name).exists()]
    assert not missing, missing


def check_arrays(folder):
    x = mx.random.normal((64, 64))
    assert np.allclose(np.array(x @ x), np.array(x) @ np.array(x), atol=1e-3)
    assert np.allclose(np.from_dlpack(x), np.array(x))
    mx.savez(folder / "arrays.npz", x=x)
    assert mx.array_equal(mx.load(str(folder / "arrays.npz"))["x"], x).item()
    packed = mx.quantize(x, bits=4)
    assert mx.allclose(mx.quantized_matmul(x, *packed, bits=4), x @ mx.dequantize(*packed, bits=4).T, atol=1e-2).item()
    kernel = mx.fast.metal_kernel(
        name="twice", input_names=["x"], output_names=["y"],
        source="uint i = thread_position_in_grid.x; y[i] = 2 * x[i];",
    )  # fmt: skip
    (y,) = kernel(
        inputs=[x], grid=(x.size, 1, 1), threadgroup=(64, 1, 1), output_shapes=[x.shape], output_dtypes=[x.dtype]
    )
    assert mx.array_equal(y, 2 * x).item()


def check_training():
    mx.random.seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = optim.AdamW(2e-2)
    x = mx.random.normal((128, 2))
    y = (x[:, :1] * x[:, 1:] > 0).astype(mx.float32)
    step = nn.value_and_grad(model, lambda x, y: nn.losses.binary_cross_entropy(model(x), y))
    for _ in range(60):
        loss, gradients = step(x, y)
        optimizer.update(model, gradients)
        mx.eval(model.state, optimizer.state)
    assert loss.item() < 0.3, loss
    assert len(tree_flatten(model.parameters())) == 4


def check_programs_for_mlx(folder):
    script = folder / "program.py"
    script.write_text("import mlx.core as mx, mlx.nn as nn\nprint(nn.relu(mx.array([-1, 2])).tolist())\n")
    done = subprocess.run([sys.executable, "-m", "hesper.mlx", str(script)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[0, 2]\n"), done.stderr


with tempfile.TemporaryDirectory() as name:
    check_package()
    check_arrays(Path(name))
    check_training()
    check_programs_for_mlx(Path(name))
print(f"hesper {hesper.__version__} on Python {sys.version.split()[0]}: passed")
