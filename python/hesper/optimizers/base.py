"""What all optimizers share, their combination, and gradient clipping.

An optimizer's state is a tree with the structure of the parameters, in which
each array has been replaced by a dictionary, plus the number of steps and the
scheduled settings. It holds arrays only, so it can be saved, restored and
passed through ``hesper.core.compile``.
"""

from typing import Any, Callable, List, Optional, Tuple, Union

import hesper.core as mx
from hesper.nn import Module
from hesper.utils import (
    tree_flatten,
    tree_map,
    tree_merge,
    tree_reduce,
    tree_unflatten,
)

__all__ = ["MultiOptimizer", "Optimizer", "clip_grad_norm"]

# A setting, or a schedule: a function of the number of steps.
Scheduled = Union[float, Callable[[mx.array], mx.array]]


class Optimizer:
    """Base class of optimizers.

    Subclasses define :meth:`init_single` and :meth:`apply_single`, for one
    parameter at a time.

    Parameters
    ----------
    schedulers : dict, optional
        Schedules by the name of the setting in the state.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.optimizers as optim
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

    def __init__(self, schedulers: Optional[dict] = None) -> None:
        self._initialized = False
        self._state = {"step": mx.array(0, mx.uint64)}
        self._schedulers = dict(schedulers or {})

    def update(self, model: Module, gradients: dict) -> None:
        """Take a step with a model.

        Parameters
        ----------
        model : Module
            The model; its parameters are replaced.
        gradients : dict
            A tree of gradients, see :func:`hesper.nn.value_and_grad`.

        Examples
        --------
        >>> import hesper.core as mx
        >>> import hesper.nn as nn
        >>> import hesper.optimizers as optim
        >>> model = nn.LayerNorm(2)
        >>> optim.SGD(0.5).update(model, {"bias": mx.ones(2)})
        >>> model.bias.tolist()
        [-0.5, -0.5]
        """
        model.update(self.apply_gradients(gradients, model))

    def init(self, parameters: dict) -> None:
        """Create the state for parameters, unless it exists.

        Optional: the first step does the same with the gradients it is given.

        Parameters
        ----------
        parameters : dict
            A tree of parameters.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> import hesper.optimizers as optim
        >>> optimizer = optim.SGD(learning_rate=1e-1, momentum=0.9)
        >>> optimizer.init(nn.Linear(2, 2).trainable_parameters())
        >>> optimizer.state.keys()
        dict_keys(['step', 'learning_rate', 'weight', 'bias'])
        """

        def complete(tree: Any, state: Any) -> Any:
            if isinstance(tree, (list, tuple)):
                known = len(state) if state is not None else 0
                return type(tree)(
                    [
                        complete(child, state[i] if i < known else None)
                        for i, child in enumerate(tree)
                    ]
                )
            state = {} if state is None else state
            if isinstance(tree, dict):
                for key, child in tree.items():
                    state[key] = complete(child, state.get(key))
            elif not state:
                self.init_single(tree, state)
            return state

        if not isinstance(parameters, dict):
            raise TypeError(
                f"The parameters must be a dictionary, not {type(parameters).__name__}."
            )
        complete(parameters, self._state)
        self._initialized = True

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
        >>> import hesper.core as mx
        >>> import hesper.optimizers as optim
        >>> state = {}
        >>> optim.Adam(0.1).init_single(mx.ones(2), state)
        >>> list(state)
        ['m', 'v']
        """
        raise NotImplementedError()

    def apply_gradients(self, gradients: dict, parameters: dict) -> dict:
        """Take a step and return the new parameters.

        Parameters
        ----------
        gradients : dict
            A tree of gradients.
        parameters : dict
            A tree of parameters, which may have more than ``gradients``.

        Returns
        -------
        dict
            The new parameters, a tree like ``gradients``.

        Examples
        --------
        >>> import hesper.core as mx
        >>> import hesper.optimizers as optim
        >>> optimizer = optim.SGD(learning_rate=0.5)
        >>> optimizer.apply_gradients({"w": mx.ones(1)}, {"w": mx.ones(1)})
        {'w': array([0.5], dtype=float32)}
        """
        if not self._initialized:
            self.init(gradients)
        for name, schedule in self._schedulers.items():
            self.state[name] = schedule(self.step)
        self.state["step"] = self.step + 1
        return tree_map(self.apply_single, gradients, parameters, self.state)

    def apply_single(
        self, gradient: mx.array, parameter: mx.array, state: dict
    ) -> mx.array:
        """Take a step with one parameter. Defined by subclasses.

        Parameters
        ----------
        gradient : array
            The gradient.
        parameter : array
            The parameter.
        state : dict
            The parameter's state, to be changed.

        Returns
        -------
        array
            The new parameter.

        Examples
        --------
        >>> import hesper.core as mx
        >>> import hesper.optimizers as optim
        >>> optim.SGD(0.5).apply_single(mx.ones(1), mx.ones(1), {})
        array([0.5], dtype=float32)
        """
        raise NotImplementedError()

    @property
    def state(self) -> dict:
        """The state; may be replaced by an earlier one.

        Examples
        --------
        >>> import hesper.optimizers as optim
        >>> list(optim.SGD(0.1).state)
        ['step', 'learning_rate']
        """
        return self._state

    @state.setter
    def state(self, state: dict) -> None:
        self._initialized = False
        self._state = state

    @property
    def step(self) -> mx.array:
        """The number of steps taken.

        Examples
        --------
        >>> import hesper.optimizers as optim
        >>> optim.SGD(0.1).step.item()
        0
        """
        return self.state["step"]

    @property
    def learning_rate(self) -> mx.array:
        """The learning rate. A schedule, if there is one, sets it in every step.

        Examples
        --------
        >>> import hesper.optimizers as optim
        >>> optimizer = optim.SGD(0.5)
        >>> optimizer.learning_rate = 0.25
        >>> optimizer.learning_rate.item()
        0.25
        """
        return self.state["learning_rate"]

    @learning_rate.setter
    def learning_rate(self, learning_rate: Union[float, mx.array]) -> None:
        self.state["learning_rate"] = mx.array(learning_rate)

    def _maybe_schedule(self, name: str, param: Scheduled) -> None:
        """Put a setting in the state, and its schedule aside if it has one."""
        if callable(param):
            self._schedulers[name] = param
            value = param(self.step)
        else:
            value = mx.array(param)
        self.state[name] = value


