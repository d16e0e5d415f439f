"""Small nodes and pods for tests."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: str = "110",
    labels: dict[str, str] | None = None,
    taints: list[Object] | None = None,
    images: list[Object] | None = None,
    **more: Any,
) -> Object:
    has = {"cpu": cpu, "memory": memory, "pods": pods, **more.pop("resources", {})}
    annotations = more.pop("annotations", {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            "annotations": annotations,
        },
        "spec": {"taints": taints or [], **more},
        "status": {
            "capacity": has,
            "allocatable": has,
            "images": images or [],
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
            ],
        },
    }


def pod(
    name: str,
    *,
    cpu: str = "",
    memory: str = "",
    labels: dict[str, str] | None = None,
    node_name: str = "",
    namespace: str = "default",
    priority: int = 0,
    **spec: Any,
) -> Object:
    requests = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v}
    image = spec.pop("image", "registry.example/app:1")
    container: Object = {"name": "app", "image": image, "resources": {"requests": requests}}
    if "ports" in spec:
        container["ports"] = spec.pop("ports")
    status = spec.pop("status", {})
    if node_name:
        spec["nodeName"] = node_name
    if priority:
        spec["priority"] = priority
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "labels": labels or {},
        },
        "spec": {"schedulerName": "default-scheduler", "containers": [container], **spec},
        "status": status,
    }


def term(labels: dict[str, str], key: str, namespaces: list[str] | None = None) -> Object:
    out: Object = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    return {**out, "namespaces": namespaces} if namespaces else out


def required(*terms: Object) -> Object:
    return {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}


def preferred(*terms: tuple[int, Object]) -> Object:
    return {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": w, "podAffinityTerm": t} for w, t in terms
        ]
    }


def spread(skew: int, key: str, labels: dict[str, str], action: str = "DoNotSchedule") -> Object:
    return {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": action,
        "labelSelector": {"matchLabels": labels},
    }
