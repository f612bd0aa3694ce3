"""Functions on trees.

A *tree* is any nesting of dictionaries, lists and tuples; everything else is
a *leaf*. Parameters, gradients and optimizer states are trees, and the
functions here take them apart, map them and put them together again. Nothing
here depends on arrays: leaves may be any Python object.
"""

from collections import defaultdict
from itertools import zip_longest
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

__all__ = [
    "tree_flatten",
    "tree_map",
    "tree_map_with_path",
    "tree_merge",
    "tree_reduce",
    "tree_unflatten",
]


def _rebuild_sequence(like: Any, items: list) -> Any:
    """A list or tuple of the type of ``like`` that holds ``items``."""
    if isinstance(like, tuple) and hasattr(like, "_fields"):
        return type(like)(*items)
    return type(like)(items)


def tree_map(
    fn: Callable, tree: Any, *rest: Any, is_leaf: Optional[Callable] = None
) -> Any:
    """Apply a function to the leaves of a tree.

    Parameters
    ----------
    fn : callable
        Called with one leaf of ``tree`` and the values found at the same place
        in each tree of ``rest``.
    tree : Any
        The tree whose structure the result has.
    *rest : Any
        More trees, each at least as large as ``tree``.
    is_leaf : callable, optional
        Given a node, says whether to treat it as a leaf.

    Returns
    -------
    Any
        A tree like ``tree`` with the results of ``fn`` as its leaves.

    Examples
    --------
    >>> from hesper.utils import tree_map
    >>> tree_map(lambda a, b: a + b, {"x": [1, 2]}, {"x": [10, 20], "y": 5})
    {'x': [11, 22]}
    """
    if is_leaf is not None and is_leaf(tree):
        return fn(tree, *rest)
    if isinstance(tree, (list, tuple)):
        return _rebuild_sequence(
            tree,
            [
                tree_map(fn, child, *(r[i] for r in rest), is_leaf=is_leaf)
                for i, child in enumerate(tree)
            ],
        )
    if isinstance(tree, dict):
        return {
            key: tree_map(fn, child, *(r[key] for r in rest), is_leaf=is_leaf)
            for key, child in tree.items()
        }
    return fn(tree, *rest)


def tree_map_with_path(
    fn: Callable,
    tree: Any,
    *rest: Any,
    is_leaf: Optional[Callable] = None,
    path: Optional[Any] = None,
) -> Any:
    """Apply a function to the paths and leaves of a tree.

    Like :func:`tree_map`, but ``fn`` receives the dotted path of the leaf as
    its first argument.

    Parameters
    ----------
    fn : callable
        Called with the path, the leaf and the matching values of ``rest``.
    tree : Any
        The tree whose structure the result has.
    *rest : Any
        More trees, each at least as large as ``tree``.
    is_leaf : callable, optional
        Given a node, says whether to treat it as a leaf.
    path : str, optional
        A prefix for all paths.

    Returns
    -------
    Any
        A tree like ``tree`` with the results of ``fn`` as its leaves.

    Examples
    --------
    >>> from hesper.utils import tree_map_with_path
    >>> tree_map_with_path(lambda path, leaf: f"{path}={leaf}", {"a": [1, 2]})
    {'a': ['a.0=1', 'a.1=2']}
    """
    if is_leaf is not None and is_leaf(tree):
        return fn(path, tree, *rest)

    def below(key: Any, child: Any) -> Any:
        return tree_map_with_path(
            fn,
            child,
            *(r[key] for r in rest),
            is_leaf=is_leaf,
            path=f"{path}.{key}" if path else str(key),
        )

    if isinstance(tree, (list, tuple)):
        return _rebuild_sequence(tree, [below(i, child) for i, child in enumerate(tree)])
    if isinstance(tree, dict):
        return {key: below(key, child) for key, child in tree.items()}
    return fn(path, tree, *rest)


def tree_flatten(
    tree: Any,
    prefix: str = "",
    is_leaf: Optional[Callable] = None,
    destination: Optional[Union[List[Tuple[str, Any]], Dict[str, Any]]] = None,
) -> Union[List[Tuple[str, Any]], Dict[str, Any]]:
    """Flatten a tree to pairs of a dotted path and a leaf.

    Parameters
    ----------
    tree : Any
        The tree to flatten. Keys of dictionaries should contain no dots.
    prefix : str
        Put before every path. Its first character is dropped, so it usually
        starts with a dot.
    is_leaf : callable, optional
        Given a node, says whether to treat it as a leaf.
    destination : list or dict, optional
        Where to store the pairs. A new list unless given.

    Returns
    -------
    list or dict
        ``destination``, with the leaves of ``tree`` added.

    Raises
    ------
    ValueError
        If ``destination`` is neither a list nor a dictionary.

    Examples
    --------
    >>> from hesper.utils import tree_flatten
    >>> tree_flatten({"a": [1, {"b": 2}]})
    [('a.0', 1), ('a.1.b', 2)]
    >>> tree_flatten({"a": [1, {"b": 2}]}, prefix=".top", destination={})
    {'top.a.0': 1, 'top.a.1.b': 2}
    """
    if destination is None:
        destination = []
    if isinstance(destination, list):
        store = lambda path, leaf: destination.append((path, leaf))  # noqa: E731
    elif isinstance(destination, dict):
        store = destination.__setitem__
    else:
        raise ValueError("Destination should be either a list or a dictionary or None")

    def visit(node: Any, path: str) -> None:
        if is_leaf is None or not is_leaf(node):
            if isinstance(node, (list, tuple)):
                for i, child in enumerate(node):
                    visit(child, f"{path}.{i}")
                return
            if isinstance(node, dict):
                for key, child in node.items():
                    visit(child, f"{path}.{key}")
                return
        store(path[1:], node)

    visit(tree, prefix)
    return destination


