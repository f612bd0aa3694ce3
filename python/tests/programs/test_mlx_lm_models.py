"""Model files of mlx_lm give the logits and tokens that they give with MLX."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hesper

PROGRAM = Path(__file__).with_name("mlx_lm_models.py")
MODELS = """
bailing_moe cohere cohere2 deepseek deepseek_v3 deepseek_v32 dots1 ernie4_5 exaone falcon_h1 gemma gemma2 gemma3_text glm4
glm4_moe gpt2 gpt_neox gpt_oss granite granitemoe helium internlm2 jamba lfm2 llama mamba mamba2 mimo minicpm mixtral
nanochat nemotron nemotron_h olmo2 olmo3 olmoe phi phi3 phimoe plamo2 qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next
recurrent_gemma rwkv7 seed_oss smollm3 stablelm starcoder2
""".split()

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")
    for name in ("mlx", "mlx_lm")
]


@pytest.fixture(scope="module")
def logits(tmp_path_factory):
    """The results of both packages by name."""
    folder, found = tmp_path_factory.mktemp("models"), []
    for library, options in (("hesper", ["-m", "hesper.mlx"]), ("mlx", [])):
        out = folder / f"{library}.npz"
        environment = {**os.environ, "PYTHONPATH": str(Path(hesper.__file__).parents[1])}
        command = [sys.executable, *options, str(PROGRAM), str(out), *MODELS]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
        assert done.returncode == 0, done.stderr
        found.append(np.load(out))
    return found


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("form", ["", " quantized"], ids=["plain", "quantized"])
def test_a_model_decodes_like_with_mlx(logits, name, form):
    ours, theirs = (results[name + form] for results in logits)
    assert np.isfinite(theirs).all()
    np.testing.assert_array_equal(ours.argmax(-1), theirs.argmax(-1))
    np.testing.assert_allclose(ours, theirs, atol=1e-4 * np.abs(theirs).max())
