"""DefaultIngressClass: sets the default class of an Ingress without one, if there is exactly one
default.
"""

from __future__ import annotations

from transom.apiserver.admission.plugin import MutatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.resources import Resource

_CLASS = "kubernetes.io/ingress.class"
_MARK = "ingressclass.kubernetes.io/is-default-class"


class DefaultIngressClass(MutatingPlugin):
    name = "DefaultIngressClass"
    thread_safe = False

    def __init__(self, objects: ObjectStore, classes: Resource) -> None:
        self._objects = objects
        self._classes = classes

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        # The deprecated API group of Ingresses has no classes.
        ingresses = (
            resource.kind.key == "networking.k8s.io/Ingress"
            and resource.group == resource.kind.group
        )
        return ingresses and operation == "CREATE" and not subresource

    def admit(self, attributes: Attributes) -> None:
        ingress = attributes.obj
        spec = ingress.setdefault("spec", {})
        if spec.get("ingressClassName") is not None or _CLASS in (
            ingress["metadata"].get("annotations") or ()
        ):
            return
        defaults = [
            c["metadata"]["name"]
            for c in self._objects.objects(self._classes)
            if (c["metadata"].get("annotations") or {}).get(_MARK) == "true"
        ]
        if len(defaults) > 1:
            raise attributes.forbidden(
                f"Internal error occurred: {len(defaults)} default IngressClasses were "
                "found, only 1 allowed"
            )
        if defaults:
            spec["ingressClassName"] = defaults[0]
