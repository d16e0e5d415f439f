"""Objects that are at least as new as this controller's own writes, even if the informer lags
behind.
"""

from __future__ import annotations

from transom.client.informer import Informer
from transom.client.store import object_key
from transom.machinery.objects import Object


def _version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])


class WriteThroughCache:
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
        keys = {object_key(obj) for obj in self._informer.list()} | self._written.keys()
        return [obj for key in keys if (obj := self.get(key)) is not None]

    def remember(self, obj: Object, *, created: bool = False) -> Object:
        """Stores the result of a write, unless the informer already has it or shows its
        deletion.
        """
        seen = self._informer.by_key(object_key(obj))
        if created if seen is None else _version(obj) > _version(seen):
            self._written[object_key(obj)] = obj
        return obj

    def _arrived(self, obj: Object) -> None:
        written = self._written.get(object_key(obj))
        if written is not None and _version(obj) >= _version(written):
            del self._written[object_key(obj)]

    def _gone(self, obj: Object) -> None:
        self._written.pop(object_key(obj), None)
