"""Pods, namespaces and policies for tests."""

from __future__ import annotations

from typing import Any


def pod(
    name: str,
    ip: str,
    labels: dict[str, str] | None = None,
    *,
    namespace: str = "a",
    node: str = "linux-1",
    **more: Any,
) -> dict[str, Any]:
    ports = [
        {"name": n, "containerPort": p, "protocol": protocol}
        for n, p, protocol in more.pop("ports", ())
    ]
    return {
        "metadata": {"namespace": namespace, "name": name, "labels": labels or {}},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "ports": ports}],
            **more.pop("spec", {}),
        },
        "status": {"podIP": ip, "podIPs": [{"ip": ip}], "phase": "Running", **more},
    }


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def policy(
    name: str = "p", selector: dict[str, Any] | None = None, *, inside: str = "a", **spec: Any
) -> dict[str, Any]:
    return {
        "metadata": {"namespace": inside, "name": name},
        "spec": {"podSelector": selector or {}, **spec},
    }


def labels(**wanted: str) -> dict[str, Any]:
    return {"matchLabels": wanted}
