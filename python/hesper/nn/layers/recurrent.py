"""Recurrent layers.

The input is ``NLD`` or ``LD``: an optional batch, the steps of the sequence
and the features. The products with the input are computed for all steps at
once; only those with the hidden state run step by step.
"""

import math
from typing import Callable, Optional, Tuple

import hesper.core as mx

from .base import Module
from .functional import tanh

__all__ = ["GRU", "LSTM", "RNN"]


def _uniform(hidden_size: int, *shape: int) -> mx.array:
    """How all parameters of recurrent layers start."""
    scale = 1.0 / math.sqrt(hidden_size)
    return mx.random.uniform(low=-scale, high=scale, shape=shape)


def _project(x: mx.array, weight: mx.array, bias: Optional[mx.array]) -> mx.array:
    return x @ weight.T if bias is None else mx.addmm(bias, x, weight.T)


class RNN(Module):
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
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.RNN(4, 8)(mx.zeros((2, 5, 4))).shape
    (2, 5, 8)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: Optional[Callable] = None,
    ) -> None:
        super().__init__()
        self.nonlinearity = nonlinearity or tanh
        if not callable(self.nonlinearity):
            raise ValueError(
                f"Nonlinearity must be callable. Current value: {nonlinearity}."
            )
        self.hidden_size = hidden_size
        self.Wxh = _uniform(hidden_size, hidden_size, input_size)
        self.Whh = _uniform(hidden_size, hidden_size, hidden_size)
        self.bias = _uniform(hidden_size, hidden_size) if bias else None

    def _extra_repr(self) -> str:
        return (
            f"input_dims={self.Wxh.shape[1]}, hidden_size={self.hidden_size}, "
            f"nonlinearity={self.nonlinearity}, bias={self.bias is not None}"
        )

    def __call__(self, x: mx.array, hidden: Optional[mx.array] = None) -> mx.array:
        """Run the layer over a sequence.

        Parameters
        ----------
        x : array
            The input, ``NLD`` or ``LD``.
        hidden : array, optional
            The hidden state to start from. Default: zero.

        Returns
        -------
        array
            The hidden states of all steps.
        """
        x = _project(x, self.Wxh, self.bias)
        states = []
        for i in range(x.shape[-2]):
            step = x[..., i, :]
            if hidden is not None:
                step = mx.addmm(step, hidden, self.Whh.T)
            hidden = self.nonlinearity(step)
            states.append(hidden)
        return mx.stack(states, axis=-2)


class GRU(Module):
    """A gated recurrent unit.

    For each step, with the rows of ``Wx``, ``Wh`` and ``b`` in the order reset
    gate, update gate, candidate::

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
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.GRU(4, 8)(mx.zeros((2, 5, 4))).shape
    (2, 5, 8)
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.Wx = _uniform(hidden_size, 3 * hidden_size, input_size)
        self.Wh = _uniform(hidden_size, 3 * hidden_size, hidden_size)
        self.b = _uniform(hidden_size, 3 * hidden_size) if bias else None
        self.bhn = _uniform(hidden_size, hidden_size) if bias else None

    def _extra_repr(self) -> str:
        return (
            f"input_dims={self.Wx.shape[1]}, hidden_size={self.hidden_size}, "
            f"bias={self.b is not None}"
        )

    def __call__(self, x: mx.array, hidden: Optional[mx.array] = None) -> mx.array:
        """Run the layer over a sequence.

        Parameters
        ----------
        x : array
            The input, ``NLD`` or ``LD``.
        hidden : array, optional
            The hidden state to start from. Default: zero.

        Returns
        -------
        array
            The hidden states of all steps.
        """
        gates = 2 * self.hidden_size
        x = _project(x, self.Wx, self.b)
        x_gates, x_candidate = x[..., :gates], x[..., gates:]
        states = []
        for i in range(x.shape[-2]):
            rz = x_gates[..., i, :]
            candidate = None
            if hidden is not None:
                from_hidden = hidden @ self.Wh.T
                rz = rz + from_hidden[..., :gates]
                candidate = from_hidden[..., gates:]
                if self.bhn is not None:
                    candidate = candidate + self.bhn
            else:
                candidate = self.bhn
            r, z = mx.split(mx.sigmoid(rz), 2, axis=-1)
            n = x_candidate[..., i, :]
            if candidate is not None:
                n = n + r * candidate
            n = mx.tanh(n)
            update = (1 - z) * n
            hidden = update if hidden is None else update + z * hidden
            states.append(hidden)
        return mx.stack(states, axis=-2)


class LSTM(Module):
    """A long short-term memory layer.

    For each step, with the rows of ``Wx``, ``Wh`` and ``bias`` in the order
    input gate, forget gate, candidate, output gate::

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
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> hidden, cell = nn.LSTM(4, 8)(mx.zeros((2, 5, 4)))
    >>> hidden.shape, cell.shape
    ((2, 5, 8), (2, 5, 8))
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.Wx = _uniform(hidden_size, 4 * hidden_size, input_size)
        self.Wh = _uniform(hidden_size, 4 * hidden_size, hidden_size)
        self.bias = _uniform(hidden_size, 4 * hidden_size) if bias else None

    def _extra_repr(self) -> str:
        return (
            f"input_dims={self.Wx.shape[1]}, hidden_size={self.hidden_size}, "
            f"bias={self.bias is not None}"
        )

    def __call__(
        self,
        x: mx.array,
        hidden: Optional[mx.array] = None,
        cell: Optional[mx.array] = None,
    ) -> Tuple[mx.array, mx.array]:
        """Run the layer over a sequence.

        Parameters
        ----------
        x : array
            The input, ``NLD`` or ``LD``.
        hidden : array, optional
            The hidden state to start from. Default: zero.
        cell : array, optional
            The cell to start from. Default: zero.

        Returns
        -------
        tuple of array
            The hidden states and the cells of all steps.
        """
        x = _project(x, self.Wx, self.bias)
        hidden_states, cells = [], []
        for index in range(x.shape[-2]):
            ifgo = x[..., index, :]
            if hidden is not None:
                ifgo = mx.addmm(ifgo, hidden, self.Wh.T)
            i, f, g, o = mx.split(ifgo, 4, axis=-1)
            i, f, g, o = mx.sigmoid(i), mx.sigmoid(f), mx.tanh(g), mx.sigmoid(o)
            cell = i * g if cell is None else f * cell + i * g
            hidden = o * mx.tanh(cell)
            hidden_states.append(hidden)
            cells.append(cell)
        return mx.stack(hidden_states, axis=-2), mx.stack(cells, axis=-2)
