"""Loss functions.

All take a ``reduction``: ``'none'`` returns the loss of every sample, ``'mean'``
and ``'sum'`` reduce them to a scalar.
"""

import math
from typing import Literal, Optional, get_args

import hesper.core as mx

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


def _reduce(loss: mx.array, reduction: Reduction = "none") -> mx.array:
    if reduction == "mean":
        return mx.mean(loss)
    if reduction == "sum":
        return mx.sum(loss)
    if reduction == "none":
        return loss
    raise ValueError(f"Invalid reduction. Must be one of {get_args(Reduction)}.")


def _check_same_shape(name: str, x: mx.array, other_name: str, other: mx.array) -> None:
    if x.shape != other.shape:
        raise ValueError(
            f"{name} shape {x.shape} does not match {other_name} shape {other.shape}."
        )


def _weighted(loss: mx.array, weights: Optional[mx.array]) -> mx.array:
    if weights is None:
        return loss
    if weights.shape != loss.shape:
        raise ValueError(
            f"Weights with shape {weights.shape} is not the same as output loss with "
            f"shape {loss.shape}."
        )
    return loss * weights


def _on_gpu() -> bool:
    return mx.default_device().type == mx.gpu


def cross_entropy(
    logits: mx.array,
    targets: mx.array,
    weights: Optional[mx.array] = None,
    axis: int = -1,
    label_smoothing: float = 0.0,
    reduction: Reduction = "none",
) -> mx.array:
    """The cross entropy between logits and classes or probabilities.

    Parameters
    ----------
    logits : array
        The unnormalised predictions.
    targets : array
        Either the indices of the classes, of the shape of ``logits`` without
        ``axis``, or probabilities, of the shape of ``logits``.
    weights : array, optional
        A weight for each sample.
    axis : int
        The axis of the classes. Default: ``-1``.
    label_smoothing : float
        The share of the target that is spread over all classes, in
        ``[0, 1)``. Default: ``0.0``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses of the samples. Default: ``'none'``.

    Returns
    -------
    array
        The loss.

    Raises
    ------
    ValueError
        If shapes do not fit or ``label_smoothing`` or ``reduction`` is not
        valid.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> logits = mx.array([[2.0, -1.0], [-1.0, 2.0]])
    >>> nn.losses.cross_entropy(logits, mx.array([0, 1]))
    array([0.0485873, 0.0485873], dtype=float32)
    >>> nn.losses.cross_entropy(logits, mx.array([[0.9, 0.1], [0.1, 0.9]]))
    array([0.348587, 0.348587], dtype=float32)
    """
    if label_smoothing < 0 or label_smoothing >= 1:
        raise ValueError(f"Label smoothing must be in [0, 1), got {label_smoothing}.")

    probabilities = targets.ndim == logits.ndim
    expected = list(logits.shape)
    if not probabilities:
        expected.pop(axis)
    if list(targets.shape) != expected:
        raise ValueError(
            f"Targets shape {targets.shape} does not match logits shape {logits.shape}."
        )

    if not probabilities and not mx.issubdtype(targets.dtype, mx.integer):
        targets = targets.astype(mx.int32)
    last = axis in (-1, logits.ndim - 1)
    floating = mx.issubdtype(logits.dtype, mx.floating)
    if _on_gpu() and last and floating and not probabilities and label_smoothing == 0:
        # One kernel, which accumulates in 32 bits whatever the type of the logits.
        loss = mx.fast.cross_entropy(logits, targets).astype(logits.dtype)
    else:
        loss = _unfused_cross_entropy(
            logits, targets, axis, label_smoothing, probabilities
        )
    return _reduce(_weighted(loss, weights), reduction)


def _unfused_cross_entropy(
    logits: mx.array,
    targets: mx.array,
    axis: int,
    label_smoothing: float,
    probabilities: bool,
) -> mx.array:
    # The largest entry is subtracted so that exp cannot overflow.
    logits = logits - mx.stop_gradient(mx.max(logits, axis=axis, keepdims=True))
    normalizer = mx.logsumexp(logits, axis=axis)
    if probabilities:
        score = mx.sum(logits * targets, axis=axis)
    else:
        indices = mx.expand_dims(targets, axis)
        score = mx.take_along_axis(logits, indices, axis).squeeze(axis)
    if label_smoothing == 0:
        return normalizer - score
    smooth = -mx.mean(logits, axis=axis)
    return normalizer - (1 - label_smoothing) * score + label_smoothing * smooth


