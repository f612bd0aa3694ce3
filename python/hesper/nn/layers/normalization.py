"""Normalisation layers, channels last."""

from typing import Any, Tuple

import hesper.core as mx

from .base import Module

__all__ = ["BatchNorm", "GroupNorm", "InstanceNorm", "LayerNorm", "RMSNorm"]


class InstanceNorm(Module):
    """Normalises every channel of every sample over its spatial axes.

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
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.InstanceNorm(dims=3)(mx.ones((2, 4, 4, 3))).shape
    (2, 4, 4, 3)
    """

    def __init__(self, dims: int, eps: float = 1e-5, affine: bool = False) -> None:
        super().__init__()
        if affine:
            self.weight = mx.ones((dims,))
            self.bias = mx.zeros((dims,))
        self.dims = dims
        self.eps = eps

    def _extra_repr(self) -> str:
        return f"{self.dims}, eps={self.eps}, affine={'weight' in self}"

    def __call__(self, x: mx.array) -> mx.array:
        if x.ndim < 3:
            raise ValueError(
                "InstanceNorm expects inputs with at least 3 dimensions (N, ..., C) "
                f"but the input has {x.ndim} dimensions."
            )
        x = mx.moveaxis(x, -1, 1)
        shape = x.shape
        x = mx.fast.layer_norm(x.reshape(*shape[:2], -1), None, None, self.eps)
        x = mx.moveaxis(x.reshape(shape), 1, -1)
        return self.weight * x + self.bias if "weight" in self else x


class LayerNorm(Module):
    """Normalises over the last axis.

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
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.LayerNorm(4)(mx.ones((2, 4))).tolist()[0]
    [0.0, 0.0, 0.0, 0.0]
    """

    def __init__(
        self, dims: int, eps: float = 1e-5, affine: bool = True, bias: bool = True
    ) -> None:
        super().__init__()
        if affine:
            self.weight = mx.ones((dims,))
            if bias:
                self.bias = mx.zeros((dims,))
        self.eps = eps
        self.dims = dims

    def _extra_repr(self) -> str:
        return f"{self.dims}, eps={self.eps}, affine={'weight' in self}"

    def __call__(self, x: mx.array) -> mx.array:
        return mx.fast.layer_norm(x, self.get("weight"), self.get("bias"), self.eps)


