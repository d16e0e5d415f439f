"""Whether an update changes an object. Linear in its size: large objects are compared in the worker
thread.
"""

from __future__ import annotations

import orjson

from transom.apiserver.core.resources import Resource
from transom.machinery.objects import Object, same_json
from transom.store.api import StoreRecord


def is_unchanged(
    res: Resource, stored: Object, new: Object, old: Object, current: StoreRecord
) -> bool:
    """`stored` is the new object in stored form.

    A custom object that looks unchanged is written if its stored form differs: that is how objects
    migrate to a new storage version.
    """
    if res.custom:
        return same_json(stored, orjson.loads(current.value))
    return all(
        new.get(k) == old.get(k) for k in new.keys() | old.keys() if k not in ("kind", "apiVersion")
    )
