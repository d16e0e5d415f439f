"""Computes a pod's status from the runtime's state: a pure function, the kubelet's view without its
clock.

It does not set the times of conditions and the pod's start time: they depend on what was reported
before (`status_manager`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from transom.kit.clock import rfc3339
from transom.kubelet.actions import should_restart
from transom.kubelet.podstate import TERMINAL, PodState, is_deleted, is_host_network
from transom.machinery.objects import Object
from transom.machinery.podutil import persisted_qos_class
from transom.runtime.api import Container

OWN_CONDITIONS = frozenset(("PodScheduled", "Ready", "Initialized", "ContainersReady"))

_POD_MESSAGE_BYTES = 12 << 10
_UNKNOWN = "ContainerStatusUnknown"
_KILLED = 137


class WaitingReason(NamedTuple):
    """Why the last attempt to start a container failed."""

    reason: str
    message: str


class ProbeResults(Protocol):
    def readiness(self, container_id: str) -> bool | None: ...
    def startup(self, container_id: str) -> bool | None: ...


class StatusInputs(NamedTuple):
    """The inputs of a status besides the pod. `message` returns the termination message of a
    container.
    """

    host_ips: tuple[str, ...]
    runtime: str  # the scheme of container ids
    probes: ProbeResults
    message: Callable[[Container], str]


def generate_pod_status(
    pod: Object,
    state: PodState,
    old: Object,
    reasons: Mapping[str, WaitingReason],
    around: StatusInputs,
) -> Object:
    """`old` is the last reported status: the cached one, or the API's after a restart."""
    out = containers_only(pod, state, old, reasons, around)
    spec = pod["spec"]
    containers = out["containerStatuses"]
    inits = out.get("initContainerStatuses", [])
    phase = _phase(spec, [*containers, *inits])
    before = (pod.get("status") or {}).get("phase")
    if before in TERMINAL:
        phase = before  # a terminal phase is final
    out["phase"] = phase
    _probe(pod, containers, inits, around.probes)
    conditions: list[Object] = out.setdefault("conditions", [])
    conditions.append(_initialized(spec, inits, phase))
    conditions.append(make_ready_condition(spec, conditions, containers, phase))
    conditions.append(_containers_ready(spec, containers, phase, "ContainersReady"))
    conditions.append({"type": "PodScheduled", "status": "True"})
    if around.host_ips:
        out["hostIP"] = around.host_ips[0]
        if is_host_network(pod) and "podIP" not in out:
            out["podIP"] = around.host_ips[0]
            out["podIPs"] = [{"ip": address} for address in around.host_ips]
    return out


def probed(pod: Object, reported: Object, probes: ProbeResults) -> Object:
    """`reported` with the current probe results and otherwise unchanged. While a sync is in
    progress, containers are in intermediate states: created but not started looks like terminated.
    """
    spec = pod["spec"]
    containers = [dict(entry) for entry in reported.get("containerStatuses") or ()]
    _probe(pod, containers, (), probes)
    phase = reported.get("phase", "")
    others = reported.get("conditions") or ()
    fresh = {
        "Ready": make_ready_condition(spec, others, containers, phase),
        "ContainersReady": _containers_ready(spec, containers, phase, "ContainersReady"),
    }
    conditions = [fresh.get(condition["type"], condition) for condition in others]
    return {**reported, "containerStatuses": containers, "conditions": conditions}


def containers_only(
    pod: Object,
    state: PodState,
    old: Object,
    reasons: Mapping[str, WaitingReason],
    around: StatusInputs,
) -> Object:
    """Addresses and containers, without a phase and the kubelet's conditions: the whole status of a
    pod past its deadline.
    """
    spec = pod["spec"]
    status = pod.get("status") or {}
    out: Object = {"qosClass": persisted_qos_class(pod)}
    ips = state.ips()
    if ips:
        out["podIP"] = ips[0]
        out["podIPs"] = [{"ip": ip} for ip in ips]
    convert = _Converter(pod, state, reasons, around)
    out["containerStatuses"] = sorted(
        convert.all(spec["containers"], old.get("containerStatuses") or ()), key=_by_name
    )
    if spec.get("initContainers"):
        out["initContainerStatuses"] = convert.all(
            spec["initContainers"], old.get("initContainerStatuses") or (), init=True
        )
    if spec.get("ephemeralContainers"):
        out["ephemeralContainerStatuses"] = sorted(
            convert.all(spec["ephemeralContainers"], old.get("ephemeralContainerStatuses") or ()),
            key=_by_name,
        )
    others = [c for c in status.get("conditions") or () if c["type"] not in OWN_CONDITIONS]
    if others:
        out["conditions"] = others
    return out


