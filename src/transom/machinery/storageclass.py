"""The default StorageClass, which admission and the volume controller use."""

from __future__ import annotations

from collections.abc import Iterable

from transom.machinery.objects import Object

_MARKS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


def is_default_class(storage_class: Object) -> bool:
    annotations = storage_class["metadata"].get("annotations") or {}
    return any(annotations.get(mark) == "true" for mark in _MARKS)


def newest_default_class(classes: Iterable[Object]) -> str:
    """The name of the newest default class, the first by name of those that are equally new; "" if
    there is none.
    """
    found = sorted(
        (entry["metadata"] for entry in classes if is_default_class(entry)),
        key=lambda meta: str(meta["name"]),
    )
    newest = max((meta.get("creationTimestamp", "") for meta in found), default="")
    return next((m["name"] for m in found if m.get("creationTimestamp", "") == newest), "")
