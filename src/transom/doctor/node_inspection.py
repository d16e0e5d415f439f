"""The state of a node's machine and agents, which only nodes of our own clusters report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, Final

from transom.kit.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class NodeState:
    name: str
    os: str = "linux"
    state: str = "running"  # or stopped, starting
    simulated: bool = True
    mode: str = ""  # of the network
    plugin: str = ""  # that makes it
    # the HNS network that plugins and kube-proxy look for; "" if there is none
    network: str = ""
    fault: str = ""  # why the network has not been created
    # existing networks with their management addresses
    networks: Mapping[str, str] = field(default_factory=dict)
    adapters: tuple[str, ...] = ()
    mac_spoofing: bool = True
    pod_cidr: str = ""
    kube_proxy_problem: str = ""
    kube_proxy_hostname: str = ""  # the name that it uses for its node
    # kubelet, kube-proxy, flanneld that are not running: their last log lines
    stopped: Mapping[str, str] = field(default_factory=dict)
    # running programs: their API server, if it does not respond
    unreachable: Mapping[str, str] = field(default_factory=dict)
    subnet_env: str | None = None  # flannel's file; None if it does not exist
    source_vip: str = ""  # as set in the file, on an overlay
    kube_proxy_source_vip: str = ""  # as kube-proxy was started with it
    proxy: str = ""  # a proxy between the machine and registries
    variables: Mapping[str, str] = field(default_factory=dict)  # set for the whole machine
    control_plane: bool = False  # whether the API server's service and DNS have its address
    disk_capacity: int = 0
    disk_free: int = 0
    clock_offset: float = 0.0  # seconds that its clock is ahead of the API server's
    cni_problem: str = ""  # why its CNI configuration cannot be used
    source_vip_problem: str = ""  # why kube-proxy has no source VIP, on an overlay
    # Windows' own services that the network of pods needs and that do not run
    stopped_services: tuple[str, ...] = ()
    missing_features: tuple[str, ...] = ()  # of Windows that containers need
    down_links: tuple[str, ...] = ()  # network interfaces that an administrator has taken down
    default_route: bool = True
    forwarding: bool = True  # between interfaces, which pods of Linux nodes need
    lost_balancers: tuple[str, ...] = ()  # NAMESPACE/NAME of services without load balancer in HNS
    # NAMESPACE/NAME of running pods whose address has no HNS endpoint
    lost_endpoints: tuple[str, ...] = ()
    paged: int = 0  # bytes of programs that are in the page file
    remote_endpoints: tuple[str, ...] = ()  # addresses of other nodes' pods in HNS
    # addresses of HNS endpoints in the node's range that no pod has
    leaked_endpoints: tuple[str, ...] = ()
    # why its firewall blocks connections to its kubelet
    kubelet_blocked: str = ""
    disabled: tuple[str, ...] = ()  # services of Kubernetes whose start type is Disabled
    faults: tuple[str, ...] = ()  # enabled features of the host networking service
    # NAMESPACE/NAME of pods: ports they should listen on
    unheard: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # NAMESPACE/NAME of pods: ports that services target with UDP, and that serve only TCP
    tcp_only: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    # name servers of the machine, set by an administrator, that do not answer
    dead_name_servers: tuple[str, ...] = ()
    # NAMESPACE/NAME of pods: name servers of their own that do not answer
    pod_name_servers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def windows(self) -> bool:
        return self.os == "windows"


_TUPLES: Final = (
    "adapters",
    "stopped_services",
    "missing_features",
    "down_links",
    "dead_name_servers",
    "lost_balancers",
    "lost_endpoints",
    "leaked_endpoints",
    "remote_endpoints",
    "disabled",
    "faults",
)


def node_state_from_document(document: Mapping[str, Any]) -> NodeState:
    """Decodes the output of `dataclasses.asdict`; ignores fields of newer clusters."""
    names = {f.name for f in fields(NodeState)}
    values: dict[str, Any] = {name: value for name, value in document.items() if name in names}
    for name in _TUPLES:
        values[name] = tuple(values.get(name) or ())
    return NodeState(**values)
