"""flannel's leases, which map nodes to subnets, once for all agents of the process.

On Kubernetes a lease consists of a Node's annotations and spec. Changes are recorded in order, so
that an agent can apply those since the last access to its node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import orjson

from transom.kit.lazy_dataclass import dataclass

PREFIX = "flannel.alpha.coreos.com/"
BACKEND_TYPE = PREFIX + "backend-type"
BACKEND_DATA = PREFIX + "backend-data"
BACKEND_V6_DATA = PREFIX + "backend-v6-data"
PUBLIC_IP = PREFIX + "public-ip"
PUBLIC_IPV6 = PREFIX + "public-ipv6"
MANAGED = PREFIX + "kube-subnet-manager"


@dataclass(frozen=True, slots=True)
class SubnetLease:
    node: str
    subnet: str
    public_ip: str
    backend_data: str = "null"  # JSON, as in the annotation
    backend_type: str = "host-gw"
    subnet6: str = ""
    public_ip6: str = ""
    backend_data6: str = "null"

    def annotations(self) -> dict[str, str]:
        annotations = {BACKEND_TYPE: self.backend_type, MANAGED: "true"}
        if self.subnet:
            annotations |= {BACKEND_DATA: self.backend_data, PUBLIC_IP: self.public_ip}
        if self.subnet6:
            annotations |= {BACKEND_V6_DATA: self.backend_data6, PUBLIC_IPV6: self.public_ip6}
        return annotations

    def vtep(self, version: int = 4) -> tuple[int, str]:
        """VNI and hardware address of VXLAN; (0, "") for other backends."""
        try:
            data = orjson.loads(self.backend_data if version == 4 else self.backend_data6)
            return int(data["VNI"]), str(data.get("VtepMAC") or "")
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            return 0, ""


class LeaseAgent(Protocol):
    def sync(self) -> None: ...


Step = tuple[SubnetLease | None, SubnetLease | None]
"""A node's lease before and after."""


class SubnetLeases:
    def __init__(self) -> None:
        self.by_node: dict[str, SubnetLease] = {}
        self.steps: list[Step] = []
        self.agents: dict[str, LeaseAgent] = {}
        # for agents that do not wait for the next access
        self.listeners: list[Callable[[], None]] = []

    def put(self, lease: SubnetLease) -> None:
        before = self.by_node.get(lease.node)
        if before != lease:
            self.by_node[lease.node] = lease
            self._step(before, lease)

    def remove(self, node: str) -> None:
        before = self.by_node.pop(node, None)
        if before is not None:
            self._step(before, None)

    def look(self, node: str) -> None:
        """For Fabric.before_look: brings a node's routes up to date."""
        agent = self.agents.get(node)
        if agent is not None:
            agent.sync()

    def sync(self) -> None:
        """Brings all nodes up to date, for data planes that do not read the state on access."""
        for agent in tuple(self.agents.values()):
            agent.sync()

    def _step(self, before: SubnetLease | None, after: SubnetLease | None) -> None:
        self.steps.append((before, after))
        for listener in self.listeners:
            listener()
