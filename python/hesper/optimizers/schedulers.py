"""Learning rate schedules: functions from the number of steps to a value."""

import math
from typing import Any, Callable

import hesper.core as mx

__all__ = ["cosine_decay", "exponential_decay", "join_schedules", "linear_schedule", "step_decay"]

Schedule = Callable[[Any], Any]


def _require_steps(schedule: str, **steps: int) -> None:
    for name, value in steps.items():
        if value < 1:
            raise ValueError(f"cannot make a {schedule} schedule with {name}={value}; it must be at least 1")


def exponential_decay(init: float, decay_rate: float) -> Schedule:
    """A value that is multiplied by a constant in every step.

    Parameters
    ----------
    init : float
        The first value.
    decay_rate : float
        The factor.

    Examples
    --------
    >>> optim.exponential_decay(0.5, 0.5)(mx.array(2)).item()
    0.125
    """
    return lambda step: init * decay_rate**step


def step_decay(init: float, decay_rate: float, step_size: int) -> Schedule:
    """A value that is multiplied by a constant every few steps.

    Parameters
    ----------
    init : float
        The first value.
    decay_rate : float
        The factor.
    step_size : int
        The number of steps between two multiplications.

    Raises
    ------
    ValueError
        If ``step_size`` is not positive.

    Examples
    --------
    >>> schedule = optim.step_decay(0.5, 0.5, step_size=10)
    >>> [schedule(mx.array(step)).item() for step in (0, 9, 10, 25)]
    [0.5, 0.5, 0.25, 0.125]
    """
    _require_steps("step", step_size=step_size)
    return lambda step: init * decay_rate ** (step // step_size)


def cosine_decay(init: float, decay_steps: int, end: float = 0.0) -> Schedule:
    """A value that follows half a cosine down to its end.

    Parameters
    ----------
    init : float
        The first value.
    decay_steps : int
        The number of steps; the value stays after them.
    end : float
        The last value. Default: ``0.0``.

    Raises
    ------
    ValueError
        If ``decay_steps`` is not positive.

    Examples
    --------
    >>> schedule = optim.cosine_decay(0.5, decay_steps=10)
    >>> [round(schedule(mx.array(step)).item(), 3) for step in (0, 5, 10, 20)]
    [0.5, 0.25, 0.0, 0.0]
    """
    _require_steps("cosine", decay_steps=decay_steps)
    frequency = math.pi / decay_steps

    def schedule(step: Any) -> mx.array:
        fraction = 0.5 * (1.0 + mx.cos(frequency * mx.minimum(step, decay_steps)))
        return end + fraction * (init - end)

    return schedule


def join_schedules(schedules: list[Schedule], boundaries: list[int]) -> Schedule:
    """Several schedules, one after the other.

    Parameters
    ----------
    schedules : list of callable
        The schedules. Each counts its steps from its beginning.
    boundaries : list of int
        The steps at which the second and all later schedules begin.

    Raises
    ------
    ValueError
        If there is no schedule, or the boundaries are not one fewer.

    Examples
    --------
    >>> warmup = optim.linear_schedule(0, 0.5, steps=10)
    >>> schedule = optim.join_schedules([warmup, optim.cosine_decay(0.5, 200)], [10])
    >>> [schedule(mx.array(step)).item() for step in (0, 5, 10)]
    [0.0, 0.25, 0.5]
    """
    if not schedules:
        raise ValueError("cannot join no schedules; give at least one")
    first, *later = schedules
    if len(boundaries) != len(later):
        raise ValueError(f"cannot join {len(schedules)} schedules at {len(boundaries)} boundaries; {len(later)} needed")

    def schedule(step: Any) -> mx.array:
        value = first(step)
        for boundary, following in zip(boundaries, later):
            value = mx.where(step < boundary, value, following(step - boundary))
        return value

    return schedule


def linear_schedule(init: float, end: float, steps: int) -> Schedule:
    """A value that changes linearly up to its end.

    Parameters
    ----------
    init : float
        The first value.
    end : float
        The last value.
    steps : int
        The number of steps; the value stays after them.

    Raises
    ------
    ValueError
        If ``steps`` is not positive.

    Examples
    --------
    >>> schedule = optim.linear_schedule(0, 0.5, steps=4)
    >>> [schedule(mx.array(step)).item() for step in (0, 2, 4, 8)]
    [0.0, 0.25, 0.5, 0.5]
    """
    _require_steps("linear", steps=steps)
    slope = (end - init) / steps
    return lambda step: mx.minimum(step, steps) * slope + init
