"""Learning rate schedules: functions of the number of steps."""

import math
from typing import Callable, List

import hesper.core as mx

__all__ = [
    "cosine_decay",
    "exponential_decay",
    "join_schedules",
    "linear_schedule",
    "step_decay",
]


def exponential_decay(init: float, decay_rate: float) -> Callable:
    """A schedule that multiplies with a constant in every step.

    Parameters
    ----------
    init : float
        The first value.
    decay_rate : float
        The factor.

    Returns
    -------
    callable
        Takes the step, returns the value.

    Examples
    --------
    >>> import hesper.optimizers as optim
    >>> optimizer = optim.SGD(learning_rate=optim.exponential_decay(1e-1, 0.9))
    >>> for _ in range(5):
    ...     optimizer.update({}, {})
    ...
    >>> optimizer.learning_rate
    array(0.06561, dtype=float32)
    """

    def schedule(step):
        return init * decay_rate**step

    return schedule


def step_decay(init: float, decay_rate: float, step_size: int) -> Callable:
    """A schedule that multiplies with a constant every few steps.

    Parameters
    ----------
    init : float
        The first value.
    decay_rate : float
        The factor.
    step_size : int
        After how many steps to multiply.

    Returns
    -------
    callable
        Takes the step, returns the value.

    Examples
    --------
    >>> import hesper.optimizers as optim
    >>> optimizer = optim.SGD(learning_rate=optim.step_decay(1e-1, 0.9, 10))
    >>> for _ in range(21):
    ...     optimizer.update({}, {})
    ...
    >>> optimizer.learning_rate
    array(0.081, dtype=float32)
    """

    def schedule(step):
        return init * (decay_rate ** (step // step_size))

    return schedule


def _check_positive(name: str, value: int) -> None:
    if value <= 0:
        raise ValueError(f"{name} must be greater than 0, but got {value}.")


def cosine_decay(init: float, decay_steps: int, end: float = 0.0) -> Callable:
    """A schedule that follows half a cosine down to its end.

    Parameters
    ----------
    init : float
        The first value.
    decay_steps : int
        The number of steps; after them the value stays.
    end : float
        The last value. Default: ``0.0``.

    Returns
    -------
    callable
        Takes the step, returns the value.

    Raises
    ------
    ValueError
        If ``decay_steps`` is not positive.

    Examples
    --------
    >>> import hesper.optimizers as optim
    >>> optimizer = optim.SGD(learning_rate=optim.cosine_decay(1e-1, 1000))
    >>> for _ in range(5):
    ...     optimizer.update({}, {})
    ...
    >>> optimizer.learning_rate
    array(0.0999961, dtype=float32)
    """
    _check_positive("decay_steps", decay_steps)

    def schedule(step):
        step = mx.minimum(step, decay_steps)
        decay = 0.5 * (1.0 + mx.cos((math.pi / decay_steps) * step))
        return end + decay * (init - end)

    return schedule


def join_schedules(schedules: List[Callable], boundaries: List[int]) -> Callable:
    """A schedule that follows several others, one after the other.

    Parameters
    ----------
    schedules : list of callable
        The schedules. Each counts its steps from where it begins.
    boundaries : list of int
        The steps at which the second and all later schedules begin.

    Returns
    -------
    callable
        Takes the step, returns the value.

    Raises
    ------
    ValueError
        If there is no schedule, or the boundaries are not one fewer.

    Examples
    --------
    >>> import hesper.optimizers as optim
    >>> warmup = optim.linear_schedule(0, 1e-1, steps=10)
    >>> schedule = optim.join_schedules([warmup, optim.cosine_decay(1e-1, 200)], [10])
    >>> optimizer = optim.Adam(learning_rate=schedule)
    >>> for _ in range(12):
    ...     optimizer.update({}, {})
    ...
    >>> optimizer.learning_rate
    array(0.0999938, dtype=float32)
    """
    if len(schedules) == 0:
        raise ValueError("Must provide at least 1 schedule to join.")
    if len(schedules) != len(boundaries) + 1:
        raise ValueError(
            f"Received {len(boundaries)} boundaries but expected {len(schedules) - 1}."
        )

    def schedule(step):
        value = schedules[0](step)
        for boundary, later in zip(boundaries, schedules[1:]):
            value = mx.where(step < boundary, value, later(step - boundary))
        return value

    return schedule


def linear_schedule(init: float, end: float, steps: int) -> Callable:
    """A schedule that follows a line to its end.

    Parameters
    ----------
    init : float
        The first value.
    end : float
        The last value.
    steps : int
        The number of steps; after them the value stays.

    Returns
    -------
    callable
        Takes the step, returns the value.

    Raises
    ------
    ValueError
        If ``steps`` is not positive.

    Examples
    --------
    >>> import hesper.optimizers as optim
    >>> optimizer = optim.Adam(learning_rate=optim.linear_schedule(0, 1e-1, 100))
    >>> for _ in range(101):
    ...     optimizer.update({}, {})
    ...
    >>> optimizer.learning_rate
    array(0.1, dtype=float32)
    """
    _check_positive("steps", steps)

    def schedule(step):
        step = mx.minimum(step, steps)
        return step * ((end - init) / steps) + init

    return schedule
