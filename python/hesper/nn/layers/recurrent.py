"""Recurrent layers.

The input is ``NLD`` or ``LD``: an optional batch, the steps of the sequence and the features. The products with the
input are computed for all steps at once; only those with the hidden state run step by step.
"""

import math
from typing import Callable

import hesper.core as mx

from ._parameters import describe, uniform
from .base import Module
from .functional import tanh

__all__ = ["GRU", "LSTM", "RNN"]


class _Recurrent(Module):
    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size

    def _parameter(self, *shape: int) -> mx.array:
        """A parameter as it starts."""
        return uniform(1.0 / math.sqrt(self.hidden_size), *shape)


def _project(x: mx.array, weight: mx.array, bias: mx.array | None) -> mx.array:
    return x @ weight.T if bias is None else mx.addmm(bias, x, weight.T)


def _scan(cell: Callable, x: mx.array, *state: mx.array | None) -> list[mx.array]:
    """Run ``cell`` over the steps of ``x`` and return all states, one array for each part of the state."""
    history = [state := cell(x[..., i, :], *state) for i in range(x.shape[-2])]
    if not history:
        raise ValueError(f"cannot run over a sequence of no steps: the projected input has shape {x.shape}")
    return [mx.stack(part, axis=-2) for part in zip(*history)]


class RNN(_Recurrent):
    """An Elman network: ``h = f(x @ Wxh.T + h @ Whh.T + bias)`` for each step.

    Parameters
    ----------
    input_size : int
        The number of input features.
    hidden_size : int
        The size of the hidden state.
    bias : bool
        Whether to have a bias. Default: ``True``.
    nonlinearity : callable, optional
        The function ``f``. Default: :func:`tanh`.

    Raises
    ------
    ValueError
        If ``nonlinearity`` cannot be called.

    Examples
    --------
    >>> nn.RNN(4, 8)(mx.zeros((2, 5, 4))).shape
    (2, 5, 8)
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: Callable | None = None
    ) -> None:
        super().__init__(hidden_size)
        if nonlinearity and not callable(nonlinearity):
            raise ValueError(f"cannot use {nonlinearity!r} as nonlinearity; give a function of an array")
        self.nonlinearity = nonlinearity or tanh
        self.Wxh = self._parameter(hidden_size, input_size)
        self.Whh = self._parameter(hidden_size, hidden_size)
        self.bias = self._parameter(hidden_size) if bias else None

    def _extra_repr(self) -> str:
        hidden, inputs = self.Wxh.shape
        return describe(
            input_dims=inputs, hidden_size=hidden, nonlinearity=self.nonlinearity, bias=self.bias is not None
        )

    def __call__(self, x: mx.array, hidden: mx.array | None = None) -> mx.array:
        """Run the layer over a sequence.

        Parameters
        ----------
        x : array
            The input, ``NLD`` or ``LD``.
        hidden : array, optional
            The initial hidden state. Default: zero.

        Returns
        -------
        array
            The hidden states of all steps.
        """

        def cell(step: mx.array, hidden: mx.array | None) -> tuple[mx.array]:
            return (self.nonlinearity(step if hidden is None else mx.addmm(step, hidden, self.Whh.T)),)

        return _scan(cell, _project(x, self.Wxh, self.bias), hidden)[0]


class GRU(_Recurrent):
    """A gated recurrent unit.

    For each step, with the rows of ``Wx``, ``Wh`` and ``b`` in the order reset gate, update gate, candidate::

        r = sigmoid(x @ Wxr.T + h @ Whr.T + br)
        z = sigmoid(x @ Wxz.T + h @ Whz.T + bz)
        n = tanh(x @ Wxn.T + bn + r * (h @ Whn.T + bhn))
        h = (1 - z) * n + z * h

    Parameters
    ----------
    input_size : int
        The number of input features.
    hidden_size : int
        The size of the hidden state.
    bias : bool
        Whether to have biases. Default: ``True``.

    Examples
    --------
    >>> nn.GRU(4, 8)(mx.zeros((2, 5, 4))).shape
    (2, 5, 8)
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__(hidden_size)
        self.Wx = self._parameter(3 * hidden_size, input_size)
        self.Wh = self._parameter(3 * hidden_size, hidden_size)
        self.b = self._parameter(3 * hidden_size) if bias else None
        self.bhn = self._parameter(hidden_size) if bias else None

    def _extra_repr(self) -> str:
        return describe(input_dims=self.Wx.shape[1], hidden_size=self.hidden_size, bias=self.b is not None)

    def __call__(self, x: mx.array, hidden: mx.array | None = None) -> mx.array:
        """Run the layer over a sequence.

        Parameters
        ----------
        x : array
            The input, ``NLD`` or ``LD``.
        hidden : array, optional
            The initial hidden state. Default: zero.

        Returns
        -------
        array
            The hidden states of all steps.
        """
        gates = 2 * self.hidden_size

        def cell(step: mx.array, hidden: mx.array | None) -> tuple[mx.array]:
            rz, n = step[..., :gates], step[..., gates:]
            candidate = self.bhn
            if hidden is not None:
                projected = hidden @ self.Wh.T
                rz = rz + projected[..., :gates]
                candidate = projected[..., gates:]
                if self.bhn is not None:
                    candidate = candidate + self.bhn
            r, z = mx.split(mx.sigmoid(rz), 2, -1)
            n = mx.tanh(n if candidate is None else n + r * candidate)
            fresh = (1 - z) * n
            return (fresh if hidden is None else fresh + z * hidden,)

        return _scan(cell, _project(x, self.Wx, self.b), hidden)[0]


