"""What the console sends to server-side apply after an edit: the changed fields, and those that it
applied before.

Applying the whole object would make the console an owner of every field. Fields that the console
owns and leaves out would be removed, so they are sent again. Pure functions on objects.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from transom.machinery.objects import Object

FIELD_MANAGER: Final = "transom-console"
_IDENTITY: Final = ("name", "namespace")


def configuration_to_apply(before: Object, after: Object) -> Object:
    """The configuration to apply, for an object that the user changed from `before` to `after`."""
    found = _changed_fields(before, after, _field_owners(before))
    meta = {k: after["metadata"][k] for k in _IDENTITY if k in after["metadata"]}
    return {
        **found,
        "apiVersion": after.get("apiVersion"),
        "kind": after.get("kind"),
        "metadata": {**(found.get("metadata") or {}), **meta},
    }


def removed_fields(wanted: Any, result: Any, path: str = "") -> list[str]:
    """The fields of `result` that the user removed and that other managers keep."""
    if isinstance(wanted, dict) and isinstance(result, dict):
        found: list[str] = []
        for key, value in result.items():
            if key in wanted:
                found += removed_fields(wanted[key], value, f"{path}.{key}")
            else:
                found.append(f"{path}.{key}")
        return found
    if isinstance(wanted, list) and isinstance(result, list) and len(result) > len(wanted):
        return [path]
    return []


class _FieldOwners:
    """The fieldsV1 documents at one path: of the console, and of all managers. Each part of a
    document is looked at once, however many managers and fields there are.
    """

    __slots__ = ("_below", "_every", "own")

    def __init__(self, own: dict[str, Any] | None, every: list[dict[str, Any]]) -> None:
        self.own = own
        self._every = every
        self._below: dict[str, list[dict[str, Any]]] | None = None

    def below(self, key: str) -> _FieldOwners:
        if self._below is None:
            self._below = {}
            for fields in self._every:
                for name, part in fields.items():
                    self._below.setdefault(name, []).append(part)
        name = f"f:{key}"
        own = self.own.get(name) if self.own is not None else None
        return _FieldOwners(own, self._below.get(name, []))

    def is_atomic(self, value: dict[str, Any]) -> bool:
        """Whether a map is owned as a whole, such as the selector of a Service: a part of it would
        replace all of it.
        """
        return bool(value) and any(fields == {} for fields in self._every)


def _field_owners(obj: Object) -> _FieldOwners:
    own: dict[str, Any] | None = None
    every = []
    for entry in obj["metadata"].get("managedFields") or ():
        fields = entry.get("fieldsV1")
        if isinstance(fields, dict):
            every.append(fields)
            if entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply":
                own = fields
    return _FieldOwners(own, every)


def _changed_fields(before: Object, after: Object, owners: _FieldOwners) -> Object:
    """The fields of `after` that differ from `before` or that the console owns. Lists are sent as a
    whole, because only the server knows their keys. Each value is compared once.
    """
    found = {}
    for key, value in after.items():
        below = owners.below(key)
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict) and not below.is_atomic(old):
            if part := _changed_fields(old, value, below):
                found[key] = part
        elif key not in before or old != value or below.own is not None:
            found[key] = value
    return found


def conflict_rows(details: Any) -> list[dict[str, str]]:
    """The conflicts of a refused apply: field, and the message that names its manager."""
    causes = (details or {}).get("causes") or ()
    return [
        {"field": str(cause.get("field") or ""), "message": str(cause.get("message") or "")}
        for cause in causes
        if cause.get("reason") == "FieldManagerConflict"
    ]


def fields_text(fields: Any) -> list[str]:
    """The paths of a fieldsV1 document, one per leaf: `spec.containers[name=web].image`."""
    found: list[str] = []
    _add_paths(fields, "", found)
    return found


_MOST_PATHS: Final = 2000


def _add_paths(fields: Any, path: str, found: list[str]) -> None:
    if len(found) >= _MOST_PATHS:
        return
    below = {k: v for k, v in fields.items() if k != "."} if isinstance(fields, dict) else {}
    if not below:
        if path:
            found.append(path)
        return
    for key, value in below.items():
        _add_paths(value, path + _step(key, first=not path), found)


def _step(key: str, *, first: bool) -> str:
    kind, _, rest = key.partition(":")
    if kind == "f":
        return rest if first else f".{rest}"
    if kind == "k":
        try:
            pairs = orjson.loads(rest)
        except orjson.JSONDecodeError:
            return f"[{rest}]"
        return f"[{','.join(f'{name}={value}' for name, value in pairs.items())}]"
    return f"[{rest}]"
