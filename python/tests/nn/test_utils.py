"""Functions on trees."""

import collections
import random

import pytest
from differential import HESPER, attempt, compare, in_order
from hesper.utils import tree_flatten, tree_unflatten

Point = collections.namedtuple("Point", "x y")


class Names(list):
    pass


TREES = [
    1, None, "leaf", [], {}, (), [1, [2, (3, 4)], {"a": 5, "b": {}}],
    {"a": [], "b": {}, "c": ()}, {"x": None}, [None], Point(1, [2]),
    collections.OrderedDict(a=1), {1: 2}, {"a.b": 1}, {"a": {"b": [1, {"c": 2}]}},
    Names([1, 2]),
]  # fmt: skip


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_flattening_and_mapping_one_tree(tree):
    def scenario(lib):
        u = lib.utils
        flat = u.tree_flatten(tree)
        return {
            "flat": flat,
            "dict": u.tree_flatten(tree, destination={}),
            "prefix": u.tree_flatten(tree, prefix=".top"),
            "lists are leaves": u.tree_flatten(tree, is_leaf=lambda x: isinstance(x, list)),
            "unflat": attempt(u.tree_unflatten, flat),
            "map": u.tree_map(lambda x: (x, x), tree),
            "map leaves": u.tree_map(type, tree, is_leaf=lambda x: isinstance(x, list)),
            "path": u.tree_map_with_path(lambda p, x: (p, x), tree),
            "path below": u.tree_map_with_path(lambda p, x: (p, x), tree, path="q"),
            "reduce": u.tree_reduce(lambda a, x: (a, x), tree),
            "reduce from": u.tree_reduce(lambda a, x: (a, x), tree, "start"),
        }

    compare(scenario)


PAIRS = [
    ({"a": 1}, {"a": 2, "b": 3}), ({"a": 1, "b": 2}, {"a": 1}), ([1, 2], [1]),
    ([1], [1, 2]), ([1], (1,)), ((1,), [1]), ({"a": 1}, [1]), (1, [1]), ([1], 1),
    ({"a": {"b": 1}}, {"a": 1}), ({"a": 1}, {"a": {"b": 1}}), (1, 2), ({"a": 1}, None),
    ([], {}), ([[1]], [1]), ({"a": {}}, {"a": 1}), ({"a": 1}, {"a": {}}),
    ({"a": []}, {"a": 3}), (None, 1), (1, None), ({"a": None}, {"a": 1}),
    ([None, 1], [2, None]), ([{}, 1], [2, {}]), ((1, {}), ({}, 2)), ([1, {}], [{}, 2, 3]),
    ({"a": {"b": 1}}, {"a": {"c": 2}}), ({"a": [1]}, {"a": {"c": 2}}), ((), 1), ({}, []),
    ([1], {}), ((), {"a": 1}), ([], ()), ((), []), (None, None), ({}, {}), ({"a": None}, {}),
]  # fmt: skip


@pytest.mark.parametrize("a, b", PAIRS, ids=repr)
def test_mapping_and_merging_two_trees(a, b):
    def scenario(lib):
        u = lib.utils
        return [
            attempt(u.tree_map, lambda *x: x, a, b),
            attempt(u.tree_map_with_path, lambda *x: x, a, b),
            in_order(attempt(u.tree_merge, a, b)),
            in_order(attempt(u.tree_merge, a, b, lambda x, y: (x, y))),
        ]

    compare(scenario)


FLAT = [
    [], {}, [("", 1)], [("a", 1)], [("0", 1), ("2", 2)], [("1", 1), ("0", 2)],
    [("a", 1), ("0", 2)], [("a.b", 1), ("a.c.0", 2), ("a.c.1", 3)], [("a", 1), ("a.b", 2)],
    [("a.", 1)], [(".a", 1)], {"a.0": 1}, [("0.x", 1), ("10.x", 2), ("2.x", 3)],
    [("00", 1)], [("-1", 1)], [("1.5", 1)], [(0, 1)], [("00", 1), ("0", 2)], (("a", 1),),
]  # fmt: skip


@pytest.mark.parametrize("flat", FLAT, ids=repr)
def test_unflattening(flat):
    compare(lambda lib: attempt(lib.utils.tree_unflatten, flat))


def test_a_destination_is_extended_and_must_be_a_list_or_dict():
    def scenario(lib):
        pairs, table = [("z", 1)], {"z": 1}
        return [
            lib.utils.tree_flatten([1], destination=pairs) is pairs,
            lib.utils.tree_flatten([1], destination=table) is table,
            pairs,
            table,
            *(attempt(lib.utils.tree_flatten, [1], destination=d) for d in (5, (), set())),
        ]

    compare(scenario)


@pytest.mark.parametrize("flat", [[("a", 1), ("a", 2)], [("x.0", 1), ("x.0", 2)], [("", 1), ("", 2)]])
def test_a_path_that_occurs_twice_is_an_error(flat):
    with pytest.raises(ValueError, match="same path"):
        tree_unflatten(flat)


def random_tree(rng, depth=0):
    kind = rng.choice(["leaf", "list", "dict"]) if depth < 4 else "leaf"
    if kind == "list":
        return [random_tree(rng, depth + 1) for _ in range(rng.randint(1, 3))]
    if kind == "dict":
        return {rng.choice("abcdef_") + "x": random_tree(rng, depth + 1) for _ in range(rng.randint(1, 3))}
    return rng.randint(-9, 9)


@pytest.mark.parametrize("seed", range(60))
def test_unflattening_undoes_flattening(seed):
    tree = random_tree(random.Random(seed))
    assert tree_unflatten(tree_flatten(tree)) == tree
    assert tree_unflatten(tree_flatten(tree, destination={})) == tree
    assert HESPER.utils.tree_map(lambda x: x, tree) == tree
