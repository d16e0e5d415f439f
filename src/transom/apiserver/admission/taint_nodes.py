"""TaintNodesByCondition: a new node is tainted until the node controller has seen it ready."""

from __future__ import annotations

from transom.apiserver.admission.plugin import MutatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.resources import Resource

NOT_READY = "node.kubernetes.io/not-ready"


class TaintNodesByCondition(MutatingPlugin):
    name = "TaintNodesByCondition"
    thread_safe = True

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return resource.kind.key == "/Node" and operation == "CREATE" and not subresource

    def admit(self, attributes: Attributes) -> None:
        spec = attributes.obj.setdefault("spec", {})
        taints = spec.get("taints") or []
        if not any(t.get("key") == NOT_READY and t.get("effect") == "NoSchedule" for t in taints):
            spec["taints"] = [*taints, {"key": NOT_READY, "effect": "NoSchedule"}]
