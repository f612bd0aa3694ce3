"""``mx.metal`` on the simulated Metal, in a process of its own: its GPU is the default device."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import hesper.core as mx
if not mx.metal.is_available():
    print("no simulation")
    raise SystemExit
assert not mx.cuda.is_available()
info = mx.metal.device_info()
assert info["architecture"] == "apple7" and info["device_name"].startswith("Apple M1"), info
assert mx.device_info() == info
most = info["max_recommended_working_set_size"]
assert mx.set_wired_limit(most) == 0 and mx.set_wired_limit(0) == most
for call, part in [
    (lambda: mx.set_wired_limit(most + 1), "recommends at most"),
    (lambda: mx.metal.start_capture("/no such folder/x.gputrace"), "x.gputrace"),
    (lambda: mx.fast.cuda_kernel("k", [], ["out"], ""), "no NVIDIA GPU"),
]:
    try:
        call()
    except (ValueError, RuntimeError) as error:
        assert part in str(error), error
    else:
        raise AssertionError(part)
mx.metal.stop_capture()
mx.metal.start_capture(PATH)
assert (mx.array([1.0, 2.0]) + 1).tolist() == [2.0, 3.0]
try:
    mx.metal.start_capture(PATH)
except RuntimeError as error:
    assert "another capture" in str(error)
mx.metal.stop_capture()
mx.metal.stop_capture()

def run(source):
    kernel = mx.fast.metal_kernel("twice", ["x"], ["out"], source, as_written=True)
    x = mx.array([float(i) for i in range(16)])
    return kernel(inputs=[x], grid=(16, 1, 1), threadgroup=(16, 1, 1), output_shapes=[(16,)], output_dtypes=[x.dtype])[0]

body = "uint i = thread_position_in_grid.x;\\nout[i] = 2 * x[i];"
assert run(body).tolist()[15] == 30
try:
    mx.eval(run(body.replace("x[i]", "y[i]")))
except RuntimeError as error:
    assert "twice:2:" in str(error), error
else:
    raise AssertionError("a text with an unknown name compiles")
assert run(body).tolist()[15] == 30
print("done")
"""


def test_metal_functions_and_kernels_as_written_reach_the_gpu(tmp_path):
    program = f"PATH = {str(tmp_path / 'x.gputrace')!r}\n{PROGRAM}"
    environment = {**os.environ, "HESPER_METAL": "sim", "HESPER_DEVICE": "gpu"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    if "no simulation" in done.stdout:
        pytest.skip("built without the simulated Metal")
    assert done.stdout == "done\n" and (tmp_path / "x.gputrace").exists()
