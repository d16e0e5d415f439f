"""DefaultIngressClass: an ingress that names no class gets the one marked as default, if there is exactly one."""

from __future__ import annotations

from transom.apiserver.admission.attributes import Attributes
from transom.apiserver.resources import Resource
from transom.apiserver.storage import Storage

_CLASS = "kubernetes.io/ingress.class"
_MARK = "ingressclass.kubernetes.io/is-default-class"


class DefaultIngressClass:
    name = "DefaultIngressClass"

    def __init__(self, storage: Storage, classes: Resource) -> None:
        self._storage = storage
        self._classes = classes

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        # The group that had ingresses before knows no classes.
        ingresses = resource.kind.key == "networking.k8s.io/Ingress" and resource.group == resource.kind.group
        return ingresses and operation == "CREATE" and not subresource

    def admit(self, attributes: Attributes) -> None:
        ingress = attributes.obj
        spec = ingress.setdefault("spec", {})
        if spec.get("ingressClassName") is not None or _CLASS in (ingress["metadata"].get("annotations") or ()):
            return
        defaults = [
            c["metadata"]["name"] for c in self._storage.objects(self._classes)
            if (c["metadata"].get("annotations") or {}).get(_MARK) == "true"
        ]
        if len(defaults) > 1:
            raise attributes.forbidden(
                f"Internal error occurred: {len(defaults)} default IngressClasses were found, only 1 allowed"
            )
        if defaults:
            spec["ingressClassName"] = defaults[0]