def binary_cross_entropy(
    inputs: mx.array,
    targets: mx.array,
    weights: Optional[mx.array] = None,
    with_logits: bool = True,
    reduction: Reduction = "mean",
) -> mx.array:
    """The cross entropy of two classes.

    Parameters
    ----------
    inputs : array
        The predictions: logits, or probabilities if not ``with_logits``. The
        logarithms of probabilities are cut off at -100.
    targets : array
        The truth, between zero and one.
    weights : array, optional
        A weight for each entry.
    with_logits : bool
        Whether ``inputs`` are logits. Default: ``True``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'mean'``.

    Returns
    -------
    array
        The loss.

    Raises
    ------
    ValueError
        If shapes differ or ``reduction`` is not valid.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> probabilities = mx.array([0.1, 0.1, 0.4, 0.4])
    >>> targets = mx.array([0, 0, 1, 1])
    >>> nn.losses.binary_cross_entropy(probabilities, targets, with_logits=False)
    array(0.510826, dtype=float32)
    """
    _check_same_shape("Inputs", inputs, "targets", targets)
    if with_logits:
        loss = mx.logaddexp(0.0, inputs) - inputs * targets
    else:
        log_true = mx.maximum(mx.log(inputs), -100)
        log_false = mx.maximum(mx.log(1 - inputs), -100)
        loss = -(targets * log_true + (1 - targets) * log_false)
    return _reduce(_weighted(loss, weights), reduction)


def l1_loss(
    predictions: mx.array, targets: mx.array, reduction: Reduction = "mean"
) -> mx.array:
    """The absolute difference.

    Parameters
    ----------
    predictions : array
        The predictions.
    targets : array
        The truth.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'mean'``.

    Returns
    -------
    array
        The loss.

    Raises
    ------
    ValueError
        If shapes differ or ``reduction`` is not valid.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.losses.l1_loss(mx.array([1.0, 2.0]), mx.array([1.0, 4.0])).item()
    1.0
    """
    _check_same_shape("Predictions", predictions, "targets", targets)
    return _reduce(mx.abs(predictions - targets), reduction)


def mse_loss(
    predictions: mx.array, targets: mx.array, reduction: Reduction = "mean"
) -> mx.array:
    """The squared difference.

    Parameters
    ----------
    predictions : array
        The predictions.
    targets : array
        The truth.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'mean'``.

    Returns
    -------
    array
        The loss.

    Raises
    ------
    ValueError
        If shapes differ or ``reduction`` is not valid.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.losses.mse_loss(mx.array([1.0, 2.0]), mx.array([1.0, 4.0])).item()
    2.0
    """
    _check_same_shape("Predictions", predictions, "targets", targets)
    return _reduce(mx.square(predictions - targets), reduction)


