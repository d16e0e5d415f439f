"""Cells of pods: the status column, with all its special cases."""

from __future__ import annotations

from typing import Any

from transom.machinery.tables.text import (
    NONE,
    Object,
    age_cell,
    condition_of_type,
    container_cells,
    labels_cell,
    name_cell,
    part_cell,
)

_UNREACHABLE = "NodeLost"  # status.reason of a pod whose node is lost


def _row_condition(reason: str, message: str) -> list[dict[str, str]]:
    return [{"type": "Completed", "status": "True", "reason": reason, "message": message}]


_ROW_CONDITIONS = {
    "Succeeded": _row_condition("Succeeded", "The pod has completed successfully."),
    "Failed": _row_condition("Failed", "The pod failed."),
}


def row_conditions(pod: Object) -> list[dict[str, str]] | None:
    """Marks a completed pod, so that a client may dim its row."""
    return _ROW_CONDITIONS.get(part_cell(pod, "status").get("phase", ""))


def _ended(prefix: str, terminated: Object) -> str:
    if terminated.get("reason"):
        return f"{prefix}{terminated['reason']}"
    if terminated.get("signal"):
        return f"{prefix}Signal:{terminated['signal']}"
    return f"{prefix}ExitCode:{terminated.get('exitCode', 0)}"


def _sidecars(pod: Object) -> frozenset[str]:
    """Init containers that keep running; releases before 1.28 have none."""
    return frozenset(
        container.get("name", "")
        for container in part_cell(pod, "spec").get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    )


def _initializing(pod: Object, sidecars: frozenset[str]) -> tuple[str, int] | None:
    """The text of the first unfinished init container and the restarts so far; nothing if all are
    finished or run beside the others.
    """
    restarts = 0
    for index, status in enumerate(part_cell(pod, "status").get("initContainerStatuses") or ()):
        restarts += status.get("restartCount", 0)
        state = status.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if status.get("name") in sidecars and status.get("started"):
            continue
        if terminated is not None:
            return _ended("Init:", terminated), restarts
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}", restarts
        return f"Init:{index}/{len(part_cell(pod, 'spec', 'initContainers'))}", restarts
    return None


def _running(status: Object, reason: str) -> tuple[str, int, int]:
    """Text, restarts and number of ready containers; the first container takes precedence."""
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
            c.get("type") == "Ready" and c.get("status") == "True"
            for c in status.get("conditions") or ()
        )
        reason = "Running" if is_ready else "NotReady"
    return reason, restarts, ready


def _readiness_gates(spec: Object, status: Object) -> str:
    gates = spec.get("readinessGates")
    if not gates:
        return NONE
    met = 0
    for gate in gates:
        found = condition_of_type(status.get("conditions"), gate.get("conditionType", ""))
        met += found is not None and found.get("status") == "True"
    return f"{met}/{len(gates)}"


def print_pod(obj: Object, now: float) -> list[Any]:
    spec, status = part_cell(obj, "spec"), part_cell(obj, "status")
    reason = status.get("reason") or status.get("phase", "")
    scheduled = condition_of_type(status.get("conditions"), "PodScheduled") or {}
    if scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    ready, sidecars = 0, _sidecars(obj)
    initializing = _initializing(obj, sidecars)
    initialized = condition_of_type(status.get("conditions"), "Initialized") or {}
    if sidecars and initialized.get("status") == "True":
        initializing = None  # a sidecar restarts or has ended after the others
    if initializing is not None:
        reason, restarts = initializing
    else:
        reason, restarts, ready = _running(status, reason)
    for container in status.get("initContainerStatuses") or ():
        if container.get("name") in sidecars:
            ready += bool(container.get("started") and container.get("ready"))
            restarts += container.get("restartCount", 0) if initializing is None else 0
    if obj["metadata"].get("deletionTimestamp"):
        reason = "Unknown" if status.get("reason") == _UNREACHABLE else "Terminating"
    addresses: list[dict[str, str]] = status.get("podIPs") or [{}]
    return [
        name_cell(obj),
        f"{ready}/{len(spec.get('containers') or ()) + len(sidecars)}",
        reason,
        restarts,
        age_cell(obj, now),
        addresses[0].get("ip") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _readiness_gates(spec, status),
    ]


def print_pod_template(obj: Object, now: float) -> list[Any]:
    names, images = container_cells(part_cell(obj, "template", "spec"))
    return [
        name_cell(obj),
        names,
        images,
        labels_cell(part_cell(obj, "template", "metadata", "labels")),
    ]


CELLS = {"/Pod": print_pod, "/PodTemplate": print_pod_template}
