"""Normalization layers, channels last."""

from typing import Any

import hesper.core as mx

from ._parameters import describe
from .base import Module

__all__ = ["BatchNorm", "GroupNorm", "InstanceNorm", "LayerNorm", "RMSNorm"]


# How parameters start.
_START = {"weight": mx.ones, "bias": mx.zeros, "running_mean": mx.zeros, "running_var": mx.ones}


class _Norm(Module):
    """A normalization with parameters for each channel."""

    def __init__(self, channels: int, eps: float, parameters: tuple[str, ...]) -> None:
        if eps <= 0:
            raise ValueError(f"cannot normalize with eps={eps}; it must be positive")
        super().__init__()
        self.eps = eps
        for name in parameters:
            self[name] = _START[name]((channels,))

    def _scale(self, x: mx.array) -> mx.array:
        """The normalized ``x`` times the weight plus the bias, if there are any."""
        return self.weight * x + self.bias if "weight" in self else x


class InstanceNorm(_Norm):
    """Normalizes every channel of every sample over its spatial axes.

    Computes ``(x - mean) / sqrt(variance + eps) * weight + bias``.

    Parameters
    ----------
    dims : int
        The number of channels.
    eps : float
        Added to the variance. Default: ``1e-5``.
    affine : bool
        Whether to have a weight and a bias. Default: ``False``.

    Raises
    ------
    ValueError
        If the input has fewer than three axes.

    Examples
    --------
    >>> nn.InstanceNorm(dims=3)(mx.ones((2, 4, 4, 3))).shape
    (2, 4, 4, 3)
    """

    def __init__(self, dims: int, eps: float = 1e-5, affine: bool = False) -> None:
        super().__init__(dims, eps, ("weight", "bias") if affine else ())
        self.dims = dims

    def _extra_repr(self) -> str:
        return describe(self.dims, eps=self.eps, affine="weight" in self)

    def __call__(self, x: mx.array) -> mx.array:
        if x.ndim < 3:
            raise ValueError(
                f"cannot normalize an input of shape {x.shape} over its spatial axes; it needs a batch axis, at least "
                "one spatial axis and channels"
            )
        channels_second = mx.moveaxis(x, -1, 1)
        rows = channels_second.reshape(*channels_second.shape[:2], -1)
        x = mx.fast.layer_norm(rows, None, None, self.eps).reshape(channels_second.shape)
        return self._scale(mx.moveaxis(x, 1, -1))


class LayerNorm(_Norm):
    """Normalizes over the last axis.

    Computes ``(x - mean) / sqrt(variance + eps) * weight + bias``.

    Parameters
    ----------
    dims : int
        The number of features.
    eps : float
        Added to the variance. Default: ``1e-5``.
    affine : bool
        Whether to have a weight. Default: ``True``.
    bias : bool
        Whether to have a bias too. Default: ``True``.

    Examples
    --------
    >>> nn.LayerNorm(4)(mx.ones((2, 4))).tolist()[0]
    [0.0, 0.0, 0.0, 0.0]
    """

    def __init__(self, dims: int, eps: float = 1e-5, affine: bool = True, bias: bool = True) -> None:
        parameters = ("weight", "bias") if bias else ("weight",)
        super().__init__(dims, eps, parameters if affine else ())
        self.dims = dims

    def _extra_repr(self) -> str:
        return describe(self.dims, eps=self.eps, affine="weight" in self)

    def __call__(self, x: mx.array) -> mx.array:
        return mx.fast.layer_norm(x, self.get("weight"), self.get("bias"), self.eps)


