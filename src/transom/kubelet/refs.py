"""The involved objects of a kubelet's events: a pod, one of its containers, the node."""

from __future__ import annotations

from transom.kubelet.podstate import field_path
from transom.machinery.objects import Object


def pod_ref(pod: Object, path: str = "") -> Object:
    meta = pod["metadata"]
    out = {
        "kind": "Pod",
        "namespace": meta.get("namespace", ""),
        "name": meta["name"],
        "uid": meta.get("uid", ""),
        "apiVersion": "v1",
        "resourceVersion": meta.get("resourceVersion", ""),
        "fieldPath": path,
    }
    return {key: value for key, value in out.items() if value}


def container_ref(pod: Object, name: str) -> Object:
    return pod_ref(pod, field_path(pod, name))


def node_ref(node_name: str) -> Object:
    """A kubelet always uses its node's name as the uid, even after it learns the real one."""
    return {"kind": "Node", "name": node_name, "uid": node_name}
