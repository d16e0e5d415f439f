"""DefaultStorageClass: sets the default class of a claim without one: the newest, in releases
before 1.26 the only one.
"""

from __future__ import annotations

from transom.apiserver.admission.plugin import MutatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.resources import Resource
from transom.machinery.quota import BETA_CLASS
from transom.machinery.storageclass import is_default_class, newest_default_class


class DefaultStorageClass(MutatingPlugin):
    name = "DefaultStorageClass"
    thread_safe = False

    def __init__(self, objects: ObjectStore, classes: Resource, *, newest: bool) -> None:
        """`newest`: several defaults are allowed."""
        self._objects = objects
        self._newest = newest
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
        if self._newest:
            name = newest_default_class(self._objects.objects(self._classes))
            if name:
                spec["storageClassName"] = name
            return
        defaults = [
            c["metadata"]["name"]
            for c in self._objects.objects(self._classes)
            if is_default_class(c)
        ]
        if len(defaults) > 1:
            raise attributes.forbidden(
                f"Internal error occurred: {len(defaults)} default StorageClasses were found"
            )
        if defaults:
            spec["storageClassName"] = defaults[0]
