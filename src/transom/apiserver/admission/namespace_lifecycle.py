"""NamespaceLifecycle: rejects new objects in a missing or terminating namespace, and the deletion
of system namespaces.
"""

from __future__ import annotations

from collections.abc import Awaitable

from transom.apiserver.admission.plugin import MutatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.resources import Resource
from transom.machinery import errors

IMMORTAL = frozenset(("default", "kube-system", "kube-public"))
_NAMESPACE = "/Namespace"
# "not found" would reveal which namespaces exist to users without permission.
_ACCESS_REVIEW = "authorization.k8s.io/LocalSubjectAccessReview"


class NamespaceLifecycle(MutatingPlugin):
    name = "NamespaceLifecycle"
    thread_safe = False

    def __init__(self, objects: ObjectStore, namespaces: Resource) -> None:
        self._objects = objects
        self._namespaces = namespaces

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        if resource.kind.key == _NAMESPACE:
            return operation == "DELETE"
        return (
            resource.kind.namespaced
            and operation in ("CREATE", "UPDATE")
            and resource.kind.key != _ACCESS_REVIEW
        )

    def admit(self, attributes: Attributes) -> Awaitable[None] | None:
        if attributes.operation == "DELETE":
            if attributes.name in IMMORTAL:
                raise attributes.forbidden("this namespace may not be deleted")
            return None
        store = self._objects.store
        if store.follows and store.latest(self._key(attributes)) is None:
            return self._check_current(attributes)
        self._check(attributes)
        return None

    async def _check_current(self, attributes: Attributes) -> None:
        """Another server may just have created the namespace."""
        await self._objects.store.sync()
        self._check(attributes)

    def _key(self, attributes: Attributes) -> str:
        return self._namespaces.key("", attributes.namespace)

    def _check(self, attributes: Attributes) -> None:
        namespace = attributes.namespace
        # A namespace that is being deleted accepts no new objects, even before the deletion is on disk.
        record = self._objects.store.latest(self._key(attributes))
        if record is None:
            raise errors.not_found(self._namespaces.gr, namespace)
        if attributes.operation != "CREATE":
            return
        status = self._objects.decode(self._namespaces, record).get("status") or {}
        if status.get("phase") == "Terminating":
            raise _terminating(attributes, namespace)


def _terminating(attributes: Attributes, namespace: str) -> errors.ApiError:
    problem = attributes.forbidden(
        f"unable to create new content in namespace {namespace} because it is being terminated"
    )
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    problem.details = {**(problem.details or {}), "causes": [cause]}
    return problem
