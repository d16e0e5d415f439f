"""The status of a kubelet's Node: addresses, capacity, conditions, versions, images, volumes.

`NodeStatus.compute` derives the desired status from the current one, as Kubernetes' chain of
setters does, and keeps what other components put there (extended resources, their conditions). What
changes rarely is computed once. This module writes nothing to the API; it passes events for a
change to `record_event`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from transom.kit.clock import Clock, rfc3339
from transom.kit.named_tuple import NamedTuple
from transom.kubelet import allocatable
from transom.kubelet.config import KubeletConfig
from transom.kubelet.node.features import kube_proxy_version, node_feature_fields, swap_status
from transom.kubelet.osrules import OsRules
from transom.machinery import quantity
from transom.machinery.objects import Object
from transom.machinery.releases.kubelet import kubelet_has
from transom.machines.api import Host, SystemInfo
from transom.runtime.api import ContainerRuntime, Image, RuntimeStatus

MAX_IMAGES = 50
_MAX_NAMES = 5
_RUNTIME_GRACE = 30.0  # a runtime that has not been ready for this long is reported as down
_HEARTBEAT = "lastHeartbeatTime"

RecordEvent = Callable[[str, str, str], None]
"""kind, reason, message of an event about the node."""


class Pressures(Protocol):
    """The eviction manager's view."""

    def memory(self) -> bool: ...
    def disk(self) -> bool: ...
    def pid(self) -> bool: ...


class NoPressures:
    """Never reports pressure: for a node without an eviction manager."""

    __slots__ = ()

    def memory(self) -> bool:
        return False

    def disk(self) -> bool:
        return False

    def pid(self) -> bool:
        return False


class _Pressure(NamedTuple):
    """How a pressure condition is reported: (reason, message, event) when it is true, and when it
    is false.
    """

    type: str
    there: tuple[str, str, str]
    gone: tuple[str, str, str]


_MEMORY = _Pressure(
    "MemoryPressure",
    (
        "KubeletHasInsufficientMemory",
        "kubelet has insufficient memory available",
        "NodeHasInsufficientMemory",
    ),
    (
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
        "NodeHasSufficientMemory",
    ),
)
_DISK = _Pressure(
    "DiskPressure",
    ("KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"),
    ("KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"),
)
_PID = _Pressure(
    "PIDPressure",
    (
        "KubeletHasInsufficientPID",
        "kubelet has insufficient PID available",
        "NodeHasInsufficientPID",
    ),
    ("KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"),
)


