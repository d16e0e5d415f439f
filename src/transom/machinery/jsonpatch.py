"""JSON patch (RFC 6902) as the API server applies it, with the quirks of its library.

Differences from the RFC: `replace` of a missing map key adds it, `test` of a missing key against
null passes, a missing `value` means null, indices may count from the end, `copy` of a missing key
copies null, and the text before the first slash of a path is ignored. Inputs are never changed: a
container is copied when it is first written to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from transom.kit.lazy import lazy_pattern
from transom.machinery.errors import ApiError

MAX_OPERATIONS = 10000
MAX_COPY_BYTES = 3 * 1024 * 1024

_INDEX = lazy_pattern(r"[+-]?[0-9]{1,18}")


class DoesNotApply(Exception):
    """An operation that cannot be applied. The response does not name it."""


def json_patch_refused() -> ApiError:
    return ApiError(
        422, "Invalid", "the server rejected our request due to an error in our request", {}
    )


def json_patch(doc: dict[str, Any], ops: list[Any], *, of_root: bool = False) -> Any:
    """The document after `ops`, a decoded JSON patch; 413 for too many operations, 422 if one does
    not apply. With `of_root`, operations may replace the document, also by a list, and test it.
    """
    if len(ops) > MAX_OPERATIONS:
        text = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(ops)}"
        raise ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {text}")
    work = _Work(doc, of_root)
    try:
        for op in ops:
            _apply(work, op)
    except DoesNotApply:
        raise json_patch_refused() from None
    return work.root


def first_failure(doc: dict[str, Any], ops: list[Any]) -> tuple[int, DoesNotApply] | None:
    """The index of the first operation that does not apply, and the reason if it is known."""
    work = _Work(doc)
    for index, op in enumerate(ops):
        try:
            _apply(work, op)
        except DoesNotApply as problem:
            return index, problem
    return None


def _apply(work: _Work, op: Any) -> None:
    kind = op.get("op") if op else None
    act = _OPERATIONS.get(kind) if isinstance(kind, str) else None
    if work.of_root and op and op.get("path") == "" and kind in ("replace", "test"):
        _apply_to_root(work, kind, op.get("value"))
        return
    if act is None:
        raise DoesNotApply
    act(work, op)


def _apply_to_root(work: _Work, kind: str, value: Any) -> None:
    if kind == "replace" and isinstance(value, dict | list):
        work.root = work.own(value)
    elif kind == "replace" or not same_json_value(work.root, value):
        raise DoesNotApply


class _Work:
    """The document in progress and which of its containers are already private copies."""

    def __init__(self, doc: dict[str, Any], of_root: bool = False) -> None:
        self.root: Any = dict(doc)
        self.of_root = of_root
        # Keeps a reference, so that the id cannot be reused for another container.
        self.owned: dict[int, Any] = {id(self.root): self.root}
        self.copied = 0

    def own(self, container: Any) -> Any:
        if id(container) in self.owned:
            return container
        mine = container.copy()
        self.owned[id(mine)] = mine
        return mine

    def find(self, path: Any, write: bool) -> tuple[Any, str]:
        """The container that holds the last element of `path`, and that element."""
        if not isinstance(path, str):
            raise DoesNotApply
        _, *parts = path.split("/")
        if not parts:
            raise DoesNotApply
        at: Any = self.root
        for part in parts[:-1]:
            key = _unescape(part)
            if isinstance(at, dict):
                place: Any = key
                child = at.get(key)
            else:
                place = _existing(at, key)
                child = at[place]
            if not isinstance(child, dict | list):
                raise DoesNotApply
            if write:
                child = at[place] = self.own(child)
            at = child
        return at, _unescape(parts[-1])


def _unescape(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~") if "~" in part else part


def _index(key: str) -> int:
    if not _INDEX.fullmatch(key):
        raise DoesNotApply
    return int(key)


def _existing(array: list[Any], key: str) -> int:
    index = _index(key)
    if not 0 <= index < len(array):
        raise DoesNotApply
    return index


def _get(container: Any, key: str) -> Any:
    return (
        container.get(key) if isinstance(container, dict) else container[_existing(container, key)]
    )


def _put(container: Any, key: str, value: Any) -> None:
    if isinstance(container, dict):
        container[key] = value
    elif key == "-":
        container.append(value)
    else:
        index, size = _index(key), len(container) + 1
        if not -size <= index < size:
            raise DoesNotApply
        container.insert(index if index >= 0 else index + size, value)


def _drop(container: Any, key: str) -> None:
    if isinstance(container, dict):
        if key not in container:
            raise DoesNotApply
        del container[key]
    else:
        index = _index(key)
        if not -len(container) <= index < len(container):
            raise DoesNotApply
        del container[index]


def _add(work: _Work, op: dict[str, Any]) -> None:
    container, key = work.find(op.get("path"), True)
    _put(container, key, op.get("value"))


def _remove(work: _Work, op: dict[str, Any]) -> None:
    container, key = work.find(op.get("path"), True)
    _drop(container, key)


def _replace(work: _Work, op: dict[str, Any]) -> None:
    container, key = work.find(op.get("path"), True)
    if isinstance(container, dict):
        container[key] = op.get("value")
    else:
        container[_existing(container, key)] = op.get("value")


def _move(work: _Work, op: dict[str, Any]) -> None:
    container, key = work.find(op.get("from"), True)
    value = _get(container, key)
    _drop(container, key)
    container, key = work.find(op.get("path"), True)
    _put(container, key, value)


def _copy(work: _Work, op: dict[str, Any]) -> None:
    container, key = work.find(op.get("from"), False)
    value = _get(container, key)
    if value is not None:
        text = orjson.dumps(value)
        work.copied += len(text)
        if work.copied > MAX_COPY_BYTES:
            raise DoesNotApply(
                f"Unable to copy, the accumulated size increase of copy is {work.copied}, "
                "exceeding the limit "
                f"{MAX_COPY_BYTES}"
            )
        value = orjson.loads(text)  # a value in two places could not be changed in only one of them
    container, key = work.find(op.get("path"), True)
    _put(container, key, value)


def _test(work: _Work, op: dict[str, Any]) -> None:
    container, key = work.find(op.get("path"), False)
    if "value" not in op or not same_json_value(_get(container, key), op["value"]):
        raise DoesNotApply


def same_json_value(a: Any, b: Any) -> bool:
    """Equality of JSON values as texts: 1 is neither true nor 1.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return len(a) == len(b) and all(k in b and same_json_value(v, b[k]) for k, v in a.items())
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same_json_value, a, b))
    return bool(a == b)


_OPERATIONS: dict[str, Callable[[_Work, dict[str, Any]], None]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
