"""PersistentVolumeClaimResize: only bound claims can be expanded, and only if their class allows
it.
"""

from __future__ import annotations

from transom.apiserver.admission.plugin import ValidatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.resources import Resource
from transom.machinery.objects import Object
from transom.machinery.quantity import ZERO, Quantity, parse_quantity
from transom.machinery.quota import claim_storage_class


class PersistentVolumeClaimResize(ValidatingPlugin):
    name = "PersistentVolumeClaimResize"
    thread_safe = False

    def __init__(self, objects: ObjectStore, classes: Resource) -> None:
        self._objects = objects
        self._classes = classes

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return (
            resource.kind.key == "/PersistentVolumeClaim"
            and operation == "UPDATE"
            and not subresource
        )

    def validate(self, attributes: Attributes) -> None:
        new, old = attributes.obj, attributes.old
        if old is None or _size(new) <= _size(old):
            return
        if (old.get("status") or {}).get("phase") != "Bound":
            raise attributes.forbidden("Only bound persistent volume claims can be expanded")
        if not self._may_grow(new, old):
            raise attributes.forbidden(
                "only dynamically provisioned pvc can be resized and the storageclass that "
                "provisions the pvc must "
                "support resize"
            )

    def _may_grow(self, new: Object, old: Object) -> bool:
        name = claim_storage_class(new)
        if not name or name != claim_storage_class(old):
            return False
        found = self._objects.find(self._classes, "", name)
        return found is not None and bool(found.get("allowVolumeExpansion"))


def _size(claim: Object) -> Quantity:
    text = (((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}).get("storage")
    return ZERO if text is None else parse_quantity(text)
