"""Clusters that are well, and parts of clusters that are not."""

from __future__ import annotations

from typing import Any

from transom.doctor.node_inspection import NodeState
from transom.doctor.snapshot import ClusterSnapshot
from transom.kit.clock import rfc3339

NOW = 1_700_000_000.0
CIDR = "10.244.2.0/24"


def node(
    name: str, os: str = "windows", *, ready: str = "True", message: str = "", **spec: Any
) -> dict[str, Any]:
    info = {
        "operatingSystem": os,
        "kubeletVersion": "v1.20.15",
        "osImage": os,
        "kernelVersion": "10.0.17763.1697",
        "containerRuntimeVersion": "docker://19.3.14",
    }
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/os": os}},
        "spec": spec,
        "status": {
            "nodeInfo": info,
            "conditions": [
                {
                    "type": "Ready",
                    "status": ready,
                    "reason": "KubeletReady" if ready == "True" else "KubeletNotReady",
                    "message": message,
                },
            ],
        },
    }


def pod(
    name: str,
    node: str = "windows-1",
    *,
    waiting: Any = None,
    ready: bool = False,
    restarts: int = 0,
    last: Any = None,
    age: float = 60,
    phase: str = "Pending",
    **spec: Any,
) -> dict[str, Any]:
    """A pod with one container, for the system of its node."""
    selector = {"kubernetes.io/os": node.split("-")[0]} if node else {}
    status: dict[str, Any] = {"phase": phase}
    if node:
        state = {"waiting": waiting} if waiting else {"running": {}}
        status["containerStatuses"] = [
            {
                "name": "c",
                "image": "app:1",
                "ready": ready,
                "restartCount": restarts,
                "state": state,
                "lastState": {"terminated": last} if last else {},
            }
        ]
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "labels": {"app": name},
            "creationTimestamp": rfc3339(NOW - age),
        },
        "spec": {
            "nodeName": node,
            "nodeSelector": selector,
            "containers": [{"name": "c", "image": "app:1"}],
            **spec,
        },
        "status": status,
    }


def event(
    about: str, reason: str, message: str, *, kind: str = "Pod", ago: float = 5, **more: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{about}.1", "namespace": "default"},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "involvedObject": {
            "kind": kind,
            "namespace": "" if kind == "Node" else "default",
            "name": about,
        },
        "lastTimestamp": rfc3339(NOW - ago),
        **more,
    }


def service(
    name: str, selector: dict[str, str] | None = None, namespace: str = "default", **spec: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": selector or {}, **spec},
    }


def endpoints(name: str, *addresses: str, namespace: str = "default") -> dict[str, Any]:
    subsets = [{"addresses": [{"ip": address} for address in addresses]}] if addresses else []
    return {"metadata": {"name": name, "namespace": namespace}, "subsets": subsets}


def healthy(**more: Any) -> ClusterSnapshot:
    """Two nodes, the cluster's DNS, and what is given beside: lists of objects by the plural of
    their kind.
    """
    objects: dict[str, Any] = {
        "nodes": [node("linux-1", "linux"), node("windows-1")],
        "services": [service("kube-dns", {"k8s-app": "kube-dns"}, "kube-system")],
        "endpoints": [endpoints("kube-dns", "10.244.0.2", namespace="kube-system")],
    }
    fields = {
        name: more.pop(name)
        for name in (
            "inside",
            "logs",
            "silent_kubelets",
            "unread",
            "unhealthy",
            "unreachable",
            "unusable",
        )
        if name in more
    }
    for plural, found in more.items():
        objects[plural] = [*(objects.get(plural, ()) if plural != "nodes" else ()), *found]
    return ClusterSnapshot(
        now=NOW,
        server="127.0.0.1:6443",
        version={"gitVersion": "v1.20.15"},
        objects=objects,
        **fields,
    )


def windows_node(**more: Any) -> dict[str, NodeState]:
    """The inside of windows-1, and of the control plane's node; without more, all is well."""
    values: dict[str, Any] = {
        "os": "windows",
        "mode": "l2bridge",
        "plugin": "flannel",
        "network": "cbr0",
        "networks": {"cbr0": "172.20.0.3"},
        "adapters": ("Ethernet", "vEthernet (Ethernet)"),
        "pod_cidr": CIDR,
        "kube_proxy_hostname": "windows-1",
        "subnet_env": "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.2.1/24\nFLANNEL_MTU=1500\nFLANNEL_IPMASQ=true\n",
    }
    first = NodeState("linux-1", control_plane=True, mode="l2bridge", plugin="flannel")
    return {"linux-1": first, "windows-1": NodeState("windows-1", **{**values, **more})}
