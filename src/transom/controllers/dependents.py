"""Finds the owner to sync when a dependent is created, changed or deleted."""

from __future__ import annotations

from collections.abc import Callable

from transom.client.informer import Informer
from transom.client.store import object_key
from transom.controllers.expectations import Expectations
from transom.controllers.ownership import resolve_controller_ref
from transom.machinery.objects import Object, controller_of
from transom.machinery.selectors import LabelSelector, SelectorError, owner_selector


class Dependents:
    """Expectations of the owner are updated before it is enqueued."""

    def __init__(
        self,
        dependents: Informer,
        owners: Informer,
        enqueue: Callable[[Object], None],
        *,
        selector: Callable[[Object], LabelSelector] = owner_selector,
        expectations: Expectations | None = None,
        matters: Callable[[Object, Object], bool] | None = None,
    ) -> None:
        """Ignores changes for which `matters` returns False."""
        self._owners = owners
        self._enqueue = enqueue
        self._selector = selector
        self._expectations = expectations
        self._matters = matters
        dependents.add_handler(add=self._on_add, update=self._on_update, delete=self._on_delete)

    def _owner(self, obj: Object) -> Object | None:
        return resolve_controller_ref(
            self._owners, obj["metadata"]["namespace"], controller_of(obj)
        )

    def _on_add(self, obj: Object) -> None:
        if "deletionTimestamp" in obj["metadata"]:
            # First seen while being deleted: it was not created just now.
            self._on_delete(obj)
            return
        if controller_of(obj) is None:
            self._offer(obj)
            return
        owner = self._owner(obj)
        if owner is not None:
            if self._expectations is not None:
                self._expectations.created(object_key(owner))
            self._enqueue(owner)

    def _on_update(self, old: Object, new: Object) -> None:
        before, after = old["metadata"], new["metadata"]
        if before["resourceVersion"] == after["resourceVersion"]:
            return
        labels_changed = before.get("labels") != after.get("labels")
        if "deletionTimestamp" in after:
            # A terminating pod no longer counts: do not wait for the kubelet.
            self._on_delete(new)
            if labels_changed:
                self._on_delete(old)
            return
        if self._matters is not None and not self._matters(old, new):
            return
        ref, old_ref = controller_of(new), controller_of(old)
        if ref != old_ref and old_ref is not None:
            previous = self._owner(old)
            if previous is not None:
                self._enqueue(previous)
        if ref is None:
            if labels_changed or old_ref is not None:
                self._offer(new)
            return
        owner = self._owner(new)
        if owner is not None:
            self._enqueue(owner)

    def _on_delete(self, obj: Object) -> None:
        owner = self._owner(obj)
        if owner is not None:
            if self._expectations is not None:
                self._expectations.deleted(object_key(owner), object_key(obj))
            self._enqueue(owner)

    def _offer(self, orphan: Object) -> None:
        """Enqueues the owners that may adopt it."""
        labels = orphan["metadata"].get("labels")
        if not labels:
            return
        for owner in self._owners.list(orphan["metadata"]["namespace"]):
            try:
                selector = self._selector(owner)
            except SelectorError:
                continue
            if not selector.empty and selector.matches(labels):
                self._enqueue(owner)
