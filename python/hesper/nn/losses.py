"""Loss functions.

All take a ``reduction``: ``'none'`` returns the loss of every sample, ``'mean'`` and ``'sum'`` reduce them to a scalar.
They raise ``ValueError`` for another reduction, and for arguments whose shapes do not fit.
"""

import math
from typing import Literal, Optional, get_args

import hesper.core as mx

from .layers.functional import below_maximum

__all__ = [
    "Reduction",
    "binary_cross_entropy",
    "cosine_similarity_loss",
    "cross_entropy",
    "gaussian_nll_loss",
    "hinge_loss",
    "huber_loss",
    "kl_div_loss",
    "l1_loss",
    "log_cosh_loss",
    "margin_ranking_loss",
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
    "triplet_loss",
]

Reduction = Literal["none", "mean", "sum"]


def _reduced(loss: mx.array, reduction: Reduction, weights: Optional[mx.array] = None) -> mx.array:
    if weights is not None:
        _require_same_shape(weights=weights, loss=loss)
        loss = loss * weights
    if reduction not in get_args(Reduction):
        raise ValueError(f"cannot reduce a loss by {reduction!r}; choose one of {', '.join(get_args(Reduction))}")
    return loss if reduction == "none" else getattr(mx, reduction)(loss)


def _require_same_shape(**arrays: mx.array) -> None:
    if len({array.shape for array in arrays.values()}) > 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"cannot compute a loss of different shapes: {shapes}; they must be equal")


def _at_classes(x: mx.array, classes: mx.array, axis: int) -> mx.array:
    """The entries of ``x`` at the given indices along ``axis``."""
    return mx.take_along_axis(x, mx.expand_dims(classes, axis), axis).squeeze(axis)


def _on_gpu() -> bool:
    return mx.default_device().type == mx.gpu


def cross_entropy(
    logits: mx.array, targets: mx.array, weights: Optional[mx.array] = None, axis: int = -1,
    label_smoothing: float = 0.0, reduction: Reduction = "none",
) -> mx.array:
    """The cross entropy between logits and classes or probabilities.

    Parameters
    ----------
    logits : array
        The unnormalized log probabilities.
    targets : array
        The indices of the classes, of the shape of ``logits`` without ``axis``; or probabilities, of the shape of
        ``logits``.
    weights : array, optional
        A weight for each sample.
    axis : int
        The axis of the classes. Default: ``-1``.
    label_smoothing : float
        The fraction of the target, in ``[0, 1)``, that is spread over all classes. Default: ``0.0``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses of the samples. Default: ``'none'``.

    Examples
    --------
    >>> logits = mx.array([[0.0, 0.0], [100.0, 0.0]])
    >>> nn.losses.cross_entropy(logits, mx.array([1, 0]))
    array([0.693147, 0], dtype=float32)
    >>> nn.losses.cross_entropy(logits, mx.array([[0.5, 0.5], [1.0, 0.0]]), reduction="sum")
    array(0.693147, dtype=float32)
    """
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"cannot smooth labels by {label_smoothing}; label_smoothing must be in [0, 1)")
    dense = targets.ndim == logits.ndim
    expected = list(logits.shape)
    if not dense:
        expected.pop(axis)
    if list(targets.shape) != expected:
        raise ValueError(
            f"cannot compare targets of shape {targets.shape} with logits of shape {logits.shape} along axis {axis}; "
            f"targets must have shape {tuple(expected)}"
        )
    if not dense and not mx.issubdtype(targets.dtype, mx.integer):
        targets = targets.astype(mx.int32)

    last = axis in (-1, logits.ndim - 1)
    fused = last and not dense and label_smoothing == 0 and mx.issubdtype(logits.dtype, mx.floating)
    if fused and _on_gpu():
        # One kernel, which accumulates in 32 bits for every type of logits.
        loss = mx.fast.cross_entropy(logits, targets).astype(logits.dtype)
    else:
        logits = below_maximum(logits, axis)
        score = mx.sum(logits * targets, axis) if dense else _at_classes(logits, targets, axis)
        loss = mx.logsumexp(logits, axis)
        if label_smoothing == 0:
            loss = loss - score
        else:
            loss = loss - (1 - label_smoothing) * score + label_smoothing * -mx.mean(logits, axis)
    return _reduced(loss, reduction, weights)


def binary_cross_entropy(
    inputs: mx.array, targets: mx.array, weights: Optional[mx.array] = None, with_logits: bool = True,
    reduction: Reduction = "mean",
) -> mx.array:
    """The cross entropy of two classes.

    Parameters
    ----------
    inputs : array
        The predictions: logits, or probabilities if not ``with_logits``. The logarithms of probabilities are clipped
        at -100.
    targets : array
        The targets, between zero and one.
    weights : array, optional
        A weight for each entry.
    with_logits : bool
        Whether ``inputs`` are logits. Default: ``True``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'mean'``.

    Examples
    --------
    >>> probabilities = mx.array([0.5, 0.25])
    >>> nn.losses.binary_cross_entropy(probabilities, mx.array([1, 0]), with_logits=False, reduction="none")
    array([0.693147, 0.287682], dtype=float32)
    """
    _require_same_shape(inputs=inputs, targets=targets)
    if with_logits:
        product = inputs * targets
        return _reduced(mx.logaddexp(0.0, inputs) - product, reduction, weights)
    log_true, log_false = (mx.maximum(mx.log(p), -100) for p in (inputs, 1 - inputs))
    return _reduced(-(targets * log_true + (1 - targets) * log_false), reduction, weights)


