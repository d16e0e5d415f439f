"""In-place resize: which resources are allocated to the containers of each pod, which are in effect,
and the conditions PodResizePending and PodResizeInProgress.

A pod runs with its allocated resources. A resize that fits on the node is allocated and then applied
by the sync of the pod; others wait (Deferred) or are never possible here (Infeasible). After a
restart of the kubelet the reported status has the allocated resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

import orjson

from transom.client.events import NORMAL, WARNING
from transom.kubelet.base import KubeletContext
from transom.kubelet.failures import PodRejection
from transom.kubelet.features import resizes_exclusive_cpus
from transom.kubelet.parts import AdjustResources, unadjusted
from transom.kubelet.podstate import PodState, uid_of
from transom.kubelet.refs import pod_ref
from transom.machinery.objects import Object
from transom.machinery.podutil import persisted_qos_class
from transom.machinery.quantity import parse_quantity
from transom.machinery.releases import Release
from transom.machinery.releases.kubelet import kubelet_has
from transom.runtime.api import Container, RuntimeFailure

_LISTS = ("initContainers", "containers")
_RESIZABLE = ("cpu", "memory")
# Before, Guaranteed pods could not be resized at all where the CPU manager has the static policy.
_CPU_ONLY_SINCE = (1, 34)
ResizeAction = Literal["", "update", "restart"]


class ResizeAdmission(Protocol):
    def admit_resize(self, pod: Object, active_pods: Sequence[Object]) -> PodRejection | None: ...


class ResizeFailure(Exception):
    """A resize could not be applied; the text is the condition's message."""


