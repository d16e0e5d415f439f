"""PodTopologyLabels: a pod gets the zone and region labels of its node when it is bound."""

from __future__ import annotations

from typing import Final

from transom.apiserver.admission.plugin import MutatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.objectstore import FindCore
from transom.apiserver.core.resources import Resource
from transom.machinery.objects import Object

_LABELS: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class PodTopologyLabels(MutatingPlugin):
    name = "PodTopologyLabels"
    thread_safe = False

    def __init__(self, find: FindCore) -> None:
        self._find = find

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return (
            resource.kind.key == "/Pod" and operation == "CREATE" and subresource in ("", "binding")
        )

    def admit(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if attributes.subresource == "binding":
            target = obj.get("target") or {}
            name = target.get("name", "") if target.get("kind") == "Node" else ""
        else:
            name = (obj.get("spec") or {}).get("nodeName", "")
        found = self._topology(name) if name else {}
        if found:
            meta = obj["metadata"]
            meta["labels"] = {**(meta.get("labels") or {}), **found}

    def _topology(self, node_name: str) -> dict[str, str]:
        node: Object | None = self._find("nodes", "", node_name)
        labels = (node or {}).get("metadata", {}).get("labels") or {}
        return {name: labels[name] for name in _LABELS if name in labels}
