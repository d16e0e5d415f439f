"""The phase of a pod and the conditions that a kubelet sets, from container statuses. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import lru_cache

from transom.kit.lazy_dataclass import dataclass
from transom.kubelet.actions import exited_restarts, sandbox_changed
from transom.kubelet.features import PodFeatures
from transom.kubelet.labels import is_static
from transom.kubelet.podstate import PodState
from transom.machinery.objects import Object
from transom.machinery.podutil import is_restartable_init_container

_OWN = frozenset(("PodScheduled", "Ready", "Initialized", "ContainersReady"))
DISRUPTION_TARGET = "DisruptionTarget"  # the API server and the scheduler set it too
_RESIZE = frozenset(("PodResizeInProgress", "PodResizePending"))


@lru_cache(maxsize=64)
def own_conditions(features: PodFeatures) -> frozenset[str]:
    """The conditions that only the kubelet writes."""
    out = _OWN
    if features.resize:
        out |= _RESIZE
    if features.ready_to_start:
        out |= {"PodReadyToStartContainers"}
    if features.restart_all:
        out |= {"AllContainersRestarting"}
    return out


# ---- phase ----


@dataclass(slots=True)
class _PhaseCounts:
    pending: int = 0  # init containers that have not completed
    pending_sidecars: int = 0
    failed: int = 0  # init containers
    failed_for_good: int = 0
    unknown: int = 0
    running: int = 0
    waiting: int = 0
    stopped: int = 0
    stopped_for_good: int = 0
    succeeded: int = 0
    statuses: dict[str, Object] = field(default_factory=dict)


def compute_pod_phase(
    pod: Object,
    statuses: Iterable[Object],
    features: PodFeatures,
    *,
    terminal: bool = False,
    has_started: bool = False,
) -> str:
    """`terminal`: the pod is being deleted and its containers have stopped. `has_started`: a
    regular container was started in the current sandbox.
    """
    spec = pod["spec"]
    counts = _PhaseCounts(statuses={entry["name"]: entry for entry in statuses})
    for container in spec.get("initContainers") or ():
        if features.sidecars and is_restartable_init_container(container):
            _count_sidecar(counts, container)
        else:
            _count_init(counts, container, pod, features)
    for container in spec["containers"]:
        _count_regular(counts, container, pod, features)
    policy = spec.get("restartPolicy", "Always")
    if counts.failed_for_good if features.restart_rules else counts.failed and policy == "Never":
        return "Failed"
    if counts.pending or (counts.pending_sidecars and not has_started):
        return "Pending"
    if counts.waiting or counts.unknown or not (counts.running or counts.stopped):
        return "Pending"
    if counts.running:
        return "Running"
    return _stopped_phase(pod, counts, features, terminal)


def _stopped_phase(pod: Object, counts: _PhaseCounts, features: PodFeatures, terminal: bool) -> str:
    """All containers have ended."""
    ended = "Succeeded" if counts.stopped == counts.succeeded else "Failed"
    if terminal and features.terminal_phases and not is_static(pod):
        return ended
    if features.restart_rules:
        return ended if counts.stopped == counts.stopped_for_good else "Running"
    policy = pod["spec"].get("restartPolicy", "Always")
    if policy == "Always" or (policy == "OnFailure" and ended == "Failed"):
        return "Running"
    return ended


def _states(counts: _PhaseCounts, container: Object) -> tuple[Object, Object]:
    entry = counts.statuses.get(container["name"])
    if entry is None:
        return {}, {}
    return entry["state"], entry.get("lastState") or {}


def _for_good(container: Object, pod: Object, ended: Object, features: PodFeatures) -> bool:
    if features.restart_all and ended.get("reason") == "RestartingAllContainers":
        return False
    return not exited_restarts(container, pod, ended["exitCode"], features)


def _count_init(
    counts: _PhaseCounts, container: Object, pod: Object, features: PodFeatures
) -> None:
    state, last = _states(counts, container)
    ended = state.get("terminated") or ("waiting" in state and last.get("terminated")) or None
    if ended is None:
        counts.pending += 1
    elif ended["exitCode"]:
        counts.failed += 1
        counts.failed_for_good += _for_good(container, pod, ended, features)


def _count_sidecar(counts: _PhaseCounts, container: Object) -> None:
    """One that has ended does not matter."""
    state, last = _states(counts, container)
    if "running" in state:
        counts.pending_sidecars += not counts.statuses[container["name"]].get("started")
        counts.running += 1
    elif "waiting" in state:
        if "terminated" not in last:
            counts.pending_sidecars += 1
            counts.waiting += 1
    elif "terminated" not in state:
        counts.unknown += 1


def _count_regular(
    counts: _PhaseCounts, container: Object, pod: Object, features: PodFeatures
) -> None:
    state, last = _states(counts, container)
    if "running" in state:
        counts.running += 1
    elif "terminated" in state:
        counts.stopped += 1
        counts.succeeded += state["terminated"]["exitCode"] == 0
        counts.stopped_for_good += _for_good(container, pod, state["terminated"], features)
    elif "waiting" in state:
        if "terminated" in last:
            counts.stopped += 1
            counts.stopped_for_good += _for_good(container, pod, last["terminated"], features)
        else:
            counts.waiting += 1
    else:
        counts.unknown += 1


# ---- conditions ----


def _names(items: Iterable[str]) -> str:
    return "[" + " ".join(items) + "]"


def _unready(unknown: Sequence[str], unready: Sequence[str], word: str) -> str:
    parts = []
    if unknown:
        parts.append(f"containers with unknown status: {_names(unknown)}")
    if unready:
        parts.append(f"containers with {word} status: {_names(unready)}")
    return ", ".join(parts)


def make_containers_ready_condition(
    spec: Object, statuses: Iterable[Object], phase: str, kind: str, features: PodFeatures
) -> Object:
    """`statuses` are those of all containers, with sidecars."""
    ready = {entry["name"]: entry["ready"] for entry in statuses}
    names = [spec_["name"] for spec_ in spec["containers"]]
    if features.sidecars:
        inits = spec.get("initContainers") or ()
        names = [c["name"] for c in inits if is_restartable_init_container(c)] + names
    unknown = [name for name in names if name not in ready]
    if phase == "Succeeded" and not unknown:
        return {"type": kind, "status": "False", "reason": "PodCompleted"}
    if phase == "Failed" and features.failed_unready:
        return {"type": kind, "status": "False", "reason": "PodFailed"}
    message = _unready(unknown, [n for n in names if ready.get(n) is False], "unready")
    if message:
        return {"type": kind, "status": "False", "reason": "ContainersNotReady", "message": message}
    return {"type": kind, "status": "True"}


def make_initialized_condition(
    spec: Object,
    inits: Sequence[Object],
    containers: Sequence[Object],
    phase: str,
    features: PodFeatures,
    old: Object,
) -> Object:
    found = {entry["name"]: entry for entry in inits}
    specs = spec.get("initContainers") or ()
    unknown = [c["name"] for c in specs if c["name"] not in found]
    incomplete = [
        c["name"]
        for c in specs
        if c["name"] in found and not _initialized(c, found[c["name"]], features)
    ]
    if phase == "Succeeded" and not unknown:
        return {"type": "Initialized", "status": "True", "reason": "PodCompleted"}
    message = _unready(unknown, incomplete, "incomplete")
    if not message or _initialized_before(containers, features, old):
        return {"type": "Initialized", "status": "True"}
    return {
        "type": "Initialized",
        "status": "False",
        "reason": "ContainersNotInitialized",
        "message": message,
    }


def _initialized(container: Object, entry: Object, features: PodFeatures) -> bool:
    sidecar = features.sidecars and is_restartable_init_container(container)
    return bool(entry.get("started") if sidecar else entry["ready"])


def _initialized_before(containers: Sequence[Object], features: PodFeatures, old: Object) -> bool:
    """A pod whose regular containers have started stays initialized while sidecars restart."""
    if not features.sidecars:
        return False
    if any("running" in e["state"] or "terminated" in e["state"] for e in containers):
        return True
    return features.restart_all and any(
        c["type"] == "Initialized" and c["status"] == "True" for c in old.get("conditions") or ()
    )


def make_ready_to_start_condition(pod: Object, state: PodState) -> Object:
    """Whether the pod has a sandbox with a network."""
    status = "False" if sandbox_changed(pod, state)[0] else "True"
    return {"type": "PodReadyToStartContainers", "status": status}


def make_ready_condition(
    spec: Object,
    conditions: Iterable[Object],
    statuses: Iterable[Object],
    phase: str,
    features: PodFeatures,
) -> Object:
    """Ready: all containers and all readiness gates are."""
    condition = make_containers_ready_condition(spec, statuses, phase, "Ready", features)
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