class AllocationManager:
    def __init__(
        self,
        env: KubeletContext,
        admission: ResizeAdmission,
        adjust: AdjustResources = unadjusted,
    ) -> None:
        self._env = env
        self._adjust = adjust
        self._admission = admission
        self._allocated: dict[str, dict[str, Object]] = {}  # by uid and container
        self._actuated: dict[str, dict[str, Object]] = {}  # by uid and container id
        self._conditions: dict[str, dict[str, Object]] = {}  # by uid and type
        release = Release(*env.config.release)
        self._has_events = kubelet_has(release, "ResizeEvents")

    # ---- pods
    # ----------------------------------------------------------------------------------------------

    def add_pod(self, pod: Object) -> None:
        uid = uid_of(pod)
        if uid in self._allocated:
            return
        status = pod.get("status") or {}
        reported = _reported(status)
        self._allocated[uid] = {
            spec["name"]: reported.get(spec["name"]) or spec.get("resources") or {}
            for spec in _containers(pod)
        }
        kept = {
            c["type"]: {k: v for k, v in c.items() if k in ("type", "status", *_KEPT)}
            for c in status.get("conditions") or ()
            if c["type"] in ("PodResizePending", "PodResizeInProgress")
        }
        if kept:
            self._conditions[uid] = kept

    def remove_pod(self, uid: str) -> None:
        for known in (self._allocated, self._actuated, self._conditions):
            known.pop(uid, None)

    def allocated_pod(self, pod: Object) -> Object:
        """The pod with the resources that are allocated to it."""
        allocated = self._allocated.get(uid_of(pod))
        if allocated is None or not _differs(pod, allocated):
            return pod
        spec = dict(pod["spec"])
        for kind in _LISTS:
            if spec.get(kind):
                spec[kind] = [
                    {**c, "resources": allocated[c["name"]]} if c["name"] in allocated else c
                    for c in spec[kind]
                ]
        return {**pod, "spec": spec}

    def conditions(self, uid: str) -> list[Object]:
        return [dict(c) for _, c in sorted(self._conditions.get(uid, {}).items(), reverse=True)]

    def pending(self) -> Iterable[str]:
        """The pods whose resize is deferred."""
        for uid, conditions in self._conditions.items():
            if (conditions.get("PodResizePending") or {}).get("reason") == "Deferred":
                yield uid

    # ---- resizing
    # ----------------------------------------------------------------------------------------------

    def resize(self, pod: Object, active_pods: Sequence[Object], state: PodState) -> Object:
        """Allocates the resources of the spec if they fit. Returns the pod to run."""
        uid = uid_of(pod)
        self.add_pod(pod)
        allocated = self._allocated[uid]
        self._observe(pod, state)
        if not _differs(pod, allocated):
            self._conditions.get(uid, {}).pop("PodResizePending", None)
            return pod
        others = [self.allocated_pod(p) for p in active_pods if uid_of(p) != uid]
        rejection = self._reject_exclusive(pod, allocated) or self._admission.admit_resize(
            pod, others
        )
        if rejection is None:
            self._allocated[uid] = {c["name"]: c.get("resources") or {} for c in _containers(pod)}
            self._conditions[uid] = {"PodResizeInProgress": self._condition(pod, "InProgress")}
            self._record(pod, NORMAL, "ResizeStarted", "started")
            return pod
        reason = "Infeasible" if rejection.reason == "Infeasible" else "Deferred"
        condition = self._condition(pod, "Pending", reason, rejection.message)
        known = self._conditions.setdefault(uid, {})
        before = known.get("PodResizePending") or {}
        known["PodResizePending"] = condition
        if any(before.get(key) != condition.get(key) for key in ("reason", "observedGeneration")):
            self._record(pod, WARNING, f"Resize{reason}", reason, rejection.message)
        return self.allocated_pod(pod)

    def _reject_exclusive(
        self, pod: Object, allocated: Mapping[str, Object]
    ) -> PodRejection | None:
        """The static policy of the CPU manager does not change the CPUs of a running container."""
        config = self._env.config
        if (
            config.cpu_manager_policy != "static"
            or persisted_qos_class(pod) != "Guaranteed"
            or resizes_exclusive_cpus(config.release, config.feature_gates)
        ):
            return None
        any_resource = config.release < _CPU_ONLY_SINCE
        if not any_resource and not _differs(pod, allocated, ("cpu",)):
            return None
        policy = "static policy" if any_resource else 'policy "static"'
        text = f"Resize is infeasible for Guaranteed Pods alongside CPU Manager {policy}"
        return PodRejection("Infeasible", text)

    def finish(self, pod: Object, state: PodState) -> None:
        """Ends a resize that is in effect."""
        known = self._conditions.get(uid_of(pod), {})
        if "PodResizeInProgress" not in known:
            return
        for spec in _containers(pod):
            container = state.container(spec["name"])
            if container is not None and self.action(spec, container):
                return
        del known["PodResizeInProgress"]
        self._record(pod, NORMAL, "ResizeCompleted", "completed")

    def action(self, spec: Object, container: Container) -> ResizeAction:
        """What the container needs to get the resources of its (allocated) spec."""
        uid = container.labels.get("io.kubernetes.pod.uid", "")
        current = self._actuated.get(uid, {}).get(container.id)
        if container.state != "running" or current is None:
            return ""
        changed = [
            name
            for name in _RESIZABLE
            if any(_amount(current, k, name) != _amount(_own(spec), k, name) for k in _KINDS)
        ]
        if not changed:
            return ""
        policies = {p["resourceName"]: p["restartPolicy"] for p in spec.get("resizePolicy") or ()}
        restart = any(policies.get(name) == "RestartContainer" for name in changed)
        return "restart" if restart else "update"

    async def actuate(self, pod: Object, spec: Object, container: Container) -> None:
        """Applies the resources of the spec to a running container. Raises ResizeFailure."""
        uid = uid_of(pod)
        current = self._actuated.get(uid, {}).get(container.id) or {}
        limit = _amount(_own(spec), "limits", "memory")
        before = _amount(current, "limits", "memory")
        if limit and (not before or limit < before):
            self._check_usage(uid, container, limit)
        resources = self._env.os.linux_resources(pod, spec, self._env.host)
        resources = self._adjust(pod, spec, resources)
        try:
            await self._env.runtime.update_container_resources(container.id, resources)
        except RuntimeFailure as failure:
            raise ResizeFailure(str(failure)) from failure
        self._actuated.setdefault(uid, {})[container.id] = _own(spec)

    def fail(self, pod: Object, message: str) -> None:
        """The resize could not be applied; the next sync tries again."""
        known = self._conditions.setdefault(uid_of(pod), {})
        before = known.get("PodResizeInProgress") or self._condition(pod, "InProgress")
        known["PodResizeInProgress"] = {**before, "reason": "Error", "message": message}
        if before.get("message") != message:
            self._record(pod, WARNING, "ResizeError", "error", message)

    def actual(self, uid: str, container: Container) -> Object | None:
        """The resources that are in effect for a running container."""
        return self._actuated.get(uid, {}).get(container.id)

    def _check_usage(self, uid: str, container: Container, limit: int) -> None:
        for stats in self._env.runtime.container_stats(uid):
            if stats.id == container.id and stats.usage >= limit:
                raise ResizeFailure(
                    f'cannot decrease memory limits: attempting to set container "{container.name}"'
                    f" memory limit ({limit}) below current usage ({stats.usage})"
                )

    def _observe(self, pod: Object, state: PodState) -> None:
        """Running containers that are new here have what was allocated when they started, or what
        was reported before the kubelet restarted.
        """
        uid = uid_of(pod)
        known = self._actuated.setdefault(uid, {})
        running = {c.id: c for c in state.running()}
        for container in running.values():
            if container.id not in known:
                known[container.id] = self._allocated[uid].get(container.name, {})
        for gone in [identity for identity in known if identity not in running]:
            del known[gone]

    def _condition(self, pod: Object, kind: str, reason: str = "", message: str = "") -> Object:
        out: Object = {"type": f"PodResize{kind}", "status": "True"}
        if reason:
            out["reason"] = reason
        if message:
            out["message"] = message
        generation = pod["metadata"].get("generation")
        if generation and self._env.config.pod_features.observed_generation:
            out["observedGeneration"] = generation
        return out

    def _record(self, pod: Object, kind: str, reason: str, what: str, error: str = "") -> None:
        if not self._has_events:
            return
        summary: Object = {}
        for field in _LISTS:
            entries = [
                {"name": c["name"], "resources": c.get("resources") or {}}
                for c in pod["spec"].get(field) or ()
            ]
            if entries:
                summary[field] = entries
        summary["generation"] = pod["metadata"].get("generation") or 0
        if error:
            summary["error"] = error
        text = f"Pod resize {what}: {orjson.dumps(summary).decode()}"
        self._env.events.event(pod_ref(pod), kind, reason, text)


_KINDS = ("requests", "limits")
_KEPT = ("reason", "message", "observedGeneration")


def _containers(pod: Object) -> Iterable[Object]:
    for kind in _LISTS:
        yield from pod["spec"].get(kind) or ()


def _own(spec: Object) -> Object:
    found: Object = spec.get("resources") or {}
    return found


def _amount(resources: Object, kind: str, name: str) -> int:
    text = (resources.get(kind) or {}).get(name)
    if text is None and kind == "requests":
        text = (resources.get("limits") or {}).get(name)
    found = parse_quantity(text or "0")
    return found.milli_value() if name == "cpu" else found.value()


def _reported(status: Object) -> Mapping[str, Object]:
    return {
        entry["name"]: entry["resources"]
        for field in ("initContainerStatuses", "containerStatuses")
        for entry in status.get(field) or ()
        if entry.get("resources")
    }


def _differs(
    pod: Object, allocated: Mapping[str, Object], names: Sequence[str] = _RESIZABLE
) -> bool:
    for spec in _containers(pod):
        now, was = _own(spec), allocated.get(spec["name"])
        if was is None or now == was:
            continue
        for kind in _KINDS:
            for name in names:
                if _amount(now, kind, name) != _amount(was, kind, name):
                    return True
    return False
