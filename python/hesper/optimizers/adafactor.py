"""Adafactor: adaptive steps with little memory."""

import hesper.core as mx

from .base import Optimizer, Scheduled, moving_average

__all__ = ["Adafactor"]


def _rms(x: mx.array) -> mx.array:
    """The root mean square."""
    return mx.sqrt(mx.mean(mx.square(x)))


class Adafactor(Optimizer):
    """Adaptive steps with a factored second moment (Shazeer and Stern, 2018, arXiv:1804.04235).

    Of the squared gradient of a matrix only the means over rows and over columns are kept.

    Parameters
    ----------
    learning_rate : float or callable, optional
        The learning rate, or its schedule. Unused with ``relative_step``.
    eps : tuple of float
        Added to the squared gradient, and the least root mean square of a parameter to scale steps by. Default:
        ``(1e-30, 1e-3)``.
    clip_threshold : float
        The largest root mean square of a step before it is scaled. Default: ``1.0``.
    decay_rate : float
        The second moment decays by ``1 - step**decay_rate``. Default: ``-0.8``.
    beta_1 : float, optional
        The decay of the average of steps. Default: steps are not averaged.
    weight_decay : float
        The weight decay. Default: ``0.0``.
    scale_parameter : bool
        Whether to scale steps by the root mean square of the parameter. Default: ``True``.
    relative_step : bool
        Whether to derive the learning rate from the number of steps. Default: ``True``.
    warmup_init : bool
        Whether to begin with small relative steps. Default: ``False``.

    Examples
    --------
    >>> optimizer = optim.Adafactor()
    >>> optimizer.init({"w": mx.ones((2, 3))})
    >>> {name: x.shape for name, x in optimizer.state["w"].items()}
    {'exp_avg_sq_row': (2,), 'exp_avg_sq_col': (3,)}
    """

    def __init__(
        self, learning_rate: Scheduled | None = None, eps: tuple[float, float] = (1e-30, 1e-3),
        clip_threshold: float = 1.0, decay_rate: float = -0.8, beta_1: float | None = None, weight_decay: float = 0.0,
        scale_parameter: bool = True, relative_step: bool = True, warmup_init: bool = False,
    ) -> None:
        super().__init__()
        if learning_rate is not None:
            self._maybe_schedule("learning_rate", learning_rate)
        self.eps, self.clip_threshold = eps, clip_threshold
        self.beta_1, self.decay_rate, self.weight_decay = beta_1, decay_rate, weight_decay
        self.scale_parameter, self.relative_step, self.warmup_init = scale_parameter, relative_step, warmup_init

    def init_single(self, parameter: mx.array, state: dict) -> None:
        if parameter.ndim < 2:
            shapes = {"exp_avg_sq": parameter.shape}
        else:
            *outer, rows, columns = parameter.shape
            shapes = {"exp_avg_sq_row": (*outer, rows), "exp_avg_sq_col": (*outer, columns)}
        if self.beta_1 is not None:
            shapes["exp_avg"] = parameter.shape
        state.update({name: mx.zeros(shape, parameter.dtype) for name, shape in shapes.items()})

    def _step_size(self, rms: mx.array) -> mx.array:
        """The learning rate for a parameter with this root mean square."""
        if self.relative_step:
            rate = mx.minimum(1e-6 * self.step if self.warmup_init else 1e-2, mx.rsqrt(self.step))
        else:
            rate = self.learning_rate
        scale = mx.maximum(self.eps[1], rms) if self.scale_parameter else 1.0
        return scale * rate.astype(rms.dtype)

    def _inverse_root(self, gradient: mx.array, decay: mx.array, state: dict) -> mx.array:
        """Update the second moment and return one over its root."""
        square = mx.square(gradient) + self.eps[0]
        if gradient.ndim < 2:
            return mx.rsqrt(moving_average(state, "exp_avg_sq", decay, square))
        rows = moving_average(state, "exp_avg_sq_row", decay, mx.mean(square, axis=-1))
        columns = moving_average(state, "exp_avg_sq_col", decay, mx.mean(square, axis=-2))
        rows = rows / mx.mean(rows, axis=-1, keepdims=True)
        return mx.rsqrt(rows)[..., None] * mx.rsqrt(columns)[..., None, :]

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict) -> mx.array:
        rms = _rms(parameter)
        rate = self._step_size(rms)
        decay = 1.0 - (self.step**self.decay_rate).astype(rms.dtype)
        update = self._inverse_root(gradient, decay, state) * gradient
        update = rate * (update / mx.maximum(1.0, _rms(update) / self.clip_threshold))
        if self.beta_1 is not None:
            update = moving_average(state, "exp_avg", self.beta_1, update)
        if self.weight_decay:
            parameter = parameter + parameter * (-self.weight_decay * rate)
        return parameter - update
