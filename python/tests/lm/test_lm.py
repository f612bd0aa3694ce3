"""Language models from Python: texts, streams, batches, engines, threads, and what is refused."""

import _thread
import asyncio
import doctest
import re
import signal
import threading
import time

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


def test_a_generation_and_a_request_take_the_same_sampling_options(demo, engine):
    model, tokenizer = demo
    token = tokenizer.encode("star")[-1]
    options = {"max_tokens": 3, "logit_bias": {token: 100.0}}
    assert [step.token for step in lm.stream_generate(model, tokenizer, "The", **options)] == [token] * 3
    assert engine.generate("The", **options).result().tokens == [token] * 3
    # The penalty outweighs the bias once the token was generated.
    options["frequency_penalty"] = 200.0
    steps = [step.token for step in lm.stream_generate(model, tokenizer, "The", **options)]
    assert steps[0] == token and token not in steps[1:]


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


@pytest.fixture(scope="module")
def engine(demo):
    with lm.Engine(demo[0]) as engine:
        yield engine


def idle(engine, seconds=20.0):
    """Waits until an engine has no request."""
    end = time.monotonic() + seconds
    while engine.stats()["requests"]:
        assert time.monotonic() < end, engine.stats()["requests"]
        time.sleep(0.01)


def test_an_engine_gives_what_generate_gives(demo, engine):
    model, tokenizer = demo
    expected = lm.generate(model, tokenizer, "The evening star", max_tokens=12)
    answer = engine.generate("The evening star", max_tokens=12)
    assert "".join(token.text for token in answer) == expected
    assert answer.finish_reason in ("stop", "length")
    assert list(answer) == []
    result = engine.generate(tokenizer.encode("The evening star"), max_tokens=12).result()
    assert (result.text, result.prompt_tokens) == (expected, len(tokenizer.encode("The evening star")))


def test_threads_and_tasks_share_an_engine(demo, engine):
    model, tokenizer = demo
    prompts = ["The evening star", "Night", "The", "A"] * 8
    alone = {prompt: lm.generate(model, tokenizer, prompt, max_tokens=10) for prompt in set(prompts)}
    texts = [None] * len(prompts)

    def run(at):
        texts[at] = "".join(token.text for token in engine.generate(prompts[at], max_tokens=10))

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(prompts))]
    [thread.start() for thread in threads]

    async def one(at):
        text = ""
        async for token in engine.generate(prompts[at], max_tokens=10):
            text += token.text
        whole = await engine.generate(prompts[at], max_tokens=10)
        return text, whole.text

    async def all_of_them():
        return await asyncio.gather(*(one(at) for at in range(len(prompts))))

    both = asyncio.run(all_of_them())
    [thread.join() for thread in threads]
    expected = [alone[prompt] for prompt in prompts]
    assert texts == expected
    assert both == [(text, text) for text in expected]


def test_an_answer_that_is_closed_or_dropped_is_cancelled(demo, engine):
    room = demo[0].context_length - 8
    before = engine.stats()["cancelled"]
    answers = [engine.generate("Night", max_tokens=room, ignore_eos=True) for _ in range(12)]
    next(answers[0])
    answers[0].close()
    assert len(list(answers[0])) < room
    assert answers[0].finish_reason == "cancelled"
    answers[0].close()
    with answers[1]:
        pass
    assert answers[1].result().finish_reason == "cancelled"
    del answers
    idle(engine)

    async def leave():
        task = asyncio.ensure_future(engine.generate("Night", max_tokens=room, ignore_eos=True).__anext__())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with engine.generate("Night", max_tokens=room, ignore_eos=True) as answer:
            await anext(answer)

    asyncio.run(leave())
    idle(engine)
    assert engine.stats()["cancelled"] >= before + 10
    assert engine.generate("Night", max_tokens=3).result().text


def test_two_tasks_cannot_wait_for_one_answer(engine):
    async def both():
        async with engine.generate("Night", max_tokens=50, ignore_eos=True) as answer:
            results = await asyncio.gather(anext(answer), anext(answer), return_exceptions=True)
        return [type(result) for result in results]

    # Where the first token is there before the first task asks for it, that task does not wait.
    for _ in range(200):
        types = asyncio.run(both())
        if types == [lm.AnswerToken, RuntimeError]:
            return
        assert types == [lm.AnswerToken] * 2
    pytest.fail("no second task was refused")


def test_failures_of_an_engine_are_exceptions(demo, engine):
    with pytest.raises(ValueError, match="top_p"):
        engine.generate("The", top_p=2.0)
    with pytest.raises(ValueError, match="timeout"):
        engine.generate("The", timeout=-1.0)
    with pytest.raises(ValueError):
        engine.generate([])
    with pytest.raises(TypeError, match="colour"):
        engine.generate("The", colour=1)
    with pytest.raises(ValueError, match="several"):
        engine.generate("The", regex="a", grammar="b")
    with pytest.raises(ValueError):
        engine.generate("The", regex="(")
    with pytest.raises(TimeoutError, match="deadline"):
        engine.generate("The", timeout=1e-9).result()
    with pytest.raises(ValueError, match="hold no page"):
        lm.Engine(demo[0], kv_memory=1)
    with lm.Engine(demo[0], max_running=1, max_waiting=1) as small:
        room = demo[0].context_length - 8
        with pytest.raises(lm.EngineBusy) as busy:
            answers = [small.generate("Night", max_tokens=room, ignore_eos=True) for _ in range(50)]
            assert not answers
        assert busy.value.args[1] > 0


def test_a_constraint_and_probabilities(engine):
    # Words that the demo model's vocabulary has.
    pattern = r"( the| sun){3}\."
    text = "".join(token.text for token in engine.generate("The", regex=pattern, max_tokens=40))
    assert re.fullmatch(pattern, text), text
    tokens = list(engine.generate("The", max_tokens=3, logprobs=2))
    assert all(token.logprob <= 0 and len(token.top_logprobs) == 2 for token in tokens)
    assert all(token.top_logprobs[0][0] == token.token for token in tokens)


def test_a_closed_engine_fails_what_waits(demo):
    engine = lm.Engine(demo[0])
    assert engine.health == "ok"
    room = demo[0].context_length - 8
    answers = [engine.generate("Night", max_tokens=room, ignore_eos=True) for _ in range(40)]
    failures = []

    def wait(answer):
        try:
            answer.result()
        except RuntimeError as error:
            failures.append(str(error))

    threads = [threading.Thread(target=wait, args=(answer,)) for answer in answers]
    [thread.start() for thread in threads]
    engine.close()
    [thread.join(20) for thread in threads]
    assert not any(thread.is_alive() for thread in threads)
    assert set(failures) == {"the server is stopping"}
    engine.close()
    assert engine.health == "closed"
    with pytest.raises(RuntimeError, match="closed"):
        engine.generate("Night")
    with pytest.raises(RuntimeError, match="closed"):
        engine.stats()


def test_ctrl_c_ends_a_wait_for_an_answer(demo):
    # A process that was started in the background ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    # One runs, so the second one waits in the queue.
    with lm.Engine(demo[0], max_running=1) as engine:
        room = demo[0].context_length - 8
        answers = [engine.generate("Night", max_tokens=room, ignore_eos=True) for _ in range(200)]
        threading.Timer(0.05, _thread.interrupt_main).start()
        with pytest.raises(KeyboardInterrupt):
            answers[-1].result()
            time.sleep(5)
    signal.signal(signal.SIGINT, before)


def test_the_examples_run():
    assert doctest.testmod(lm).failed == 0