class RMSNorm(_Norm):
    """Divides by the root mean square over the last axis.

    Computes ``x / sqrt(mean(x**2) + eps) * weight``, with the mean in at least 32 bits.

    Parameters
    ----------
    dims : int
        The number of features.
    eps : float
        Added to the mean square. Default: ``1e-5``.

    Examples
    --------
    >>> nn.RMSNorm(4, eps=1e-12)(mx.full((4,), 2.0)).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    def __init__(self, dims: int, eps: float = 1e-5) -> None:
        super().__init__(dims, eps, ("weight",))

    def _extra_repr(self) -> str:
        return describe(*self.weight.shape, eps=self.eps)

    __call__ = Module._rms_norm


class GroupNorm(_Norm):
    """Normalizes groups of channels over the spatial axes and the group.

    Parameters
    ----------
    num_groups : int
        The number of groups.
    dims : int
        The number of channels.
    eps : float
        Added to the variance. Default: ``1e-5``.
    affine : bool
        Whether to have a weight and a bias. Default: ``True``.
    pytorch_compatible : bool
        Whether adjacent channels form a group, as in PyTorch. Otherwise the channels of a group are ``num_groups``
        apart. Default: ``False``.

    Raises
    ------
    ValueError
        If ``num_groups`` does not divide ``dims``.

    Examples
    --------
    >>> nn.GroupNorm(num_groups=2, dims=4)(mx.ones((2, 8, 8, 4))).shape
    (2, 8, 8, 4)
    """

    def __init__(
        self, num_groups: int, dims: int, eps: float = 1e-5, affine: bool = True, pytorch_compatible: bool = False
    ) -> None:
        if num_groups < 1 or dims % num_groups:
            raise ValueError(f"cannot divide {dims} channels into {num_groups} groups; use a divisor of {dims}")
        super().__init__(dims, eps, ("bias", "weight") if affine else ())
        self.num_groups, self.dims, self.pytorch_compatible = num_groups, dims, pytorch_compatible

    def _extra_repr(self) -> str:
        return describe(
            self.num_groups, self.dims, eps=self.eps, affine="weight" in self,
            pytorch_compatible=self.pytorch_compatible,
        )

    def __call__(self, x: mx.array) -> mx.array:
        normalize = self._adjacent_groups if self.pytorch_compatible else self._strided_groups
        return self._scale(normalize(x).reshape(x.shape))

    def _adjacent_groups(self, x: mx.array) -> mx.array:
        """Normalize groups of adjacent channels."""
        pixels = x.reshape(x.shape[0], -1, self.num_groups, x.shape[-1] // self.num_groups)
        by_group = pixels.swapaxes(1, 2)
        batch, groups, _, size = by_group.shape
        rows = mx.fast.layer_norm(by_group.reshape(batch, groups, -1), None, None, self.eps)
        return rows.reshape(batch, groups, -1, size).swapaxes(1, 2)

    def _strided_groups(self, x: mx.array) -> mx.array:
        """Normalize groups of channels that are ``num_groups`` apart."""
        columns = x.reshape(x.shape[0], -1, self.num_groups)
        mean, variance = (f(columns, axis=1, keepdims=True) for f in (mx.mean, mx.var))
        return (columns - mean) * mx.rsqrt(variance + self.eps)


class BatchNorm(_Norm):
    """Normalizes every channel over the batch and the spatial axes.

    In training mode it uses the statistics of the batch and adds them to the running ones; otherwise it uses the
    running statistics, if it keeps any.

    Parameters
    ----------
    num_features : int
        The number of channels.
    eps : float
        Added to the variance. Default: ``1e-5``.
    momentum : float
        The weight of a batch in the running statistics. Default: ``0.1``.
    affine : bool
        Whether to have a weight and a bias. Default: ``True``.
    track_running_stats : bool
        Whether to keep running statistics. Default: ``True``.

    Raises
    ------
    ValueError
        If the input does not have 2, 3 or 4 axes, or has only one value for a channel in training mode.

    Examples
    --------
    >>> layer = nn.BatchNorm(3)
    >>> layer(mx.ones((4, 8, 8, 3))).shape
    (4, 8, 8, 3)
    >>> list(layer.trainable_parameters())
    ['weight', 'bias']
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        statistics = ("running_mean", "running_var") if track_running_stats else ()
        super().__init__(num_features, eps, (("weight", "bias") if affine else ()) + statistics)
        self.num_features, self.momentum, self.track_running_stats = num_features, momentum, track_running_stats
        if track_running_stats:
            self._freeze_statistics()

    def _freeze_statistics(self) -> None:
        super().freeze(keys=["running_mean", "running_var"], recurse=False)

    def unfreeze(self, *args: Any, **kwargs: Any) -> None:
        """Unfreeze parameters, as :meth:`Module.unfreeze` does. The running statistics stay frozen.

        Examples
        --------
        >>> layer = nn.BatchNorm(2).freeze()
        >>> layer.unfreeze()
        >>> list(layer.trainable_parameters())
        ['weight', 'bias']
        """
        super().unfreeze(*args, **kwargs)
        self._freeze_statistics()

    def _extra_repr(self) -> str:
        return describe(
            self.num_features, eps=self.eps, momentum=self.momentum, affine="weight" in self,
            track_running_stats=self.track_running_stats,
        )

    def __call__(self, x: mx.array) -> mx.array:
        if x.ndim not in (2, 3, 4):
            raise ValueError(f"cannot normalize a batch of shape {x.shape}; it must have 2, 3 or 4 axes")
        mean, variance = self._statistics(x)
        return self._scale((x - mean) * mx.rsqrt(variance + self.eps))

    def _statistics(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """The mean and variance to normalize with. Updates the running statistics in training mode."""
        if self.track_running_stats and not self.training:
            return self.running_mean, self.running_var
        if self.training and 0 < x.size <= x.shape[-1]:
            raise ValueError(
                f"cannot train on a batch of shape {x.shape}: it has one value per channel, which has no variance; use "
                "a larger batch, or eval()"
            )
        axes = tuple(range(x.ndim - 1))
        mean, variance = mx.mean(x, axes), mx.var(x, axes)
        if self.track_running_stats:
            keep, add = 1 - self.momentum, self.momentum
            self.running_mean = keep * self.running_mean + add * mean
            self.running_var = keep * self.running_var + add * mx.var(x, axes, ddof=1)
        return mean, variance