class LSTM(_Recurrent):
    """A long short-term memory layer.

    For each step, with the rows of ``Wx``, ``Wh`` and ``bias`` in the order input gate, forget gate, candidate, output
    gate::

        i = sigmoid(x @ Wxi.T + h @ Whi.T + bi)
        f = sigmoid(x @ Wxf.T + h @ Whf.T + bf)
        g = tanh(x @ Wxg.T + h @ Whg.T + bg)
        o = sigmoid(x @ Wxo.T + h @ Who.T + bo)
        c = f * c + i * g
        h = o * tanh(c)

    Parameters
    ----------
    input_size : int
        The number of input features.
    hidden_size : int
        The size of the hidden state and the cell.
    bias : bool
        Whether to have a bias. Default: ``True``.

    Examples
    --------
    >>> hidden, cell = nn.LSTM(4, 8)(mx.zeros((2, 5, 4)))
    >>> hidden.shape, cell.shape
    ((2, 5, 8), (2, 5, 8))
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__(hidden_size)
        self.Wx = self._parameter(4 * hidden_size, input_size)
        self.Wh = self._parameter(4 * hidden_size, hidden_size)
        self.bias = self._parameter(4 * hidden_size) if bias else None

    def _extra_repr(self) -> str:
        return describe(input_dims=self.Wx.shape[1], hidden_size=self.hidden_size, bias=self.bias is not None)

    def __call__(
        self, x: mx.array, hidden: mx.array | None = None, cell: mx.array | None = None
    ) -> tuple[mx.array, mx.array]:
        """Run the layer over a sequence.

        Parameters
        ----------
        x : array
            The input, ``NLD`` or ``LD``.
        hidden : array, optional
            The initial hidden state. Default: zero.
        cell : array, optional
            The initial cell. Default: zero.

        Returns
        -------
        tuple of array
            The hidden states and the cells of all steps.
        """

        def run(step: mx.array, hidden: mx.array | None, cell: mx.array | None) -> tuple[mx.array, mx.array]:
            gates = step if hidden is None else mx.addmm(step, hidden, self.Wh.T)
            input_gate, forget_gate, candidate, output_gate = mx.split(gates, 4, -1)
            added = mx.sigmoid(input_gate) * mx.tanh(candidate)
            cell = added if cell is None else mx.sigmoid(forget_gate) * cell + added
            return mx.sigmoid(output_gate) * mx.tanh(cell), cell

        hidden_states, cells = _scan(run, _project(x, self.Wx, self.bias), hidden, cell)
        return hidden_states, cells
