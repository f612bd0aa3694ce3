"""Functions on trees.

A *tree* is any nesting of dictionaries, lists and tuples; everything else is a *leaf*. Parameters, gradients and
optimizer states are trees. Leaves may be any Python object: nothing here depends on arrays.
"""

from collections import defaultdict
from itertools import zip_longest
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, TypeVar, Union, overload

__all__ = ["tree_flatten", "tree_map", "tree_map_with_path", "tree_merge", "tree_reduce", "tree_unflatten"]

# A flat tree: dotted paths and leaves.
Flat = Union[List[Tuple[str, Any]], Dict[str, Any]]
FlatTree = TypeVar("FlatTree", List[Tuple[str, Any]], Dict[str, Any])


def _children(node: Any, is_leaf: Optional[Callable]) -> Optional[Iterable[Tuple[Any, Any]]]:
    """The keys and children of a node, ``None`` for a leaf."""
    if is_leaf is None or not is_leaf(node):
        if isinstance(node, dict):
            return node.items()
        if isinstance(node, (list, tuple)):
            return enumerate(node)
    return None


def _rebuild(node: Any, children: List[Any]) -> Any:
    """A container like ``node`` with other children."""
    if isinstance(node, dict):
        return dict(zip(node, children))
    return type(node)(*children) if hasattr(node, "_fields") else type(node)(children)


def tree_map(fn: Callable, tree: Any, *rest: Any, is_leaf: Optional[Callable] = None) -> Any:
    """Apply a function to the leaves of a tree.

    Parameters
    ----------
    fn : callable
        Called with a leaf of ``tree`` and the values at the same place in each tree of ``rest``.
    tree : Any
        The tree whose structure the result has.
    *rest : Any
        More trees, each at least as large as ``tree``.
    is_leaf : callable, optional
        Given a node, returns whether to treat it as a leaf.

    Examples
    --------
    >>> from hesper.utils import tree_map
    >>> tree_map(lambda a, b: a + b, {"x": [1, 2]}, {"x": [10, 20], "y": 5})
    {'x': [11, 22]}
    """
    children = _children(tree, is_leaf)
    if children is None:
        return fn(tree, *rest)
    return _rebuild(
        tree, [tree_map(fn, child, *(other[key] for other in rest), is_leaf=is_leaf) for key, child in children]
    )


def tree_map_with_path(
    fn: Callable, tree: Any, *rest: Any, is_leaf: Optional[Callable] = None, path: Optional[Any] = None
) -> Any:
    """Apply a function to the paths and leaves of a tree.

    Parameters
    ----------
    fn : callable
        Called with the dotted path of a leaf, the leaf and the values at the same place in ``rest``.
    tree, *rest, is_leaf
        As for :func:`tree_map`.
    path : str, optional
        A prefix for all paths.

    Examples
    --------
    >>> from hesper.utils import tree_map_with_path
    >>> tree_map_with_path(lambda path, leaf: f"{path}={leaf}", {"a": [1, 2]})
    {'a': ['a.0=1', 'a.1=2']}
    """
    children = _children(tree, is_leaf)
    if children is None:
        return fn(path, tree, *rest)
    prefix = f"{path}." if path else ""
    mapped = [
        tree_map_with_path(fn, child, *(other[key] for other in rest), is_leaf=is_leaf, path=f"{prefix}{key}")
        for key, child in children
    ]
    return _rebuild(tree, mapped)


@overload
def tree_flatten(
    tree: Any, prefix: str = "", is_leaf: Optional[Callable] = None, destination: None = None
) -> List[Tuple[str, Any]]: ...


@overload
def tree_flatten(
    tree: Any, prefix: str = "", is_leaf: Optional[Callable] = None, *, destination: FlatTree
) -> FlatTree: ...


