"""The configuration of kube-proxy's kernel mode: flags, feature gates, and properties of the node
that it determines before it starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from transom.kit.lazy_dataclass import dataclass
from transom.windows.records import Release
from transom.windows.releases import DEFAULT, GATES

LOCALHOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class WinkernelOptions:
    network_name: str = ""  # --network-name
    # the environment variable KUBE_NETWORK
    environment: Mapping[str, str] = field(default_factory=dict)
    source_vip: str = ""  # --source-vip
    enable_dsr: bool = False  # --enable-dsr
    root_endpoint: str = "cbr0"  # --root-hnsendpoint-name
    forward_health_checks: bool = False  # --forward-healthcheck-vip
    healthz_port: int = 10256
    gates: Mapping[str, bool] = field(default_factory=dict)  # --feature-gates
    release: Release = DEFAULT
    node_ip: str = ""  # of the Node with the proxy's hostname; "" if there is none
    cluster_cidr: str = ""
    sync_period: float = 30.0
    min_sync_period: float = 1.0
    ipv6: bool = False

    def gate(self, name: str) -> bool:
        return self.gates.get(name, GATES[name].default(self.release))

    @property
    def slices(self) -> bool:
        """Whether endpoints are read from EndpointSlices."""
        return self.gate("WindowsEndpointSliceProxying")