def _by_name(entry: Object) -> str:
    name: str = entry["name"]
    return name


# ---- containers
# --------------------------------------------------------------------------------------------------


class _Converter:
    __slots__ = ("_around", "_default", "_limit", "_pod", "_reasons", "_state")

    def __init__(
        self,
        pod: Object,
        state: PodState,
        reasons: Mapping[str, WaitingReason],
        around: StatusInputs,
    ) -> None:
        self._pod = pod
        self._state = state
        self._reasons = reasons
        self._around = around
        spec = pod["spec"]
        inits = spec.get("initContainers") or ()
        self._default = "PodInitializing" if inits else "ContainerCreating"
        self._limit = _POD_MESSAGE_BYTES // ((len(spec["containers"]) + len(inits)) or 1)

    def all(
        self, specs: Sequence[Object], old: Iterable[Object], *, init: bool = False
    ) -> list[Object]:
        before = {entry["name"]: entry for entry in old}
        return [self._one(spec, before.get(spec["name"]), init) for spec in specs]

    def _one(self, spec: Object, old: Object | None, init: bool) -> Object:
        found = self._state.containers_named(spec["name"])
        if found:
            entry = self._converted(found[0], old)
            if len(found) > 1:
                entry["lastState"] = self._converted(found[1], old)["state"]
        else:
            entry = self._missing(spec, old)
        if init and found and found[0].state == "exited" and found[0].exit_code == 0:
            return entry
        if should_restart(spec, self._pod, self._state):
            why = self._reasons.get(spec["name"])
            if why is not None:
                # It must run and could not be started: show users the reason.
                if "terminated" in entry["state"]:
                    entry["lastState"] = entry["state"]
                waiting = {"reason": why.reason}
                if why.message:
                    waiting["message"] = why.message
                entry["state"] = {"waiting": waiting}
        return entry

    def _missing(self, spec: Object, old: Object | None) -> Object:
        """The runtime does not know it: not yet, or no longer."""
        entry: Object = {
            "name": spec["name"],
            "state": {"waiting": {"reason": self._default}},
            "lastState": {},
            "ready": False,
            "restartCount": 0,
            "image": spec.get("image", ""),
            "imageID": "",
        }
        if old is None:
            return entry
        if "terminated" in old["state"]:
            return dict(old)
        entry["restartCount"] = old["restartCount"]
        entry["lastState"] = old.get("lastState") or {}
        if (
            "running" in old["state"]
            and is_deleted(self._pod)
            and "terminated" not in entry["lastState"]
        ):
            # It ran, and its exit was not observed. Without this the pod would appear Pending
            # again.
            entry["lastState"] = {
                "terminated": {
                    "exitCode": _KILLED,
                    "reason": _UNKNOWN,
                    "startedAt": None,
                    "finishedAt": None,
                    "message": "The container could not be located when the pod was deleted.  "
                    "The container used to be Running",
                }
            }
        return entry

    def _converted(self, container: Container, old: Object | None) -> Object:
        cid = f"{self._around.runtime}://{container.id}"
        entry: Object = {
            "name": container.name,
            "state": {},
            "lastState": {},
            "ready": False,
            "restartCount": container.attempt,
            "image": container.image,
            "imageID": container.image_ref,
            "containerID": cid,
        }
        if container.state == "running":
            entry["state"] = {"running": {"startedAt": rfc3339(container.started_at)}}
        elif container.state == "exited":
            entry["state"] = {"terminated": self._terminated(container, cid)}
        elif container.state == "created":
            # A start that failed or was interrupted counts as terminated.
            entry["state"] = {
                "terminated": {
                    "exitCode": container.exit_code,
                    "startedAt": None,
                    "finishedAt": None,
                    "containerID": cid,
                }
            }
        elif old is not None and "running" in old["state"]:
            entry["state"] = {
                "terminated": {
                    "exitCode": _KILLED,
                    "reason": _UNKNOWN,
                    "startedAt": None,
                    "finishedAt": None,
                    "message": "The container could not be located when the pod was terminated",
                }
            }
            entry["restartCount"] = old["restartCount"] + 1
        else:
            entry["state"] = {"waiting": {}}
        return entry

    def _terminated(self, container: Container, cid: str) -> Object:
        out: Object = {
            "exitCode": container.exit_code,
            "startedAt": rfc3339(container.started_at),
            "finishedAt": rfc3339(container.finished_at),
            "containerID": cid,
        }
        if container.reason:
            out["reason"] = container.reason
        message = container.message
        left = self._around.message(container)
        if left:
            message = f"{message}: {left}" if message else left
        if message:
            out["message"] = _cut(message, self._limit)
        return out