def l1_loss(predictions: mx.array, targets: mx.array, reduction: Reduction = "mean") -> mx.array:
    """The absolute difference.

    Parameters
    ----------
    predictions, targets : array
        The predictions and targets.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'mean'``.

    Examples
    --------
    >>> nn.losses.l1_loss(mx.array([1.0, 2.0]), mx.array([1.0, 4.0])).item()
    1.0
    """
    _require_same_shape(predictions=predictions, targets=targets)
    return _reduced(mx.abs(predictions - targets), reduction)


def mse_loss(predictions: mx.array, targets: mx.array, reduction: Reduction = "mean") -> mx.array:
    """The squared difference.

    Parameters
    ----------
    predictions, targets : array
        The predictions and targets.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'mean'``.

    Examples
    --------
    >>> nn.losses.mse_loss(mx.array([1.0, 2.0]), mx.array([1.0, 4.0])).item()
    2.0
    """
    _require_same_shape(predictions=predictions, targets=targets)
    return _reduced(mx.square(predictions - targets), reduction)


def nll_loss(inputs: mx.array, targets: mx.array, axis: int = -1, reduction: Reduction = "none") -> mx.array:
    """The negative log likelihood of classes.

    Parameters
    ----------
    inputs : array
        The logarithms of the predicted probabilities.
    targets : array
        The indices of the classes.
    axis : int
        The axis of the classes. Default: ``-1``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'none'``.

    Examples
    --------
    >>> nn.losses.nll_loss(mx.array([[-1.0, -2.0]]), mx.array([1])).tolist()
    [2.0]
    """
    return _reduced(-_at_classes(inputs, targets, axis), reduction)


def gaussian_nll_loss(
    inputs: mx.array, targets: mx.array, vars: mx.array, full: bool = False, eps: float = 1e-6,
    reduction: Reduction = "mean",
) -> mx.array:
    """The negative log likelihood of a normal distribution.

    Parameters
    ----------
    inputs : array
        The predicted means.
    targets : array
        The targets.
    vars : array
        The predicted variances.
    full : bool
        Whether to add the constant term. Default: ``False``.
    eps : float
        The lower bound of variances. Default: ``1e-6``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'mean'``.

    Examples
    --------
    >>> nn.losses.gaussian_nll_loss(mx.zeros(2), mx.full((2,), 2.0), mx.ones(2)).item()
    2.0
    """
    _require_same_shape(inputs=inputs, targets=targets, vars=vars)
    variance = mx.maximum(vars, eps)
    loss = 0.5 * (mx.log(variance) + mx.square(targets - inputs) / variance)
    return _reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def kl_div_loss(inputs: mx.array, targets: mx.array, axis: int = -1, reduction: Reduction = "none") -> mx.array:
    """The Kullback-Leibler divergence, ``sum(exp(targets) * (targets - inputs))``.

    Parameters
    ----------
    inputs : array
        The logarithms of the predicted probabilities.
    targets : array
        The logarithms of the true probabilities.
    axis : int
        The axis of the sum. Default: ``-1``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'none'``.

    Examples
    --------
    >>> p = mx.log(mx.array([[0.5, 0.5]]))
    >>> nn.losses.kl_div_loss(p, p).tolist()
    [0.0]
    """
    return _reduced(mx.sum(mx.exp(targets) * (targets - inputs), axis), reduction)


def smooth_l1_loss(
    predictions: mx.array, targets: mx.array, beta: float = 1.0, reduction: Reduction = "mean"
) -> mx.array:
    """The absolute difference, squared where it is small.

    Computes ``0.5 * d**2 / beta`` where the difference ``d`` is less than ``beta``, ``abs(d) - 0.5 * beta`` elsewhere.

    Parameters
    ----------
    predictions, targets : array
        The predictions and targets.
    beta : float
        The largest difference to square. Default: ``1.0``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'mean'``.

    Examples
    --------
    >>> nn.losses.smooth_l1_loss(mx.array([0.5]), mx.array([0.0])).item()
    0.125
    """
    _require_same_shape(predictions=predictions, targets=targets)
    distance = mx.abs(predictions - targets)
    near, far = 0.5 * mx.square(distance) / beta, distance - 0.5 * beta
    return _reduced(mx.where(distance < beta, near, far), reduction)


