"""Discovery documents of other servers, which may contain anything."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.discovery_documents import MOST_RESOURCES, listed_resources

PLAIN = {
    "name": "things",
    "singularName": "",
    "namespaced": False,
    "kind": "Thing",
    "verbs": [],
}


@pytest.mark.parametrize(
    "document",
    [None, [], "x", 5, {}, {"resources": None}, {"resources": {}}, {"resources": "abc"}],
    ids=repr,
)
def test_a_document_without_resources(document: Any) -> None:
    assert [*listed_resources(document)] == []


@pytest.mark.parametrize(
    "row",
    [
        None,
        5,
        "things",
        [],
        {},
        {"name": "things"},
        {"kind": "Thing"},
        {"name": 1, "kind": "Thing"},
        {"name": "", "kind": "Thing"},
        {"name": "things", "kind": []},
    ],
    ids=repr,
)
def test_a_row_that_names_no_resource_is_left_out(row: Any) -> None:
    assert [*listed_resources({"resources": [row, PLAIN]})] == [PLAIN]


def test_every_field_has_its_type() -> None:
    odd = {
        "name": "things",
        "kind": "Thing",
        "singularName": 5,
        "namespaced": "yes",
        "verbs": ["get", 1, None, "list"],
        "shortNames": "th",
        "categories": ["all"],
        "group": {},
        "more": "x",
    }
    (row,) = listed_resources({"resources": [odd]})
    assert row == {**PLAIN, "verbs": ["get", "list"], "categories": ["all"]}


def test_the_number_of_resources_is_bounded() -> None:
    rows = [PLAIN] * (MOST_RESOURCES + 10)
    assert len([*listed_resources({"resources": rows})]) == MOST_RESOURCES
