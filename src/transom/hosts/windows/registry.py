"""A Windows registry: keys with values, case kept but not counted, on top of one that many machines share."""

from __future__ import annotations

from collections.abc import Mapping

Value = str | int | bytes | tuple[str, ...]
"""REG_SZ, REG_DWORD, REG_BINARY, REG_MULTI_SZ."""

Hive = Mapping[str, Mapping[str, Value]]
"""Values by key and name."""

_ROOTS = {"hkey_local_machine": "HKLM", "hkey_current_user": "HKCU", "hkey_users": "HKU", "hkey_classes_root": "HKCR"}


class Registry:
    __slots__ = ("_base", "_own")

    def __init__(self, base: Hive | None = None) -> None:
        """`base` must have whole keys only, "HKLM" and so on in front, and is not changed."""
        self._base = base or {}
        self._own: dict[str, dict[str, Value] | None] = {}  # None: deleted

    def get(self, key: str, name: str) -> Value | None:
        """Of a value's name, "" for the default one; None if key or value are not there."""
        _, values = self._find(key)
        found = _same(values or {}, name)
        return None if values is None or found is None else values[found]

    def values(self, key: str) -> Mapping[str, Value] | None:
        """None if there is no such key."""
        return self._find(key)[1]

    def keys(self, key: str) -> list[str]:
        """The names of the keys directly in one."""
        prefix = _normal(key) + "\\"
        depth = prefix.count("\\")
        found: dict[str, str] = {}
        for path in self._paths():
            if path.lower().startswith(prefix.lower()):
                name = path.split("\\")[depth]
                found.setdefault(name.lower(), name)
        return [found[name] for name in sorted(found)]

    def exists(self, key: str) -> bool:
        return self._find(key)[1] is not None or bool(self.keys(key))

    def create(self, key: str) -> None:
        path, values = self._find(key)
        if values is None:
            self._own[path] = {}

    def set(self, key: str, name: str, value: Value) -> None:
        """Makes the key, too."""
        path, values = self._find(key)
        changed = dict(values or {})
        changed[_same(changed, name) or name] = value
        self._own[path] = changed

    def delete(self, key: str, name: str | None = None) -> bool:
        """A value, or a key with everything in it. Whether it was there."""
        path, values = self._find(key)
        if name is None:
            gone = [known for known in self._paths() if (known + "\\").lower().startswith((path + "\\").lower())]
            for known in gone:
                self._own[known] = None
            return bool(gone)
        found = _same(values or {}, name)
        if values is None or found is None:
            return False
        self._own[path] = {kept: value for kept, value in values.items() if kept != found}
        return True

    def _paths(self) -> list[str]:
        own = self._own
        return [path for path in self._base if path not in own] + [path for path, values in own.items() if values is not None]

    def _find(self, key: str) -> tuple[str, Mapping[str, Value] | None]:
        """The key as it is written here, and its values."""
        path = _normal(key)
        if path not in self._own and path not in self._base:
            folded = path.lower()
            path = next((known for known in (*self._own, *self._base) if known.lower() == folded), path)
        return path, self._own[path] if path in self._own else self._base.get(path)


def _normal(key: str) -> str:
    root, separator, rest = key.strip("\\").partition("\\")
    return _ROOTS.get(root.lower(), root.upper()) + separator + rest


def _same(values: Mapping[str, Value], name: str) -> str | None:
    if name in values:
        return name
    folded = name.lower()
    return next((known for known in values if known.lower() == folded), None)
