"""What the Cluster page knows of an object: a short row instead of the whole object.

Ten thousand pods are about five megabytes of rows. Pure functions on objects; `static/cluster.js`
reads the rows by position.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import Any, Final

from transom.client.store import object_key
from transom.machinery.objects import Object
from transom.machinery.tables.pods import print_pod

Row = list[Any]
MOST_BACKENDS: Final = 200  # of one service that are drawn

_STARTING: Final = frozenset(
    ("ContainerCreating", "PodInitializing", "Pending", "SchedulingGated", "")
)
_DONE: Final = frozenset(("Completed", "Succeeded"))


def node_row(node: Object) -> Row:
    """[key, os, version, image, ready, unschedulable, conditions, kubelet, runtime, address]"""
    status = node.get("status") or {}
    info = status.get("nodeInfo") or {}
    labels = node["metadata"].get("labels") or {}
    conditions = {c.get("type", ""): c for c in status.get("conditions") or ()}
    ready = conditions.pop("Ready", {}).get("status", "Unknown")
    pressures = [name for name, c in conditions.items() if c.get("status") == "True"]
    os_name = info.get("operatingSystem") or labels.get("kubernetes.io/os") or "linux"
    addresses = {a.get("type"): a.get("address") for a in status.get("addresses") or ()}
    return [
        object_key(node),
        intern(os_name),
        intern(str(info.get("kernelVersion") or "")),
        intern(str(info.get("osImage") or "")),
        intern(ready),
        bool((node.get("spec") or {}).get("unschedulable")),
        pressures,
        intern(str(info.get("kubeletVersion") or "")),
        intern(str(info.get("containerRuntimeVersion") or "")),
        addresses.get("InternalIP") or "",
    ]


def pod_row(pod: Object) -> Row:
    """[key, node, state, status, ready, restarts, message]; states are those of `pod_state`."""
    cells = print_pod(pod, 0.0)
    ready, status, restarts = str(cells[1]), str(cells[2]), cells[3]
    state = pod_state(pod, status, ready)
    return [
        object_key(pod),
        intern(str((pod.get("spec") or {}).get("nodeName") or "")),
        state,
        intern(status),
        intern(ready),
        restarts,
        _pod_message(pod) if state == "problem" else "",
    ]


def pod_state(pod: Object, status: str, ready: str) -> str:
    """One of running, unready, starting, problem, done, ending: the colour of a tile.

    `status` and `ready` are the columns of `kubectl get pods`. They count containers: a pod that is not
    ready because its node is lost or a readiness gate is closed has only its condition.
    """
    if pod["metadata"].get("deletionTimestamp"):
        return "ending"
    if status in _DONE:
        return "done"
    if status == "Running":
        count, _, of = ready.partition("/")
        return "running" if count == of and not _is_false(pod, "Ready") else "unready"
    plain = status.removeprefix("Init:")
    if _is_unschedulable(pod):
        return "problem"
    if plain in _STARTING or "/" in plain or status == "NotReady":
        return "starting" if status != "NotReady" else "unready"
    return "problem"


def _is_false(pod: Object, condition: str) -> bool:
    return any(
        c.get("type") == condition and c.get("status") == "False"
        for c in (pod.get("status") or {}).get("conditions") or ()
    )


def _is_unschedulable(pod: Object) -> bool:
    return any(
        c.get("type") == "PodScheduled" and c.get("reason") == "Unschedulable"
        for c in (pod.get("status") or {}).get("conditions") or ()
    )


def _pod_message(pod: Object) -> str:
    """The first message that explains a problem, shortened."""
    status = pod.get("status") or {}
    texts = [str(status.get("message") or "")]
    for one in (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ):
        for part in (one.get("state") or {}).values():
            texts.append(str((part or {}).get("message") or ""))
    texts += [
        str(c.get("message") or "")
        for c in status.get("conditions") or ()
        if c.get("type") == "PodScheduled"
    ]
    return next((text for text in texts if text), "")[:300]


def service_row(service: Object) -> Row:
    """[key, type, address, ports]"""
    spec = service.get("spec") or {}
    ports = [f"{p.get('port')}/{p.get('protocol', 'TCP')}" for p in spec.get("ports") or ()]
    return [
        object_key(service),
        intern(str(spec.get("type") or "ClusterIP")),
        str(spec.get("clusterIP") or spec.get("externalName") or ""),
        ports[:8],
    ]


def endpoints_row(endpoints: Object) -> Row:
    """[key, keys of ready pods, keys of pods that are not ready]"""
    namespace = endpoints["metadata"].get("namespace", "")
    found: dict[str, list[str]] = {"addresses": [], "notReadyAddresses": []}
    for subset in endpoints.get("subsets") or ():
        for part, keys in found.items():
            for address in subset.get(part) or ():
                target = address.get("targetRef") or {}
                if target.get("kind") == "Pod" and len(keys) < MOST_BACKENDS:
                    keys.append(f"{target.get('namespace', namespace)}/{target.get('name', '')}")
    return [object_key(endpoints), *(list(dict.fromkeys(keys)) for keys in found.values())]


# The kinds that the page shows: name of the list in events, path and namespaced, and their row.
ROWS: Final[dict[str, tuple[str, bool, Callable[[Object], Row]]]] = {
    "nodes": ("/api/v1/nodes", False, node_row),
    "pods": ("/api/v1/pods", True, pod_row),
    "services": ("/api/v1/services", True, service_row),
    "endpoints": ("/api/v1/endpoints", True, endpoints_row),
}
