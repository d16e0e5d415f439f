"""Resources in discovery documents of other API servers, which may contain anything."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from transom.machinery.objects import Object

MOST_RESOURCES: Final = 10_000  # of one group version; the rest is ignored
_TEXTS: Final = ("group", "version", "singularName", "storageVersionHash")
_LISTS: Final = ("verbs", "shortNames", "categories")


def listed_resources(document: Any) -> Iterator[Object]:
    """The rows of an APIResourceList that name a resource and its kind, with every field of the
    right type.
    """
    rows = document.get("resources") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        return
    for row in islice(rows, MOST_RESOURCES):
        if isinstance(row, dict) and _is_text(row.get("name")) and _is_text(row.get("kind")):
            yield _checked(row)


def _checked(row: Object) -> Object:
    out: dict[str, Any] = {
        "name": row["name"],
        "singularName": "",
        "namespaced": row.get("namespaced") is True,
        "kind": row["kind"],
        "verbs": [],
    }
    out |= {key: row[key] for key in _TEXTS if _is_text(row.get(key))}
    for key in _LISTS:
        values = row.get(key)
        if isinstance(values, list):
            out[key] = [value for value in values if _is_text(value)]
    return out


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""
