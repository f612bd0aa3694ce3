"""The base class of optimizers, their combination, and gradient clipping.

An optimizer's state is a tree with the structure of the parameters, in which a dictionary stands for each array, plus
the number of steps and the scheduled settings. It holds arrays only, so it can be saved, restored and passed through
``hesper.core.compile``.
"""

from typing import Any, Callable

import hesper.core as mx
from hesper.nn import Module
from hesper.utils import tree_flatten, tree_map, tree_merge, tree_reduce, tree_unflatten

__all__ = ["MultiOptimizer", "Optimizer", "clip_grad_norm"]

# A setting, or its schedule: a function of the number of steps.
Scheduled = float | Callable[[mx.array], mx.array]


class Optimizer:
    """Base class of optimizers.

    Subclasses define :meth:`init_single` and :meth:`apply_single`, for one parameter at a time.

    Parameters
    ----------
    schedulers : dict, optional
        Schedules by the name of the setting in the state.

    Examples
    --------
    >>> class SignSGD(optim.Optimizer):
    ...     def __init__(self, learning_rate):
    ...         super().__init__()
    ...         self._maybe_schedule("learning_rate", learning_rate)
    ...
    ...     def init_single(self, parameter, state):
    ...         pass
    ...
    ...     def apply_single(self, gradient, parameter, state):
    ...         return parameter - self.learning_rate * mx.sign(gradient)
    ...
    >>> SignSGD(0.5).apply_gradients({"w": mx.array([3.0])}, {"w": mx.array([1.0])})
    {'w': array([0.5], dtype=float32)}
    """

    def __init__(self, schedulers: dict | None = None) -> None:
        self._schedulers = dict(schedulers or {})
        self._state, self._initialized = {"step": mx.array(0, mx.uint64)}, False

    def update(self, model: Module, gradients: dict) -> None:
        """Take a step and store the new parameters in the model.

        Parameters
        ----------
        model : Module
            The model.
        gradients : dict
            A tree of gradients, see :func:`hesper.nn.value_and_grad`.

        Examples
        --------
        >>> model = nn.LayerNorm(2)
        >>> optim.SGD(0.5).update(model, {"bias": mx.ones(2)})
        >>> model.bias.tolist()
        [-0.5, -0.5]
        """
        parameters = self.apply_gradients(gradients, model)
        model.update(parameters)

    def init(self, parameters: dict) -> None:
        """Create the state of all parameters that have none.

        Optional: the first step does it for the gradients that it is given.

        Parameters
        ----------
        parameters : dict
            A tree of parameters.

        Examples
        --------
        >>> optimizer = optim.SGD(0.1, momentum=0.9)
        >>> optimizer.init({"w": mx.ones(2)})
        >>> optimizer.state["w"]
        {'v': array([0, 0], dtype=float32)}
        """
        if not isinstance(parameters, dict):
            raise TypeError(f"cannot create a state for a {type(parameters).__name__}; parameters must be a dictionary")
        self._complete(parameters, self._state)
        self._initialized = True

    def _complete(self, tree: Any, state: Any) -> Any:
        """``state`` (``None`` if there is none) with what it lacks for the parameters of ``tree``."""
        if isinstance(tree, (tuple, list)):
            known = list(state or ()) + [None] * len(tree)
            return type(tree)([self._complete(*pair) for pair in zip(tree, known)])
        if state is None:
            state = {}
        if isinstance(tree, dict):
            state.update({key: self._complete(child, state.get(key)) for key, child in tree.items()})
        elif not state:
            self.init_single(tree, state)
        return state

    def init_single(self, parameter: mx.array, state: dict) -> None:
        """Create the state of one parameter. Defined by subclasses.

        Parameters
        ----------
        parameter : array
            The parameter.
        state : dict
            An empty dictionary to fill.

        Examples
        --------
        >>> state = {}
        >>> optim.Adam(0.1).init_single(mx.ones(2), state)
        >>> list(state)
        ['m', 'v']
        """
        raise NotImplementedError(f"{type(self).__name__} does not define init_single")

    def apply_gradients(self, gradients: dict, parameters: dict) -> dict:
        """Take a step and return the new parameters.

        Parameters
        ----------
        gradients : dict
            A tree of gradients.
        parameters : dict
            A tree of parameters, which may have more leaves than ``gradients``.

        Returns
        -------
        dict
            The new parameters, a tree like ``gradients``.

        Examples
        --------
        >>> optimizer = optim.SGD(learning_rate=0.5)
        >>> optimizer.apply_gradients({"w": mx.ones(1)}, {"w": mx.ones(1)})
        {'w': array([0.5], dtype=float32)}
        """
        if not self._initialized:
            self.init(gradients)
        state, step = self.state, self.step
        for name, schedule in self._schedulers.items():
            state[name] = schedule(step)
        state["step"] = step + 1
        return tree_map(self.apply_single, gradients, parameters, state)

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict) -> mx.array:
        """Take a step with one parameter. Defined by subclasses.

        Parameters
        ----------
        gradient, parameter : array
            The gradient and the parameter.
        state : dict
            The state of the parameter, to be updated.

        Returns
        -------
        array
            The new parameter.

        Examples
        --------
        >>> optim.SGD(0.5).apply_single(mx.ones(1), mx.ones(1), {})
        array([0.5], dtype=float32)
        """
        raise NotImplementedError(f"{type(self).__name__} does not define apply_single")

    @property
    def state(self) -> dict:
        """The state. It may be replaced by a saved one.

        Examples
        --------
        >>> list(optim.SGD(0.1).state)
        ['step', 'learning_rate']
        """
        return self._state

    @state.setter
    def state(self, state: dict) -> None:
        self._state, self._initialized = state, False

    @property
    def step(self) -> mx.array:
        """The number of steps taken.

        Examples
        --------
        >>> optim.SGD(0.1).step.item()
        0
        """
        return self._state["step"]

    @property
    def learning_rate(self) -> mx.array:
        """The learning rate. A schedule sets it in every step.

        Examples
        --------
        >>> optimizer = optim.SGD(0.5)
        >>> optimizer.learning_rate = 0.25
        >>> optimizer.learning_rate.item()
        0.25
        """
        return self._state["learning_rate"]

    @learning_rate.setter
    def learning_rate(self, learning_rate: float | mx.array) -> None:
        self._state["learning_rate"] = mx.array(learning_rate)

    def _maybe_schedule(self, name: str, param: Scheduled) -> None:
        """Store a setting in the state, and its schedule if it has one."""
        if callable(param):
            self._schedulers[name] = param
            self._state[name] = param(self.step)
        else:
            self._state[name] = mx.array(param)


