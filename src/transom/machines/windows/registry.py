"""A Windows registry: keys with values, case-preserving and case-insensitive, on top of a shared
base.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_MAX_SIZE = 8 << 20  # limits of one registry's own content, in characters and bytes
_MAX_KEYS = 20_000


class ExpandString(str):
    """REG_EXPAND_SZ: contains %variables%."""

    __slots__ = ()


class Qword(int):
    """REG_QWORD."""

    __slots__ = ()


Value = str | int | bytes | tuple[str, ...]
"""REG_SZ, REG_DWORD, REG_BINARY, REG_MULTI_SZ; the classes above for the others."""


class RegistryFullError(MemoryError):
    """The registry is full."""


Hive = Mapping[str, Mapping[str, Value]]
"""Values by key and name."""

ROOTS = {
    "HKLM": "HKEY_LOCAL_MACHINE",
    "HKCU": "HKEY_CURRENT_USER",
    "HKU": "HKEY_USERS",
    "HKCR": "HKEY_CLASSES_ROOT",
    "HKCC": "HKEY_CURRENT_CONFIG",
}
_ROOTS = {long.lower(): short for short, long in ROOTS.items()}


class WindowsRegistry:
    __slots__ = ("_base", "_live", "_own", "_restored", "_size", "changes")

    def __init__(self, base: Hive | None = None) -> None:
        """`base` must contain complete keys only, starting with "HKLM" and so on, and is not
        changed.
        """
        self._base = base or {}
        self._own: dict[str, dict[str, Value] | None] = {}  # None: deleted
        self.changes = 0  # ever created
        self._restored = 0
        self._size = 0
        self._live: dict[str, Callable[[], Hive]] = {}

    @property
    def revision(self) -> int:
        """Increases whenever stored values may have changed."""
        return self.changes + self._restored

    def provide(self, key: str, read: Callable[[], Hive]) -> None:
        """The keys below `key` show what `read` returns at each access. Values that are set there
        override it, and are stored like all others.
        """
        self._live[_normal(key)] = read

    def stored(self, key: str, name: str) -> Value | None:
        """Like `get`, without provided values."""
        values = self._stored(self._path(key)) or {}
        found = _same(values, name)
        return None if found is None else values[found]

    def has_stored(self, key: str) -> bool:
        """Whether a value was set below this key."""
        prefix = _normal(key).lower() + "\\"
        return any(values and path.lower().startswith(prefix) for path, values in self._own.items())

    def get(self, key: str, name: str) -> Value | None:
        """By a value's name, "" for the default one; None if the key or value does not exist."""
        _, values = self._find(key)
        found = _same(values or {}, name)
        return None if values is None or found is None else values[found]

    def values(self, key: str) -> Mapping[str, Value] | None:
        """None if the key does not exist."""
        return self._find(key)[1]

    def keys(self, key: str) -> list[str]:
        """The names of a key's direct subkeys."""
        prefix = _normal(key) + "\\"
        depth = prefix.count("\\")
        found: dict[str, str] = {}
        for path in (*self._paths(), *self._live_keys(prefix)):
            if path.lower().startswith(prefix.lower()):
                name = path.split("\\")[depth]
                found.setdefault(name.lower(), name)
        return [found[name] for name in sorted(found)]

    def exists(self, key: str) -> bool:
        is_root = "\\" not in _normal(key)
        return is_root or self._find(key)[1] is not None or bool(self.keys(key))

    def create(self, key: str) -> None:
        path, values = self._find(key)
        if values is None:
            self.changes += 1
            self._grow(len(path))
            self._own[path] = {}

    def _grow(self, size: int) -> None:
        if self._size + size > _MAX_SIZE or len(self._own) >= _MAX_KEYS:
            raise RegistryFullError
        self._size += size

    def set(self, key: str, name: str, value: Value) -> None:
        """Creates the key, too. Raises RegistryFullError."""
        path = self._path(key)
        values = self._stored(path)
        old = _same(values or {}, name)
        self._grow(
            _length(value)
            + len(name)
            - (_length(values[old]) + len(name) if values is not None and old else 0)
        )
        changed = dict(values or {})
        changed[_same(changed, name) or name] = value
        self.changes += 1
        self._own[path] = changed

    def delete(self, key: str, name: str | None = None) -> bool:
        """Deletes a value, or a key with everything in it. Returns whether it existed."""
        path = self._path(key)
        values = self._stored(path)
        self.changes += 1
        if name is None:
            gone = [
                known
                for known in self._paths()
                if (known + "\\").lower().startswith((path + "\\").lower())
            ]
            for known in gone:
                self._own[known] = None
            return bool(gone)
        found = _same(values or {}, name)
        if values is None or found is None:
            return False
        self._own[path] = {kept: value for kept, value in values.items() if kept != found}
        return True

    def save(self) -> Any:
        """The changes since the machine was installed, as JSON."""
        return {
            path: None
            if values is None
            else {name: _to_json(value) for name, value in values.items()}
            for path, values in self._own.items()
        }

    def restore(self, saved: Any) -> None:
        self._restored += 1
        self._own = {
            path: None
            if values is None
            else {name: _from_json(value) for name, value in values.items()}
            for path, values in saved.items()
        }
        self._size = sum(
            _length(value) for values in self._own.values() for value in (values or {}).values()
        )

    def _paths(self) -> list[str]:
        own = self._own
        return [path for path in self._base if path not in own] + [
            path for path, values in own.items() if values is not None
        ]

    def _find(self, key: str) -> tuple[str, Mapping[str, Value] | None]:
        """The key with its spelling here, and its values."""
        path = self._path(key)
        values = self._stored(path)
        provided = self._live_keys(path).get(path)
        if provided is None:
            return path, values
        merged = dict(provided)
        for name, value in (values or {}).items():
            merged[_same(merged, name) or name] = value
        return path, merged

    def _path(self, key: str) -> str:
        path = _normal(key)
        if path in self._own or path in self._base:
            return path
        folded = path.lower()
        known_paths = (*self._own, *self._base, *self._live_keys(path))
        return next((known for known in known_paths if known.lower() == folded), path)

    def _stored(self, path: str) -> Mapping[str, Value] | None:
        return self._own[path] if path in self._own else self._base.get(path)

    def _live_keys(self, near: str) -> Hive:
        """The providers above or below a key."""
        found: dict[str, Mapping[str, Value]] = {}
        wanted = near.rstrip("\\").lower() + "\\"
        for key, read in self._live.items():
            provided = key.lower() + "\\"
            if wanted.startswith(provided) or provided.startswith(wanted):
                found.update(read())
        return found


def _to_json(value: Value) -> Any:
    if isinstance(value, bytes):
        return {"binary": value.hex()}
    if isinstance(value, ExpandString):
        return {"expand": str(value)}
    if isinstance(value, Qword):
        return {"qword": int(value)}
    return list(value) if isinstance(value, tuple) else value


def _from_json(value: Any) -> Value:
    if isinstance(value, dict):
        if "expand" in value:
            return ExpandString(value["expand"])
        return Qword(value["qword"]) if "qword" in value else bytes.fromhex(value["binary"])
    if isinstance(value, list):
        return tuple(value)
    return value if isinstance(value, int) else str(value)


def _length(value: Value) -> int:
    if isinstance(value, tuple):
        return sum(map(len, value))
    return 8 if isinstance(value, int) else len(value)


def _normal(key: str) -> str:
    root, separator, rest = key.strip("\\").partition("\\")
    return _ROOTS.get(root.lower(), root.upper()) + separator + rest


def _same(values: Mapping[str, Value], name: str) -> str | None:
    if name in values:
        return name
    folded = name.lower()
    return next((known for known in values if known.lower() == folded), None)
