"""In-place resize: which resources are allocated to the containers of each pod, which are in effect,
and the conditions PodResizePending and PodResizeInProgress.

A pod runs with its allocated resources. A resize that fits on the node is allocated and then applied
by the sync of the pod; others wait (Deferred) or are never possible here (Infeasible). After a
restart of the kubelet the reported status has the allocated resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Protocol

import orjson

from transom.client.events import NORMAL, WARNING
from transom.kit.lazy_dataclass import replace
from transom.kubelet.base import KubeletContext
from transom.kubelet.failures import PodRejection
from transom.kubelet.interfaces import NoResourceManagers, ResourceManagers
from transom.kubelet.podstate import PodState, uid_of
from transom.kubelet.refs import pod_ref
from transom.machinery.objects import Object
from transom.machinery.quantity import parse_quantity
from transom.machinery.releases import Release
from transom.machinery.releases.kubelet import kubelet_has
from transom.runtime.api import Container, LinuxResources, RuntimeFailure, Sandbox

_LISTS = ("initContainers", "containers")
_RESIZABLE = ("cpu", "memory")
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
        managers: ResourceManagers | None = None,
    ) -> None:
        self._env = env
        self._managers = managers or NoResourceManagers()
        self._admission = admission
        self._allocated: dict[str, dict[str, Object]] = {}  # by uid and container
        self._actuated: dict[str, dict[str, Object]] = {}  # by uid and container id
        # of pods as a whole, by uid
        self._allocated_pods: dict[str, Object] = {}
        self._actuated_pods: dict[str, Object] = {}
        self._resizes_pods = env.config.pod_features.pod_resize
        self._conditions: dict[str, dict[str, Object]] = {}  # by uid and type
        release = Release(*env.config.release)
        self._has_events = kubelet_has(release, "ResizeEvents")

    # ---- pods ----

    def add_pod(self, pod: Object) -> None:
        uid = uid_of(pod)
        if uid in self._allocated:
            return
        status = pod.get("status") or {}
        reported = _reported(status)
        self._allocated[uid] = {
            spec["name"]: reported.get(spec["name"]) or _own(spec) for spec in _containers(pod)
        }
        of_pod = _own(pod["spec"])
        if of_pod and self._resizes_pods:
            of_pod = _reported_pod(of_pod, status.get("resources") or {})
            self._allocated_pods[uid] = self._actuated_pods[uid] = of_pod
        kept = {
            c["type"]: {k: v for k, v in c.items() if k in ("type", "status", *_KEPT)}
            for c in status.get("conditions") or ()
            if c["type"] in ("PodResizePending", "PodResizeInProgress")
        }
        if kept:
            self._conditions[uid] = kept

    def remove_pod(self, uid: str) -> None:
        for known in (
            self._allocated,
            self._actuated,
            self._conditions,
            self._allocated_pods,
            self._actuated_pods,
        ):
            known.pop(uid, None)

    def allocated_pod(self, pod: Object) -> Object:
        """The pod with the resources that are allocated to it."""
        allocated = self._allocated.get(uid_of(pod))
        if allocated is None or not self._pending(pod, allocated):
            return pod
        spec = dict(pod["spec"])
        if uid_of(pod) in self._allocated_pods:
            spec["resources"] = self._allocated_pods[uid_of(pod)]
        for kind in _LISTS:
            if spec.get(kind):
                spec[kind] = [
                    {**c, "resources": allocated[c["name"]]} if c["name"] in allocated else c
                    for c in spec[kind]
                ]
        return {**pod, "spec": spec}

    def _pending(self, pod: Object, allocated: Mapping[str, Object]) -> bool:
        """Whether it asks for other resources than those allocated to it."""
        of_pod = self._allocated_pods.get(uid_of(pod))
        return _differs(pod, allocated) or (
            of_pod is not None and _changed(_own(pod["spec"]), of_pod)
        )

    def conditions(self, uid: str) -> list[Object]:
        return [dict(c) for _, c in sorted(self._conditions.get(uid, {}).items(), reverse=True)]

    def pending(self) -> Iterable[str]:
        """The pods whose resize is deferred."""
        for uid, conditions in self._conditions.items():
            if (conditions.get("PodResizePending") or {}).get("reason") == "Deferred":
                yield uid

    # ---- resizing ----

    def resize(
        self, pod: Object, active_pods: Callable[[], Sequence[Object]], state: PodState
    ) -> Object:
        """Allocates the resources of the spec if they fit. Returns the pod to run."""
        uid = uid_of(pod)
        self.add_pod(pod)
        allocated = self._allocated[uid]
        self._observe(pod, state)
        if not self._pending(pod, allocated):
            self._conditions.get(uid, {}).pop("PodResizePending", None)
            return pod
        others = [self.allocated_pod(p) for p in active_pods() if uid_of(p) != uid]
        problem = self._managers.resize_problem(pod, self.allocated_pod(pod))
        rejection = (
            PodRejection("Infeasible", problem)
            if problem
            else self._admission.admit_resize(pod, others)
        )
        if rejection is None:
            self._allocated[uid] = {c["name"]: _own(c) for c in _containers(pod)}
            if uid in self._allocated_pods:
                self._allocated_pods[uid] = _own(pod["spec"])
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

    def finish(self, pod: Object, state: PodState) -> None:
        """Ends a resize that is in effect."""
        known = self._conditions.get(uid_of(pod), {})
        if "PodResizeInProgress" not in known or self.resizes_pod(pod):
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
        was = _with_pod_limits(current, self._actuated_pods.get(uid))
        wanted = _with_pod_limits(_own(spec), self._allocated_pods.get(uid))
        changed = [
            name
            for name in _RESIZABLE
            if any(_amount(was, k, name) != _amount(wanted, k, name) for k in _KINDS)
        ]
        if not changed:
            return ""
        return "restart" if any(_restarts(spec, name) for name in changed) else "update"

    def resizes_pod(self, pod: Object) -> bool:
        """Whether the pod as a whole does not have the resources of its (allocated) spec yet."""
        uid = uid_of(pod)
        if "PodResizeInProgress" not in self._conditions.get(uid, {}):
            return False
        actuated = self._actuated_pods.get(uid)
        if actuated is not None and _changed(actuated, _own(pod["spec"])):
            return True
        sandbox = self._sandbox(uid)
        if sandbox is None:
            return False
        current = sandbox.config.linux.resources
        return current != _keep_limits(self._managers.pod_resources(pod), current)

    def _sandbox(self, uid: str) -> Sandbox | None:
        """The sandbox with the limits of the pod, where the runtime applies them."""
        for sandbox in self._env.runtime.sandboxes(uid):
            if sandbox.state == "ready" and sandbox.config.linux.resources.cpu_shares:
                return sandbox
        return None

    async def actuate(self, pod: Object, updates: Iterable[tuple[Object, Container]]) -> None:
        """Applies the resources of the spec to a running pod and these of its containers. The
        limits of the pod are raised before, and lowered after those of containers. Raises
        ResizeFailure.
        """
        uid, updates = uid_of(pod), [*updates]
        sandbox = self._sandbox(uid)
        current = wanted = sandbox.config.linux.resources if sandbox is not None else _UNLIMITED
        if sandbox is not None:
            wanted = _keep_limits(self._managers.pod_resources(pod), current)
        self._check_usage(pod, updates, current, wanted)
        larger = _larger(current, wanted)
        if sandbox is not None and larger != current:
            await self._set_pod(sandbox, larger)
        for spec, container in updates:
            await self._actuate_container(pod, spec, container)
        if sandbox is not None and wanted != larger:
            await self._set_pod(sandbox, wanted)
        if uid in self._actuated_pods:
            self._actuated_pods[uid] = _own(pod["spec"])

    async def _set_pod(self, sandbox: Sandbox, resources: LinuxResources) -> None:
        """Raises ResizeFailure."""
        try:
            await self._env.runtime.update_sandbox_resources(sandbox.id, resources)
        except RuntimeFailure as failure:
            raise ResizeFailure(str(failure)) from failure

    async def _actuate_container(self, pod: Object, spec: Object, container: Container) -> None:
        """Raises ResizeFailure."""
        resources = self._env.os.linux_resources(pod, spec, self._env.host, self._env.config)
        resources = self._managers.adjust(pod, spec, resources)
        try:
            await self._env.runtime.update_container_resources(container.id, resources)
        except RuntimeFailure as failure:
            raise ResizeFailure(str(failure)) from failure
        self._actuated.setdefault(uid_of(pod), {})[container.id] = _own(spec)

    def actual_spec(self, pod: Object) -> Object:
        """The spec of the (allocated) pod with the resources that are in effect."""
        uid, spec = uid_of(pod), pod["spec"]
        if "PodResizeInProgress" not in self._conditions.get(uid, {}):
            return pod["spec"]
        known = self._actuated.get(uid, {})
        actual = {c.name: known[c.id] for c in self._env.runtime.containers(uid) if c.id in known}
        out = {
            **spec,
            **{
                kind: [{**c, "resources": actual.get(c["name"], _own(c))} for c in spec[kind]]
                for kind in _LISTS
                if spec.get(kind)
            },
        }
        if uid in self._actuated_pods:
            out["resources"] = self._actuated_pods[uid]
        return out

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

    def _check_usage(
        self,
        pod: Object,
        updates: Iterable[tuple[Object, Container]],
        current: LinuxResources,
        wanted: LinuxResources,
    ) -> None:
        """Raises ResizeFailure where a memory limit would be below what is in use."""
        uid, problems = uid_of(pod), []
        usage = {stats.id: stats.usage for stats in self._env.runtime.container_stats(uid)}
        limit, total = wanted.memory_limit, sum(usage.values())
        if limit and (not current.memory_limit or limit < current.memory_limit) and total >= limit:
            problems.append(
                f"attempting to set pod memory limit ({limit}) below current usage ({total})"
            )
        for spec, container in updates:
            limit = _amount(_own(spec), "limits", "memory")
            known = self._actuated.get(uid, {}).get(container.id) or {}
            before = _amount(known, "limits", "memory")
            used = usage.get(container.id, 0)
            if limit and (not before or limit < before) and used >= limit:
                problems.append(
                    f'attempting to set container "{container.name}" memory limit ({limit}) below '
                    f"current usage ({used})"
                )
        if problems:
            text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            raise ResizeFailure(f"cannot decrease memory limits: {text}")

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
_UNLIMITED = LinuxResources()
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


def _changed(one: Object, other: Object) -> bool:
    return any(
        _amount(one, kind, name) != _amount(other, kind, name)
        for kind in _KINDS
        for name in _RESIZABLE
    )


def _restarts(spec: Object, resource: str) -> bool:
    """Whether a change of the resource restarts the container."""
    policies = {p["resourceName"]: p["restartPolicy"] for p in spec.get("resizePolicy") or ()}
    return policies.get(resource) == "RestartContainer"


def _with_pod_limits(own: Object, of_pod: Object | None) -> Object:
    """A container without a limit has that of its pod."""
    if not of_pod:
        return own
    limits = {**(of_pod.get("limits") or {}), **(own.get("limits") or {})}
    requests = own.get("requests") or own.get("limits") or {}
    return {"limits": limits, "requests": {name: requests.get(name, "0") for name in _RESIZABLE}}


def _keep_limits(wanted: LinuxResources, current: LinuxResources) -> LinuxResources:
    """A resize changes the limits of a pod; it does not remove them."""
    return replace(
        wanted,
        cpu_quota=wanted.cpu_quota or current.cpu_quota,
        memory_limit=wanted.memory_limit or current.memory_limit,
    )


def _larger(current: LinuxResources, wanted: LinuxResources) -> LinuxResources:
    """What allows the containers both what they have and what they will have. A limit of 0 is
    none.
    """
    return replace(
        wanted,
        cpu_shares=max(current.cpu_shares, wanted.cpu_shares),
        cpu_quota=_larger_limit(current.cpu_quota, wanted.cpu_quota),
        memory_limit=_larger_limit(current.memory_limit, wanted.memory_limit),
    )


def _larger_limit(one: int, other: int) -> int:
    return max(one, other) if one and other else 0


def _reported_pod(own: Object, reported: Object) -> Object:
    """The resources that a pod had when the kubelet stopped: it reports those of its containers
    as well.
    """
    return {
        kind: {name: (reported.get(kind) or {}).get(name, text) for name, text in amounts.items()}
        for kind, amounts in own.items()
        if kind in _KINDS
    }


def _reported(status: Object) -> Mapping[str, Object]:
    return {
        entry["name"]: entry["resources"]
        for field in ("initContainerStatuses", "containerStatuses")
        for entry in status.get(field) or ()
        if entry.get("resources")
    }


def _differs(pod: Object, allocated: Mapping[str, Object]) -> bool:
    for spec in _containers(pod):
        now, was = _own(spec), allocated.get(spec["name"])
        if was is None or now == was:
            continue
        for kind in _KINDS:
            for name in _RESIZABLE:
                if _amount(now, kind, name) != _amount(was, kind, name):
                    return True
    return False
