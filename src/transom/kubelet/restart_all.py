"""Restart of all containers of a pod, when one exits with a code whose rule says so: every container
is stopped and removed, and the pod starts again from its first init container in the same sandbox.
"""

from __future__ import annotations

from transom.kit.named_tuple import NamedTuple
from transom.kubelet.podstate import PodState
from transom.machinery.objects import Object
from transom.machinery.podutil import matching_restart_rule, visit_containers
from transom.runtime.api import Container

CONDITION = "AllContainersRestarting"
RESTARTING = "RestartingAllContainers"
REMOVED_MESSAGE = "The container is removed because RestartAllContainers in place"


class ContainerReset(NamedTuple):
    container: Container
    kill: bool


def _restarts_all(spec: Object, code: int) -> bool:
    rule = matching_restart_rule(spec, code)
    return rule is not None and rule.get("action") == "RestartAllContainers"


def should_all_containers_restart(pod: Object, state: PodState, reported: Object) -> bool:
    """Whether a container has triggered it, as the runtime or the last status shows."""
    for condition in reported.get("conditions") or ():
        if condition["type"] == CONDITION and condition["status"] == "True":
            return True
    statuses = {
        entry["name"]: entry
        for field in ("initContainerStatuses", "containerStatuses")
        for entry in reported.get(field) or ()
    }
    for spec in visit_containers(pod["spec"], ephemeral=False):
        container = state.container(spec["name"])
        if container is None or container.state != "exited":
            continue
        if _restarts_all(spec, container.exit_code):
            return True
        ended = (statuses.get(spec["name"]) or {}).get("state", {}).get("terminated")
        if ended is not None and _restarts_all(spec, ended["exitCode"]):
            return True
    return False


def all_containers_removed(pod: Object, state: PodState) -> bool:
    specs = visit_containers(pod["spec"], ephemeral=False)
    return all(state.container(spec["name"]) is None for spec in specs)


def containers_to_reset(pod: Object, state: PodState) -> tuple[ContainerReset, ...]:
    """All containers; those that triggered the restart last, so that a new kubelet sees them."""
    sources: list[ContainerReset] = []
    targets: list[ContainerReset] = []
    for kind in ("containers", "initContainers"):
        for spec in pod["spec"].get(kind) or ():
            for container in state.containers_named(spec["name"]):
                exited = container.state == "exited"
                source = exited and _restarts_all(spec, container.exit_code)
                (sources if source else targets).append(ContainerReset(container, not exited))
    return (*targets, *sources)


def make_restarting_condition(pod: Object, state: PodState, reported: Object, phase: str) -> Object:
    out: Object = {"type": CONDITION, "status": "False"}
    if phase in ("Succeeded", "Failed"):
        out["reason"] = "PodCompleted" if phase == "Succeeded" else "PodFailed"
    elif should_all_containers_restart(pod, state, reported) and not all_containers_removed(
        pod, state
    ):
        out["status"] = "True"
        out["reason"] = "RestartAllContainersStarted"
        out["message"] = "container exited with restart policy rule"
    return out
