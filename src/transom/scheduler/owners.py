"""The combined selector of the Services and controllers of a pod: the pods that should be
spread.
"""

from __future__ import annotations

from collections.abc import Iterator

from transom.client.informer import Informer, InformerFactory
from transom.client.resources import REPLICA_SETS, REPLICATION_CONTROLLERS, SERVICES, STATEFUL_SETS
from transom.machinery import selectors
from transom.machinery.objects import Object
from transom.machinery.selectors import LabelSelector, Requirement, SelectorError
from transom.scheduler.pods import PodIdentity


class OwnerSelectors:
    def __init__(self, informers: InformerFactory) -> None:
        self._versions: dict[str, int] = {}  # of each namespace's selectors
        self._by_map = [informers(SERVICES), informers(REPLICATION_CONTROLLERS)]
        self._by_selector = [informers(REPLICA_SETS), informers(STATEFUL_SETS)]
        for informer in (*self._by_map, *self._by_selector):
            informer.add_handler(add=self._changed, update=self._updated, delete=self._changed)

    def _changed(self, obj: Object) -> None:
        namespace = obj["metadata"]["namespace"]
        self._versions[namespace] = self._versions.get(namespace, 0) + 1

    def _updated(self, old: Object, new: Object) -> None:
        if (old.get("spec") or {}).get("selector") != (new.get("spec") or {}).get("selector"):
            self._changed(new)

    def selector(self, identity: PodIdentity) -> LabelSelector:
        """All selectors that match the pod, combined into one; empty if none does."""
        version = self._versions.get(identity.namespace, 0)
        found: tuple[int, LabelSelector] | None = identity.memo.get(self)
        if found is None or found[0] != version:
            found = identity.memo[self] = version, self._combine(identity)
        return found[1]

    def _combine(self, identity: PodIdentity) -> LabelSelector:
        merged: dict[str, str] = {}
        for informer in self._by_map:
            for obj in informer.list(identity.namespace):
                wanted = (obj.get("spec") or {}).get("selector")
                if wanted and wanted.items() <= identity.labels.items():
                    merged |= wanted
        requirements: list[Requirement] = list(selectors.from_map(merged).requirements)
        if identity.labels:
            for informer in self._by_selector:
                for selector in _matching(informer, identity):
                    requirements += selector.requirements
        return LabelSelector(requirements) if requirements else selectors.everything()


def _matching(informer: Informer, identity: PodIdentity) -> Iterator[LabelSelector]:
    labels = identity.labels.items()
    for obj in informer.list(identity.namespace):
        wanted = (obj.get("spec") or {}).get("selector")
        if wanted and not (wanted.get("matchLabels") or {}).items() <= labels:
            continue  # most of many owners, whatever the size of their selectors
        try:
            selector = selectors.owner_selector(obj)
        except SelectorError:
            continue
        if not selector.empty and selector.matches(identity.labels):
            yield selector
