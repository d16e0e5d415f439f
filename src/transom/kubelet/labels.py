"""The labels and annotations by which a kubelet finds its sandboxes and containers after a
restart.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import orjson

from transom.machinery.objects import Object

POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"

DELETION_GRACE = "io.kubernetes.pod.deletionGracePeriod"
TERMINATION_GRACE = "io.kubernetes.pod.terminationGracePeriod"
HASH = "io.kubernetes.container.hash"
RESTART_COUNT = "io.kubernetes.container.restartCount"
TERMINATION_PATH = "io.kubernetes.container.terminationMessagePath"
TERMINATION_POLICY = "io.kubernetes.container.terminationMessagePolicy"
PRE_STOP = "io.kubernetes.container.preStopHandler"
PORTS = "io.kubernetes.container.ports"

CONFIG_SOURCE = "kubernetes.io/config.source"
CONFIG_MIRROR = "kubernetes.io/config.mirror"
CONFIG_HASH = "kubernetes.io/config.hash"
CONFIG_SEEN = "kubernetes.io/config.seen"
_SYSTEM_CRITICAL = 2_000_000_000


def container_hash(container: Object, short: bool = False) -> str:
    """Changes whenever the container's spec changes; with `short` only its name and image count."""
    if short:
        container = {"name": container["name"], "image": container.get("image") or ""}
    return f"{zlib.crc32(orjson.dumps(container, option=orjson.OPT_SORT_KEYS)):x}"


def pod_labels(pod: Object) -> dict[str, str]:
    """Labels of a sandbox: the pod's own and the three that identify its owner."""
    meta = pod["metadata"]
    return {
        **(meta.get("labels") or {}),
        POD_NAME: meta["name"],
        POD_NAMESPACE: meta["namespace"],
        POD_UID: meta["uid"],
    }


def container_labels(pod: Object, container: Object) -> dict[str, str]:
    meta = pod["metadata"]
    return {
        CONTAINER_NAME: container["name"],
        POD_NAME: meta["name"],
        POD_NAMESPACE: meta["namespace"],
        POD_UID: meta["uid"],
    }


def container_annotations(
    pod: Object, container: Object, restarts: int, short_hash: bool = False
) -> dict[str, str]:
    """The data to stop a container properly and to record its events when the pod's spec is not
    available.
    """
    out = {
        HASH: container_hash(container, short_hash),
        RESTART_COUNT: str(restarts),
        TERMINATION_PATH: container.get("terminationMessagePath") or "",
        TERMINATION_POLICY: container.get("terminationMessagePolicy") or "",
    }
    deletion = pod["metadata"].get("deletionGracePeriodSeconds")
    if deletion is not None:
        out[DELETION_GRACE] = str(deletion)
    grace = pod["spec"].get("terminationGracePeriodSeconds")
    if grace is not None:
        out[TERMINATION_GRACE] = str(grace)
    hook = (container.get("lifecycle") or {}).get("preStop")
    if hook is not None:
        out[PRE_STOP] = orjson.dumps({**container, "lifecycle": {"preStop": hook}}).decode()
    if container.get("ports"):
        out[PORTS] = orjson.dumps(container["ports"]).decode()
    return out


def is_static(pod: Object) -> bool:
    """Whether the pod comes from a file, not from the API."""
    return _annotations(pod).get(CONFIG_SOURCE, "api") != "api"


def is_mirror(pod: Object) -> bool:
    return CONFIG_MIRROR in _annotations(pod)


def _annotations(pod: Object) -> Mapping[str, str]:
    return pod["metadata"].get("annotations") or {}


def is_critical(pod: Object) -> bool:
    """Whether the kubelet must run the pod: it preempts others for it and evicts it last."""
    priority = pod["spec"].get("priority")
    return (
        is_static(pod) or is_mirror(pod) or (priority is not None and priority >= _SYSTEM_CRITICAL)
    )
