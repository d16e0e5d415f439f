from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.machinery import fieldset as fs

elements = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'k:{"name":"y"}', 'v:"1"', "i:0"])
path = st.lists(elements, min_size=1, max_size=4).map(tuple)
path_sets = st.frozensets(path, max_size=8)


def members(fields: fs.FieldSet) -> frozenset[fs.Path]:
    return frozenset(fs.set_paths(fields))


def canonical(fields: fs.FieldSet) -> bool:
    """No node that holds nothing but itself, none that holds nothing at all below a member."""
    return all(
        below == {} or (below.keys() != {"."} and canonical(below))
        for k, below in fields.items()
        if k != "."
    )


@given(path_sets)
def test_a_tree_holds_its_paths(paths: frozenset[fs.Path]) -> None:
    fields = fs.set_of_paths(paths)
    assert members(fields) == paths
    assert all(fs.has_path(fields, p) for p in paths)


@given(path_sets, path_sets)
def test_operations_are_those_of_sets(a: frozenset[fs.Path], b: frozenset[fs.Path]) -> None:
    x, y = fs.set_of_paths(a), fs.set_of_paths(b)
    for got, want in (
        (fs.set_union(x, y), a | b),
        (fs.set_difference(x, y), a - b),
        (fs.set_intersection(x, y), a & b),
    ):
        assert members(got) == want
        assert got == fs.set_of_paths(want)
        assert canonical(got)
    assert (members(x), members(y)) == (a, b)


def test_unchanged_sets_keep_their_identity() -> None:
    a = fs.set_of_paths(frozenset({("f:a", "f:b")}))
    assert fs.set_difference(a, {"f:c": {}}) is a
    assert fs.set_union(a, {"f:a": {"f:b": {}}}) is a


def test_order_and_texts() -> None:
    fields = fs.set_of_paths(
        frozenset(
            {
                ("f:z",),
                ("f:spec", "f:ports", 'k:{"port":80,"protocol":"TCP"}', "f:name"),
                ("f:spec", "f:ports", 'k:{"port":9,"protocol":"TCP"}'),
                ("f:spec", "f:set", 'v:"q\\"x"'),
                ("f:spec", "f:l", "i:3"),
            }
        )
    )
    assert [fs.field_path_text(p) for p in fs.set_paths(fields)] == [
        ".z",
        ".spec.l[3]",
        '.spec.ports[port=9,protocol="TCP"]',
        '.spec.ports[port=80,protocol="TCP"].name',
        '.spec.set[="q\\"x"]',
    ]


@pytest.mark.parametrize(
    ("given_tree", "want"),
    [
        ({"f:a": {".": {}}}, {"f:a": {}}),
        ({'k:{"b": 1, "a": "x"}': {}}, {'k:{"a":"x","b":1}': {}}),
        ({"f:a": {"x:new": {}}}, {"f:a": {}}),
        ({".": {}, "i:07": {}}, {"i:7": {}}),
    ],
)
def test_reads_what_clients_write(given_tree: Any, want: Any) -> None:
    assert fs.from_fields_v1(given_tree) == want


@pytest.mark.parametrize(
    "bad",
    [
        {"f": {}},
        {"fa": {}},
        {"k:x": {}},
        {"k:1": {}},
        {"v:": {}},
        {"i:x": {}},
        [],
        {"f:a": 1},
    ],
)
def test_rejects_invalid_field_sets(bad: Any) -> None:
    with pytest.raises(fs.InvalidFields):
        fs.from_fields_v1(bad)


def test_sets_are_written_in_kubernetes_order() -> None:
    fields = {
        "v:9": {},
        'k:{"port":100}': {"f:z": {}, "f:a": {}, ".": {}},
        "f:b": {"f:d": {}, "f:c": {}},
        'k:{"port":80}': {},
        "f:a": {},
        ".": {},
        "i:10": {},
        "i:9": {},
    }
    ordered = fs.in_order(fields)
    assert ordered == fields
    assert list(ordered) == [
        ".",
        "f:a",
        "f:b",
        'k:{"port":80}',
        'k:{"port":100}',
        "v:9",
        "i:9",
        "i:10",
    ]
    assert list(ordered["f:b"]) == ["f:c", "f:d"]
    assert list(ordered['k:{"port":100}']) == [".", "f:a", "f:z"]
    assert fs.in_order(dict(reversed(fields.items()))) is ordered


@given(path_sets)
def test_the_order_is_that_of_its_paths(paths: frozenset[fs.Path]) -> None:
    fields = fs.set_of_paths(paths)
    ordered = fs.in_order(fields)
    assert ordered == fields
    levels = [ordered]
    for level in levels:
        names = [name for name in level if name != "."]
        assert names == [name for (name,) in fs.set_paths(dict.fromkeys(names, fs.MEMBER))]
        assert "." not in level or next(iter(level)) == "."
        levels.extend(level.values())
