"""DefaultStorageClass: sets the default class of a claim without one, if there is exactly one
default.
"""

from __future__ import annotations

from transom.apiserver.admission.plugin import MutatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.resources import Resource
from transom.machinery.quota import BETA_CLASS

_MARKS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


class DefaultStorageClass(MutatingPlugin):
    name = "DefaultStorageClass"
    thread_safe = False

    def __init__(self, objects: ObjectStore, classes: Resource) -> None:
        self._objects = objects
        self._classes = classes

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return (
            resource.kind.key == "/PersistentVolumeClaim"
            and operation == "CREATE"
            and not subresource
        )

    def admit(self, attributes: Attributes) -> None:
        claim = attributes.obj
        spec = claim.setdefault("spec", {})
        if spec.get("storageClassName") is not None or BETA_CLASS in (
            claim["metadata"].get("annotations") or ()
        ):
            return
        defaults = [
            c["metadata"]["name"]
            for c in self._objects.objects(self._classes)
            if _is_default(c["metadata"])
        ]
        if len(defaults) > 1:
            raise attributes.forbidden(
                f"Internal error occurred: {len(defaults)} default StorageClasses were found"
            )
        if defaults:
            spec["storageClassName"] = defaults[0]


def _is_default(meta: dict[str, dict[str, str]]) -> bool:
    annotations = meta.get("annotations") or {}
    return any(annotations.get(mark) == "true" for mark in _MARKS)
