"""CSI drivers that have registered with the kubelet, by name, and the CSI calls that a kubelet
makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from transom.kit.named_tuple import NamedTuple
from transom.kit.rpc import RpcError

if TYPE_CHECKING:
    from transom.kubelet.plugins.endpoint import PluginEndpoint
    from transom.machinery.protobuf.table import Message

STAGE_UNSTAGE, GET_STATS, EXPAND = 1, 2, 3
ACCESS_MODES: Final = {"ReadWriteOnce": 1, "ReadOnlyMany": 3, "ReadWriteMany": 5}
# After these errors it is unknown whether the driver is still working.
_UNCERTAIN: Final = frozenset(
    ("Canceled", "DeadlineExceeded", "Unavailable", "ResourceExhausted", "Aborted")
)


class NotRegistered(Exception):
    """The text is Kubernetes'."""


class CsiDriverInfo(NamedTuple):
    name: str
    endpoint: PluginEndpoint
    version: tuple[int, ...]

    async def node(self, method: str, request: Mapping[str, Any] | None = None) -> Message:
        """A call to the driver's Node service. Raises RpcError."""
        return await self.endpoint.call(f"/csi.v1.Node/{method}", request)

    async def can(self, capability: int) -> bool:
        answer = await self.node("NodeGetCapabilities")
        return any(
            (row.get("rpc") or {}).get("type") == capability
            for row in answer.get("capabilities") or ()
        )


class CsiDriverRegistry:
    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        self._by_name: dict[str, CsiDriverInfo] = {}

    def get(self, name: str) -> CsiDriverInfo:
        """Raises NotRegistered."""
        found = self._by_name.get(name)
        if found is None:
            lack = (
                f"driver name {name} not found in the list of registered CSI drivers"
                if name
                else "driver name is empty"
            )
            raise NotRegistered(lack)
        return found

    def find(self, name: str) -> CsiDriverInfo | None:
        return self._by_name.get(name)

    def add(self, driver: CsiDriverInfo) -> None:
        self._by_name[driver.name] = driver

    def remove(self, name: str) -> None:
        self._by_name.pop(name, None)


def is_final(problem: RpcError) -> bool:
    """Whether the request has ended and does not continue in the background."""
    return problem.code not in _UNCERTAIN


def capability(
    mode: str, fs_type: str, options: tuple[str, ...] = (), *, block: bool = False
) -> Message:
    """`mode` is Kubernetes' access mode."""
    access: Message = (
        {"block": {}} if block else {"mount": {"fs_type": fs_type, "mount_flags": list(options)}}
    )
    return {**access, "access_mode": {"mode": ACCESS_MODES.get(mode, 0)}}