def triplet_loss(
    anchors: mx.array, positives: mx.array, negatives: mx.array, axis: int = -1, p: int = 2, margin: float = 1.0,
    eps: float = 1e-6, reduction: Reduction = "none",
) -> mx.array:
    """``max(distance(anchors, positives) - distance(anchors, negatives) + margin, 0)``.

    Parameters
    ----------
    anchors : array
        The anchors.
    positives : array
        Samples that should be close to the anchors.
    negatives : array
        Samples that should be far from them.
    axis : int
        The axis of the features. Default: ``-1``.
    p : int
        The exponent of the distance. Default: ``2``.
    margin : float
        The difference of the distances to reach. Default: ``1.0``.
    eps : float
        Added before the root is taken. Default: ``1e-6``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'none'``.

    Examples
    --------
    >>> a, n = mx.zeros((1, 2)), mx.full((1, 2), 9.0)
    >>> nn.losses.triplet_loss(a, a, n).tolist()
    [0.0]
    """

    def distance_to(samples: mx.array) -> mx.array:
        return mx.power(mx.sum(mx.power(mx.abs(anchors - samples), p), axis) + eps, 1 / p)

    return _reduced(mx.maximum(distance_to(positives) - distance_to(negatives) + margin, 0), reduction)


def hinge_loss(inputs: mx.array, targets: mx.array, reduction: Reduction = "none") -> mx.array:
    """``max(0, 1 - inputs * targets)``.

    Parameters
    ----------
    inputs : array
        The predictions.
    targets : array
        The targets, 1 or -1.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'none'``.

    Examples
    --------
    >>> nn.losses.hinge_loss(mx.array([2.0, 0.5]), mx.array([1, -1])).tolist()
    [0.0, 1.5]
    """
    return _reduced(mx.maximum(1 - inputs * targets, 0), reduction)


def huber_loss(inputs: mx.array, targets: mx.array, delta: float = 1.0, reduction: Reduction = "none") -> mx.array:
    """Half the squared difference, continued linearly where it is large.

    Computes ``0.5 * d**2`` where the difference ``d`` is at most ``delta``, ``delta * (abs(d) - 0.5 * delta)``
    elsewhere.

    Parameters
    ----------
    inputs, targets : array
        The predictions and targets.
    delta : float
        The largest difference to square. Default: ``1.0``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'none'``.

    Examples
    --------
    >>> nn.losses.huber_loss(mx.array([1.0, 3.0]), mx.zeros(2)).tolist()
    [0.5, 2.5]
    """
    distance = mx.abs(inputs - targets)
    near = mx.minimum(distance, delta)
    return _reduced(0.5 * (near**2) + delta * (distance - near), reduction)


def log_cosh_loss(inputs: mx.array, targets: mx.array, reduction: Reduction = "none") -> mx.array:
    """The logarithm of the hyperbolic cosine of the difference.

    Close to half the square for small differences, to the absolute value for large ones.

    Parameters
    ----------
    inputs, targets : array
        The predictions and targets.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'none'``.

    Examples
    --------
    >>> nn.losses.log_cosh_loss(mx.array([1.0]), mx.array([1.0])).tolist()
    [0.0]
    """
    difference = inputs - targets
    return _reduced(mx.logaddexp(difference, -difference) - math.log(2), reduction)


def cosine_similarity_loss(
    x1: mx.array, x2: mx.array, axis: int = 1, eps: float = 1e-8, reduction: Reduction = "none"
) -> mx.array:
    """The cosine of the angle between vectors.

    Parameters
    ----------
    x1, x2 : array
        The vectors.
    axis : int
        The axis of the features. Default: ``1``.
    eps : float
        The lower bound of the product of norms to divide by. Default: ``1e-8``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the cosines. Default: ``'none'``.

    Examples
    --------
    >>> x = mx.array([[2.0, 0.0]])
    >>> nn.losses.cosine_similarity_loss(x, 3 * x).tolist()
    [1.0]
    """
    norms = mx.linalg.norm(x1, axis=axis) * mx.linalg.norm(x2, axis=axis)
    return _reduced(mx.sum(x1 * x2, axis) / mx.maximum(norms, eps), reduction)


def margin_ranking_loss(
    inputs1: mx.array, inputs2: mx.array, targets: mx.array, margin: float = 0.0, reduction: Reduction = "none"
) -> mx.array:
    """``max(0, -targets * (inputs1 - inputs2) + margin)``.

    Parameters
    ----------
    inputs1, inputs2 : array
        The scores.
    targets : array
        1 where the first score should be higher, -1 where the second should be.
    margin : float
        The difference of the scores to reach. Default: ``0.0``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'none'``.

    Examples
    --------
    >>> scores = mx.array([1.0, 2.0]), mx.array([3.0, 1.0])
    >>> nn.losses.margin_ranking_loss(*scores, mx.array([1, 1])).tolist()
    [2.0, 0.0]
    """
    _require_same_shape(inputs1=inputs1, inputs2=inputs2, targets=targets)
    difference = inputs1 - inputs2
    return _reduced(mx.maximum(0, -targets * difference + margin), reduction)
