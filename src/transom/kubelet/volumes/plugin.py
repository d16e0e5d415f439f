"""What the manager and the plugins tell each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from transom.kubelet.base import Env, VolumeFailure
from transom.kubelet.plugins.drivers import Drivers
from transom.kubelet.referenced import ReferencedObjects
from transom.kubelet.volumes.devices import Devices
from transom.kubelet.volumes.tokens import TokenManager
from transom.machinery import quantity
from transom.machinery.objects import Object


class StageFailure(VolumeFailure):
    """A failure of another step than the usual one; `stage` begins the event's text, `reason` is the event's."""

    def __init__(self, stage: str, message: str, reason: str = "FailedMount") -> None:
        super().__init__(message)
        self.stage = stage
        self.reason = reason


class SilentFailure(VolumeFailure):
    """Not yet; nobody is told before the time is over."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A volume of a pod with its claim resolved. `name` is the persistent volume's where there is one: messages and
    directories show that one."""

    outer: str
    name: str
    kind: str  # the field of the volume source: secret, hostPath, nfs ...
    source: Mapping[str, Any]
    read_only: bool = False
    persistent: Object | None = None
    block: bool = False
    group: str = ""  # a supplementary group that goes with it


class Projection(NamedTuple):
    """A file of a volume that the kubelet writes."""

    data: bytes
    mode: int
    user: int | None = None


Payload = Mapping[str, Projection]


class Mounted:
    """A volume that is there. `path` is the host's; `payload` what was written last, for volumes that are kept up."""

    __slots__ = ("group", "name", "path", "payload", "read_only")

    def __init__(self, name: str, path: str, read_only: bool = False, payload: Payload | None = None, group: str = "") -> None:
        self.name = name
        self.path = path
        self.read_only = read_only
        self.payload = payload
        self.group = group


@dataclass(frozen=True, slots=True)
class Tools:
    """What plugins work with."""

    env: Env
    objects: ReferencedObjects
    tokens: TokenManager
    drivers: Drivers
    devices: Devices


SetUp = Callable[[Tools, Object, Spec, "Mounted | None", float], Awaitable[Mounted]]
"""`await set_up(tools, pod, spec, before, max_age)`: makes the volume, or brings it up to date when it was there before.
Raises VolumeFailure (the text alone) or OSError. `max_age` says how old an object may be that it shows."""


TearDown = Callable[[Tools, str], Awaitable[None]]
"""`await tear_down(tools, uid)`: takes away all volumes of the plugin that the pod has. Raises VolumeFailure."""

Grow = Callable[[Tools, Spec, str, quantity.Quantity], Awaitable[bool]]
"""`await grow(tools, spec, path, size)`: the file system of a volume that has become larger fills it; False when that
cannot be now. Raises VolumeFailure."""


class Plugin(NamedTuple):
    name: str  # kubernetes.io/secret
    set_up: SetUp
    refreshes: bool = False
    tear_down: TearDown | None = None
    grow: Grow | None = None
    present: Callable[[Env, Spec], bool] = lambda env, spec: True  # whether the node has what it takes


def change_policy(pod: Object) -> str | None:
    """When the ownership of a volume that outlives its pods is set."""
    policy: str | None = (pod["spec"].get("securityContext") or {}).get("fsGroupChangePolicy")
    return policy


def fs_group(pod: Object) -> int | None:
    group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
    return None if group is None else int(group)
