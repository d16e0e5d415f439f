"""Cells of pods: the status text that people read first, with all its special cases."""

from __future__ import annotations

from typing import Any

from transom.machinery.tables.text import NONE, Object, age, condition, containers, labels, name, part

_UNREACHABLE = "NodeLost"  # status.reason of a pod whose node went away


def _row_condition(reason: str, message: str) -> list[dict[str, str]]:
    return [{"type": "Completed", "status": "True", "reason": reason, "message": message}]


_ROW_CONDITIONS = {
    "Succeeded": _row_condition("Succeeded", "The pod has completed successfully."),
    "Failed": _row_condition("Failed", "The pod failed."),
}


def row_conditions(pod: Object) -> list[dict[str, str]] | None:
    """Says that a pod has run to its end, so that a client may dim its row."""
    return _ROW_CONDITIONS.get(part(pod, "status").get("phase", ""))


def _ended(prefix: str, terminated: Object) -> str:
    if terminated.get("reason"):
        return f"{prefix}{terminated['reason']}"
    if terminated.get("signal"):
        return f"{prefix}Signal:{terminated['signal']}"
    return f"{prefix}ExitCode:{terminated.get('exitCode', 0)}"


def _initializing(pod: Object) -> tuple[str, int] | None:
    """The text of the first init container that is not done and the restarts so far; nothing when all are done."""
    restarts = 0
    for index, status in enumerate(part(pod, "status").get("initContainerStatuses") or ()):
        restarts += status.get("restartCount", 0)
        state = status.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated is not None:
            if terminated.get("exitCode", 0) == 0:
                continue
            return _ended("Init:", terminated), restarts
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}", restarts
        return f"Init:{index}/{len(part(pod, 'spec', 'initContainers'))}", restarts
    return None


def _running(status: Object, reason: str) -> tuple[str, int, int]:
    """Text, restarts and number of ready containers; the first container has the last word."""
    restarts = ready = 0
    for container in reversed(status.get("containerStatuses") or ()):
        restarts += container.get("restartCount", 0)
        state = container.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif terminated is not None:
            reason = _ended("", terminated)
        elif container.get("ready") and state.get("running") is not None:
            ready += 1
    if reason == "Completed" and ready:
        is_ready = any(
            c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ()
        )
        reason = "Running" if is_ready else "NotReady"
    return reason, restarts, ready


def _readiness_gates(spec: Object, status: Object) -> str:
    gates = spec.get("readinessGates")
    if not gates:
        return NONE
    met = 0
    for gate in gates:
        found = condition(status.get("conditions"), gate.get("conditionType", ""))
        met += found is not None and found.get("status") == "True"
    return f"{met}/{len(gates)}"


def pod(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    reason = status.get("reason") or status.get("phase", "")
    ready = 0
    initializing = _initializing(obj)
    if initializing is not None:
        reason, restarts = initializing
    else:
        reason, restarts, ready = _running(status, reason)
    if obj["metadata"].get("deletionTimestamp"):
        reason = "Unknown" if status.get("reason") == _UNREACHABLE else "Terminating"
    addresses: list[dict[str, str]] = status.get("podIPs") or [{}]
    return [
        name(obj),
        f"{ready}/{len(spec.get('containers') or ())}",
        reason,
        restarts,
        age(obj, now),
        addresses[0].get("ip") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _readiness_gates(spec, status),
    ]


def pod_template(obj: Object, now: float) -> list[Any]:
    names, images = containers(part(obj, "template", "spec"))
    return [name(obj), names, images, labels(part(obj, "template", "metadata", "labels"))]


CELLS = {"/Pod": pod, "/PodTemplate": pod_template}