def _accept_all(path: str, parameter: mx.array) -> bool:
    return True


class MultiOptimizer(Optimizer):
    """Several optimizers, each for some of the parameters.

    Parameters
    ----------
    optimizers : list of Optimizer
        The optimizers.
    filters : list of callable
        One for each optimizer but the last: given the dotted name and the
        gradient of a parameter, says whether the parameter belongs to the
        optimizer. The first that says yes has it, the last optimizer has the
        rest.

    Raises
    ------
    ValueError
        If the number of filters is wrong.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.optimizers as optim
    >>> optimizer = optim.MultiOptimizer(
    ...     [optim.Muon(0.02), optim.AdamW(1e-3)],
    ...     [lambda name, gradient: gradient.ndim == 2],
    ... )
    >>> optimizer.init({"weight": mx.ones((2, 2)), "bias": mx.ones(2)})
    >>> [list(state)[2:] for state in optimizer.state["states"]]
    [['weight'], ['bias']]
    """

    def __init__(self, optimizers: List[Optimizer], filters: list = []) -> None:
        super().__init__()
        self._state = {}
        if len(filters) != len(optimizers) - 1:
            raise ValueError(
                f"Given {len(filters)} filters but {len(optimizers) - 1} needed."
            )
        self.optimizers = optimizers
        self.filters = [*filters, _accept_all]

    def _split_dictionary(self, gradients: dict) -> List[dict]:
        """The parts of a tree that belong to each optimizer."""
        parts: List[list] = [[] for _ in self.optimizers]
        for path, gradient in tree_flatten(gradients):
            for part, accepts in zip(parts, self.filters):
                if accepts(path, gradient):
                    part.append((path, gradient))
                    break
        return [tree_unflatten(part) if part else {} for part in parts]

    def init(self, parameters: dict) -> None:
        """Create the states for parameters, unless they exist.

        Parameters
        ----------
        parameters : dict
            A tree of parameters.

        Examples
        --------
        >>> import hesper.core as mx
        >>> import hesper.optimizers as optim
        >>> optimizer = optim.MultiOptimizer([optim.SGD(0.1)])
        >>> optimizer.init({"w": mx.ones(1)})
        >>> list(optimizer.optimizers[0].state)
        ['step', 'learning_rate', 'w']
        """
        for optimizer, part in zip(self.optimizers, self._split_dictionary(parameters)):
            optimizer.init(part)

    def apply_gradients(self, gradients: dict, parameters: dict) -> dict:
        """Take a step with every optimizer and return the new parameters.

        Parameters
        ----------
        gradients : dict
            A tree of gradients.
        parameters : dict
            A tree of parameters, which may have more than ``gradients``.

        Returns
        -------
        dict
            The new parameters, a tree like ``gradients``.

        Examples
        --------
        >>> import hesper.core as mx
        >>> import hesper.optimizers as optim
        >>> optimizer = optim.MultiOptimizer([optim.SGD(0.5)])
        >>> optimizer.apply_gradients({"w": mx.ones(1)}, {"w": mx.ones(1)})
        {'w': array([0.5], dtype=float32)}
        """
        updated: Any = {}
        for optimizer, part in zip(self.optimizers, self._split_dictionary(gradients)):
            updated = tree_merge(updated, optimizer.apply_gradients(part, parameters))
        return updated

    @property
    def state(self) -> dict:
        """The states of all optimizers, under the key ``"states"``.

        Examples
        --------
        >>> import hesper.optimizers as optim
        >>> len(optim.MultiOptimizer([optim.SGD(0.1)]).state["states"])
        1
        """
        return {"states": [optimizer.state for optimizer in self.optimizers]}

    @state.setter
    def state(self, state: dict) -> None:
        states = state.get("states", [])
        if len(states) != len(self.optimizers):
            raise ValueError("Invalid state provided")
        for optimizer, own in zip(self.optimizers, states):
            optimizer.state = own

    @property
    def learning_rate(self) -> mx.array:
        """The learning rate of the first optimizer; setting it sets all.

        Examples
        --------
        >>> import hesper.optimizers as optim
        >>> optimizer = optim.MultiOptimizer([optim.SGD(0.5)])
        >>> optimizer.learning_rate.item()
        0.5
        """
        return self.optimizers[0].learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Union[float, mx.array]) -> None:
        for optimizer in self.optimizers:
            optimizer.learning_rate = learning_rate


def clip_grad_norm(grads: dict, max_norm: float) -> Tuple[dict, mx.array]:
    """Scale gradients down if their norm, taken together, is too large.

    Parameters
    ----------
    grads : dict
        A tree of gradients.
    max_norm : float
        The largest norm to allow.

    Returns
    -------
    tuple of (dict, array)
        The gradients, scaled if necessary, and the norm before that.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.optimizers as optim
    >>> _, norm = optim.clip_grad_norm({"w": mx.array([3.0, 4.0])}, max_norm=1.0)
    >>> norm.item()
    5.0
    """
    square = tree_reduce(
        # Squares of float16 overflow early.
        lambda total, g: total
        + mx.square(g.astype(mx.float32) if g.dtype == mx.float16 else g).sum(),
        grads,
        0.0,
    )
    norm = mx.sqrt(square)
    factor = mx.minimum(max_norm / (norm + 1e-6), 1.0)

    def scale(g: mx.array) -> mx.array:
        scaled = g * factor
        return scaled.astype(g.dtype) if mx.issubdtype(g.dtype, mx.floating) else scaled

    return tree_map(scale, grads), norm