def tree_flatten(
    tree: Any, prefix: str = "", is_leaf: Optional[Callable] = None, destination: Optional[Flat] = None
) -> Flat:
    """Flatten a tree to pairs of a dotted path and a leaf.

    Parameters
    ----------
    tree : Any
        The tree. Keys of dictionaries should contain no dots.
    prefix : str
        Precedes every path. Its first character is dropped, so it usually starts with a dot.
    is_leaf : callable, optional
        Given a node, returns whether to treat it as a leaf.
    destination : list or dict, optional
        Receives the pairs. Default: a new list.

    Returns
    -------
    list or dict
        ``destination``.

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
    flat: Any = [] if destination is None else destination
    if not isinstance(flat, (list, dict)):
        raise ValueError(f"cannot flatten a tree into a {type(flat).__name__}; destination must be a list or a dict")
    store = flat.__setitem__ if isinstance(flat, dict) else lambda *pair: flat.append(pair)

    _store_leaves(tree, prefix, is_leaf, store)
    return flat


def _store_leaves(node: Any, path: str, is_leaf: Optional[Callable], store: Callable) -> None:
    # Not nested: a function that calls itself through its closure is a cycle, which keeps the leaves alive.
    children = _children(node, is_leaf)
    if children is None:
        store(path[1:], node)
        return
    for key, child in children:
        _store_leaves(child, f"{path}.{key}", is_leaf, store)


def _index(key: str) -> Optional[int]:
    """The key as a list index, ``None`` if it is no integer."""
    try:
        return int(key)
    except ValueError:
        return None


def tree_unflatten(tree: Flat) -> Any:
    """Rebuild a tree from its flat form.

    A level whose keys are all integers becomes a list; indices without a path become empty dictionaries.

    Parameters
    ----------
    tree : list of (str, Any), or dict
        Paths and leaves, as :func:`tree_flatten` returns them.

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
    pairs = list(tree.items()) if isinstance(tree, dict) else tree
    if len(pairs) == 1 and pairs[0][0] == "":
        return pairs[0][1]

    levels: Dict[str, list] = defaultdict(list)
    for path, leaf in pairs:
        key, _, below = path.partition(".")
        levels[key].append((below, leaf))
    for key, below in levels.items():
        if sum(path == "" for path, _ in below) > 1:
            raise ValueError(f"cannot unflatten a tree: two leaves have the same path, which ends in '{key}'")

    indices = {key: _index(key) for key in levels}
    if None in indices.values() or len(set(indices.values())) < len(levels):
        return {key: tree_unflatten(below) for key, below in levels.items()}
    items: list = []
    for key in sorted(levels, key=indices.__getitem__):
        items.extend({} for _ in range(indices[key] - len(items)))
        items.append(tree_unflatten(levels[key]))
    return items


def tree_reduce(fn: Callable, tree: Any, initializer: Any = None, is_leaf: Optional[Callable] = None) -> Any:
    """Fold the leaves of a tree to one value.

    Parameters
    ----------
    fn : callable
        Takes the value so far and a leaf, returns the next value.
    tree : Any
        The tree.
    initializer : Any, optional
        The first value, and the result for a tree without leaves. Default: the first leaf.
    is_leaf : callable, optional
        Given a node, returns whether to treat it as a leaf.

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


def _is_absent(tree: Any) -> bool:
    return tree is None or (isinstance(tree, (dict, list, tuple)) and len(tree) == 0)


def tree_merge(tree_a: Any, tree_b: Any, merge_fn: Optional[Callable] = None) -> Any:
    """Merge two trees to one that has the leaves of both.

    ``None`` and empty containers count as absent.

    Parameters
    ----------
    tree_a, tree_b : Any
        The trees.
    merge_fn : callable, optional
        Takes the two values at one place and returns the merged one.

    Raises
    ------
    ValueError
        If both trees have a leaf at one place and there is no ``merge_fn``, or if two empty containers differ in
        type.

    Examples
    --------
    >>> from hesper.utils import tree_merge
    >>> tree_merge({"a": {"x": 1}}, {"a": {"y": 2}, "b": 3})
    {'a': {'x': 1, 'y': 2}, 'b': 3}
    """
    if tree_a is not None and tree_b is not None and type(tree_a) is not type(tree_b):
        if _is_absent(tree_a) and _is_absent(tree_b):
            raise ValueError(
                f"cannot merge an empty {type(tree_a).__name__} with an empty {type(tree_b).__name__}; "
                "use the same container in both trees"
            )
    if _is_absent(tree_a) and tree_b is not None:
        return tree_b
    if _is_absent(tree_b) and tree_a is not None:
        return tree_a

    if isinstance(tree_a, dict) and isinstance(tree_b, dict):
        return {key: tree_merge(tree_a.get(key), tree_b.get(key), merge_fn) for key in {**tree_a, **tree_b}}
    sequences = (list, tuple)
    if isinstance(tree_a, sequences) and isinstance(tree_b, sequences):
        return _rebuild(tree_a, [tree_merge(a, b, merge_fn) for a, b in zip_longest(tree_a, tree_b)])
    if merge_fn is None:
        raise ValueError(
            f"cannot merge two leaves ({type(tree_a).__name__} and {type(tree_b).__name__}) at the same place; "
            "give a merge_fn"
        )
    return merge_fn(tree_a, tree_b)
