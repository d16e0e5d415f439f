"""Windows environment variables: names ignore case, and keep the case of their first assignment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping


class Variables(MutableMapping[str, str]):
    __slots__ = ("_names", "_values")

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)
        self._names = {name.lower(): name for name in values}

    def __getitem__(self, name: str) -> str:
        return self._values[self._names[name.lower()]]

    def __setitem__(self, name: str, value: str) -> None:
        self._values[self._names.setdefault(name.lower(), name)] = value

    def __delitem__(self, name: str) -> None:
        del self._values[self._names.pop(name.lower())]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._values, key=str.lower))

    def __len__(self) -> int:
        return len(self._values)

    def plain(self) -> dict[str, str]:
        return dict(self._values)
