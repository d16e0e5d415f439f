"""The selectors of access reviews: an authorizer may allow only requests that are limited to
certain objects.

What cannot be parsed is ignored, since a request without it selects more, and reported in
`status.evaluationError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from transom.machinery.field_selectors import FieldSelector, FieldTerm, parse_fields
from transom.machinery.selectors import SelectorError, from_object, parse_labels

_PATH = "spec.resourceAttributes"


def fields_of_review(attributes: Mapping[str, Any]) -> FieldSelector:
    """The field selector, as far as it can be used."""
    return _field_selector(attributes.get("fieldSelector") or {})[0]


def selector_problems(attributes: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the selectors, as the status of the review says it."""
    chosen, complete = _field_selector(attributes.get("fieldSelector") or {})
    if not complete:
        yield _problem("fieldSelector", partially=not chosen.empty)
    usable, complete = _usable_labels(attributes.get("labelSelector") or {})
    if not complete:
        yield _problem("labelSelector", partially=usable)


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


def _usable_labels(selector: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether some requirements are usable, and whether all are."""
    if raw := selector.get("rawSelector"):
        try:
            parse_labels(raw)
        except SelectorError:
            return False, False
        return True, True
    requirements = selector.get("requirements") or ()
    usable = sum(map(_is_usable, requirements))
    return usable > 0, usable == len(requirements)


def _is_usable(requirement: Mapping[str, Any]) -> bool:
    try:
        from_object({"matchExpressions": [requirement]})
    except SelectorError:
        return False
    return True
