"""`hesper serve` with the official OpenAI client. The model is the demo model with a chat template."""

import asyncio
import concurrent.futures
import os
import pathlib
import signal
import subprocess

import pytest

openai = pytest.importorskip("openai")

ROOT = pathlib.Path(__file__).parents[3]
PROGRAM = pathlib.Path(os.environ.get("HESPER_PROGRAM", ROOT / "target/debug/hesper"))
TEMPLATE = "{% for m in messages %}{{ m.content }}{% if not loop.last %} {% endif %}{% endfor %}"
KEY = "test-key"


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built")
    folder = tmp_path_factory.mktemp("serve") / "chatty"
    subprocess.run([PROGRAM, "quantize", "demo", folder, "--bits", "8"], check=True, capture_output=True)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="session")
def url(model, tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(KEY + "\n")
    command = [PROGRAM, "serve", "--model", model, "--port", "0", "--api-key-file", keys, "--drain", "5"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = server.stdout.readline()
    assert "http://" in line, line
    yield next(word for word in line.split() if word.startswith("http://")) + "/v1"
    server.send_signal(signal.SIGTERM)
    assert server.wait(20) == 0


@pytest.fixture
def client(url):
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=60) as client:
        yield client


MESSAGES = [{"role": "user", "content": "A language model"}]
ANSWER = " reads a text and guesses the next word"
OPTIONS = dict(model="chatty", temperature=0, max_tokens=8)


def test_a_chat_is_answered_whole(client):
    answer = client.chat.completions.create(messages=MESSAGES, **OPTIONS)
    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 8
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0


def test_a_chat_is_streamed(client):
    stream = client.chat.completions.create(
        messages=MESSAGES, stream=True, stream_options={"include_usage": True}, n=2, **OPTIONS
    )
    texts, usage = ["", ""], None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [ANSWER, ANSWER]
    assert usage.completion_tokens == 16


def test_texts_are_continued_with_probabilities(client):
    answer = client.completions.create(prompt=["A language model", "The evening star"], logprobs=2, **OPTIONS)
    assert answer.choices[0].text == ANSWER
    assert len(answer.choices) == 2
    assert len(answer.choices[0].logprobs.tokens) == 8
    assert all(value <= 0 for value in answer.choices[0].logprobs.token_logprobs)
    chat = client.chat.completions.create(messages=MESSAGES, logprobs=True, top_logprobs=3, **OPTIONS)
    content = chat.choices[0].logprobs.content
    assert len(content) == 8
    assert content[0].top_logprobs[0].token == content[0].token


def test_seeds_and_stop_texts(client):
    options = {**OPTIONS, "temperature": 1.5, "max_tokens": 20}
    first, second = (client.completions.create(prompt="The", seed=5, **options).choices[0].text for _ in range(2))
    assert first == second
    stopped = client.completions.create(prompt="A language model", stop=[" guesses"], **OPTIONS)
    assert stopped.choices[0].text == " reads a text and"
    assert stopped.choices[0].finish_reason == "stop"


def test_many_clients_get_the_text_of_one(client):
    def ask(_):
        return client.completions.create(prompt="A language model", **OPTIONS).choices[0].text

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert set(pool.map(ask, range(48))) == {ANSWER}


def test_errors_have_the_classes_of_the_client(client, url):
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(messages=MESSAGES, model="chatty", temperature=-1)
    with pytest.raises(openai.NotFoundError, match="gpt"):
        client.chat.completions.create(messages=MESSAGES, model="gpt")
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=url, api_key="wrong", max_retries=0).models.list()
    with pytest.raises(openai.BadRequestError, match="context") as error:
        client.completions.create(prompt=[2] * 5000, model="chatty")
    assert error.value.code == "context_length_exceeded"


def test_a_response_is_answered_streamed_and_continued(client):
    options = dict(model="chatty", temperature=0, max_output_tokens=8)
    whole = client.responses.create(input="A language model", **options)
    assert whole.output_text == ANSWER
    assert (whole.status, whole.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert whole.usage.output_tokens == 8
    with client.responses.stream(input="A language model", **options) as stream:
        events = list(stream)
    # The answer was cut off, so no response is completed.
    assert (events[-1].type, events[-1].response.output_text) == ("response.incomplete", ANSWER)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == ANSWER
    # The template writes the messages one after the other.
    following = client.responses.create(input="and", previous_response_id=whole.id, **options)
    asked = client.responses.create(input="A language model" + " " + ANSWER + " and", **options)
    assert following.output_text == asked.output_text
    assert client.responses.retrieve(whole.id).output_text == ANSWER
    client.responses.delete(whole.id)
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        client.responses.create(input="and", previous_response_id=whole.id, **options)


def test_embeddings_are_unit_vectors_in_both_encodings(client):
    texts = ["The evening star", "The evening star is", "A language model"]
    # The client asks for base64 unless told otherwise.
    one = client.embeddings.create(model="chatty", input=texts)
    other = client.embeddings.create(model="chatty", input=texts, encoding_format="float")
    assert [entry.index for entry in one.data] == [0, 1, 2]
    for entry, same in zip(one.data, other.data, strict=True):
        assert entry.embedding == pytest.approx(same.embedding, abs=1e-6)
        assert sum(x * x for x in entry.embedding) == pytest.approx(1, abs=1e-5)
    assert one.usage.prompt_tokens == one.usage.total_tokens > 6

    def similarity(a, b):
        return sum(x * y for x, y in zip(one.data[a].embedding, one.data[b].embedding, strict=True))

    assert similarity(0, 1) > similarity(0, 2)
    with pytest.raises(openai.BadRequestError, match="input"):
        client.embeddings.create(model="chatty", input="")


def test_models_are_listed(client):
    assert [model.id for model in client.models.list()] == ["chatty"]
    assert client.models.retrieve("chatty").id == "chatty"


def test_a_stream_can_be_left_and_the_server_goes_on(client):
    for _ in range(20):
        stream = client.completions.create(prompt="The", stream=True, **{**OPTIONS, "max_tokens": 2000})
        next(iter(stream))
        stream.close()
    assert client.completions.create(prompt="A language model", **OPTIONS).choices[0].text == ANSWER


def test_async_clients(url):
    async def run():
        async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
            async def ask():
                stream = await client.chat.completions.create(messages=MESSAGES, stream=True, **OPTIONS)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

            return await asyncio.gather(*(ask() for _ in range(8)))

    assert set(asyncio.run(run())) == {ANSWER}
