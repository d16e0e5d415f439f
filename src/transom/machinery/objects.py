"""Small helpers for API objects: the copy function, and access to common metadata."""

from __future__ import annotations

import threading
from typing import Any

import orjson

Object = dict[str, Any]

# How many levels of maps and lists an object may have, its managedFields included. Kubernetes
# allows 10,000; orjson writes at most 254, and stored objects are embedded in lists, watch events,
# tables, reviews and audit events.
MAX_DEPTH = 200
_SPARE = 254 - MAX_DEPTH


class TooDeep(ValueError):
    """A value with more than MAX_DEPTH levels."""

    def __init__(self) -> None:
        super().__init__(f"exceeded max depth of {MAX_DEPTH}")


class _Envelope(threading.local):
    """As many nested lists as there are spare levels. One for each thread: it is filled and emptied
    on each use.
    """

    def __init__(self) -> None:
        self.innermost: list[Any] = []
        self.outermost = self.innermost
        for _ in range(_SPARE - 1):
            self.outermost = [self.outermost]


_envelope = _Envelope()


def encode_bounded(value: Any) -> bytes:
    """The value as JSON; raises TooDeep.

    Encodes the value inside as many lists as there are spare levels, so that orjson itself enforces
    the limit.
    """
    innermost = _envelope.innermost
    innermost.append(value)
    try:
        return orjson.dumps(_envelope.outermost)[_SPARE:-_SPARE]
    except TypeError as e:
        if is_recursion_error(e):
            raise TooDeep from None
        raise
    finally:
        innermost.clear()


def check_depth(value: Any) -> None:
    """Raises TooDeep if the value has too many levels."""
    try:
        encode_bounded(value)
    except TypeError:
        return  # something else in it cannot be encoded: not checked here


def is_recursion_error(error: Exception) -> bool:
    """Whether a function failed because of the depth of its argument."""
    return isinstance(error, RecursionError | TooDeep) or str(error) == "Recursion limit reached"


def copy_object(value: Any) -> Any:
    """A deep copy of JSON data. A round trip through orjson is six times faster than
    copy.deepcopy.
    """
    return orjson.loads(orjson.dumps(value))


def same_json(a: Any, b: Any) -> bool:
    """Equality of JSON values: unlike in Python, true is not 1."""
    sort = orjson.OPT_SORT_KEYS
    return bool(a == b) and orjson.dumps(a, option=sort) == orjson.dumps(b, option=sort)


def with_metadata(obj: Object, **fields: Any) -> Object:
    """A shallow copy of the object with some metadata fields set (None removes a field); the rest
    is shared.
    """
    meta = dict(obj.get("metadata") or {})
    for key, value in fields.items():
        if value is None:
            meta.pop(key, None)
        else:
            meta[key] = value
    return {**obj, "metadata": meta}


def controller_of(obj: Object) -> Object | None:
    """The owner reference marked as controller."""
    for ref in obj.get("metadata", {}).get("ownerReferences") or ():
        if ref.get("controller"):
            return ref
    return None
