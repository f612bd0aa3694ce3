"""The base class of all layers and models.

A :class:`Module` is a dictionary. Arrays, other modules and containers of them that are set as attributes become its
items, and these are what :meth:`Module.parameters` and its relatives walk over; every other attribute stays an
ordinary Python attribute. All traversals go through :meth:`Module.filter_and_map`, so they agree on what belongs to a
module and under which dotted name.
"""

from __future__ import annotations

import os
import textwrap
from typing import Any, Callable

import hesper.core as mx
from hesper._core import _LayerBase
from hesper.utils import tree_flatten, tree_unflatten

from ._parameters import check_weights, require_members, update_tree

__all__ = ["Module"]

# Given the module that holds a value, the dotted name of the value in it and the value.
Filter = Callable[["Module", str, Any], bool]


def _item(module: "Module", key: str) -> Any:
    """What ``Module.__getattr__`` gives: an item that is no ordinary attribute."""
    value = module.get(key)
    return object.__getattribute__(module, key) if value is None else value


class Module(_LayerBase):
    """Base class of layers and models.

    Subclasses call ``super().__init__()`` first, set their arrays and submodules as attributes (also inside lists and
    dictionaries) and define ``__call__``. Attributes whose name begins with an underscore are not parameters.

    A parameter is *trainable* unless it was frozen (:meth:`freeze`); :func:`hesper.nn.value_and_grad` differentiates
    with respect to the trainable parameters only.

    Examples
    --------
    >>> class MLP(nn.Module):
    ...     def __init__(self, in_dims, hidden_dims, out_dims):
    ...         super().__init__()
    ...         self.up = nn.Linear(in_dims, hidden_dims)
    ...         self.down = nn.Linear(hidden_dims, out_dims)
    ...
    ...     def __call__(self, x):
    ...         return self.down(nn.relu(self.up(x)))
    ...
    >>> model = MLP(4, 16, 2)
    >>> model(mx.zeros((3, 4))).shape
    (3, 2)
    >>> model
    MLP(
      (up): Linear(input_dims=4, output_dims=16, bias=True)
      (down): Linear(input_dims=16, output_dims=2, bias=True)
    )
    """

    __call__: Callable

    def __init__(self) -> None:
        """Prepare the module. Subclasses must call this first."""
        self._no_grad: set[str] = set()
        self._training = True

    @property
    def training(self) -> bool:
        """Whether the module is in training mode.

        Examples
        --------
        >>> nn.Dropout(0.1).eval().training
        False
        """
        return self._training

    @property
    def state(self) -> Module:
        """The dictionary of all items: the module itself, not a copy.

        Examples
        --------
        >>> sorted(nn.Linear(2, 2).state)
        ['bias', 'weight']
        """
        return self

    def _extra_repr(self) -> str:
        """The text between the parentheses of the module's ``repr``."""
        return ""

    def __repr__(self) -> str:
        lines = [
            textwrap.indent(f"({name}): {child!r}", "  ")
            for name, child in tree_flatten(self.children(), is_leaf=Module.is_module)
        ]
        body = "\n".join(["", *lines, ""]) if lines else ""
        return f"{type(self).__name__}({self._extra_repr()}{body})"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Lookups are native, and a `__getattr__` would slow them all down. A class with one of its own may call this one.
        if hasattr(cls, "__getattr__") and not hasattr(Module, "__getattr__"):
            setattr(Module, "__getattr__", _item)

    def __setattr__(self, key: str, val: Any) -> None:
        if not isinstance(val, (mx.array, dict, list, tuple)):
            super().__setattr__(key, val)
            self.pop(key, None)
            return
        # An ordinary attribute of that name would hide the item.
        if key not in self and hasattr(self, key):
            super().__delattr__(key)
        self[key] = val

    def __delattr__(self, name: str) -> None:
        if name in self:
            del self[name]
        else:
            super().__delattr__(name)

    def load_weights(self, file_or_weights: str | list[tuple[str, mx.array]], strict: bool = True) -> Module:
        """Set parameters from a file or a list.

        Parameters
        ----------
        file_or_weights : str or list of (str, array)
            A ``.npz`` or ``.safetensors`` file, or pairs of a parameter's dotted name and its value.
        strict : bool
            Whether the weights must match the parameters of the module exactly, by name and shape. Otherwise unknown
            names are ignored, and shapes are not checked. Default: ``True``.

        Returns
        -------
        Module
            The module itself.

        Raises
        ------
        ValueError
            If ``strict`` and a parameter is missing, unknown, not an array or of another shape.

        Examples
        --------
        >>> model = nn.Linear(2, 1)
        >>> model.load_weights([("weight", mx.ones((1, 2))), ("bias", mx.zeros(1))])
        Linear(input_dims=2, output_dims=1, bias=True)
        >>> model.load_weights([("bias", mx.ones(1))], strict=False).bias.item()
        1.0
        """
        given: Any = file_or_weights
        if isinstance(given, (str, os.PathLike)):
            given = mx.load(os.fspath(given))
        pairs = list(given.items()) if isinstance(given, dict) else given
        if strict:
            pairs = list(pairs)
            check_weights(self.parameters(), dict(pairs))
        if len(pairs):
            self.update(tree_unflatten(pairs), strict=False)
        return self

    def save_weights(self, file: str) -> None:
        """Write all parameters to a file.

        Parameters
        ----------
        file : str
            The path. Its ending, ``.npz`` or ``.safetensors``, selects the format.

        Raises
        ------
        ValueError
            If the path ends otherwise.

        Examples
        --------
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "weights.safetensors")
        ...     nn.Linear(2, 2).save_weights(path)
        ...     _ = nn.Linear(2, 2).load_weights(path)
        """
        path, weights = os.fspath(file), tree_flatten(self.parameters(), destination={})
        if path.endswith(".safetensors"):
            mx.save_safetensors(path, weights)
        elif path.endswith(".npz"):
            mx.savez(path, **weights)
        else:
            raise ValueError(f"cannot save weights to {path}: its ending names no format; use .npz or .safetensors")

    @staticmethod
    def is_module(value: Any) -> bool:
        """Whether a value is a :class:`Module`.

        Examples
        --------
        >>> nn.Module.is_module(nn.ReLU())
        True
        """
        return isinstance(value, Module)

    @staticmethod
    def valid_child_filter(module: Module, key: str, value: Any) -> bool:
        """The filter of :meth:`children`: modules and containers.

        Examples
        --------
        >>> nn.Module.valid_child_filter(nn.Module(), "layer", nn.ReLU())
        True
        """
        return _is_container(value)

    @staticmethod
    def valid_parameter_filter(module: Module, key: str, value: Any) -> bool:
        """The filter of :meth:`parameters`: all but private names.

        Examples
        --------
        >>> nn.Module.valid_parameter_filter(nn.Module(), "_cache", mx.zeros(1))
        False
        """
        return not key.startswith("_") and (_is_container(value) or isinstance(value, mx.array))

    @staticmethod
    def trainable_parameter_filter(module: Module, key: str, value: Any) -> bool:
        """The filter of :meth:`trainable_parameters`: parameters that are not frozen.

        Examples
        --------
        >>> layer = nn.Linear(2, 2).freeze(keys="bias")
        >>> nn.Module.trainable_parameter_filter(layer, "bias", layer.bias)
        False
        """
        return Module.valid_parameter_filter(module, key, value) and key not in module._no_grad

    def filter_and_map(
        self, filter_fn: Filter, map_fn: Callable | None = None, is_leaf_fn: Filter | None = None
    ) -> dict:
        """Select and map the contents of the module and its submodules.

        Parameters
        ----------
        filter_fn : callable
            Given the module that holds a value, the dotted name of the value in it and the value, returns whether to
            keep it.
        map_fn : callable, optional
            Applied to every leaf that is kept.
        is_leaf_fn : callable, optional
            Given the same as ``filter_fn``, returns whether the value is a leaf. Default: everything but modules,
            dictionaries and lists.

        Returns
        -------
        dict
            The selected values, nested as in the module. Inside containers an empty dictionary stands for a value
            that was dropped.

        Examples
        --------
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> model.filter_and_map(
        ...     lambda module, key, value: key != "bias",
        ...     map_fn=lambda value: value.shape,
        ... )
        {'layers': [{'weight': (3, 2)}, {}]}
        """

        walk = (filter_fn, map_fn, is_leaf_fn)
        return {key: self._mapped(key, value, *walk) for key, value in self.items() if filter_fn(self, key, value)}

    def _mapped(
        self, key: str, value: Any, filter_fn: Filter, map_fn: Callable | None, is_leaf_fn: Filter | None
    ) -> Any:
        """The part of ``filter_and_map`` for one value. Not nested there, which would be a cycle for each call."""
        if not _is_container(value) if is_leaf_fn is None else is_leaf_fn(self, key, value):
            return value if map_fn is None else map_fn(value)
        walk = (filter_fn, map_fn, is_leaf_fn)
        if isinstance(value, Module):
            return value.filter_and_map(*walk)

        def mapped(name: str, child: Any) -> Any:
            return self._mapped(name, child, *walk) if filter_fn(self, name, child) else {}

        if isinstance(value, dict):
            return {name: mapped(f"{key}.{name}", child) for name, child in value.items()}
        if isinstance(value, list):
            return [mapped(f"{key}.{i}", child) for i, child in enumerate(value)]
        raise RuntimeError(f"cannot walk into {key}: a {type(value).__name__} must be a leaf; see is_leaf_fn")

    def parameters(self) -> dict:
        """All arrays of the module and its submodules.

        Returns
        -------
        dict
            A tree of dictionaries and lists with arrays as leaves.

        Examples
        --------
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
        >>> nn.Sequential(nn.ReLU()).children()
        {'layers': [ReLU()]}
        """
        return self._modules_that(Module.is_module)

    def leaf_modules(self) -> dict:
        """The modules that contain no other module with parameters or children.

        Returns
        -------
        dict
            A tree of dictionaries and lists with modules as leaves.

        Examples
        --------
        >>> model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.ReLU())
        >>> model.leaf_modules()["layers"][1]
        ReLU()
        """
        return self._modules_that(lambda value: isinstance(value, Module) and not tree_flatten(value.children()))

    def _modules_that(self, is_leaf: Callable[[Any], bool]) -> dict:
        return self.filter_and_map(self.valid_child_filter, is_leaf_fn=lambda module, key, value: is_leaf(value))

    def update(self, parameters: dict, strict: bool = True) -> Module:
        """Replace parameters.

        Parameters
        ----------
        parameters : dict
            A tree like that of :meth:`parameters`, or a part of it.
        strict : bool
            Whether to raise for unknown names and for values that are not arrays. Default: ``True``.

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
        >>> nn.Linear(2, 2).update({"bias": mx.ones(2)}).bias.tolist()
        [1.0, 1.0]
        """
        is_array = lambda value: isinstance(value, mx.array)  # noqa: E731
        update_tree(self, parameters, strict, lambda current, new: is_array(current), is_array, "parameter")
        return self

    def apply(self, map_fn: Callable[[mx.array], mx.array], filter_fn: Filter | None = None) -> Module:
        """Replace every parameter by a function of it.

        Parameters
        ----------
        map_fn : callable
            Takes an array, returns its replacement.
        filter_fn : callable, optional
            Selects the parameters. Default: :meth:`valid_parameter_filter`.

        Returns
        -------
        Module
            The module itself.

        Examples
        --------
        >>> nn.Linear(2, 2).apply(lambda x: x.astype(mx.float16)).bias.dtype == mx.float16
        True
        """
        return self.update(self.filter_and_map(filter_fn or self.valid_parameter_filter, map_fn))

    def update_modules(self, modules: dict, strict: bool = True) -> Module:
        """Replace submodules.

        Parameters
        ----------
        modules : dict
            A tree like that of :meth:`children` (or deeper), or a part of it.
        strict : bool
            Whether to raise for unknown names and for values that are not modules. Default: ``True``.

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
        >>> nn.Sequential(nn.ReLU(), nn.Tanh()).update_modules({"layers": [nn.GELU()]})
        Sequential(
          (layers.0): GELU()
          (layers.1): Tanh()
        )
        """
        both_modules = lambda current, new: isinstance(current, Module) and isinstance(new, Module)  # noqa: E731
        update_tree(self, modules, strict, both_modules, Module.is_module, "module")
        return self

    def apply_to_modules(self, apply_fn: Callable[[str, Module], Any]) -> Module:
        """Call a function with every module, this one first.

        Parameters
        ----------
        apply_fn : callable
            Takes the dotted name of a module (empty for this one) and the module.

        Returns
        -------
        Module
            The module itself.

        Examples
        --------
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> _ = model.apply_to_modules(lambda name, module: print(repr(name)))
        ''
        'layers.1'
        'layers.0'
        """
        pending: list[tuple[str, Module]] = [("", self)]
        while pending:
            name, module = pending.pop()
            apply_fn(name, module)
            tree_flatten(module.children(), f".{name}" if name else "", Module.is_module, destination=pending)
        return self

    def modules(self) -> list[Module]:
        """This module and all below it. A module with two names occurs twice.

        Examples
        --------
        >>> len(nn.Sequential(nn.ReLU(), nn.Tanh()).modules())
        3
        """
        return [module for _, module in self.named_modules()]

    def named_modules(self) -> list[tuple[str, Module]]:
        """The dotted names and modules of this module and all below it.

        Examples
        --------
        >>> nn.Sequential(nn.ReLU(), nn.Tanh()).named_modules()[1:]
        [('layers.1', Tanh()), ('layers.0', ReLU())]
        """
        found: list[tuple[str, Module]] = []
        self.apply_to_modules(lambda *pair: found.append(pair))
        return found

    def _own_parameter_names(self) -> list[str]:
        """Dotted names of the parameters that belong to no submodule."""
        own = self.filter_and_map(
            lambda module, key, value: not isinstance(value, Module)
            and self.valid_parameter_filter(module, key, value)
        )
        return [name for name, _ in tree_flatten(own)]

    def _change_frozen(
        self,
        recurse: bool,
        keys: str | list[str] | None,
        strict: bool,
        change: Callable[[Module, list[str] | None], None],
    ) -> Module:
        """Call ``change`` with the selected modules and the names (``None`` for all)."""
        names = keys if keys is None or isinstance(keys, list) else [keys]
        if strict and names is not None:
            require_members(names, self.modules() if recurse else [self])
        if recurse:
            return self.apply_to_modules(lambda _, module: change(module, names))
        change(self, names)
        return self

    def freeze(self, *, recurse: bool = True, keys: str | list[str] | None = None, strict: bool = False) -> Module:
        """Exclude parameters from training.

        Parameters
        ----------
        recurse : bool
            Whether to freeze those of the submodules too. Default: ``True``.
        keys : str or list of str, optional
            The parameters to freeze. Default: all.
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
        >>> model = nn.TransformerEncoderLayer(8, 2).freeze()
        >>> _ = model.attention.unfreeze()
        >>> [name for name, tree in model.trainable_parameters().items() if tree]
        ['attention']
        """

        def freeze(module: Module, names: list[str] | None) -> None:
            module._no_grad.update(module._own_parameter_names() if names is None else names)

        return self._change_frozen(recurse, keys, strict, freeze)

    def unfreeze(self, *, recurse: bool = True, keys: str | list[str] | None = None, strict: bool = False) -> Module:
        """Include frozen parameters in training again.

        Parameters
        ----------
        recurse, keys, strict
            As for :meth:`freeze`.

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
        >>> model = nn.Linear(2, 2).freeze().unfreeze(keys="bias")
        >>> list(model.trainable_parameters())
        ['bias']
        """

        def unfreeze(module: Module, names: list[str] | None) -> None:
            if names is None:
                module._no_grad.clear()
            else:
                module._no_grad.difference_update(names)

        return self._change_frozen(recurse, keys, strict, unfreeze)

    def _set_training_mode(self, mode: bool) -> None:
        """Enter or leave training mode, this module alone."""
        self._training = mode

    def train(self, mode: bool = True) -> Module:
        """Enter or leave training mode, in which for instance :class:`Dropout` and :class:`BatchNorm` differ.

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
        >>> nn.Sequential(nn.Dropout(0.1)).train(False).layers[0].training
        False
        """
        return self.apply_to_modules(lambda _, module: module._set_training_mode(mode))

    def eval(self) -> Module:
        """Leave training mode: the same as ``train(False)``.

        Returns
        -------
        Module
            The module itself.

        Examples
        --------
        >>> nn.Dropout(0.1).eval().training
        False
        """
        return self.train(False)

    def set_dtype(
        self,
        dtype: mx.Dtype,
        predicate: Callable[[mx.Dtype], bool] | None = lambda dtype: mx.issubdtype(dtype, mx.floating),
    ) -> None:
        """Convert parameters to another type.

        Parameters
        ----------
        dtype : Dtype
            The new type.
        predicate : callable, optional
            Given the type of a parameter, returns whether to convert it. ``None`` converts all. Default: floating
            point types only.

        Examples
        --------
        >>> layer = nn.Linear(2, 2)
        >>> layer.set_dtype(mx.float16)
        >>> layer.weight.dtype == mx.float16
        True
        """
        self.apply(lambda x: x.astype(dtype) if predicate is None or predicate(x.dtype) else x)


def _is_container(value: Any) -> bool:
    """Whether a value may hold parameters or modules."""
    return isinstance(value, (dict, list))