def nll_loss(
    inputs: mx.array, targets: mx.array, axis: int = -1, reduction: Reduction = "none"
) -> mx.array:
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

    Returns
    -------
    array
        The loss.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.losses.nll_loss(mx.array([[-1.0, -2.0]]), mx.array([1])).tolist()
    [2.0]
    """
    indices = mx.expand_dims(targets, axis)
    return _reduce(-mx.take_along_axis(inputs, indices, axis).squeeze(axis), reduction)


def gaussian_nll_loss(
    inputs: mx.array,
    targets: mx.array,
    vars: mx.array,
    full: bool = False,
    eps: float = 1e-6,
    reduction: Reduction = "mean",
) -> mx.array:
    """The negative log likelihood of a normal distribution.

    Parameters
    ----------
    inputs : array
        The predicted means.
    targets : array
        The truth.
    vars : array
        The predicted variances.
    full : bool
        Whether to add the constant term. Default: ``False``.
    eps : float
        The least variance. Default: ``1e-6``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'mean'``.

    Returns
    -------
    array
        The loss.

    Raises
    ------
    ValueError
        If shapes differ or ``reduction`` is not valid.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.losses.gaussian_nll_loss(mx.zeros(2), mx.full((2,), 2.0), mx.ones(2)).item()
    2.0
    """
    _check_same_shape("Inputs", inputs, "targets", targets)
    _check_same_shape("Inputs", inputs, "vars", vars)
    vars = mx.maximum(vars, eps)
    loss = 0.5 * (mx.log(vars) + mx.square(targets - inputs) / vars)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduce(loss, reduction)


def kl_div_loss(
    inputs: mx.array, targets: mx.array, axis: int = -1, reduction: Reduction = "none"
) -> mx.array:
    """The Kullback-Leibler divergence of two distributions.

    Parameters
    ----------
    inputs : array
        The logarithms of the predicted probabilities.
    targets : array
        The logarithms of the true probabilities.
    axis : int
        The axis of the distribution. Default: ``-1``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'none'``.

    Returns
    -------
    array
        ``sum(exp(targets) * (targets - inputs))`` along ``axis``, reduced.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> p = mx.log(mx.array([[0.5, 0.5]]))
    >>> nn.losses.kl_div_loss(p, p).tolist()
    [0.0]
    """
    loss = mx.sum(mx.exp(targets) * (targets - inputs), axis)
    return _reduce(loss, reduction)


def smooth_l1_loss(
    predictions: mx.array,
    targets: mx.array,
    beta: float = 1.0,
    reduction: Reduction = "mean",
) -> mx.array:
    """The absolute difference, squared where it is small.

    Computes ``0.5 * d**2 / beta`` where the difference ``d`` is less than
    ``beta``, ``abs(d) - 0.5 * beta`` elsewhere.

    Parameters
    ----------
    predictions : array
        The predictions.
    targets : array
        The truth.
    beta : float
        Where the square begins. Default: ``1.0``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'mean'``.

    Returns
    -------
    array
        The loss.

    Raises
    ------
    ValueError
        If shapes differ or ``reduction`` is not valid.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.losses.smooth_l1_loss(mx.array([0.5]), mx.array([0.0])).item()
    0.125
    """
    _check_same_shape("Predictions", predictions, "targets", targets)
    difference = mx.abs(predictions - targets)
    loss = mx.where(
        difference < beta, 0.5 * mx.square(difference) / beta, difference - 0.5 * beta
    )
    return _reduce(loss, reduction)


def triplet_loss(
    anchors: mx.array,
    positives: mx.array,
    negatives: mx.array,
    axis: int = -1,
    p: int = 2,
    margin: float = 1.0,
    eps: float = 1e-6,
    reduction: Reduction = "none",
) -> mx.array:
    """How much closer anchors are to negatives than to positives.

    Computes ``max(distance(a, p) - distance(a, n) + margin, 0)``.

    Parameters
    ----------
    anchors : array
        The anchors.
    positives : array
        Samples that are like the anchors.
    negatives : array
        Samples that are not.
    axis : int
        The axis of the features. Default: ``-1``.
    p : int
        The exponent of the distance. Default: ``2``.
    margin : float
        By how much positives should be closer. Default: ``1.0``.
    eps : float
        Added before the root is taken. Default: ``1e-6``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'none'``.

    Returns
    -------
    array
        The loss.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> a, n = mx.zeros((1, 2)), mx.full((1, 2), 9.0)
    >>> nn.losses.triplet_loss(a, a, n).tolist()
    [0.0]
    """

    def distance(x: mx.array, y: mx.array) -> mx.array:
        powers = mx.power(mx.abs(x - y), p)
        return mx.power(mx.sum(powers, axis) + eps, 1 / p)

    loss = mx.maximum(
        distance(anchors, positives) - distance(anchors, negatives) + margin, 0
    )
    return _reduce(loss, reduction)


def hinge_loss(
    inputs: mx.array, targets: mx.array, reduction: Reduction = "none"
) -> mx.array:
    """``max(0, 1 - inputs * targets)``.

    Parameters
    ----------
    inputs : array
        The predictions.
    targets : array
        The truth, 1 or -1.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'none'``.

    Returns
    -------
    array
        The loss.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.losses.hinge_loss(mx.array([2.0, 0.5]), mx.array([1, -1])).tolist()
    [0.0, 1.5]
    """
    return _reduce(mx.maximum(1 - inputs * targets, 0), reduction)


def huber_loss(
    inputs: mx.array,
    targets: mx.array,
    delta: float = 1.0,
    reduction: Reduction = "none",
) -> mx.array:
    """Half the squared difference, which goes on linearly where it is large.

    Computes ``0.5 * d**2`` where the difference ``d`` is at most ``delta``,
    ``delta * (abs(d) - 0.5 * delta)`` elsewhere.

    Parameters
    ----------
    inputs : array
        The predictions.
    targets : array
        The truth.
    delta : float
        Where the line begins. Default: ``1.0``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'none'``.

    Returns
    -------
    array
        The loss.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.losses.huber_loss(mx.array([1.0, 3.0]), mx.zeros(2)).tolist()
    [0.5, 2.5]
    """
    difference = mx.abs(inputs - targets)
    square_part = mx.minimum(difference, delta)
    loss = 0.5 * (square_part**2) + delta * (difference - square_part)
    return _reduce(loss, reduction)


def log_cosh_loss(
    inputs: mx.array, targets: mx.array, reduction: Reduction = "none"
) -> mx.array:
    """The logarithm of the hyperbolic cosine of the difference.

    Close to the square for small differences, to the absolute value for large
    ones.

    Parameters
    ----------
    inputs : array
        The predictions.
    targets : array
        The truth.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'none'``.

    Returns
    -------
    array
        The loss.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> nn.losses.log_cosh_loss(mx.array([1.0]), mx.array([1.0])).tolist()
    [0.0]
    """
    difference = inputs - targets
    return _reduce(mx.logaddexp(difference, -difference) - math.log(2), reduction)


def cosine_similarity_loss(
    x1: mx.array,
    x2: mx.array,
    axis: int = 1,
    eps: float = 1e-8,
    reduction: Reduction = "none",
) -> mx.array:
    """The cosine of the angle between vectors.

    Parameters
    ----------
    x1 : array
        The first vectors.
    x2 : array
        The second vectors.
    axis : int
        The axis of the features. Default: ``1``.
    eps : float
        The least product of norms to divide by. Default: ``1e-8``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the results. Default: ``'none'``.

    Returns
    -------
    array
        The cosines.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> x = mx.array([[2.0, 0.0]])
    >>> nn.losses.cosine_similarity_loss(x, 3 * x).tolist()
    [1.0]
    """
    product = mx.sum(x1 * x2, axis=axis)
    norms = mx.linalg.norm(x1, axis=axis) * mx.linalg.norm(x2, axis=axis)
    return _reduce(product / mx.maximum(norms, eps), reduction)


def margin_ranking_loss(
    inputs1: mx.array,
    inputs2: mx.array,
    targets: mx.array,
    margin: float = 0.0,
    reduction: Reduction = "none",
) -> mx.array:
    """By how much a ranking of pairs is wrong.

    Computes ``max(0, -targets * (inputs1 - inputs2) + margin)``.

    Parameters
    ----------
    inputs1 : array
        The first scores.
    inputs2 : array
        The second scores.
    targets : array
        1 where the first should be higher, -1 where the second should be.
    margin : float
        By how much. Default: ``0.0``.
    reduction : {'none', 'mean', 'sum'}
        How to reduce the losses. Default: ``'none'``.

    Returns
    -------
    array
        The loss.

    Raises
    ------
    ValueError
        If shapes differ or ``reduction`` is not valid.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> scores = mx.array([1.0, 2.0]), mx.array([3.0, 1.0])
    >>> nn.losses.margin_ranking_loss(*scores, mx.array([1, 1])).tolist()
    [2.0, 0.0]
    """
    if not inputs1.shape == inputs2.shape == targets.shape:
        raise ValueError(
            "The shapes of the arguments do not match. The provided shapes are "
            f"inputs1.shape={inputs1.shape}, inputs2.shape={inputs2.shape}, and "
            f"targets.shape={targets.shape}."
        )
    loss = mx.maximum(0, -targets * (inputs1 - inputs2) + margin)
    return _reduce(loss, reduction)