class MomentOptimizer(Optimizer):
    """An optimizer whose state is arrays like the parameter, which start at zero."""

    # The names of these arrays in the state.
    _moments: tuple[str, ...]

    def __init__(self, learning_rate: Scheduled) -> None:
        super().__init__()
        self._maybe_schedule("learning_rate", learning_rate)

    def init_single(self, parameter: mx.array, state: dict) -> None:
        state.update({name: mx.zeros_like(parameter) for name in self._moments})

    def _rate_for(self, gradient: mx.array) -> mx.array:
        """The learning rate in the type of the gradient."""
        return self.learning_rate.astype(gradient.dtype)

    def _require_nonnegative(self, **settings: float) -> None:
        for name, value in settings.items():
            if not value >= 0:
                raise ValueError(f"cannot use {type(self).__name__} with {name}={value}; it must not be negative")

    def _require_positive(self, **settings: float) -> None:
        for name, value in settings.items():
            if value <= 0:
                raise ValueError(f"cannot use {type(self).__name__} with {name}={value}; it must be positive")

    def _require_fractions(self, betas: list[float]) -> None:
        for value in betas:
            if not 0 <= value < 1:
                raise ValueError(f"cannot use {type(self).__name__} with betas={betas}; each must be in [0, 1)")


def moving_average(state: dict, name: str, decay: Any, value: mx.array) -> mx.array:
    """Add ``value`` to the exponential moving average under ``name`` and return the average."""
    state[name] = decay * state[name] + (1 - decay) * value
    return state[name]


def _accept_all(path: str, gradient: mx.array) -> bool:
    return True