def _as_index(key: str) -> Optional[int]:
    try:
        return int(key)
    except ValueError:
        return None


def tree_unflatten(tree: Union[List[Tuple[str, Any]], Dict[str, Any]]) -> Any:
    """Rebuild a tree from its flat form.

    A level whose keys are all integers becomes a list; places that no path
    names are filled with empty dictionaries.

    Parameters
    ----------
    tree : list of (str, Any), or dict
        Paths and leaves, as :func:`tree_flatten` returns them.

    Returns
    -------
    Any
        The tree.

    Raises
    ------
    ValueError
        If a path occurs twice.

    Examples
    --------
    >>> from hesper.utils import tree_unflatten
    >>> tree_unflatten([("a.0", 1), ("a.1.b", 2)])
    {'a': [1, {'b': 2}]}
    """
    items = list(tree.items()) if isinstance(tree, dict) else tree
    if len(items) == 1 and items[0][0] == "":
        return items[0][1]

    levels: Dict[str, list] = defaultdict(list)
    for path, leaf in items:
        key, _, below = path.partition(".")
        levels[key].append((below, leaf))
    for key, pairs in levels.items():
        if len(pairs) > 1 and sum(below == "" for below, _ in pairs) > 1:
            raise ValueError(f"Two leaves have the same path, which ends in '{key}'.")

    indices = {key: _as_index(key) for key in levels}
    places = set(indices.values())
    if None in places or len(places) < len(levels):
        return {key: tree_unflatten(pairs) for key, pairs in levels.items()}
    result: list = []
    for key in sorted(levels, key=indices.__getitem__):
        result.extend({} for _ in range(indices[key] - len(result)))
        result.append(tree_unflatten(levels[key]))
    return result


def tree_reduce(
    fn: Callable,
    tree: Any,
    initializer: Any = None,
    is_leaf: Optional[Callable] = None,
) -> Any:
    """Fold the leaves of a tree to one value.

    Parameters
    ----------
    fn : callable
        Takes the value so far and a leaf, returns the next value.
    tree : Any
        The tree.
    initializer : Any, optional
        The value to start from. Unless given, the first leaf.
    is_leaf : callable, optional
        Given a node, says whether to treat it as a leaf.

    Returns
    -------
    Any
        The last value; ``initializer`` for a tree without leaves.

    Examples
    --------
    >>> from hesper.utils import tree_reduce
    >>> tree_reduce(lambda total, x: total + x, {"a": [1, 2], "b": 3}, 0)
    6
    """
    value = initializer
    for _, leaf in tree_flatten(tree, is_leaf=is_leaf):
        value = leaf if value is None else fn(value, leaf)
    return value


def _is_empty(tree: Any) -> bool:
    return tree is None or (isinstance(tree, (dict, list, tuple)) and not tree)


def tree_merge(tree_a: Any, tree_b: Any, merge_fn: Optional[Callable] = None) -> Any:
    """Merge two trees to one that has the leaves of both.

    ``None`` and empty containers count as absent.

    Parameters
    ----------
    tree_a : Any
        The first tree.
    tree_b : Any
        The second tree.
    merge_fn : callable, optional
        Takes what both trees have at one place and returns what the result
        shall have there.

    Returns
    -------
    Any
        The merged tree.

    Raises
    ------
    ValueError
        If both trees have a leaf at one place and there is no ``merge_fn``, or
        if two empty containers of different kinds meet.

    Examples
    --------
    >>> from hesper.utils import tree_merge
    >>> tree_merge({"a": {"x": 1}}, {"a": {"y": 2}, "b": 3})
    {'a': {'x': 1, 'y': 2}, 'b': 3}
    """
    if tree_a is not None and tree_b is not None:
        if _is_empty(tree_a) and _is_empty(tree_b) and type(tree_a) is not type(tree_b):
            raise ValueError(
                f"Cannot merge {type(tree_a).__name__} with {type(tree_b).__name__}"
            )
    if _is_empty(tree_a) and tree_b is not None:
        return tree_b
    if _is_empty(tree_b) and tree_a is not None:
        return tree_a

    if isinstance(tree_a, (list, tuple)) and isinstance(tree_b, (list, tuple)):
        return _rebuild_sequence(
            tree_a,
            [
                tree_merge(a, b, merge_fn)
                for a, b in zip_longest(tree_a, tree_b, fillvalue=None)
            ],
        )
    if isinstance(tree_a, dict) and isinstance(tree_b, dict):
        keys = [*tree_a, *(key for key in tree_b if key not in tree_a)]
        return {
            key: tree_merge(tree_a.get(key), tree_b.get(key), merge_fn) for key in keys
        }
    if merge_fn is None:
        raise ValueError(
            "Trees contain elements at the same locations but no merge function "
            "was provided"
        )
    return merge_fn(tree_a, tree_b)
