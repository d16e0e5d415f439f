"""All checks in order: what every cluster may have first, as the guide to troubleshooting has it, then what Windows adds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple

from transom.doctor import general, pods, windows
from transom.doctor.findings import Finding, merged
from transom.doctor.snapshot import Object, Snapshot, key, place

Check = Callable[[Snapshot], Iterator[Finding]]


class Unknown(Exception):
    """Neither a node nor a pod of the cluster."""


class Row(NamedTuple):
    title: str
    check: Check
    inside: bool = False  # needs what only nodes of our own clusters tell


GENERAL: Final = (
    Row("the API server answers and is ready", general.api_server),
    Row("all parts of the API are available", general.api_services),
    Row("webhooks can be called", general.webhooks),
    Row("nodes are Ready and have no pressure", general.nodes),
    Row("kubelets are not too old or too new", general.skew),
    Row("the cluster's DNS answers", general.names),
    Row("services have endpoints", general.services),
    Row("pods are placed, made, started and ready", pods.pods),
    Row("controllers can make their pods", general.failed_creates),
    Row("quotas are not used up", general.quotas),
    Row("claims are bound", general.claims),
    Row("namespaces end when they are deleted", general.namespaces),
)
WINDOWS: Final = (
    Row("pods of a mixed cluster name their operating system", windows.selectors),
    Row("names that Windows pods asked for are names that Windows finds", windows.names),
    Row("kube-proxy pods know their node", windows.proxy_pods),
    Row("kubelet, kube-proxy and flanneld run", windows.processes, True),
    Row("the virtual network is there", windows.virtual_network, True),
    Row("network adapters of virtual machines let pods out", windows.mac_spoofing, True),
    Row("kube-proxy works and knows its node", windows.kube_proxy, True),
    Row("the source VIP is of the node's subnet", windows.source_vip, True),
    Row("flannel has written subnet.env", windows.subnet_env, True),
    Row("nodes behind a proxy know it", windows.behind_proxy, True),
)


def checks(s: Snapshot) -> list[Row]:
    """Those that make sense for the cluster."""
    has_windows = bool(windows.windows_nodes(s)) or any(one.windows for one in s.inside.values())
    return [*GENERAL, *(row for row in WINDOWS if has_windows and (not row.inside or s.inside))]


def examine(s: Snapshot, about: Collection[str] = ()) -> list[Finding]:
    """`about`: places ("node/windows-1") that alone are of interest; none: all."""
    found: Iterable[Finding] = (finding for row in checks(s) for finding in row.check(s))
    if about:
        found = (finding for finding in found if set(finding.where) & set(about))
    return merged(found)


def places(s: Snapshot, names: Iterable[str], namespace: str = "default") -> list[str]:
    """Where to look for what people name: a node with its pods, or a pod with its node. Raises Unknown."""
    out: list[str] = []
    for text in names:
        parts = text.split("/")
        kind = _KINDS[parts.pop(0)] if len(parts) > 1 and parts[0] in _KINDS else ""
        if kind != "pod" and len(parts) == 1 and parts[0] in s.node:
            out += [f"node/{parts[0]}", *(place("pod", pod) for pod in s.pods if _node_of(pod) == parts[0])]
            continue
        wanted = parts if len(parts) > 1 else [namespace, *parts]
        pod = next((pod for pod in s.pods if list(key(pod)) == wanted), None)
        if kind == "node" or pod is None:
            raise Unknown(text)
        out += [place("pod", pod), f"node/{_node_of(pod)}"]
    return out


def _node_of(pod: Object) -> str:
    return str((pod.get("spec") or {}).get("nodeName", ""))


_KINDS: Final = {"node": "node", "nodes": "node", "no": "node", "pod": "pod", "pods": "pod", "po": "pod"}


def talkative(s: Snapshot, about: Collection[str] = ()) -> list[tuple[str, str]]:
    """Pods whose logs may tell: of those on Windows nodes the named ones, and those that restart or are not ready."""
    return [key(pod) for pod in s.pods if s.on_windows(pod) and (place("pod", pod) in about or _troubled(pod))]


def _troubled(pod: Object) -> bool:
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(container.get("restartCount") or not container.get("ready") for container in containers)