class RMSNorm(Module):
    """Divides by the root mean square over the last axis.

    Computes ``x / sqrt(mean(x**2) + eps) * weight``; the mean is taken in 32
    bits at least.

    Parameters
    ----------
    dims : int
        The number of features.
    eps : float
        Added to the mean square. Default: ``1e-5``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.RMSNorm(4, eps=0)(mx.full((4,), 2.0)).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    def __init__(self, dims: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = mx.ones((dims,))
        self.eps = eps

    def _extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}"

    def __call__(self, x: mx.array) -> mx.array:
        return mx.fast.rms_norm(x, self["weight"], self.eps)


class GroupNorm(Module):
    """Normalises groups of channels over the spatial axes and the group.

    Parameters
    ----------
    num_groups : int
        Into how many groups the channels are divided.
    dims : int
        The number of channels.
    eps : float
        Added to the variance. Default: ``1e-5``.
    affine : bool
        Whether to have a weight and a bias. Default: ``True``.
    pytorch_compatible : bool
        Whether neighbouring channels form a group, as in PyTorch. Otherwise
        every ``num_groups``-th channel belongs to the same group. Default:
        ``False``.

    Raises
    ------
    ValueError
        If ``num_groups`` does not divide ``dims``.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.GroupNorm(num_groups=2, dims=4)(mx.ones((2, 8, 8, 4))).shape
    (2, 8, 8, 4)
    """

    def __init__(
        self,
        num_groups: int,
        dims: int,
        eps: float = 1e-5,
        affine: bool = True,
        pytorch_compatible: bool = False,
    ) -> None:
        super().__init__()
        if dims % num_groups != 0:
            raise ValueError(
                f"The number of features ({dims}) must be evenly divisible by the "
                f"number of groups ({num_groups})."
            )
        if affine:
            self.bias = mx.zeros((dims,))
            self.weight = mx.ones((dims,))
        self.num_groups = num_groups
        self.dims = dims
        self.eps = eps
        self.pytorch_compatible = pytorch_compatible

    def _extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.dims}, eps={self.eps}, "
            f"affine={'weight' in self}, pytorch_compatible={self.pytorch_compatible}"
        )

    def _pytorch_compatible_group_norm(self, x: mx.array) -> mx.array:
        """Groups of neighbouring channels."""
        batch, *spatial, dims = x.shape
        groups = self.num_groups
        x = x.reshape(batch, -1, groups, dims // groups)
        x = x.transpose(0, 2, 1, 3).reshape(batch, groups, -1)
        x = mx.fast.layer_norm(x, None, None, self.eps)
        x = x.reshape(batch, groups, -1, dims // groups).transpose(0, 2, 1, 3)
        return x.reshape(batch, *spatial, dims)

    def _group_norm(self, x: mx.array) -> mx.array:
        """Groups of channels that are ``num_groups`` apart."""
        batch, *spatial, dims = x.shape
        x = x.reshape(batch, -1, self.num_groups)
        mean = mx.mean(x, axis=1, keepdims=True)
        variance = mx.var(x, axis=1, keepdims=True)
        x = (x - mean) * mx.rsqrt(variance + self.eps)
        return x.reshape(batch, *spatial, dims)

    def __call__(self, x: mx.array) -> mx.array:
        if self.pytorch_compatible:
            x = self._pytorch_compatible_group_norm(x)
        else:
            x = self._group_norm(x)
        return self.weight * x + self.bias if "weight" in self else x


class BatchNorm(Module):
    """Normalises every channel over the batch and the spatial axes.

    While training with the statistics of the batch, which are also added to
    the running ones; otherwise with the running statistics, if there are any.

    Parameters
    ----------
    num_features : int
        The number of channels.
    eps : float
        Added to the variance. Default: ``1e-5``.
    momentum : float
        The share of a batch in the running statistics. Default: ``0.1``.
    affine : bool
        Whether to have a weight and a bias. Default: ``True``.
    track_running_stats : bool
        Whether to keep running statistics. Default: ``True``.

    Raises
    ------
    ValueError
        If the input does not have 2, 3 or 4 axes, or has only one value for a
        channel while training.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> layer = nn.BatchNorm(3)
    >>> layer(mx.ones((4, 8, 8, 3))).shape
    (4, 8, 8, 3)
    >>> list(layer.trainable_parameters())
    ['weight', 'bias']
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = mx.ones((num_features,))
            self.bias = mx.zeros((num_features,))
        if track_running_stats:
            self.running_mean = mx.zeros((num_features,))
            self.running_var = mx.ones((num_features,))
            self._freeze_statistics()

    def _freeze_statistics(self) -> None:
        super().freeze(keys=["running_mean", "running_var"], recurse=False)

    def unfreeze(self, *args: Any, **kwargs: Any) -> None:
        """Unfreeze parameters; the running statistics always stay frozen.

        Parameters
        ----------
        *args, **kwargs
            As for :meth:`Module.unfreeze`.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> layer = nn.BatchNorm(2).freeze()
        >>> layer.unfreeze()
        >>> list(layer.trainable_parameters())
        ['weight', 'bias']
        """
        super().unfreeze(*args, **kwargs)
        self._freeze_statistics()

    def _extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={'weight' in self}, track_running_stats={self.track_running_stats}"
        )

    def _calc_stats(self, x: mx.array, ddof: int = 0) -> Tuple[mx.array, mx.array]:
        """Mean and variance over all axes but the last."""
        axes = tuple(range(x.ndim - 1))
        return mx.mean(x, axis=axes), mx.var(x, axis=axes, ddof=ddof)

    def __call__(self, x: mx.array) -> mx.array:
        if x.ndim < 2 or x.ndim > 4:
            raise ValueError(
                f"Expected input tensor to have 2, 3 or 4 dimensions, but got {x.ndim}"
            )
        mean, variance = self._statistics(x)
        x = (x - mean) * mx.rsqrt(variance + self.eps)
        return self.weight * x + self.bias if "weight" in self else x

    def _statistics(self, x: mx.array) -> Tuple[mx.array, mx.array]:
        """What to normalise with; also updates the running statistics."""
        if not self.training:
            if self.track_running_stats:
                return self.running_mean, self.running_var
            return self._calc_stats(x)
        if x.size <= x.shape[-1]:
            raise ValueError("BatchNorm training requires more than one value per channel.")
        mean, variance = self._calc_stats(x)
        if self.track_running_stats:
            _, unbiased = self._calc_stats(x, ddof=1)
            keep, share = 1 - self.momentum, self.momentum
            self.running_mean = keep * self.running_mean + share * mean
            self.running_var = keep * self.running_var + share * unbiased
        return mean, variance
