"""mlx_lm's commands on small checkpoints with random weights: they end, and write what they write with MLX."""

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import hesper
import hesper.core as mx

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mlx_lm") is None, reason="mlx_lm is not installed")
HAVE_MLX = importlib.util.find_spec("mlx") is not None

TEXT = "the evening star rises late and never lets go early a lazy array is computed when it is read"
DIMS, HEADS, KV_HEADS, HEAD_DIMS, INNER = 64, 4, 2, 32, 128
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write_tokenizer(folder):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT] * 20, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_checkpoint(folder, layers):
    """A small Llama with random weights."""
    folder.mkdir()
    write_tokenizer(folder)
    config = dict(
        model_type="llama", hidden_size=DIMS, num_hidden_layers=layers, intermediate_size=INNER, vocab_size=320,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIMS, rms_norm_eps=1e-5, eos_token_id=0,
        tie_word_embeddings=False,
    )  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens": (320, DIMS), "lm_head": (320, DIMS), "model.norm": (DIMS,)}
    for i in range(layers):
        layer = f"model.layers.{i}."
        q, kv = HEADS * HEAD_DIMS, KV_HEADS * HEAD_DIMS
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            shapes[f"{layer}self_attn.{name}_proj"] = (rows, DIMS)
        shapes[layer + "self_attn.o_proj"] = (DIMS, q)
        shapes |= {layer + "mlp.gate_proj": (INNER, DIMS), layer + "mlp.up_proj": (INNER, DIMS)}
        shapes |= {layer + "mlp.down_proj": (DIMS, INNER)}
        shapes |= {layer + "input_layernorm": (DIMS,), layer + "post_attention_layernorm": (DIMS,)}
    rng = np.random.default_rng(layers)
    weights = {
        name + ".weight": mx.array((rng.standard_normal(shape) * shape[-1] ** -0.5 * 1.5).astype(np.float32))
        if len(shape) > 1
        else mx.ones(shape)
        for name, shape in shapes.items()
    }
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a model, a draft of it and data to train on."""
    folder = tmp_path_factory.mktemp("mlx_lm")
    write_checkpoint(folder / "model", 2)
    write_checkpoint(folder / "draft", 1)
    (folder / "data").mkdir()
    rng = np.random.default_rng(0)
    for name, count in (("train", 24), ("valid", 8), ("test", 8)):
        rows = [" ".join(rng.choice(TEXT.split(), rng.integers(8, 24))) for _ in range(count)]
        (folder / "data" / f"{name}.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    return folder


def command(folder, library, name, stdin=None, **options):
    """The ended process of a command of mlx_lm, started in ``folder``."""
    flags = []
    for key, value in options.items():
        flags.append(f"--{key.replace('_', '-')}" + ("" if value is True else f"={value}"))
    done = subprocess.run(
        [*interpreter(library), "-m", "mlx_lm", name, *flags],
        cwd=folder, input=stdin, capture_output=True, text=True, errors="replace", timeout=300, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def interpreter(library):
    return [sys.executable, "-m", "hesper.mlx"] if library == "hesper" else [sys.executable]


def environment():
    package = str(Path(hesper.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": package, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def same_text(folder, name, **options):
    """The output of a command on Hesper, equal to that on MLX but for times and memory."""
    written = command(folder, "hesper", name, **options)
    if HAVE_MLX:
        measured = r"[\d.,]+( |k)*(tok|tokens|sec|s|GB|it|\x1b)[^\n]*"
        expected = command(folder, "mlx", name, **options)
        assert re.sub(measured, "", written) == re.sub(measured, "", expected)
    return written


GENERATION = {
    "greedy": {},
    "sampled": dict(temp=0.9, top_p=0.95, min_p=0.02, top_k=40, xtc_probability=0.4, xtc_threshold=0.05, seed=3),
    "drafted": dict(draft_model="draft", num_draft_tokens=3),
    "with a short cache": dict(max_kv_size=16),
    "with a quantized cache": dict(kv_bits=8, kv_group_size=32, quantized_kv_start=4),
}


@pytest.mark.parametrize("options", GENERATION.values(), ids=GENERATION)
def test_text_is_generated(folder, options):
    text = same_text(folder, "generate", model="model", prompt="the evening", max_tokens=24, **options)
    assert "Generation: 24 tokens" in text


BATCH = """
from mlx_lm import batch_generate, load
model, tokenizer = load("model")
prompts = [tokenizer.encode(text) for text in ("the evening star", "a lazy", "an array is computed when it is read", "go")]
answer = batch_generate(model, tokenizer, prompts, max_tokens=[12, 3, 8, 12], return_prompt_caches=True)
print(answer.texts)
more = [tokenizer.encode(" and")] * 4
print(batch_generate(model, tokenizer, more, max_tokens=6, prompt_caches=answer.caches).texts)
"""


def test_prompts_are_continued_as_a_batch(folder):
    (folder / "batch.py").write_text(BATCH)
    written = []
    for library in ("hesper", "mlx")[: 1 + HAVE_MLX]:
        done = subprocess.run(
            [*interpreter(library), "batch.py"],
            cwd=folder, capture_output=True, text=True, errors="replace", timeout=300, env=environment(),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        written.append(done.stdout)
    assert written[0].count("[") >= 2 and len(set(written)) == 1, written


def test_a_chat_takes_turns_and_ends(folder):
    turns = "hello\nhow are you\nr\nhello\nq\n"
    same_text(folder, "chat", model="model", max_tokens=8, temp=0, stdin=turns)


def test_a_cached_prompt_is_continued(folder):
    file = "prompt.safetensors"
    command(folder, "hesper", "cache_prompt", model="model", prompt="a lazy array is", prompt_cache_file=file)
    same_text(folder, "generate", prompt_cache_file=file, prompt="computed", max_tokens=12)


@pytest.mark.parametrize("kind", ["lora", "dora", "full"])
def test_a_model_is_trained_and_fused(folder, kind):
    options = dict(
        model="model", train=True, test=True, data="data", fine_tune_type=kind, num_layers=2, batch_size=2, iters=4,
        val_batches=2, test_batches=2, learning_rate=1e-3, steps_per_report=1, steps_per_eval=2, seed=1,
    )  # fmt: skip
    losses = {}
    for library in ("hesper", "mlx")[: 1 + HAVE_MLX]:
        written = command(folder, library, "lora", adapter_path=f"{kind}-{library}", **options)
        losses[library] = [float(number) for number in re.findall(r"(?:m|loss )(\d\.\d{3})", written)]
    assert len(losses["hesper"]) > 6, written
    if HAVE_MLX:
        np.testing.assert_allclose(losses["hesper"], losses["mlx"], atol=2e-3)
    if kind != "full":
        command(folder, "hesper", "fuse", model="model", adapter_path=f"{kind}-hesper", save_path=f"{kind}-fused")
        same_text(folder, "generate", model=f"{kind}-fused", prompt="the evening", max_tokens=12)


@pytest.mark.parametrize("options", [
    dict(q_bits=4, q_group_size=32), dict(q_mode="mxfp4"), dict(q_mode="nvfp4"), dict(quant_predicate="mixed_3_6"),
], ids=lambda options: "-".join(map(str, options.values())))  # fmt: skip
def test_a_model_is_quantized_and_dequantized(folder, options):
    name = "-".join(map(str, options.values()))
    for library in ("hesper", "mlx")[: 1 + HAVE_MLX]:
        target = f"{name}-{library}"
        command(folder, library, "convert", hf_path="model", mlx_path=target, quantize=True, **options)
    same_text(folder, "generate", model=f"{name}-hesper", prompt="the evening", max_tokens=12)
    if HAVE_MLX:
        weights, expected = (mx.load(str(folder / f"{name}-{lib}" / "model.safetensors")) for lib in ("hesper", "mlx"))
        assert set(weights) == set(expected)
        assert all(mx.array_equal(weights[key], expected[key]).item() for key in expected)
    command(folder, "hesper", "convert", hf_path=f"{name}-hesper", mlx_path=f"{name}-plain", dequantize=True)
    same_text(folder, "generate", model=f"{name}-plain", prompt="the evening", max_tokens=12)


def test_perplexity_is_measured(folder):
    pytest.importorskip("datasets", reason="mlx_lm perplexity needs datasets, and it is not installed")
    options = dict(model="model", data_path="data", batch_size=2, sequence_length=32, num_samples=4)
    found = {
        library: float(re.search(r"Perplexity: ([\d.]+)", command(folder, library, "perplexity", **options))[1])
        for library in ("hesper", "mlx")[: 1 + HAVE_MLX]
    }
    assert np.ptp(list(found.values())) < 1e-4 * found["hesper"], found


def test_a_server_answers_streams_and_stops(folder):
    pytest.importorskip("mlx_lm.server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--model=model", f"--port={port}", "--log-level=ERROR"]
    server = subprocess.Popen(
        [*interpreter("hesper"), "-m", "mlx_lm", "server", *options],
        cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        # A shell's background jobs ignore the signal, and so do their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip

    def request(path, **body):
        data = json.dumps(body).encode() if body else None
        headers = {"Content-Type": "application/json"}
        ask = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
        with urllib.request.urlopen(ask, timeout=60) as answer:
            return answer.read().decode()

    try:
        for _ in range(200):
            assert server.poll() is None, "the server has ended"
            try:
                request("/health")
                break
            except OSError:
                time.sleep(0.1)
        ask = dict(messages=[{"role": "user", "content": "hello"}], max_tokens=8, temperature=0)
        answer = json.loads(request("/v1/chat/completions", **ask))
        assert answer["usage"]["completion_tokens"] == 8
        lines = request("/v1/chat/completions", **ask, stream=True).split("\n\n")
        assert "data: [DONE]" in lines
        pieces = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        text = "".join(piece["choices"][0]["delta"].get("content") or "" for piece in pieces if piece["choices"])
        assert text == answer["choices"][0]["message"]["content"]
        with pytest.raises(urllib.error.HTTPError):
            request("/v1/chat/completions", messages=ask["messages"], max_tokens=-1)
        server.send_signal(signal.SIGINT)
        assert server.wait(30) in (0, 130, -signal.SIGINT)
    finally:
        server.kill()
