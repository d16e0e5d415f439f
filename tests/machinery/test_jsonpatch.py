from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.machinery.errors import ApiError
from transom.machinery.jsonpatch import json_patch

DOC = {"a": {"b": [1, 2, 3], "n": None}, "s": "x"}


@pytest.mark.parametrize(
    ("ops", "want"),
    [
        (
            [{"op": "add", "path": "/a/c", "value": 1}],
            {"a": {"b": [1, 2, 3], "n": None, "c": 1}, "s": "x"},
        ),
        (
            [{"op": "add", "path": "/a/b/1", "value": 9}],
            {"a": {"b": [1, 9, 2, 3], "n": None}, "s": "x"},
        ),
        (
            [{"op": "add", "path": "/a/b/-", "value": 9}],
            {"a": {"b": [1, 2, 3, 9], "n": None}, "s": "x"},
        ),
        (
            [{"op": "add", "path": "/a/b/-1", "value": 9}],
            {"a": {"b": [1, 2, 3, 9], "n": None}, "s": "x"},
        ),
        ([{"op": "remove", "path": "/a/b/-1"}], {"a": {"b": [1, 2], "n": None}, "s": "x"}),
        ([{"op": "replace", "path": "/new", "value": 1}], {**DOC, "new": 1}),
        ([{"op": "add", "path": "/new"}], {**DOC, "new": None}),
        ([{"op": "copy", "from": "/missing", "path": "/new"}], {**DOC, "new": None}),
        ([{"op": "move", "from": "/s", "path": "/a/b/0"}], {"a": {"b": ["x", 1, 2, 3], "n": None}}),
        ([{"op": "test", "path": "/missing", "value": None}], DOC),
        ([{"op": "test", "path": "/a/n", "value": None}], DOC),
        ([{"op": "add", "path": "ignored/s", "value": "y"}], {**DOC, "s": "y"}),
        ([{"op": "add", "path": "/a~1b~01", "value": 1}], {**DOC, "a/b~1": 1}),
        (
            [
                {"op": "copy", "from": "/a", "path": "/c"},
                {"op": "add", "path": "/c/b/-", "value": 4},
                {"op": "remove", "path": "/a/b/0"},
            ],
            {"a": {"b": [2, 3], "n": None}, "s": "x", "c": {"b": [1, 2, 3, 4], "n": None}},
        ),
    ],
)
def test_operations(ops: list[Any], want: Any) -> None:
    doc = copy.deepcopy(DOC)
    given_ops = copy.deepcopy(ops)
    assert json_patch(doc, ops) == want
    assert doc == DOC
    assert ops == given_ops


@pytest.mark.parametrize(
    "op",
    [
        {"op": "remove", "path": "/missing"},
        {"op": "remove", "path": "/a/b/3"},
        {"op": "remove", "path": "/a/b/-4"},
        {"op": "replace", "path": "/a/b/-1", "value": 1},
        {"op": "replace", "path": "/a/b/x", "value": 1},
        {"op": "add", "path": "/a/b/5", "value": 1},
        {"op": "add", "path": "/a/b/1_0", "value": 1},
        {"op": "add", "path": "/a/n/x", "value": 1},
        {"op": "add", "path": "/s/x", "value": 1},
        {"op": "add", "path": "", "value": 1},
        {"op": "add", "path": 5, "value": 1},
        {"op": "add"},
        {"op": "test", "path": "/s"},
        {"op": "test", "path": "/a/b/0", "value": 1.0},
        {"op": "test", "path": "/a/b/0", "value": True},
        {"op": "move", "from": "/missing", "path": "/x"},
        {"op": "copy", "path": "/x"},
        {"path": "/x"},
        None,
    ],
)
def test_what_does_not_apply_is_refused_without_a_reason(op: Any) -> None:
    with pytest.raises(ApiError) as e:
        json_patch(DOC, [op])
    assert (e.value.code, e.value.reason) == (422, "Invalid")
    assert e.value.message == "the server rejected our request due to an error in our request"


def test_limits() -> None:
    many = [{"op": "add", "path": "/x", "value": 1}] * 10001
    with pytest.raises(ApiError) as e:
        json_patch(DOC, many)
    assert e.value.code == 413
    assert e.value.message.endswith(
        "The allowed maximum operations in a JSON patch is 10000, got 10001"
    )
    copies = [{"op": "copy", "from": "/big", "path": f"/c{i}"} for i in range(4)]
    big = {"big": "x" * 1024 * 1024}
    with pytest.raises(ApiError):
        json_patch(big, copies)
    assert len(json_patch(big, copies[:2])) == 3


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text("ab~/", max_size=2), v, max_size=3),
)
docs = st.dictionaries(st.text("ab~/", max_size=2), values, max_size=4)


@given(docs, st.text("ab~/", max_size=2), values)
def test_add_then_test_then_remove_restores(doc: dict[str, Any], key: str, value: Any) -> None:
    path = "/" + key.replace("~", "~0").replace("/", "~1")
    before = copy.deepcopy(doc)
    added = json_patch(
        doc,
        [{"op": "add", "path": path, "value": value}, {"op": "test", "path": path, "value": value}],
    )
    assert added == {**doc, key: value}
    assert json_patch(added, [{"op": "remove", "path": path}]) == {
        k: v for k, v in doc.items() if k != key
    }
    assert doc == before
