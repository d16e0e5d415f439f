"""Labels of nodes as columns, and the selectors of pods on them."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.selectors import Requirement
from transom.scheduler.arrays import np
from transom.scheduler.labels import (
    LabelColumns,
    PreferredTerms,
    any_term,
    has_labels,
    node_terms,
)

ROWS = np.arange(3)


@pytest.fixture
def labels() -> LabelColumns:
    columns = LabelColumns()
    columns.grow(4)
    columns.set(0, "a", {"zone": "1"})
    columns.set(1, "b", {"zone": "2", "gpu": "3"})
    columns.set(2, "c", {})
    return columns


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": [*values]}]}


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([term("zone", "In", "1")], [True, False, False]),
        ([term("zone", "NotIn", "1")], [False, True, True]),
        ([term("absent", "NotIn", "1")], [True, True, True]),
        ([term("absent", "DoesNotExist")], [True, True, True]),
        ([term("absent", "Exists")], [False, False, False]),
        ([term("absent", "Gt", "1"), term("gpu", "Gt", "1")], [False, True, False]),
        ([term("absent", "In", "1"), term("zone", "Exists")], [True, True, False]),
        ([term("zone", "In", "1"), term("zone", "In", "3", "2")], [True, True, False]),
        (
            [term("zone", "In", "1"), term("gpu", "In", "3"), term("gpu", "Gt", "9")],
            [True, True, False],
        ),
    ],
)
def test_terms(labels: LabelColumns, terms: list[Any], expected: list[bool]) -> None:
    assert any_term(node_terms(terms), labels, ROWS).tolist() == expected


def test_a_label_that_appears_and_disappears(labels: LabelColumns) -> None:
    wanted = {"disk": "ssd"}
    assert not has_labels(wanted, labels, ROWS).any()
    labels.set(2, "c", wanted)
    assert has_labels(wanted, labels, ROWS).tolist() == [False, False, True]
    labels.set(2, "c", {})
    assert not has_labels(wanted, labels, ROWS).any()
    assert labels.codes("disk").tolist() == [-1] * 4
    labels.set(0, "a", {"disk": "ssd"})
    assert has_labels(wanted, labels, ROWS).tolist() == [True, False, False]


def test_keys_that_only_pods_name_are_not_kept(labels: LabelColumns) -> None:
    """A pod names thousands of them; each would cost memory and time forevery node, for ever."""
    terms = [term(f"k{number}", "Exists") for number in range(1000)]
    assert not any_term(node_terms(terms), labels, ROWS).any()
    terms = [term(f"k{number}", "DoesNotExist") for number in range(1000)]
    assert any_term(node_terms(terms), labels, ROWS).all()
    assert not has_labels({f"k{number}": "v" for number in range(1000)}, labels, ROWS).any()
    assert not labels._columns


def test_terms_for_thousands_of_names_are_evaluated_at_once(
    labels: LabelColumns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each evaluation costs time for every node."""
    evaluated: list[str] = []
    original = LabelColumns.matches

    def matches(self: LabelColumns, requirement: Any, rows: Any) -> Any:
        evaluated.append(requirement.key)
        return original(self, requirement, rows)

    monkeypatch.setattr(LabelColumns, "matches", matches)
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
        for name in ("b", *(f"n{number}" for number in range(1000)))
    ]
    assert any_term(node_terms(terms), labels, ROWS).tolist() == [False, True, False]
    assert len(evaluated) == 1


def _with_requirements(*given: tuple[str, str, tuple[str, ...]]) -> dict[str, Any]:
    return {
        "matchExpressions": [
            {"key": key, "operator": operator, "values": [*values]}
            for key, operator, values in given
        ]
    }


@pytest.mark.parametrize("preferred", [False, True], ids=["required", "preferred"])
def test_requirements_that_differ_in_unknown_names_are_evaluated_once(
    labels: LabelColumns, monkeypatch: pytest.MonkeyPatch, preferred: bool
) -> None:
    evaluated: list[Requirement] = []
    original = LabelColumns.matches

    def recorded(self: LabelColumns, requirement: Requirement, rows: Any) -> Any:
        evaluated.append(requirement)
        return original(self, requirement, rows)

    monkeypatch.setattr(LabelColumns, "matches", recorded)
    terms = [
        _with_requirements(
            ("zone", "NotIn", ("1", f"other-{i}")),
            ("zone", "Exists", ()),
            (f"absent-{i}", "DoesNotExist", ()),
            ("gpu", "DoesNotExist", ()),
        )
        for i in range(2_000)
    ]
    terms.append(_with_requirements(("zone", "Exists", ()), ("gpu", "Exists", ())))
    if preferred:
        scores = np.zeros(3, np.int64)
        given = [{"weight": 1, "preference": one} for one in terms]
        PreferredTerms(given).add_to(scores, labels, ROWS)
        assert scores.tolist() == [0, 1, 0]
    else:
        assert any_term(node_terms(terms), labels, ROWS).tolist() == [False, True, False]
    assert len(evaluated) == 5
