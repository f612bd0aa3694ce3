"""The base class of all layers and models.

A :class:`Module` is a dictionary. Arrays, other modules and containers of
them that are set as attributes become its items, and these are what
:meth:`Module.parameters` and its relatives walk over; every other attribute
stays an ordinary Python attribute. All traversals here go through
:meth:`Module.filter_and_map`, so they agree on what belongs to a module and
under which dotted name.
"""

from __future__ import annotations

import os
import textwrap
from typing import Any, Callable, List, Optional, Tuple, Union

import hesper.core as mx
from hesper.utils import tree_flatten, tree_unflatten

from ._parameters import check_weights, require_members, update_tree

__all__ = ["Module"]

_ITEM_TYPES = (mx.array, dict, list, tuple)


class Module(dict):
    """Base class of layers and models.

    Subclasses call ``super().__init__()`` first, set their arrays and
    submodules as attributes (also inside lists and dictionaries) and define
    ``__call__``. Attributes whose name begins with an underscore are no
    parameters.

    A parameter is *trainable* unless it was frozen (:meth:`freeze`);
    :func:`hesper.nn.value_and_grad` differentiates with respect to the
    trainable parameters only.

    Examples
    --------
    >>> import hesper.core as mx
    >>> import hesper.nn as nn
    >>> class MLP(nn.Module):
    ...     def __init__(self, in_dims, hidden_dims, out_dims):
    ...         super().__init__()
    ...         self.in_proj = nn.Linear(in_dims, hidden_dims)
    ...         self.out_proj = nn.Linear(hidden_dims, out_dims)
    ...
    ...     def __call__(self, x):
    ...         return self.out_proj(nn.relu(self.in_proj(x)))
    ...
    >>> model = MLP(4, 16, 2)
    >>> model(mx.zeros((3, 4))).shape
    (3, 2)
    >>> model
    MLP(
      (in_proj): Linear(input_dims=4, output_dims=16, bias=True)
      (out_proj): Linear(input_dims=16, output_dims=2, bias=True)
    )
    """

    __call__: Callable

    def __init__(self) -> None:
        """Prepare the module's state. Subclasses must call this first."""
        self._no_grad = set()
        self._training = True

    @property
    def training(self) -> bool:
        """Whether the module is in training mode.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> nn.Dropout(0.1).eval().training
        False
        """
        return self._training

    @property
    def state(self) -> Module:
        """The dictionary of everything set on the module.

        It is the module itself, not a copy: what is changed there is changed
        in the module.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> sorted(nn.Linear(2, 2).state)
        ['bias', 'weight']
        """
        return self

    def _extra_repr(self) -> str:
        """What to print between the parentheses of the module's ``repr``."""
        return ""

    def __repr__(self) -> str:
        children = tree_flatten(self.children(), is_leaf=self.is_module)
        text = f"{type(self).__name__}({self._extra_repr()}"
        for name, child in children:
            text += "\n" + textwrap.indent(f"({name}): {child!r}", prefix="  ")
        return text + ("\n)" if children else ")")

    def __getattr__(self, key: str) -> Any:
        # Only called for what is no ordinary attribute.
        value = self.get(key)
        if value is None:
            return super().__getattribute__(key)
        return value

    def __setattr__(self, key: str, val: Any) -> None:
        if isinstance(val, _ITEM_TYPES):
            # An ordinary attribute of that name would hide the item.
            if key not in self and hasattr(self, key):
                super().__delattr__(key)
            self[key] = val
        else:
            super().__setattr__(key, val)
            self.pop(key, None)

    def __delattr__(self, name: str) -> None:
        if name in self:
            del self[name]
        else:
            super().__delattr__(name)

    def load_weights(
        self,
        file_or_weights: Union[str, List[Tuple[str, mx.array]]],
        strict: bool = True,
    ) -> Module:
        """Set parameters from a file or a list.

        Parameters
        ----------
        file_or_weights : str or list of (str, array)
            A ``.npz`` or ``.safetensors`` file, or pairs of a parameter's
            dotted name and its value.
        strict : bool
            Whether the weights must match the parameters of the module
            exactly, by name and shape. Otherwise names that the module lacks
            are ignored, and shapes are not checked. Default: ``True``.

        Returns
        -------
        Module
            The module itself.

        Raises
        ------
        ValueError
            If ``strict`` and a parameter is missing, unknown, no array or of
            another shape.

        Examples
        --------
        >>> import hesper.core as mx
        >>> import hesper.nn as nn
        >>> model = nn.Linear(2, 1)
        >>> model.load_weights([("weight", mx.ones((1, 2))), ("bias", mx.zeros(1))])
        Linear(input_dims=2, output_dims=1, bias=True)
        >>> model.load_weights([("bias", mx.ones(1))], strict=False).bias.item()
        1.0
        """
        weights = file_or_weights
        if isinstance(weights, (str, os.PathLike)):
            weights = list(mx.load(os.fspath(weights)).items())
        elif isinstance(weights, dict):
            weights = list(weights.items())

        if strict:
            weights = list(weights)
            check_weights(self.parameters(), dict(weights))
        if len(weights) != 0:
            self.update(tree_unflatten(weights), strict=False)
        return self

    def save_weights(self, file: str) -> None:
        """Write all parameters to a file.

        Parameters
        ----------
        file : str
            The path. Its ending, ``.npz`` or ``.safetensors``, decides on the
            format.

        Raises
        ------
        ValueError
            If the path ends otherwise.

        Examples
        --------
        >>> import os, tempfile
        >>> import hesper.nn as nn
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "weights.safetensors")
        ...     nn.Linear(2, 2).save_weights(path)
        ...     _ = nn.Linear(2, 2).load_weights(path)
        """
        file = os.fspath(file)
        parameters = tree_flatten(self.parameters(), destination={})
        if file.endswith(".npz"):
            mx.savez(file, **parameters)
        elif file.endswith(".safetensors"):
            mx.save_safetensors(file, parameters)
        else:
            raise ValueError(
                f"Unsupported file extension for {file}. Use '.npz' or '.safetensors'."
            )

    @staticmethod
    def is_module(value: Any) -> bool:
        """Whether a value is a :class:`Module`.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> nn.Module.is_module(nn.ReLU())
        True
        """
        return isinstance(value, Module)

    @staticmethod
    def valid_child_filter(module: Module, key: str, value: Any) -> bool:
        """The filter of :meth:`children`: modules and containers.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> nn.Module.valid_child_filter(nn.Module(), "layer", nn.ReLU())
        True
        """
        return isinstance(value, (dict, list))

    @staticmethod
    def valid_parameter_filter(module: Module, key: str, value: Any) -> bool:
        """The filter of :meth:`parameters`: all but private names.

        Examples
        --------
        >>> import hesper.core as mx
        >>> import hesper.nn as nn
        >>> nn.Module.valid_parameter_filter(nn.Module(), "_cache", mx.zeros(1))
        False
        """
        return isinstance(value, (dict, list, mx.array)) and not key.startswith("_")

    @staticmethod
    def trainable_parameter_filter(module: Module, key: str, value: Any) -> bool:
        """The filter of :meth:`trainable_parameters`: what is not frozen.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> layer = nn.Linear(2, 2).freeze(keys="bias")
        >>> nn.Module.trainable_parameter_filter(layer, "bias", layer.bias)
        False
        """
        return (
            Module.valid_parameter_filter(module, key, value)
            and key not in module._no_grad
        )

    def filter_and_map(
        self,
        filter_fn: Callable[[Module, str, Any], bool],
        map_fn: Optional[Callable] = None,
        is_leaf_fn: Optional[Callable[[Module, str, Any], bool]] = None,
    ) -> dict:
        """Select and map the contents of the module and its submodules.

        Parameters
        ----------
        filter_fn : callable
            Given the module that holds a value, the dotted name of the value
            in it and the value, says whether to keep it.
        map_fn : callable, optional
            Applied to every leaf that is kept.
        is_leaf_fn : callable, optional
            Given the same as ``filter_fn``, says whether the value is a leaf.
            By default everything is but modules, dictionaries and lists.

        Returns
        -------
        dict
            The selected values, nested as in the module. Inside containers an
            empty dictionary stands for what was dropped.

        Examples
        --------
        >>> import hesper.core as mx
        >>> import hesper.nn as nn
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> model.filter_and_map(
        ...     lambda module, key, value: key != "bias",
        ...     map_fn=lambda value: value.shape,
        ... )
        {'layers': [{'weight': (3, 2)}, {}]}
        """
        map_fn = map_fn or (lambda value: value)
        is_leaf_fn = is_leaf_fn or (
            lambda module, key, value: not isinstance(value, (dict, list))
        )
        return {
            key: _map_value(self, key, value, filter_fn, map_fn, is_leaf_fn)
            for key, value in self.items()
            if filter_fn(self, key, value)
        }

    def parameters(self) -> dict:
        """All arrays of the module and its submodules.

        Returns
        -------
        dict
            A tree of dictionaries and lists with arrays as leaves.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> list(nn.Linear(2, 2).parameters())
        ['weight', 'bias']
        """
        return self.filter_and_map(self.valid_parameter_filter)

    def trainable_parameters(self) -> dict:
        """All arrays that are not frozen.

        Returns
        -------
        dict
            A tree of dictionaries and lists with arrays as leaves.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> list(nn.Linear(2, 2).freeze(keys="bias").trainable_parameters())
        ['weight']
        """
        return self.filter_and_map(self.trainable_parameter_filter)

    def children(self) -> dict:
        """The modules directly below this one.

        Returns
        -------
        dict
            A tree of dictionaries and lists with modules as leaves.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> nn.Sequential(nn.ReLU()).children()
        {'layers': [ReLU()]}
        """
        return self.filter_and_map(
            self.valid_child_filter,
            is_leaf_fn=lambda module, key, value: isinstance(value, Module),
        )

    def leaf_modules(self) -> dict:
        """The modules at the bottom: those that contain no other.

        A module whose submodules have neither parameters nor children also
        counts as one of them.

        Returns
        -------
        dict
            A tree of dictionaries and lists with modules as leaves.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.ReLU())
        >>> model.leaf_modules()["layers"][1]
        ReLU()
        """
        return self.filter_and_map(
            self.valid_child_filter,
            is_leaf_fn=lambda module, key, value: isinstance(value, Module)
            and not tree_flatten(value.children()),
        )

    def update(self, parameters: dict, strict: bool = True) -> Module:
        """Replace parameters.

        Parameters
        ----------
        parameters : dict
            A tree like that of :meth:`parameters`, or a part of it.
        strict : bool
            Whether to raise for names that the module lacks and for values
            that are no arrays. Default: ``True``.

        Returns
        -------
        Module
            The module itself.

        Raises
        ------
        ValueError
            If ``strict`` and ``parameters`` does not fit the module.

        Examples
        --------
        >>> import hesper.core as mx
        >>> import hesper.nn as nn
        >>> nn.Linear(2, 2).update({"bias": mx.ones(2)}).bias.tolist()
        [1.0, 1.0]
        """
        update_tree(
            self,
            parameters,
            strict,
            replaces=lambda current, new: isinstance(current, mx.array),
            accepts=lambda new: isinstance(new, mx.array),
            kind="parameter",
        )
        return self

    def apply(
        self,
        map_fn: Callable[[mx.array], mx.array],
        filter_fn: Optional[Callable[[Module, str, Any], bool]] = None,
    ) -> Module:
        """Map all parameters and keep the results.

        Parameters
        ----------
        map_fn : callable
            Takes an array, returns the one to put in its place.
        filter_fn : callable, optional
            Selects the parameters. Default:
            :meth:`valid_parameter_filter`.

        Returns
        -------
        Module
            The module itself.

        Examples
        --------
        >>> import hesper.core as mx
        >>> import hesper.nn as nn
        >>> nn.Linear(2, 2).apply(lambda x: x.astype(mx.float16)).bias.dtype == mx.float16
        True
        """
        filter_fn = filter_fn or self.valid_parameter_filter
        return self.update(self.filter_and_map(filter_fn, map_fn))

    def update_modules(self, modules: dict, strict: bool = True) -> Module:
        """Replace submodules.

        Parameters
        ----------
        modules : dict
            A tree like that of :meth:`children` (or deeper), or a part of it.
        strict : bool
            Whether to raise for names that the module lacks and for values
            that are no modules. Default: ``True``.

        Returns
        -------
        Module
            The module itself.

        Raises
        ------
        ValueError
            If ``strict`` and ``modules`` does not fit the module.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> nn.Sequential(nn.ReLU(), nn.Tanh()).update_modules({"layers": [nn.GELU()]})
        Sequential(
          (layers.0): GELU()
          (layers.1): Tanh()
        )
        """
        update_tree(
            self,
            modules,
            strict,
            replaces=lambda current, new: self.is_module(current) and self.is_module(new),
            accepts=self.is_module,
            kind="sub-module",
        )
        return self

    def apply_to_modules(self, apply_fn: Callable[[str, Module], Any]) -> Module:
        """Call a function with every module, this one first.

        Parameters
        ----------
        apply_fn : callable
            Takes the dotted name of a module (empty for this one) and the
            module.

        Returns
        -------
        Module
            The module itself.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> _ = model.apply_to_modules(lambda name, module: print(repr(name)))
        ''
        'layers.1'
        'layers.0'
        """
        stack = [("", self)]
        while stack:
            name, module = stack.pop()
            apply_fn(name, module)
            stack.extend(
                tree_flatten(
                    module.children(),
                    prefix=f".{name}" if name else "",
                    is_leaf=self.is_module,
                )
            )
        return self

    def modules(self) -> List[Module]:
        """This module and all below it.

        Returns
        -------
        list of Module
            A module that is reachable by two names occurs twice.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> len(nn.Sequential(nn.ReLU(), nn.Tanh()).modules())
        3
        """
        return [module for _, module in self.named_modules()]

    def named_modules(self) -> List[Tuple[str, Module]]:
        """This module and all below it, with their dotted names.

        Returns
        -------
        list of (str, Module)
            Pairs of name and module.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> nn.Sequential(nn.ReLU(), nn.Tanh()).named_modules()[1:]
        [('layers.1', Tanh()), ('layers.0', ReLU())]
        """
        found: List[Tuple[str, Module]] = []
        self.apply_to_modules(lambda name, module: found.append((name, module)))
        return found

    def _validate_keys(self, keys: Any, strict: bool) -> List[str]:
        """``keys`` as a list; raise for one that the module lacks."""
        keys = keys if isinstance(keys, list) else [keys]
        if strict:
            require_members(keys, [self])
        return keys

    def _validate_keys_recursive(self, keys: Any) -> None:
        """Raise for a key that neither the module nor one below it has."""
        require_members(keys if isinstance(keys, list) else [keys], self.modules())

    def _own_parameter_names(self) -> List[str]:
        """Dotted names of the parameters that belong to no submodule."""
        own = self.filter_and_map(
            lambda module, key, value: not isinstance(value, Module)
            and self.valid_parameter_filter(module, key, value)
        )
        return [name for name, _ in tree_flatten(own)]

    def _change_frozen(
        self,
        recurse: bool,
        keys: Optional[Union[str, List[str]]],
        strict: bool,
        change: Callable[[Module, Optional[List[str]]], None],
    ) -> Module:
        if keys is None:
            names = None
        else:
            names = self._validate_keys(keys, strict and not recurse)
            if strict and recurse:
                self._validate_keys_recursive(keys)
        if recurse:
            self.apply_to_modules(lambda _, module: change(module, names))
        else:
            change(self, names)
        return self

    def freeze(
        self,
        *,
        recurse: bool = True,
        keys: Optional[Union[str, List[str]]] = None,
        strict: bool = False,
    ) -> Module:
        """Exclude parameters from training.

        Parameters
        ----------
        recurse : bool
            Whether to freeze those of the submodules too. Default: ``True``.
        keys : str or list of str, optional
            Which parameters to freeze. Default: all.
        strict : bool
            Whether to raise for keys that do not exist. Default: ``False``.

        Returns
        -------
        Module
            The module itself.

        Raises
        ------
        KeyError
            If ``strict`` and a key does not exist.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> model = nn.TransformerEncoderLayer(8, 2).freeze()
        >>> _ = model.attention.unfreeze()
        >>> [name for name, tree in model.trainable_parameters().items() if tree]
        ['attention']
        """

        def change(module: Module, names: Optional[List[str]]) -> None:
            module._no_grad.update(
                module._own_parameter_names() if names is None else names
            )

        return self._change_frozen(recurse, keys, strict, change)

    def unfreeze(
        self,
        *,
        recurse: bool = True,
        keys: Optional[Union[str, List[str]]] = None,
        strict: bool = False,
    ) -> Module:
        """Include frozen parameters in training again.

        Parameters
        ----------
        recurse : bool
            Whether to unfreeze those of the submodules too. Default: ``True``.
        keys : str or list of str, optional
            Which parameters to unfreeze. Default: all.
        strict : bool
            Whether to raise for keys that do not exist. Default: ``False``.

        Returns
        -------
        Module
            The module itself.

        Raises
        ------
        KeyError
            If ``strict`` and a key does not exist.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> model = nn.Linear(2, 2).freeze().unfreeze(keys="bias")
        >>> list(model.trainable_parameters())
        ['bias']
        """

        def change(module: Module, names: Optional[List[str]]) -> None:
            if names is None:
                module._no_grad.clear()
            else:
                module._no_grad.difference_update(names)

        return self._change_frozen(recurse, keys, strict, change)

    def _set_training_mode(self, mode: bool) -> None:
        """Enter or leave training mode, this module alone."""
        self._training = mode

    def train(self, mode: bool = True) -> Module:
        """Enter or leave training mode.

        Some layers behave differently while training, for instance
        :class:`Dropout` and :class:`BatchNorm`.

        Parameters
        ----------
        mode : bool
            Whether to enter it. Default: ``True``.

        Returns
        -------
        Module
            The module itself.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> nn.Sequential(nn.Dropout(0.1)).train(False).layers[0].training
        False
        """
        self.apply_to_modules(lambda _, module: module._set_training_mode(mode))
        return self

    def eval(self) -> Module:
        """Leave training mode: the same as ``train(False)``.

        Returns
        -------
        Module
            The module itself.

        Examples
        --------
        >>> import hesper.nn as nn
        >>> nn.Dropout(0.1).eval().training
        False
        """
        return self.train(False)

    def set_dtype(
        self,
        dtype: mx.Dtype,
        predicate: Optional[Callable[[mx.Dtype], bool]] = lambda dtype: mx.issubdtype(
            dtype, mx.floating
        ),
    ) -> None:
        """Convert parameters to another type.

        Parameters
        ----------
        dtype : Dtype
            The new type.
        predicate : callable, optional
            Given the type of a parameter, says whether to convert it. ``None``
            converts all. Default: floating point types only.

        Examples
        --------
        >>> import hesper.core as mx
        >>> import hesper.nn as nn
        >>> layer = nn.Linear(2, 2)
        >>> layer.set_dtype(mx.float16)
        >>> layer.weight.dtype == mx.float16
        True
        """
        if predicate is None:
            predicate = lambda _: True  # noqa: E731
        self.apply(lambda x: x.astype(dtype) if predicate(x.dtype) else x)


def _map_value(
    module: Module,
    key: str,
    value: Any,
    filter_fn: Callable,
    map_fn: Callable,
    is_leaf_fn: Callable,
) -> Any:
    """The part of :meth:`Module.filter_and_map` below one kept value."""
    if is_leaf_fn(module, key, value):
        return map_fn(value)
    if isinstance(value, Module):
        return value.filter_and_map(filter_fn, map_fn, is_leaf_fn)

    def below(name: Any, child: Any) -> Any:
        name = f"{key}.{name}"
        if not filter_fn(module, name, child):
            return {}
        return _map_value(module, name, child, filter_fn, map_fn, is_leaf_fn)

    if isinstance(value, dict):
        return {name: below(name, child) for name, child in value.items()}
    if isinstance(value, list):
        return [below(i, child) for i, child in enumerate(value)]
    raise RuntimeError("Unexpected leaf found while traversing the module")
