"""The selectors of access reviews: an authorizer may allow only requests that are limited to
certain objects.

What cannot be parsed is ignored, since a request without it selects more, and reported in
`status.evaluationError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from transom.machinery.field_selectors import FieldSelector, FieldTerm, parse_fields
from transom.machinery.objects import Object
from transom.machinery.selectors import (
    DOES_NOT_EXIST,
    DOUBLE_EQUALS,
    EQUALS,
    EXISTS,
    IN,
    NOT_EQUALS,
    NOT_IN,
    LabelSelector,
    Requirement,
    SelectorError,
    everything,
    from_object,
    parse_labels,
)

_PATH = "spec.resourceAttributes"


def fields_of_review(attributes: Mapping[str, Any]) -> FieldSelector:
    """The field selector, as far as it can be used."""
    return _field_selector(attributes.get("fieldSelector") or {})[0]


def labels_of_review(attributes: Mapping[str, Any]) -> LabelSelector:
    """The label selector, as far as it can be used."""
    return _label_selector(attributes.get("labelSelector") or {})[0]


def selector_problems(attributes: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the selectors, as the status of the review says it."""
    chosen, complete = _field_selector(attributes.get("fieldSelector") or {})
    if not complete:
        yield _problem("fieldSelector", partially=not chosen.empty)
    labels, complete = _label_selector(attributes.get("labelSelector") or {})
    if not complete:
        yield _problem("labelSelector", partially=not labels.empty)


def _problem(name: str, *, partially: bool) -> str:
    how = "partially ignored" if partially else "ignored"
    return f"{_PATH}.{name} {how} due to parse error"


def _field_selector(selector: Mapping[str, Any]) -> tuple[FieldSelector, bool]:
    """The usable terms, and whether these are all. Only one value can be compared."""
    if raw := selector.get("rawSelector"):
        try:
            return parse_fields(raw), True
        except SelectorError:
            return FieldSelector(), False
    requirements = selector.get("requirements") or ()
    terms = [
        FieldTerm(row.get("key", ""), row["operator"] == "In", row["values"][0])
        for row in requirements
        if row.get("operator") in ("In", "NotIn") and len(row.get("values") or ()) == 1
    ]
    return FieldSelector(terms), len(terms) == len(requirements)


def _label_selector(selector: Mapping[str, Any]) -> tuple[LabelSelector, bool]:
    """The usable requirements, and whether these are all."""
    if raw := selector.get("rawSelector"):
        try:
            return parse_labels(raw), True
        except SelectorError:
            return everything(), False
    requirements = selector.get("requirements") or ()
    usable = [found for row in requirements for found in _usable(row)]
    return LabelSelector(usable), len(usable) == len(requirements)


def _usable(requirement: Mapping[str, Any]) -> tuple[Requirement, ...]:
    try:
        return from_object({"matchExpressions": [requirement]}).requirements
    except SelectorError:
        return ()


# ---- selectors for webhooks ----

_LABEL_OPERATORS = {
    EQUALS: "In",
    DOUBLE_EQUALS: "In",
    IN: "In",
    NOT_EQUALS: "NotIn",
    NOT_IN: "NotIn",
    EXISTS: "Exists",
    DOES_NOT_EXIST: "DoesNotExist",
}


def selectors_for_webhook(fields: str, labels: str) -> Object:
    """The selectors of a request, as attributes of a review. Others than these operators are left
    out, and so is a selector that cannot be parsed.
    """
    out: Object = {}
    try:
        terms = parse_fields(fields).terms
    except SelectorError:
        terms = ()
    if terms:
        out["fieldSelector"] = {
            "requirements": [
                {"key": t.field, "operator": "In" if t.equal else "NotIn", "values": [t.value]}
                for t in terms
            ]
        }
    try:
        requirements = parse_labels(labels).requirements
    except SelectorError:
        requirements = ()
    chosen = [
        {"key": r.key, "operator": _LABEL_OPERATORS[r.operator]}
        | ({"values": list(r.values)} if r.values else {})
        for r in requirements
        if r.operator in _LABEL_OPERATORS
    ]
    if chosen:
        out["labelSelector"] = {"requirements": chosen}
    return out
