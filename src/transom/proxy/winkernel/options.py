"""What kube-proxy's kernel mode is told: flags, feature gates, and what it finds out about its node before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from transom.windows.records import Release
from transom.windows.releases import DEFAULT, GATES

LOCALHOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Options:
    network_name: str = ""  # --network-name
    environment: Mapping[str, str] = field(default_factory=dict)  # of the process: KUBE_NETWORK
    source_vip: str = ""  # --source-vip
    enable_dsr: bool = False  # --enable-dsr
    gates: Mapping[str, bool] = field(default_factory=dict)  # --feature-gates
    release: Release = DEFAULT
    node_ip: str = ""  # of the Node that has the proxy's host name; "" when there is none
    cluster_cidr: str = ""
    sync_period: float = 30.0
    min_sync_period: float = 1.0
    ipv6: bool = False

    def gate(self, name: str) -> bool:
        return self.gates.get(name, GATES[name].default(self.release))

    @property
    def slices(self) -> bool:
        """Whether endpoints come from EndpointSlices."""
        return self.gate("WindowsEndpointSliceProxying")
