"""Priority: resolves the priority class of a pod to its value; a cluster has at most one default
class.

Validation makes a pod's priority immutable, so an update without it keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence

from transom.apiserver.admission.plugin import MutatingPlugin, ValidatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.resources import Resource
from transom.machinery.objects import Object
from transom.store.api import StoreEvent, Subscription

_POD, _CLASS = "/Pod", "scheduling.k8s.io/PriorityClass"
_PREEMPT = "PreemptLowerPriority"
# name -> value and description of the classes that every cluster has
SYSTEM_CLASSES = {
    "system-node-critical": (
        2000001000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    "system-cluster-critical": (
        2000000000,
        (
            "Used for system critical pods that must run in the cluster, but can be moved to "
            "another node if necessary."
        ),
    ),
}


class Priority(MutatingPlugin, ValidatingPlugin):
    name = "Priority"
    thread_safe = False

    def __init__(self, objects: ObjectStore, classes: Resource) -> None:
        self._objects = objects
        self._classes = classes
        self._subscription: Subscription | None = None
        self._found: Object | None = None
        self._stale = True

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        key = resource.kind.key
        return not subresource and (
            key == _CLASS or (key == _POD and operation in ("CREATE", "UPDATE"))
        )

    def admit(self, attributes: Attributes) -> None:
        if attributes.kind_key != _POD:
            return
        spec = attributes.obj["spec"]
        if attributes.operation == "UPDATE":
            before = (attributes.old or {}).get("spec") or {}
            for field in ("priority", "preemptionPolicy"):
                if spec.get(field) is None and before.get(field) is not None:
                    spec[field] = before[field]
            return
        value, policy = self._resolve(attributes, spec)
        given = spec.get("priority")
        if given is not None and given != value:
            raise attributes.forbidden(
                f"the integer value of priority ({given}) must not be provided in pod spec; "
                f"priority admission controller computed {value} from the given PriorityClass name"
            )
        spec["priority"] = value
        if not policy:
            return
        given = spec.get("preemptionPolicy")
        if given is not None and given != policy:
            raise attributes.forbidden(
                f"the string value of PreemptionPolicy ({given}) must not be provided in pod spec; "
                f"priority admission controller computed {policy} from the given PriorityClass name"
            )
        spec["preemptionPolicy"] = policy

    def _resolve(self, attributes: Attributes, spec: Object) -> tuple[int, str]:
        name = spec.get("priorityClassName")
        if name:
            found = self._objects.find(self._classes, "", name)
            if found is None:
                raise attributes.forbidden(f"no PriorityClass with name {name} was found")
        else:
            found = self._default()
            if found is None:
                return 0, _PREEMPT
            spec["priorityClassName"] = found["metadata"]["name"]
        return found.get("value", 0), found.get("preemptionPolicy", "")

    def _default(self) -> Object | None:
        """The default class; the lowest if a race has left several. Called for every new pod."""
        if self._stale:
            if self._subscription is None:
                store = self._objects.store
                self._subscription = store.watch(
                    self._classes.key_prefix(""), store.revision, self._on_events
                )
            marked = [c for c in self._objects.objects(self._classes) if c.get("globalDefault")]
            self._found = min(marked, key=lambda c: c.get("value", 0)) if marked else None
            self._stale = False
        return self._found

    def _on_events(self, _events: Sequence[StoreEvent]) -> None:
        self._stale = True

    def validate(self, attributes: Attributes) -> None:
        if attributes.kind_key != _CLASS:
            return
        if attributes.operation == "DELETE":
            if attributes.name in SYSTEM_CLASSES:
                raise attributes.forbidden("this is a system priority class and cannot be deleted")
            return
        if not attributes.obj.get("globalDefault"):
            return
        default = self._default()
        if default is None:
            return
        name = default["metadata"]["name"]
        if attributes.operation == "CREATE" or name != attributes.obj["metadata"].get("name"):
            raise attributes.forbidden(
                f"PriorityClass {name} is already marked as default. Only one default can exist"
            )
