"""The interface between the manager and the plugins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any

from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.kubelet.base import KubeletContext
from transom.kubelet.plugins.drivers import CsiDriverRegistry
from transom.kubelet.referenced import ReferencedObjects
from transom.kubelet.storage_requests import StageFailure
from transom.kubelet.volumes.devices import Devices, SilentFailure
from transom.kubelet.volumes.flex_drivers import FlexDrivers
from transom.kubelet.volumes.nested import NestedMountPoints
from transom.kubelet.volumes.tokens import TokenManager
from transom.machinery import quantity
from transom.machinery.objects import Object

__all__ = [
    "Grow",
    "MountedVolume",
    "Payload",
    "PodVolumeSpec",
    "Projection",
    "SetUp",
    "SilentFailure",
    "StageFailure",
    "TearDown",
    "VolumeHost",
    "VolumePlugin",
    "change_policy",
    "fs_group",
]


@dataclass(frozen=True, slots=True)
class PodVolumeSpec:
    """A volume of a pod with its claim resolved. `name` is the persistent volume's where there is
    one: messages and directories show that name.
    """

    outer: str
    name: str
    kind: str  # the field of the volume source: secret, hostPath, nfs ...
    source: Mapping[str, Any]
    read_only: bool = False
    persistent: Object | None = None
    block: bool = False
    group: str = ""  # a supplementary group from the persistent volume


class Projection(NamedTuple):
    """A file of a volume that the kubelet writes."""

    data: bytes
    mode: int
    user: int | None = None


Payload = Mapping[str, Projection]


class VolumeUsage(NamedTuple):
    """As NodeGetVolumeStats reports it."""

    capacity: int = 0
    available: int = 0
    used: int = 0
    inodes: int = 0
    inodes_free: int = 0
    inodes_used: int = 0


class MountedVolume:
    """A mounted volume. `path` is the host's; `payload` is what was last written, for volumes that
    are kept up to date.
    """

    __slots__ = (
        "driver",
        "group",
        "handle",
        "name",
        "path",
        "payload",
        "read_only",
        "republish",
        "usage",
    )

    def __init__(
        self,
        name: str,
        path: str,
        read_only: bool = False,
        payload: Payload | None = None,
        group: str = "",
    ) -> None:
        self.driver = ""  # the CSI driver, which alone can report the volume's usage
        self.handle = ""  # the driver's id of the volume
        self.usage: VolumeUsage | None = None  # the driver's last response
        self.republish = False  # the driver requires republishing
        self.name = name
        self.path = path
        self.read_only = read_only
        self.payload = payload
        self.group = group


@dataclass(frozen=True, slots=True)
class VolumeHost:
    """The tools that plugins use."""

    env: KubeletContext
    objects: ReferencedObjects
    tokens: TokenManager
    drivers: CsiDriverRegistry
    devices: Devices
    nested: NestedMountPoints
    flex: FlexDrivers = field(default_factory=FlexDrivers)


SetUp = Callable[
    [VolumeHost, Object, PodVolumeSpec, "MountedVolume | None", float], Awaitable[MountedVolume]
]
"""`await set_up(tools, pod, spec, before, max_age)`: sets up the volume, or updates it when it was
mounted before. Raises VolumeFailure (the text alone) or OSError. `max_age` limits the age of the
objects that it shows.
"""


TearDown = Callable[[VolumeHost, str], Awaitable[None]]
"""`await tear_down(tools, uid)`: removes all volumes of the plugin that the pod has. Raises
VolumeFailure.
"""

Grow = Callable[[VolumeHost, PodVolumeSpec, str, quantity.Quantity], Awaitable[bool]]
"""`await grow(tools, spec, path, size)`: expands the file system of a volume that has grown; False
when that is not possible now. Raises VolumeFailure.
"""


class VolumePlugin(NamedTuple):
    name: str  # kubernetes.io/secret
    set_up: SetUp
    refreshes: bool = False
    tear_down: TearDown | None = None
    grow: Grow | None = None
    present: Callable[[VolumeHost, PodVolumeSpec], Awaitable[bool]] | None = (
        None  # whether the node has the required programs
    )


def change_policy(pod: Object) -> str | None:
    """When the ownership of a volume that outlives its pods is set."""
    policy: str | None = (pod["spec"].get("securityContext") or {}).get("fsGroupChangePolicy")
    return policy


def fs_group(pod: Object) -> int | None:
    group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
    return None if group is None else int(group)
