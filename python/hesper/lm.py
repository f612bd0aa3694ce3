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
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hesper import _core

__all__ = [
    "BatchResponse",
    "GenerationResponse",
    "Model",
    "Tokenizer",
    "batch_generate",
    "generate",
    "load",
    "stream_generate",
]


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


def _options(
    max_tokens: int = 256,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    repetition_context: int = 64,
    seed: int = 0,
    stop: str | Sequence[str] = (),
    window: int | None = None,
    kv_bits: int | None = None,
) -> dict:
    stop = [stop] if isinstance(stop, str) else list(stop)
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
