"""Shares equal parts of stored objects.

A thousand pods of one template have the same containers, volumes and tolerations. Decoded objects
are read-only, so they can share these parts, which halves the memory of a cached pod. This module
defines which parts of a kind are worth sharing.
"""

from __future__ import annotations

from typing import Any

import orjson

from transom.machinery.objects import Object

_PARTS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "/Pod": (
        ("metadata", ("labels", "ownerReferences")),
        ("spec", ("containers", "initContainers", "volumes", "tolerations", "affinity")),
    ),
}
_KEPT = 1024
# bytes of a part: larger ones are rarely equal, and would stay cached long after their objects
_LARGEST = 16 * 1024

_known: dict[bytes, Any] = {}


def share(kind: str, obj: Object) -> None:
    """Replaces parts of a decoded object by equal ones seen before. The object must not have other
    readers yet.
    """
    for section, names in _PARTS.get(kind, ()):
        fields = obj.get(section) or {}
        for name in names:
            part = fields.get(name)
            if part:
                key = orjson.dumps(part)
                if len(key) > _LARGEST:
                    continue
                known = _known.get(key)
                if known is not None:
                    fields[name] = known
                else:
                    if len(_known) >= _KEPT:
                        _known.clear()
                    _known[key] = part