def _cut(text: str, size: int) -> str:
    data = text.encode()
    return text if len(data) <= size else data[:size].decode(errors="ignore")


def _probe(
    pod: Object, containers: Iterable[Object], inits: Iterable[Object], probes: ProbeResults
) -> None:
    specs = {spec["name"]: spec for spec in pod["spec"]["containers"]}
    for entry in containers:
        spec = specs[entry["name"]]
        started = ready = False
        if "running" in entry["state"]:
            container_id = entry["containerID"].partition("://")[2]
            result = probes.startup(container_id)
            started = "startupProbe" not in spec if result is None else result
            if started:
                ready = "readinessProbe" not in spec or probes.readiness(container_id) is True
        entry["started"] = started
        entry["ready"] = ready
    for entry in inits:
        terminated = entry["state"].get("terminated")
        entry["ready"] = terminated is not None and terminated["exitCode"] == 0


# ---- phase and conditions
# ----------------------------------------------------------------------------------------


def _phase(spec: Object, statuses: Iterable[Object]) -> str:
    by_name = {entry["name"]: entry for entry in statuses}
    pending = failed = 0
    for container in spec.get("initContainers") or ():
        state, last = _states(by_name.get(container["name"]))
        ended = state.get("terminated") or ("waiting" in state and last.get("terminated")) or None
        if ended is None:
            pending += 1
        elif ended["exitCode"]:
            failed += 1
    running = waiting = stopped = succeeded = unknown = 0
    for container in spec["containers"]:
        state, last = _states(by_name.get(container["name"]))
        if "running" in state:
            running += 1
        elif "terminated" in state:
            stopped += 1
            succeeded += state["terminated"]["exitCode"] == 0
        elif "waiting" in state:
            if "terminated" in last:
                stopped += 1
            else:
                waiting += 1
        else:
            unknown += 1
    policy = spec.get("restartPolicy", "Always")
    if failed and policy == "Never":
        return "Failed"
    if pending or waiting or unknown or not (running or stopped):
        return "Pending"
    if running or policy == "Always":
        return "Running"
    if stopped == succeeded:
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"


def _states(entry: Object | None) -> tuple[Object, Object]:
    if entry is None:
        return {}, {}
    return entry["state"], entry.get("lastState") or {}


def _names(items: Iterable[str]) -> str:
    return "[" + " ".join(items) + "]"


def _unready(specs: Iterable[Object], statuses: Iterable[Object], word: str) -> tuple[bool, str]:
    """Whether any container status is missing, and a message about all containers that are not
    ready.
    """
    ready = {entry["name"]: entry["ready"] for entry in statuses}
    names = [spec["name"] for spec in specs]
    unknown = [name for name in names if name not in ready]
    unready = [name for name in names if ready.get(name) is False]
    parts = []
    if unknown:
        parts.append(f"containers with unknown status: {_names(unknown)}")
    if unready:
        parts.append(f"containers with {word} status: {_names(unready)}")
    return bool(unknown), ", ".join(parts)


def _containers_ready(spec: Object, statuses: Sequence[Object], phase: str, kind: str) -> Object:
    unknown, message = _unready(spec["containers"], statuses, "unready")
    if phase == "Succeeded" and not unknown:
        return {"type": kind, "status": "False", "reason": "PodCompleted"}
    if message:
        return {"type": kind, "status": "False", "reason": "ContainersNotReady", "message": message}
    return {"type": kind, "status": "True"}


def _initialized(spec: Object, statuses: Sequence[Object], phase: str) -> Object:
    unknown, message = _unready(spec.get("initContainers") or (), statuses, "incomplete")
    if phase == "Succeeded" and not unknown:
        return {"type": "Initialized", "status": "True", "reason": "PodCompleted"}
    if message:
        return {
            "type": "Initialized",
            "status": "False",
            "reason": "ContainersNotInitialized",
            "message": message,
        }
    return {"type": "Initialized", "status": "True"}


def make_ready_condition(
    spec: Object, conditions: Iterable[Object], statuses: Sequence[Object], phase: str
) -> Object:
    """Ready: all containers and all readiness gates are."""
    condition = _containers_ready(spec, statuses, phase, "Ready")
    gates = spec.get("readinessGates")
    if condition["status"] != "True" or not gates:
        return condition
    found = {c["type"]: c["status"] for c in conditions}
    texts = []
    for gate in gates:
        kind = gate["conditionType"]
        if kind not in found:
            texts.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif found[kind] != "True":
            texts.append(
                f'the status of pod readiness gate "{kind}" is not "True", but {found[kind]}'
            )
    if texts:
        return {
            "type": "Ready",
            "status": "False",
            "reason": "ReadinessGatesNotReady",
            "message": ", ".join(texts),
        }
    return condition
