from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.machinery.mergepatch import merge_patch

scalars = st.none() | st.booleans() | st.integers(0, 3) | st.text("ab", max_size=2)
without_lists = st.recursive(
    scalars, lambda v: st.dictionaries(st.sampled_from("abc"), v, max_size=3)
)
docs = st.dictionaries(st.sampled_from("abc"), without_lists, max_size=3)


def rfc7386(target: Any, patch: Any) -> Any:
    """The algorithm as the RFC writes it."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = rfc7386(target.get(name), value)
    return target


@given(docs, docs)
def test_follows_the_rfc(doc: dict[str, Any], patch: dict[str, Any]) -> None:
    before = copy.deepcopy((doc, patch))
    once = merge_patch(doc, patch)
    assert once == rfc7386(doc, patch)
    assert merge_patch(once, patch) == once
    assert (doc, patch) == before


@pytest.mark.parametrize(
    ("doc", "patch", "want", "earlier"),
    [
        ({}, {"a": [1, None, {"b": None}]}, [1, None, {}], [1, {}]),
        ({"a": [9]}, {"a": [1, None]}, [1, None], [1]),
        ({"a": {"b": 1}}, {"a": [1, None]}, [1, None], [1, None]),
    ],
)
def test_lists_lose_nulls_before_1_22_unless_they_replace_an_object(
    doc: Any, patch: Any, want: Any, earlier: Any
) -> None:
    assert merge_patch(doc, patch).get("a") == want
    assert merge_patch(doc, patch, list_nulls=False).get("a") == earlier


def test_shares_what_it_does_not_touch() -> None:
    doc = {"spec": {"x": [1]}, "metadata": {"labels": {"a": "b"}}}
    assert merge_patch(doc, {"metadata": {"labels": {"c": "d"}}})["spec"] is doc["spec"]
