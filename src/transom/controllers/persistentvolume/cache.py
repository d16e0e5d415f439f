"""Objects at least as new as what this controller wrote itself, whether or not the informer has seen that yet."""

from __future__ import annotations

from transom.client.informer import Informer
from transom.client.store import key_of
from transom.machinery.objects import Object


def _version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])


class Fresh:
    def __init__(self, informer: Informer) -> None:
        self._informer = informer
        self._written: dict[str, Object] = {}
        informer.add_handler(update=lambda _, new: self._arrived(new), delete=self._gone)

    def get(self, key: str) -> Object | None:
        seen, written = self._informer.by_key(key), self._written.get(key)
        if seen is None:
            return written
        return written if written is not None and _version(written) > _version(seen) else seen

    def list(self) -> list[Object]:
        if not self._written:
            return self._informer.list()
        keys = {key_of(obj) for obj in self._informer.list()} | self._written.keys()
        return [obj for key in keys if (obj := self.get(key)) is not None]

    def remember(self, obj: Object, *, created: bool = False) -> Object:
        """Keep what a write gave, unless the informer has it already or knows that it is gone."""
        seen = self._informer.by_key(key_of(obj))
        if created if seen is None else _version(obj) > _version(seen):
            self._written[key_of(obj)] = obj
        return obj

    def _arrived(self, obj: Object) -> None:
        written = self._written.get(key_of(obj))
        if written is not None and _version(obj) >= _version(written):
            del self._written[key_of(obj)]

    def _gone(self, obj: Object) -> None:
        self._written.pop(key_of(obj), None)
