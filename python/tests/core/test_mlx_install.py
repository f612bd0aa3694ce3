"""Programs for MLX on Hesper."""

import os
import subprocess
import sys
import textwrap

import hesper.core as mx


def run(arguments, **options):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, **options)


def test_imports_of_mlx_find_hesper():
    done = run(
        [
            "-c",
            textwrap.dedent(
                """
                import hesper.mlx
                hesper.mlx.install()
                import mlx.core as mx
                import mlx.core.fast
                import hesper.core
                assert mx is hesper.core, mx
                assert mx.fast is mlx.core.fast
                assert hesper.core.__spec__.name == "hesper.core"
                assert str(mx.float32) == "mlx.core.float32"
                assert not mx.metal.is_available()
                print((mx.array([1, 2]) + 1).tolist())
                hesper.mlx.uninstall()
                assert "mlx" not in __import__("sys").modules
                """
            ),
        ]
    )
    assert (done.stdout, done.stderr) == ("[2, 3]\n", "")


def test_modules_that_hesper_cannot_offer_say_why():
    for module, reason in (("mlx.extension", "C++"), ("mlx._distributed_utils.launch", "no backend between processes")):
        done = run(["-m", "hesper.mlx", "-c", f"import {module}"])
        assert done.returncode == 1 and "ModuleNotFoundError" in done.stderr and reason in done.stderr
    caught = "try:\n    import mlx.extension\nexcept ImportError:\n    print('no')"
    assert run(["-m", "hesper.mlx", "-c", caught]).stdout == "no\n"


def test_a_script_runs_with_its_arguments(tmp_path):
    (tmp_path / "beside.py").write_text("NUMBER = 5\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nimport mlx.core as mx\nfrom beside import NUMBER\n"
        "assert __name__ == '__main__'\n"
        "print(sys.argv[1:], mx.metal.is_available(), mx.default_device().type, mx.array(NUMBER).item())\n"
        "print(mx.add(1, 2, stream=mx.gpu).item() if mx.metal.is_available() else 3)\n"
    )
    done = run(["-m", "hesper.mlx", str(script), "a", "--b"])
    assert (done.stdout, done.stderr) == (f"['a', '--b'] False {mx.default_device().type} 5\n3\n", "")
    done = run(["-m", "hesper.mlx", "--metal-kernels", str(script)])
    assert (done.stdout, done.stderr) == ("[] True DeviceType.gpu 5\n3\n", "")


def test_the_environment_disables_compiled_functions(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import mlx.core as mx\nprint(mx.compile(lambda x: x.item())(mx.array(3)))\n")
    done = run(["-m", "hesper.mlx", str(script)], env={**os.environ, "MLX_DISABLE_COMPILE": "1"})
    assert (done.stdout, done.stderr) == ("3\n", "")
    without = {key: value for key, value in os.environ.items() if key != "MLX_DISABLE_COMPILE"}
    assert "while compile is tracing" in run(["-m", "hesper.mlx", str(script)], env=without).stderr


def test_wrong_options_say_how_to_call():
    done = run(["-m", "hesper.mlx"])
    assert done.returncode != 0 and "usage" in done.stderr


PROGRAM = """
from functools import partial

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten

mx.random.seed(0)
model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = optim.AdamW(learning_rate=1e-2)
x = mx.random.normal((128, 2))
y = (x[:, :1] * x[:, 1:] > 0).astype(mx.float32)
state = [model.state, optimizer.state, mx.random.state]


def loss(model, x, y):
    return nn.losses.binary_cross_entropy(model(x), y)


@partial(mx.compile, inputs=state, outputs=state)
def step(x, y):
    value, gradients = nn.value_and_grad(model, loss)(model, x, y)
    optimizer.update(model, gradients)
    return value


for _ in range(60):
    value = step(x, y)
    mx.eval(state)
assert mx.__name__ == "hesper.core"
assert len(tree_flatten(model.parameters())) == 4
assert value.item() < 0.3, value
print("learnt")
"""


def test_a_program_for_mlx_trains_a_compiled_model(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    command = [sys.executable, "-m", "hesper.mlx", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "learnt\n", done.stderr


def test_programs_find_the_version_of_the_api_that_they_ask_for():
    code = "import mlx.core as mx, sys; print(mx.__version__.split('.')[0], __name__, sys.argv)"
    done = run(["-m", "hesper.mlx", "-c", code, "a"])
    assert (done.stdout, done.stderr) == ("0 __main__ ['-c', 'a']\n", "")
    code = (
        "import hesper, hesper.mlx, hesper.core as mx; own = mx.__version__; hesper.mlx.install()\n"
        "assert tuple(map(int, mx.__version__.split('.'))) >= (0, 32) and hesper.__version__ == own\n"
        "hesper.mlx.uninstall(); assert mx.__version__ == own"
    )
    assert run(["-c", code]).stderr == ""


def test_a_missing_script_is_named():
    done = run(["-m", "hesper.mlx", "nothing.py"])
    assert done.returncode != 0 and "nothing.py" in done.stderr and "Traceback" not in done.stderr


PROCESSES = """
import multiprocessing
import sys

import helper


def work(number):
    return helper.double(number), sys.modules["mlx.core"].__name__


if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(pool.map_async(work, [1, 2]).get(60))
"""


def test_processes_that_a_program_starts_run_on_hesper(tmp_path):
    (tmp_path / "helper.py").write_text("import mlx.core as mx\n\n\ndef double(x):\n    return (mx.array(x) * 2).item()\n")
    (tmp_path / "program.py").write_text(PROCESSES)
    # The child has to find the package before it is told where the program looks for modules.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = run(["-m", "hesper.mlx", str(tmp_path / "program.py")], env=environment)
    line = "[(2, 'hesper.core'), (4, 'hesper.core')]\n"
    assert (done.stdout, done.stderr) == (2 * line, "")
