"""The cache of an informer, by key and by the indexes that its users add. Read-only for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from transom.machinery.objects import Object
from transom.machinery.selectors import LabelSelector

Index = Callable[[Object], Iterable[str]]


def object_key(obj: Object) -> str:
    """`namespace/name`, or just the name of a cluster-scoped object."""
    meta = obj["metadata"]
    namespace = meta.get("namespace")
    return f"{namespace}/{meta['name']}" if namespace else meta["name"]


def join_key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def split_key(key: str) -> tuple[str, str]:
    """A key as namespace and name."""
    namespace, slash, name = key.partition("/")
    return (namespace, name) if slash else ("", key)


class Indexer:
    __slots__ = ("_by_namespace", "_indexers", "_indices", "_objects")

    def __init__(self) -> None:
        self._objects: dict[str, Object] = {}
        self._by_namespace: dict[str, dict[str, Object]] = {}
        self._indexers: dict[str, Index] = {}
        self._indices: dict[str, dict[str, dict[str, Object]]] = {}

    # ---- reading ----

    def get(self, namespace: str, name: str) -> Object | None:
        return self._objects.get(f"{namespace}/{name}" if namespace else name)

    def by_key(self, key: str) -> Object | None:
        return self._objects.get(key)

    def list(self, namespace: str = "", selector: LabelSelector | None = None) -> list[Object]:
        """Objects of one namespace or of all that match the selector."""
        objects = self._by_namespace.get(namespace, {}) if namespace else self._objects
        if selector is None:
            return [*objects.values()]
        return [
            obj for obj in objects.values() if selector.matches(obj["metadata"].get("labels") or {})
        ]

    def by_index(self, index: str, value: str) -> Sequence[Object]:
        return [*self._indices[index].get(value, {}).values()]

    def __len__(self) -> int:
        return len(self._objects)

    # ---- changing, by the informer ----

    def add_index(self, name: str, values: Index) -> None:
        """Indexes objects by the result of `values`. Adding the same index twice is fine."""
        if name in self._indexers:
            return
        self._indexers[name] = values
        index = self._indices[name] = {}
        for key, obj in self._objects.items():
            _insert(index, values(obj), key, obj)

    def put(self, key: str, obj: Object) -> Object | None:
        """Stores the object; returns the previous one."""
        old = self._objects.get(key)
        self._objects[key] = obj
        namespace = obj["metadata"].get("namespace")
        if namespace:
            self._by_namespace.setdefault(namespace, {})[key] = obj
        for name, values in self._indexers.items():
            index = self._indices[name]
            places = values(obj)
            if old is not None and (former := values(old)) != places:
                _remove(index, former, key)
            _insert(index, places, key, obj)
        return old

    def remove(self, key: str) -> Object | None:
        old = self._objects.pop(key, None)
        if old is None:
            return None
        namespace = old["metadata"].get("namespace")
        if namespace:
            _remove(self._by_namespace, (namespace,), key)
        for name, values in self._indexers.items():
            _remove(self._indices[name], values(old), key)
        return old


def _insert(
    index: dict[str, dict[str, Object]], values: Iterable[str], key: str, obj: Object
) -> None:
    for value in values:
        index.setdefault(value, {})[key] = obj


def _remove(index: dict[str, dict[str, Object]], values: Iterable[str], key: str) -> None:
    for value in values:
        entries = index.get(value)
        if entries is not None:
            entries.pop(key, None)
            if not entries:
                del index[value]
