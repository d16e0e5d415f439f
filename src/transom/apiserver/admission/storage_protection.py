"""StorageObjectInUseProtection: adds the finalizers that protect volumes and claims in use."""

from __future__ import annotations

from transom.apiserver.admission.plugin import MutatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.resources import Resource
from transom.machinery.releases.behaviour import has_behaviour

FINALIZERS = {
    "/PersistentVolume": "kubernetes.io/pv-protection",
    "/PersistentVolumeClaim": "kubernetes.io/pvc-protection",
    "storage.k8s.io/VolumeAttributesClass": "kubernetes.io/vac-protection",
}


class StorageObjectInUseProtection(MutatingPlugin):
    name = "StorageObjectInUseProtection"
    thread_safe = False

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        if resource.kind.key not in FINALIZERS or operation != "CREATE" or subresource:
            return False
        return resource.kind.group == "" or has_behaviour(
            resource.release, "ProtectedAttributesClasses"
        )

    def admit(self, attributes: Attributes) -> None:
        meta = attributes.obj["metadata"]
        finalizer = FINALIZERS[attributes.kind_key]
        given = meta.get("finalizers") or []
        if finalizer not in given:
            meta["finalizers"] = [*given, finalizer]
