"""PersistentVolumeClaimResize: only a bound claim grows, and only where its class allows it."""

from __future__ import annotations

from transom.apiserver.admission.attributes import Attributes
from transom.apiserver.resources import Resource
from transom.apiserver.storage import Storage
from transom.machinery.objects import Object
from transom.machinery.quantity import ZERO, Quantity, parse
from transom.machinery.quota import storage_class


class PersistentVolumeClaimResize:
    name = "PersistentVolumeClaimResize"

    def __init__(self, storage: Storage, classes: Resource) -> None:
        self._storage = storage
        self._classes = classes

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return resource.kind.key == "/PersistentVolumeClaim" and operation == "UPDATE" and not subresource

    def validate(self, attributes: Attributes) -> None:
        new, old = attributes.obj, attributes.old
        if old is None or _size(new) <= _size(old):
            return
        if (old.get("status") or {}).get("phase") != "Bound":
            raise attributes.forbidden("Only bound persistent volume claims can be expanded")
        if not self._may_grow(new, old):
            raise attributes.forbidden(
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
                "support resize"
            )

    def _may_grow(self, new: Object, old: Object) -> bool:
        name = storage_class(new)
        if not name or name != storage_class(old):
            return False
        found = self._storage.find(self._classes, "", name)
        return found is not None and bool(found.get("allowVolumeExpansion"))


def _size(claim: Object) -> Quantity:
    text = (((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}).get("storage")
    return ZERO if text is None else parse(text)
