"""Computes a pod's status from the runtime's state: a pure function, the kubelet's view without its
clock.

It does not set the times of conditions and the pod's start time: they depend on what was reported
before (`status_manager`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from transom.kit.clock import rfc3339
from transom.kit.named_tuple import NamedTuple
from transom.kubelet import conditions as condition_rules
from transom.kubelet import restart_all
from transom.kubelet.actions import has_regular_container, should_restart
from transom.kubelet.features import NO_FEATURES, PodFeatures
from transom.kubelet.podstate import TERMINAL, PodState, is_deleted, is_host_network
from transom.kubelet.read_only import is_recursively_read_only
from transom.machinery.objects import Object
from transom.machinery.podresources import pod_amounts
from transom.machinery.podutil import (
    all_containers_could_restart,
    is_restartable_init_container,
    persisted_qos_class,
)
from transom.runtime.api import Container, LinuxContainerUser

_POD_MESSAGE_BYTES = 12 << 10
_UNKNOWN = "ContainerStatusUnknown"
_KILLED = 137
_LOST_INIT = (
    "Unable to get init container status from container runtime and pod has been initialized, "
    "treat it as exited normally"
)


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
    features: PodFeatures = NO_FEATURES
    # The resources that are in effect in a running container, by pod and container.
    actual: Callable[[str, Container], Object | None] = lambda uid, container: None
    resizing: Callable[[str], list[Object]] = lambda uid: []  # conditions by pod
    recursive_read_only: bool = False  # whether the runtime has such mounts
    # The spec of a pod with the resources that are in effect.
    actual_spec: Callable[[Object], Object] = lambda pod: pod["spec"]
    # The health of the devices of a container's claims.
    resource_health: Callable[[Object, Object], list[Object]] = lambda pod, container: []


def generate_pod_status(
    pod: Object,
    state: PodState,
    old: Object,
    reasons: Mapping[str, WaitingReason],
    around: StatusInputs,
    *,
    terminal: bool = False,
) -> Object:
    """`old` is the last reported status: the cached one, or the API's after a restart. `terminal`:
    the pod is being deleted and its containers have stopped.
    """
    out = containers_only(pod, state, old, reasons, around)
    spec, features = pod["spec"], around.features
    containers = out["containerStatuses"]
    inits = out.get("initContainerStatuses", [])
    _probe(pod, containers, inits, around)  # the phase depends on sidecars that have started
    phase = condition_rules.compute_pod_phase(
        pod,
        [*containers, *inits],
        features,
        terminal=terminal,
        has_started=features.sidecars and _has_started(pod, state),
    )
    phase = _final_phase(pod, out, old, phase, features)
    out["phase"] = phase
    conditions: list[Object] = out.setdefault("conditions", [])
    if features.disruption_target:
        _keep_disruption(conditions, old)
    if not terminal:
        conditions += around.resizing(pod["metadata"]["uid"])
    own: list[Object] = []
    if features.ready_to_start:
        own.append(condition_rules.make_ready_to_start_condition(pod, state))
    own.append(
        condition_rules.make_initialized_condition(spec, inits, containers, phase, features, old)
    )
    every = [*inits, *containers]
    own.append(condition_rules.make_ready_condition(spec, conditions, every, phase, features))
    own.append(
        condition_rules.make_containers_ready_condition(
            spec, every, phase, "ContainersReady", features
        )
    )
    own.append({"type": "PodScheduled", "status": "True"})
    if features.restart_all and all_containers_could_restart(spec):
        own.append(restart_all.make_restarting_condition(pod, state, old, phase))
    _observe(pod, own, features)
    conditions += own
    _add_host_ips(pod, out, around)
    return out


def _final_phase(pod: Object, out: Object, old: Object, phase: str, features: PodFeatures) -> str:
    """A terminal phase is final, and keeps its reason and message."""
    if features.evicted_status and old.get("phase") in TERMINAL:
        phase = old["phase"]
    before = (pod.get("status") or {}).get("phase")
    if before in TERMINAL:
        phase = before
    if features.evicted_status and phase in TERMINAL and phase == old.get("phase"):
        for field in ("reason", "message"):
            if old.get(field):
                out[field] = old[field]
    return phase


def _keep_disruption(conditions: list[Object], old: Object) -> None:
    """Evictions happen once, so the condition comes from the last status."""
    for condition in old.get("conditions") or ():
        if condition["type"] == condition_rules.DISRUPTION_TARGET:
            conditions[:] = [c for c in conditions if c["type"] != condition["type"]]
            conditions.append(dict(condition))


def evicted_status(pod: Object, now: Object, request: Object, features: PodFeatures) -> Object:
    """The status of a pod that the kubelet makes fail, from the one that it has `now`."""
    out = {**now, **request}
    if features.disruption_target:
        target: Object = {
            "type": condition_rules.DISRUPTION_TARGET,
            "status": "True",
            "reason": "TerminationByKubelet",
            "message": request.get("message", ""),
        }
        _observe(pod, [target], features)
        others = [c for c in now.get("conditions") or () if c["type"] != target["type"]]
        out["conditions"] = [*others, target]
    return out


def _has_started(pod: Object, state: PodState) -> bool:
    """Whether the newest sandbox has a regular container."""
    if not state.sandboxes:
        return False
    newest = state.sandboxes[0].id
    names = {spec["name"] for spec in pod["spec"]["containers"]}
    return any(c.sandbox_id == newest and c.name in names for c in state.containers)


def _observe(pod: Object, conditions: Iterable[Object], features: PodFeatures) -> None:
    generation = pod["metadata"].get("generation")
    if features.observed_generation and generation:
        for condition in conditions:
            condition["observedGeneration"] = generation


def _add_host_ips(pod: Object, out: Object, around: StatusInputs) -> None:
    if not around.host_ips:
        return
    out["hostIP"] = around.host_ips[0]
    if around.features.host_ips:
        out["hostIPs"] = [{"ip": address} for address in around.host_ips]
    if is_host_network(pod) and "podIP" not in out:
        out["podIP"] = around.host_ips[0]
        out["podIPs"] = [{"ip": address} for address in around.host_ips]


def probed(pod: Object, reported: Object, around: StatusInputs) -> Object:
    """`reported` with the current probe results and otherwise unchanged. While a sync is in
    progress, containers are in intermediate states: created but not started looks like terminated.
    """
    spec, features = pod["spec"], around.features
    containers = [dict(entry) for entry in reported.get("containerStatuses") or ()]
    inits = [dict(entry) for entry in reported.get("initContainerStatuses") or ()]
    _probe(pod, containers, inits if features.sidecars else (), around)
    phase = reported.get("phase", "")
    others = reported.get("conditions") or ()
    every = [*inits, *containers]
    fresh = [
        condition_rules.make_ready_condition(spec, others, every, phase, features),
        condition_rules.make_containers_ready_condition(
            spec, every, phase, "ContainersReady", features
        ),
    ]
    _observe(pod, fresh, features)
    by_type = {condition["type"]: condition for condition in fresh}
    conditions = [by_type.get(condition["type"], condition) for condition in others]
    out = {**reported, "containerStatuses": containers, "conditions": conditions}
    if inits:
        out["initContainerStatuses"] = inits
    return out


def _pod_ips(state: PodState, old: Object) -> Sequence[str]:
    """The addresses of the ready sandbox. Without a ready sandbox, those reported before: a
    completed pod keeps its address.
    """
    if state.ips() or any(sandbox.state == "ready" for sandbox in state.sandboxes):
        return state.ips()
    return [entry["ip"] for entry in old.get("podIPs") or ()]


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
    ips = _pod_ips(state, old)
    if ips:
        out["podIP"] = ips[0]
        out["podIPs"] = [{"ip": ip} for ip in ips]
    restarting = (
        around.features.restart_all
        and all_containers_could_restart(spec)
        and restart_all.should_all_containers_restart(pod, state, old)
    )
    convert = _Converter(pod, state, reasons, around, restarting)
    out["containerStatuses"] = sorted(
        convert.all(spec["containers"], old.get("containerStatuses") or ()), key=_by_name
    )
    if around.features.resource_health:
        _add_resource_health(pod, out["containerStatuses"], around)
    if spec.get("initContainers"):
        out["initContainerStatuses"] = convert.all(
            spec["initContainers"], old.get("initContainerStatuses") or (), init=True
        )
    if around.features.pod_resize:
        _add_pod_resources(spec, around.actual_spec(pod), out)
    if spec.get("ephemeralContainers"):
        out["ephemeralContainerStatuses"] = sorted(
            convert.all(spec["ephemeralContainers"], old.get("ephemeralContainerStatuses") or ()),
            key=_by_name,
        )
    own = condition_rules.own_conditions(around.features)
    others = [c for c in status.get("conditions") or () if c["type"] not in own]
    if others:
        out["conditions"] = others
    return out


def _add_resource_health(pod: Object, statuses: list[Object], around: StatusInputs) -> None:
    by_name = {entry["name"]: entry for entry in statuses}
    for container in pod["spec"]["containers"]:
        if (container.get("resources") or {}).get("claims") and container["name"] in by_name:
            found = around.resource_health(pod, container)
            if found:
                by_name[container["name"]]["allocatedResourcesStatus"] = found


def _add_pod_resources(spec: Object, actual: Object, out: Object) -> None:
    """The resources of the pod as a whole: its own, or what its containers add up to."""
    resources: Object = {}
    for kind in ("requests", "limits"):
        amounts = {name: str(amount) for name, amount in pod_amounts(actual, kind).items()}
        if amounts:
            resources[kind] = amounts
    out["resources"] = resources
    requests = {name: str(amount) for name, amount in pod_amounts(spec, "requests").items()}
    if requests:
        out["allocatedResources"] = requests


def _by_name(entry: Object) -> str:
    name: str = entry["name"]
    return name


# ---- containers ----


class _Converter:
    __slots__ = ("_around", "_default", "_limit", "_pod", "_reasons", "_restarting", "_state")

    def __init__(
        self,
        pod: Object,
        state: PodState,
        reasons: Mapping[str, WaitingReason],
        around: StatusInputs,
        restarting: bool = False,
    ) -> None:
        """`restarting`: all containers of the pod restart."""
        self._restarting = restarting
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
            if self._around.features.resize:
                self._add_resources(spec, found[0], entry)
            if len(found) > 1:
                entry["lastState"] = self._converted(found[1], old)["state"]
        else:
            entry = self._missing(spec, old)
        if init and found and found[0].state == "exited" and found[0].exit_code == 0:
            return entry
        if init and not found and self._completed(spec, entry):
            return entry
        if should_restart(spec, self._pod, self._state, self._around.features):
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

    def _add_resources(self, spec: Object, container: Container, entry: Object) -> None:
        """What the container has; while it does not run, what is allocated to it."""
        allocated = spec.get("resources") or {}
        actual = None
        if container.state == "running":
            actual = self._around.actual(self._pod["metadata"]["uid"], container)
        entry["resources"] = actual if actual is not None else allocated
        if allocated.get("requests"):
            entry["allocatedResources"] = allocated["requests"]

    def _completed(self, spec: Object, entry: Object) -> bool:
        """An init container that the runtime no longer has completed before the regular ones were
        created. Sidecars run again.
        """
        if (
            not self._around.features.lost_init_completed
            or is_restartable_init_container(spec)
            or "waiting" not in entry["state"]
            or not has_regular_container(self._pod, self._state)
        ):
            return False
        ended = {
            "exitCode": 0,
            "reason": "Completed",
            "startedAt": None,
            "finishedAt": None,
            "message": _LOST_INIT,
        }
        entry["state"] = {"terminated": ended}
        return True

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
        if self._around.features.volume_mounts and spec.get("volumeMounts"):
            supported = self._around.recursive_read_only
            entry["volumeMounts"] = [
                _mount_status(mount, supported) for mount in spec["volumeMounts"]
            ]
        if old is None:
            return entry
        if self._restarting and "waiting" not in old["state"]:
            return _restarted(entry, old)
        if "terminated" in old["state"]:
            return dict(old)
        entry["restartCount"] = old["restartCount"]
        entry["lastState"] = old.get("lastState") or {}
        if (
            "running" in old["state"]
            and (is_deleted(self._pod) or self._around.features.lost_restart)
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
            if not is_deleted(self._pod):
                entry["restartCount"] += 1
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
        if old is not None and old.get("volumeMounts"):
            entry["volumeMounts"] = old["volumeMounts"]
        if self._around.features.stop_signals and container.stop_signal:
            entry["stopSignal"] = container.stop_signal
        if self._around.features.container_user and container.user is not None:
            entry["user"] = {"linux": _user_status(container.user)}
        if old is not None and self._around.features.restart_all:
            _carry_restarts(container, entry, old)
        if container.state == "running":
            entry["state"] = {"running": {"startedAt": rfc3339(container.started_at)}}
        elif container.state == "exited":
            entry["state"] = {"terminated": self._terminated(container, cid)}
        elif container.state == "created" and self._around.features.created_waits:
            entry["state"] = {"waiting": {}}
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


def _restarted(entry: Object, old: Object) -> Object:
    """A container that was removed because all containers of its pod restart."""
    reason = {"reason": restart_all.RESTARTING, "message": restart_all.REMOVED_MESSAGE}
    entry["state"] = {"waiting": reason}
    ended = {**reason, "exitCode": _KILLED, "startedAt": None, "finishedAt": None}
    entry["lastState"] = {"terminated": ended}
    entry["restartCount"] = old["restartCount"] + 1
    return entry


def _carry_restarts(container: Container, entry: Object, old: Object) -> None:
    """The runtime no longer has the containers that a restart of all containers removed."""
    entry["restartCount"] = max(entry["restartCount"], old["restartCount"])
    before, last = old["state"].get("terminated"), (old.get("lastState") or {}).get("terminated")
    ended = before if old.get("containerID") != entry["containerID"] and before else last
    if ended:
        entry["lastState"] = {"terminated": ended}
    if container.state == "running" and before and old["restartCount"] >= container.attempt:
        entry["restartCount"] = old["restartCount"] + 1


def _cut(text: str, size: int) -> str:
    data = text.encode()
    return text if len(data) <= size else data[:size].decode(errors="ignore")


def _user_status(user: LinuxContainerUser) -> Object:
    out: Object = {"uid": user.uid, "gid": user.gid}
    if user.supplemental_groups:
        out["supplementalGroups"] = [*user.supplemental_groups]
    return out


def _mount_status(mount: Object, supported: bool) -> Object:
    out: Object = {"name": mount["name"], "mountPath": mount["mountPath"]}
    if mount.get("readOnly"):
        out["readOnly"] = True
        try:
            recursive = is_recursively_read_only(mount, supported=supported)
        except ValueError:
            recursive = False
        out["recursiveReadOnly"] = "Enabled" if recursive else "Disabled"
    return out


def _probe(
    pod: Object, containers: Iterable[Object], inits: Iterable[Object], around: StatusInputs
) -> None:
    specs = {spec["name"]: spec for spec in pod["spec"]["containers"]}
    for entry in containers:
        _probe_one(specs[entry["name"]], entry, around.probes)
    if not around.features.sidecars:
        for entry in inits:
            entry["ready"] = _has_succeeded(entry)
        return
    specs = {spec["name"]: spec for spec in pod["spec"].get("initContainers") or ()}
    for entry in inits:
        spec = specs[entry["name"]]
        _probe_one(spec, entry, around.probes)
        if not is_restartable_init_container(spec):
            entry["ready"] = _has_succeeded(entry)


def _has_succeeded(entry: Object) -> bool:
    terminated = entry["state"].get("terminated")
    return terminated is not None and terminated["exitCode"] == 0


def _probe_one(spec: Object, entry: Object, probes: ProbeResults) -> None:
    started = ready = False
    if "running" in entry["state"]:
        container_id = entry["containerID"].partition("://")[2]
        result = probes.startup(container_id)
        started = "startupProbe" not in spec if result is None else result
        if started:
            ready = "readinessProbe" not in spec or probes.readiness(container_id) is True
    entry["started"] = started
    entry["ready"] = ready
