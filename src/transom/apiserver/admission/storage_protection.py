"""StorageObjectInUseProtection: adds the finalizers that protect volumes and claims in use."""

from __future__ import annotations

from transom.apiserver.admission.plugin import MutatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.resources import Resource

FINALIZERS = {
    "/PersistentVolume": "kubernetes.io/pv-protection",
    "/PersistentVolumeClaim": "kubernetes.io/pvc-protection",
}


class StorageObjectInUseProtection(MutatingPlugin):
    name = "StorageObjectInUseProtection"
    thread_safe = False

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return resource.kind.key in FINALIZERS and operation == "CREATE" and not subresource

    def admit(self, attributes: Attributes) -> None:
        meta = attributes.obj["metadata"]
        finalizer = FINALIZERS[attributes.kind_key]
        given = meta.get("finalizers") or []
        if finalizer not in given:
            meta["finalizers"] = [*given, finalizer]