class MultiOptimizer(Optimizer):
    """Several optimizers, each for some of the parameters.

    Parameters
    ----------
    optimizers : list of Optimizer
        The optimizers.
    filters : list of callable
        One for each optimizer but the last: given the dotted name and the gradient of a parameter, returns whether
        the optimizer updates it. The first optimizer that accepts a parameter gets it, the last one gets the rest.

    Raises
    ------
    ValueError
        If the number of filters is wrong.

    Examples
    --------
    >>> optimizer = optim.MultiOptimizer(
    ...     [optim.Muon(0.02), optim.AdamW(1e-3)],
    ...     [lambda name, gradient: gradient.ndim == 2],
    ... )
    >>> optimizer.init({"weight": mx.ones((2, 2)), "bias": mx.ones(2)})
    >>> [list(state)[2:] for state in optimizer.state["states"]]
    [['weight'], ['bias']]
    """

    def __init__(self, optimizers: list[Optimizer], filters: list = []) -> None:
        needed = len(optimizers) - 1
        if len(filters) != needed:
            raise ValueError(
                f"cannot combine {len(optimizers)} optimizers with {len(filters)} filters; {needed} needed"
            )
        super().__init__()
        self._state = {}
        self.optimizers, self.filters = optimizers, [*filters, _accept_all]

    def _split(self, tree: dict) -> list[tuple[Optimizer, dict]]:
        """Each optimizer with the part of a tree that it updates."""
        parts: list[list] = [[] for _ in self.optimizers]
        for pair in tree_flatten(tree):
            next(part for part, accepts in zip(parts, self.filters) if accepts(*pair)).append(pair)
        return [(optimizer, tree_unflatten(part) if part else {}) for optimizer, part in zip(self.optimizers, parts)]

    def init(self, parameters: dict) -> None:
        """Create the states of all parameters that have none.

        Examples
        --------
        >>> optimizer = optim.MultiOptimizer([optim.SGD(0.1)])
        >>> optimizer.init({"w": mx.ones(1)})
        >>> list(optimizer.optimizers[0].state)
        ['step', 'learning_rate', 'w']
        """
        for optimizer, part in self._split(parameters):
            optimizer.init(part)

    def apply_gradients(self, gradients: dict, parameters: dict) -> dict:
        """Take a step with every optimizer and return the new parameters.

        Examples
        --------
        >>> optimizer = optim.MultiOptimizer([optim.SGD(0.5)])
        >>> optimizer.apply_gradients({"w": mx.ones(1)}, {"w": mx.ones(1)})
        {'w': array([0.5], dtype=float32)}
        """
        updated: Any = {}
        for optimizer, part in self._split(gradients):
            updated = tree_merge(updated, optimizer.apply_gradients(part, parameters))
        return updated

    @property
    def state(self) -> dict:
        """The states of all optimizers, under the key ``"states"``.

        Examples
        --------
        >>> len(optim.MultiOptimizer([optim.SGD(0.1)]).state["states"])
        1
        """
        return {"states": [optimizer.state for optimizer in self.optimizers]}

    @state.setter
    def state(self, state: dict) -> None:
        states = state.get("states", [])
        if len(states) != len(self.optimizers):
            raise ValueError(
                f"cannot restore {len(self.optimizers)} optimizers from {len(states)} states; "
                "'states' must have one for each optimizer"
            )
        for optimizer, part in zip(self.optimizers, states):
            optimizer.state = part

    @property
    def learning_rate(self) -> mx.array:
        """The learning rate of the first optimizer. Setting it sets that of all.

        Examples
        --------
        >>> optim.MultiOptimizer([optim.SGD(0.5)]).learning_rate.item()
        0.5
        """
        first, *_ = self.optimizers
        return first.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: float | mx.array) -> None:
        for optimizer in self.optimizers:
            optimizer.learning_rate = learning_rate


def clip_grad_norm(grads: dict, max_norm: float) -> tuple[dict, mx.array]:
    """Scale gradients down if their total norm is too large.

    Parameters
    ----------
    grads : dict
        A tree of gradients.
    max_norm : float
        The largest norm to allow.

    Returns
    -------
    tuple of (dict, array)
        The gradients and their norm before scaling.

    Raises
    ------
    ValueError
        If ``max_norm`` is negative.

    Examples
    --------
    >>> _, norm = optim.clip_grad_norm({"w": mx.array([3.0, 4.0])}, max_norm=1.0)
    >>> norm.item()
    5.0
    """

    if max_norm < 0:
        raise ValueError(f"cannot clip gradients to a norm of {max_norm}; it must not be negative")

    def add_square(total: Any, gradient: mx.array) -> mx.array:
        # Squares of float16 overflow early.
        wide = gradient.astype(mx.float32) if gradient.dtype == mx.float16 else gradient
        return total + mx.square(wide).sum()

    norm = mx.sqrt(tree_reduce(add_square, grads, 0.0))
    factor = mx.minimum(max_norm / (norm + 1e-6), 1.0)

    def scale(gradient: mx.array) -> mx.array:
        scaled = gradient * factor
        return scaled.astype(gradient.dtype) if mx.issubdtype(gradient.dtype, mx.floating) else scaled

    return tree_map(scale, grads), norm
