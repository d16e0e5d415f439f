"""NamespaceLifecycle: nothing is created in a namespace that is missing or going away, and some may not be deleted."""

from __future__ import annotations

from transom.apiserver.admission.attributes import Attributes
from transom.apiserver.resources import Resource
from transom.apiserver.storage import Storage
from transom.machinery import errors

IMMORTAL = frozenset(("default", "kube-system", "kube-public"))
_NAMESPACE = "/Namespace"
# Answering these with "not found" would tell who may not know it which namespaces there are.
_ACCESS_REVIEW = "authorization.k8s.io/LocalSubjectAccessReview"


class NamespaceLifecycle:
    name = "NamespaceLifecycle"

    def __init__(self, storage: Storage, namespaces: Resource) -> None:
        self._storage = storage
        self._namespaces = namespaces

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        if resource.kind.key == _NAMESPACE:
            return operation == "DELETE"
        return resource.kind.namespaced and operation in ("CREATE", "UPDATE") and resource.kind.key != _ACCESS_REVIEW

    def admit(self, attributes: Attributes) -> None:
        if attributes.operation == "DELETE":
            if attributes.name in IMMORTAL:
                raise attributes.forbidden("this namespace may not be deleted")
            return
        namespace = attributes.namespace
        # A namespace that was told to go takes nothing more, even before that is on disk.
        record = self._storage.store.latest(self._namespaces.key("", namespace))
        if record is None:
            raise errors.not_found(self._namespaces.gr, namespace)
        if attributes.operation != "CREATE":
            return
        status = self._storage.decode(self._namespaces, record).get("status") or {}
        if status.get("phase") == "Terminating":
            raise _terminating(attributes, namespace)


def _terminating(attributes: Attributes, namespace: str) -> errors.ApiError:
    problem = attributes.forbidden(
        f"unable to create new content in namespace {namespace} because it is being terminated"
    )
    cause = {"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated",
             "field": "metadata.namespace"}
    problem.details = {**(problem.details or {}), "causes": [cause]}
    return problem
