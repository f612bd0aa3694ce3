"""Language models from Python: texts, streams, batches, threads, and what is refused."""

import doctest
import threading

import pytest

from hesper import lm


@pytest.fixture(scope="module")
def demo():
    return lm.load("demo")


def test_a_stream_gives_the_text_of_generate(demo):
    model, tokenizer = demo
    steps = list(lm.stream_generate(model, tokenizer, "The evening star", max_tokens=12))
    assert "".join(step.text for step in steps) == lm.generate(model, tokenizer, "The evening star", max_tokens=12)
    assert steps[-1].finish_reason in ("end", "length")
    assert [step.generation_tokens for step in steps] == list(range(1, len(steps) + 1))
    assert all(step.finish_reason is None for step in steps[:-1])


def test_a_batch_gives_what_each_prompt_gives_alone(demo):
    model, tokenizer = demo
    prompts = ["The evening star", "Night", "The", "A"]
    together = lm.batch_generate(model, tokenizer, prompts, max_tokens=10)
    alone = [lm.generate(model, tokenizer, prompt, max_tokens=10) for prompt in prompts]
    assert together.texts == alone
    assert len(together.tokens) == len(together.finish_reasons) == len(prompts)


def test_tokens_are_as_good_as_text(demo):
    model, tokenizer = demo
    ids = tokenizer.encode("The evening star")
    assert tokenizer.decode(ids).strip() == "The evening star"
    expected = lm.generate(model, tokenizer, "The evening star", max_tokens=6)
    assert lm.generate(model, tokenizer, ids, max_tokens=6) == expected


def test_threads_share_a_model(demo):
    model, tokenizer = demo
    expected = lm.generate(model, tokenizer, "The evening star", max_tokens=10)
    texts = []
    run = lambda: texts.append(lm.generate(model, tokenizer, "The evening star", max_tokens=10))  # noqa: E731
    threads = [threading.Thread(target=run) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert texts == [expected] * 8


def test_sampling_follows_its_seed(demo):
    model, tokenizer = demo
    draw = lambda seed: lm.generate(model, tokenizer, "The", max_tokens=16, temperature=5.0, seed=seed)  # noqa: E731
    assert draw(1) == draw(1)
    assert len({draw(seed) for seed in range(8)}) > 1


def test_a_stop_text_ends_a_text_before_it(demo):
    model, tokenizer = demo
    text = lm.generate(model, tokenizer, "The evening star", max_tokens=12)
    word = text.split()[1]
    assert lm.generate(model, tokenizer, "The evening star", max_tokens=12, stop=word) == text[: text.index(word)]


def test_what_makes_no_sense_is_refused(demo):
    model, tokenizer = demo
    with pytest.raises(FileNotFoundError):
        lm.load("no/such/model.gguf")
    with pytest.raises(ValueError, match="temperature"):
        lm.generate(model, tokenizer, "The", temperature=-1.0)
    with pytest.raises(ValueError):
        lm.generate(model, tokenizer, [])
    with pytest.raises(ValueError):
        lm.generate(model, tokenizer, [10**6])
    with pytest.raises(TypeError, match="colour"):
        lm.generate(model, tokenizer, "The", colour=1)


def test_a_model_tells_what_it_is(demo):
    model, tokenizer = demo
    assert model.vocab_size == tokenizer.vocab_size > 0
    assert model.context_length > 0
    assert model.num_parameters > 0
    assert model.nbytes > 0
    assert "parameters" in repr(model)
    assert isinstance(tokenizer.eos_token_ids, set)


def test_the_examples_run():
    assert doctest.testmod(lm).failed == 0