class NodeStatus:
    __slots__ = (
        "_clock",
        "_config",
        "_features",
        "_fixed",
        "_host",
        "_identity",
        "_image_list",
        "_images",
        "_machine",
        "_node_resources",
        "_read_volume_limits",
        "_record_event",
        "_reserved",
        "_rules",
        "_runtime",
        "_runtime_ready_at",
        "_runtime_status",
        "_unschedulable",
        "_volume_limits",
        "pressures",
        "ready",
        "shutdown_status",
        "volumes_in_use",
    )

    def __init__(
        self,
        config: KubeletConfig,
        rules: OsRules,
        host: Host,
        runtime: ContainerRuntime,
        clock: Clock,
        record_event: RecordEvent,
        volume_limits: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """`volume_limits` maps attachable-volumes-TYPE to how many disks the node supports, where
        that differs from the scheduler's assumption.
        """
        self._config, self._rules, self._host, self._runtime = config, rules, host, runtime
        self._clock = clock
        self._record_event = record_event
        self.pressures: Pressures = NoPressures()
        self.shutdown_status: Callable[[], str] = lambda: ""
        # Unique names of volumes that must stay attached; None until known, and then the status is
        # left unchanged.
        self.volumes_in_use: Callable[[], Sequence[str] | None] = lambda: None
        self._read_volume_limits = volume_limits
        self._volume_limits: Mapping[str, int] = {}
        self._machine = allocatable.machine_capacity(host, rules)
        self._reserved = allocatable.node_reservation(config, rules, self._machine)
        self._identity: SystemInfo | None = None
        self._fixed: Object = {}
        self._features: Object = {}
        self._images: Sequence[Image] | None = None
        self._image_list: list[Object] = []
        self._runtime_ready_at: float | None = None
        self._runtime_status: RuntimeStatus | None = None  # in the last computed status
        self._unschedulable = False
        # The runtime and the network were ready when the status was last computed.
        self.ready = False
        self._node_resources: tuple[Object, Object] | None = None  # capacity and allocatable

    # ---- the status ----

    def compute(self, node: Object) -> Object:
        """The status that the node should have now; shares unchanged parts with the current one."""
        old = node.get("status") or {}
        fixed = self._fixed_parts()
        status = {
            **old,
            "addresses": fixed["addresses"],
            "daemonEndpoints": fixed["daemonEndpoints"],
        }
        status["capacity"], status["allocatable"] = self._resources(old)
        status["nodeInfo"] = self._node_info(old, fixed["nodeInfo"])
        for field in ("features", "runtimeHandlers", "declaredFeatures"):
            if field in self._features:
                status[field] = self._features[field]
            else:
                status.pop(field, None)
        self._put(status, "images", self._images_now())
        status["conditions"] = self._conditions(old.get("conditions") or [], status["capacity"])
        in_use = self.volumes_in_use()
        if in_use is not None:
            self._put(status, "volumesInUse", list(in_use))
        self._record_schedulable(node)
        return status

    def runtime_changed(self) -> bool:
        """Whether the runtime or its network reports something else than in the last status."""
        return self._runtime.status() != self._runtime_status

    def allocatable(self) -> Object:
        """For a node without extended resources of other components."""
        return self._resources({})[1]

    @staticmethod
    def _put(status: Object, key: str, value: list[Object] | list[str]) -> None:
        if value:
            status[key] = value
        else:
            status.pop(key, None)

    # ---- parts ----

    def _fixed_parts(self) -> Object:
        identity = self._host.identity
        if identity is not self._identity and identity != self._identity:
            config = self._config
            self._fixed = {
                "addresses": [
                    *({"type": "InternalIP", "address": address} for address in config.node_ips),
                    {"type": "Hostname", "address": config.node_name},
                ],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": config.port}},
                "nodeInfo": {
                    **self._rules.node_info(identity, self._runtime.version, config),
                    "kubeProxyVersion": kube_proxy_version(config),
                    **swap_status(config, self._host.hardware.swap),
                },
            }
            self._features = node_feature_fields(
                config,
                self._runtime.version,
                linux=self._rules.name == "linux",
                recursive_read_only=self._rules.recursive_read_only_mounts(
                    self._host, self._runtime.version
                ),
            )
        self._identity = identity
        return self._fixed

    def _node_info(self, old: Object, info: Object) -> Object:
        before = (old.get("nodeInfo") or {}).get("bootID")
        if before and before != info["bootID"]:
            name = self._config.node_name
            self._record_event(
                "Warning", "Rebooted", f"Node {name} has been rebooted, boot id: {info['bootID']}"
            )
        return info

    def _resources(self, old: Object) -> tuple[Object, Object]:
        seen, limits = old.get("capacity") or {}, self._read_volume_limits()
        if (
            self._node_resources is not None
            and self._node_resources[0] == seen
            and limits == self._volume_limits
        ):
            return self._node_resources
        capacity = {
            name: quantity.parse_quantity(text)
            for name, text in seen.items()
            if name not in self._volume_limits
        }
        self._volume_limits = limits
        capacity.update(self._machine)
        capacity.update({name: quantity.from_int(count) for name, count in limits.items()})
        capacity["pods"] = quantity.from_int(
            allocatable.pods_capacity(self._config, self._host.hardware.cpus)
        )
        left = allocatable.node_allocatable(capacity, self._reserved)
        # In the API's format; otherwise each comparison would find a change.
        self._node_resources = (
            {k: str(quantity.parse_quantity(str(v))) for k, v in capacity.items()},
            {k: str(quantity.parse_quantity(str(v))) for k, v in left.items()},
        )
        return self._node_resources

    def _images_now(self) -> list[Object]:
        images = self._runtime.images()
        if self._images is None or tuple(images) != self._images:
            largest = sorted(images, key=lambda image: (image.size, image.id), reverse=True)[
                :MAX_IMAGES
            ]
            self._image_list = [
                {"names": [*image.digests, *image.tags][:_MAX_NAMES], "sizeBytes": image.size}
                for image in largest
            ]
            self._images = tuple(images)
        return self._image_list

    def _record_schedulable(self, node: Object) -> None:
        unschedulable = bool((node.get("spec") or {}).get("unschedulable"))
        if unschedulable != self._unschedulable:
            self._unschedulable = unschedulable
            self._record_status("NodeNotSchedulable" if unschedulable else "NodeSchedulable")

    # ---- conditions ----

    def _conditions(self, old: list[Object], capacity: Object) -> list[Object]:
        now = rfc3339(self._clock.time())
        out = list(old)
        places = {condition["type"]: at for at, condition in enumerate(out)}
        for pressure, there in (
            (_MEMORY, self.pressures.memory()),
            (_DISK, self.pressures.disk()),
            (_PID, self.pressures.pid()),
        ):
            at = places.get(pressure.type)
            condition = self._pressure(pressure, there, out[at] if at is not None else None, now)
            if at is None:
                out.append(condition)
            else:
                out[at] = condition
        at = places.get("Ready")
        ready = self._ready(capacity, out[at] if at is not None else None, now)
        if at is None:
            out.append(ready)
        else:
            out[at] = ready
        return out

    def _pressure(self, pressure: _Pressure, there: bool, old: Object | None, now: str) -> Object:
        status = "True" if there else "False"
        if old is not None and old.get("status") == status:
            return {**old, _HEARTBEAT: now}
        reason, message, event = pressure.there if there else pressure.gone
        self._record_status(event)
        return {
            "type": pressure.type,
            "status": status,
            _HEARTBEAT: now,
            "lastTransitionTime": now,
            "reason": reason,
            "message": message,
        }

    def _ready(self, capacity: Object, old: Object | None, now: str) -> Object:
        problems = self._problems(capacity)
        status = "False" if problems else "True"
        reason = "KubeletNotReady" if problems else "KubeletReady"
        message = (
            _aggregate(problems) if problems else self._rules.ready_message(self._config.release)
        )
        since = now
        if old is not None:
            if old.get("status") == status:
                since = old.get("lastTransitionTime", now)
            else:
                self._record_status("NodeNotReady" if problems else "NodeReady")
        return {
            "type": "Ready",
            "status": status,
            _HEARTBEAT: now,
            "lastTransitionTime": since,
            "reason": reason,
            "message": message,
        }

    def _problems(self, capacity: Object) -> list[str]:
        self._runtime_status = self._runtime.status()
        problems = self._runtime_problems(self._runtime_status)
        shutdown = self.shutdown_status()
        if shutdown:
            problems.append(shutdown)
        self.ready = not problems
        missing = [
            name for name in ("cpu", "memory", "pods", "ephemeral-storage") if name not in capacity
        ]
        if missing:
            problems.append("missing node capacity for resources: " + ", ".join(missing))
        return problems

    def _runtime_problems(self, status: RuntimeStatus) -> list[str]:
        problems = []
        now = self._clock.monotonic()
        if not status.runtime_reason:
            self._runtime_ready_at = now
        elif self._runtime_ready_at is None:
            problems.append("container runtime status check may not have completed yet")
        elif now - self._runtime_ready_at >= _RUNTIME_GRACE:
            problems.append("container runtime is down")
        if status.runtime_reason:
            problems.append(
                f"Container runtime not ready: RuntimeReady=false reason:{status.runtime_reason} "
                f"message:{status.runtime_message}"
            )
        network = network_problem(status, self._config.release)
        if network:
            problems.append(network)
        return problems

    def _record_status(self, event: str) -> None:
        self._record_event("Normal", event, f"Node {self._config.node_name} status is now: {event}")


def network_problem(status: RuntimeStatus, release: tuple[int, int]) -> str:
    """Why pods that need their own network cannot run; empty when they can."""
    if not status.network_reason:
        return ""
    named = kubelet_has(release, "ContainerRuntimeNetworkText")
    who = "container runtime" if named else "runtime"
    return (
        f"{who} network not ready: NetworkReady=false reason:{status.network_reason} "
        f"message:{status.network_message}"
    )


def _aggregate(problems: Sequence[str]) -> str:
    unique = list(dict.fromkeys(problems))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


# ---- changes ----


def node_status_changed(old: Object, new: Object) -> bool:
    """Whether a status must be written early: new heartbeats alone do not count."""
    if old.keys() != new.keys():
        return True
    for key, value in new.items():
        if key != "conditions" and old[key] != value:
            return True
    before = {condition["type"]: condition for condition in old.get("conditions") or ()}
    after = new.get("conditions") or ()
    return len(before) != len(after) or any(
        {**before.get(condition["type"], {}), _HEARTBEAT: ""} != {**condition, _HEARTBEAT: ""}
        for condition in after
    )


def node_status_patch(old: Object, new: Object) -> Object:
    """The strategic merge patch from one status to another."""
    out: Object = {}
    for key in old.keys() | new.keys():
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if after is None:
            out[key] = None
        elif key == "conditions":
            out[key] = _condition_patch(before or [], after)
            out["$setElementOrder/conditions"] = [
                {"type": condition["type"]} for condition in after
            ]
        elif key == "addresses":
            out[key] = [*after, {"$patch": "replace"}]
        elif isinstance(before, dict):
            out[key] = {k: v for k, v in after.items() if before.get(k) != v} | {
                k: None for k in before if k not in after
            }
        else:
            out[key] = after
    return out


def _condition_patch(before: Sequence[Object], after: Sequence[Object]) -> list[Object]:
    known = {condition["type"]: condition for condition in before}
    out = []
    for condition in after:
        old = known.get(condition["type"], {})
        fields = {k: v for k, v in condition.items() if old.get(k) != v}
        if fields:
            out.append({**fields, "type": condition["type"]})
    return out
