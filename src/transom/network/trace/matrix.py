"""The flows of the documentation, tested on this cluster: whether each works, and why not.

Flows start at a Windows pod or node. Flows that a cluster cannot test (no second Windows node, no
service with a NodePort) are reported as such, not guessed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Final, NamedTuple

from transom.kit.lazy_dataclass import dataclass
from transom.network.model.packet_trip import NetworkState
from transom.network.model.walk import always_listening
from transom.network.packets import Protocol
from transom.network.stacks import NetworkStack
from transom.network.trace.inventory import Inventory, Object, TraceError
from transom.network.trace.places import cluster_ips, ingress_ips
from transom.network.trace.run import run_trace
from transom.windows.limits import LIMITS

_OS: Final = "kubernetes.io/os"
_DNS_PORT: Final = 53


@dataclass(frozen=True, slots=True)
class MatrixPlaces:
    """The participants of the flows, as arguments of a trace; "" if missing."""

    here: str = ""  # a Windows node
    elsewhere: str = ""  # another
    linux: str = ""  # a Linux node
    pod: str = ""  # a pod of `here`
    second: str = ""  # another pod of the node
    remote: str = ""  # a pod of `elsewhere`
    linux_pod: str = ""
    service: str = ""  # namespace/name
    same: str = ""  # the bare name of a service in the pod's own namespace
    vip: str = ""
    node_port: str = ""
    balanced: str = ""  # an address of a load balancer, with its port
    outside_name: str = ""
    pod6: str = ""  # a Windows pod with an address of IPv6
    linux6: str = ""  # addresses of IPv6: of a Linux pod,
    address6: str = ""  # of that Windows pod,
    vip6: str = ""  # of a service that has no other,
    outside6: str = ""  # and of the outside
    domain: str = "cluster.local"
    addresses: Mapping[str, str] = field(default_factory=dict)  # of pods


class MatrixFlow(NamedTuple):
    id: str  # id of the documentation's statement
    title: str
    documented: bool  # whether it works according to the documentation
    ends: Callable[[MatrixPlaces], tuple[str, str]]  # from and to; empty: this cluster has none
    lacks: str = ""  # what is missing in that case
    protocol: Protocol = "tcp"


class MatrixResult(NamedTuple):
    id: str
    flow: str
    origin: str
    target: str
    protocol: str
    documented: bool
    works: bool | None  # None: not tried
    why: str
    limit: str
    address: str = ""

    def document(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "flow": self.flow,
            "from": self.origin or None,
            "to": self.target or None,
            "protocol": self.protocol,
            "document": self.documented,
            "works": self.works,
            "why": self.why or None,
            "limit": self.limit or None,
        }


def _dashed(cast: MatrixPlaces, pod: str) -> str:
    """The DNS name of a pod's address."""
    address = cast.addresses.get(pod, "")
    return f"{address.replace('.', '-')}.{pod.split('/')[1]}.pod.{cast.domain}" if address else ""


def _name(cast: MatrixPlaces, suffix: str) -> str:
    namespace, _, name = cast.service.partition("/")
    return f"{name}.{namespace}{suffix}" if cast.service else ""


def _ported(node: str, cast: MatrixPlaces) -> str:
    return f"{node}:{cast.node_port}" if node and cast.node_port else ""


_SECOND: Final = "a second pod"
_AFAR: Final = "a pod on another node"
_SERVED: Final = "a service with endpoints"
_NODE_PORT: Final = "a service with a NodePort"
FLOWS: Final = (
    MatrixFlow(
        "FLOW-01",
        "Pod to pod by address, same node",
        True,
        lambda c: (c.pod, c.second),
        "two Windows pods on one node",
    ),
    MatrixFlow(
        "FLOW-01",
        "Pod to pod by address, other node",
        True,
        lambda c: (c.pod, c.remote),
        "pods on two Windows nodes",
    ),
    MatrixFlow(
        "FLOW-01", "Windows pod to Linux pod", True, lambda c: (c.pod, c.linux_pod), "a Linux pod"
    ),
    MatrixFlow(
        "FLOW-01", "Linux pod to Windows pod", True, lambda c: (c.linux_pod, c.pod), "a Linux pod"
    ),
    MatrixFlow(
        "FLOW-01", "Pod to pod, UDP", True, lambda c: (c.pod, c.remote or c.linux_pod), _AFAR, "udp"
    ),
    MatrixFlow(
        "FLOW-02",
        "Pod to pod by name",
        True,
        lambda c: (c.pod, _dashed(c, c.remote or c.second or c.linux_pod)),
        _SECOND,
    ),
    MatrixFlow("FLOW-03", "Pod to service by address", True, lambda c: (c.pod, c.vip), _SERVED),
    MatrixFlow(
        "FLOW-04",
        "Pod to service by bare name",
        True,
        lambda c: (c.pod, c.same),
        "a service in the pod's namespace",
    ),
    MatrixFlow(
        "DNS-08",
        "Pod to service by NAME.NAMESPACE",
        False,
        lambda c: (c.pod, _name(c, "")),
        "a service",
    ),
    MatrixFlow(
        "FLOW-05",
        "Pod to service by full name",
        True,
        lambda c: (c.pod, _name(c, f".svc.{c.domain}")),
        "a service",
    ),
    MatrixFlow("FLOW-06", "Pod to outside by address", True, lambda c: (c.pod, "external")),
    MatrixFlow(
        "FLOW-07",
        "Pod to outside by name",
        True,
        lambda c: (c.pod, c.outside_name),
        "a name outside that DNS knows",
    ),
    MatrixFlow("FLOW-08", "Node to its own pod", True, lambda c: (c.here, c.pod)),
    MatrixFlow(
        "FLOW-08",
        "Node to pod of another node",
        True,
        lambda c: (c.here, c.remote or c.linux_pod),
        _AFAR,
    ),
    MatrixFlow("FLOW-09", "Pod to its own node", True, lambda c: (c.pod, c.here)),
    MatrixFlow(
        "FLOW-09",
        "Pod to another node",
        True,
        lambda c: (c.pod, c.elsewhere or c.linux),
        "another node",
    ),
    MatrixFlow(
        "LNET-15",
        "Ping from pod to pod",
        True,
        lambda c: (c.pod, c.remote or c.second or c.linux_pod),
        _SECOND,
        "icmp",
    ),
    MatrixFlow(
        "LNET-14", "Ping from pod to outside", False, lambda c: (c.pod, "external"), "", "icmp"
    ),
    MatrixFlow("LNET-07", "Node to service by address", False, lambda c: (c.here, c.vip), _SERVED),
    MatrixFlow(
        "LNET-06",
        "Node to its own NodePort",
        False,
        lambda c: (c.here, _ported(c.here, c)),
        _NODE_PORT,
    ),
    MatrixFlow(
        "SVC-08",
        "Another node to the NodePort",
        True,
        lambda c: (c.elsewhere or c.linux, _ported(c.here, c)),
        _NODE_PORT,
    ),
    MatrixFlow(
        "SVC-08",
        "Outside to the NodePort",
        True,
        lambda c: ("external", _ported(c.here, c)),
        _NODE_PORT,
    ),
    MatrixFlow(
        "SVC-08",
        "Pod to its node's NodePort",
        True,
        lambda c: (c.pod, _ported(c.here, c)),
        _NODE_PORT,
    ),
    MatrixFlow(
        "SVC-10",
        "Outside to the load balancer",
        True,
        lambda c: ("external", c.balanced),
        "a LoadBalancer's address",
    ),
)
# Only for dual-stack clusters.
FLOWS_OF_IPV6: Final = (
    MatrixFlow(
        "DS-01",
        "Windows pod to Linux pod, IPv6",
        True,
        lambda c: (c.pod6, c.linux6),
        "pods with IPv6",
    ),
    MatrixFlow(
        "DS-01",
        "Linux pod to Windows pod, IPv6",
        True,
        lambda c: (c.linux_pod, c.address6),
        "pods with IPv6",
    ),
    MatrixFlow(
        "DS-01",
        "Pod to outside by address, IPv6",
        True,
        lambda c: (c.pod6, c.outside6),
        "an address outside",
    ),
    MatrixFlow(
        "IP6-02",
        "Pod to service of IPv6",
        True,
        lambda c: (c.pod6, c.vip6),
        "a service of IPv6 alone",
    ),
)


async def run_matrix(
    world: NetworkState, inventory: Inventory, cast: MatrixPlaces
) -> list[MatrixResult]:
    """Does not check whether a process listens: this is about the path."""
    previous = inventory.listening
    inventory.listening = _network_only(previous)
    try:
        flows = (*FLOWS, *FLOWS_OF_IPV6) if cast.linux6 or cast.address6 else FLOWS
        return [await _try(world, inventory, flow, cast) for flow in flows]
    finally:
        inventory.listening = previous


def _network_only(actual: Callable[..., bool]) -> Callable[..., bool]:
    """Every address listens, except node ports on nodes, where only a rule can answer, and name
    servers on a pod's own loopback address.
    """

    def listening(stack: NetworkStack, address: str, port: int, protocol: str) -> bool:
        if port == _DNS_PORT and ipaddress.ip_address(address).is_loopback:
            return actual(stack, address, port, protocol)
        return always_listening(stack, address, port, protocol) and not (
            stack.role == "node" and 30000 <= port <= 32767
        )

    return listening


async def _try(
    world: NetworkState, inventory: Inventory, flow: MatrixFlow, cast: MatrixPlaces
) -> MatrixResult:
    def result(works: bool | None, why: str, limit: str = "", address: str = "") -> MatrixResult:
        return MatrixResult(
            flow.id,
            flow.title,
            origin,
            target,
            flow.protocol,
            flow.documented,
            works,
            why,
            limit,
            address,
        )

    origin, target = flow.ends(cast) if cast.here and cast.pod else ("", "")
    if not origin or not target:
        missing = flow.lacks if cast.here and cast.pod else "a running Windows pod"
        origin = target = ""
        return result(None, f"not tried: it takes {missing}")
    try:
        found = await run_trace(world, inventory, origin, target, flow.protocol)
    except TraceError as problem:
        return result(None, f"not tried: {problem.message}")
    works = found.verdict == "delivered"
    why = "" if works else (LIMITS[found.limit].title if found.limit else found.explanation)
    return result(works, why, found.limit, found.address)


def find_matrix_places(inventory: Inventory, outside6: str = "") -> MatrixPlaces:
    """From what runs in the cluster; `outside6` is an external IPv6 address."""
    systems = {
        n["metadata"]["name"]: (n["metadata"].get("labels") or {}).get(_OS, "")
        for n in inventory.nodes()
    }
    running = [p for p in inventory.pods() if _runs(p)]
    windows = [p for p in running if systems.get(p["spec"].get("nodeName", "")) == "windows"]
    linux = [
        p
        for p in running
        if systems.get(p["spec"].get("nodeName", "")) == "linux"
        and not p["spec"].get("hostNetwork")
    ]
    by_node: dict[str, list[Object]] = {}
    for pod in windows:
        by_node.setdefault(pod["spec"]["nodeName"], []).append(pod)
    here = max(by_node, key=lambda node: len(by_node[node]), default="")
    other = next((node for node in by_node if node != here), "") or _other(systems, "windows", here)
    first = by_node[here][0] if here else None
    service = _service(inventory, first)
    named = _key(service) if service is not None else ""
    chosen = {
        "pod": first,
        "second": by_node[here][1] if here and len(by_node[here]) > 1 else None,
        "remote": by_node[other][0] if other in by_node else None,
        "linux_pod": linux[0] if linux else None,
    }
    texts = {role: f"pod/{_key(pod)}" for role, pod in chosen.items() if pod is not None}
    addresses = {
        texts[role]: pod["status"]["podIP"] for role, pod in chosen.items() if pod is not None
    }
    able = next((pod for pod in windows if _ipv6(pod)), None)
    return MatrixPlaces(
        here=here,
        elsewhere=other,
        linux=_other(systems, "linux", ""),
        service=named,
        same=same["metadata"]["name"]
        if (same := _service(inventory, first, own=True)) is not None
        else "",
        vip=f"{cluster_ips(service)[0]}:{_port(service)}" if service is not None else "",
        node_port=_node_port(inventory),
        balanced=_balanced(inventory),
        outside_name=inventory.outside_name,
        domain=inventory.domain,
        addresses=addresses,
        **texts,
        pod6=f"pod/{_key(able)}" if able is not None else "",
        address6=_ipv6(able) if able is not None else "",
        linux6=_ipv6(linux[0]) if linux else "",
        vip6=_vip6(inventory),
        outside6=outside6,
    )


def _runs(pod: Object) -> bool:
    status = pod.get("status") or {}
    return status.get("phase") == "Running" and bool(status.get("podIP"))


def _ipv6(pod: Object) -> str:
    return next((ip["ip"] for ip in pod["status"].get("podIPs") or () if ":" in ip["ip"]), "")


def _vip6(inventory: Inventory) -> str:
    for service in inventory.services():
        found = cluster_ips(service)
        if (
            len(found) == 1
            and ":" in found[0]
            and any(_tcp(service))
            and _served(inventory, service)
        ):
            return f"[{found[0]}]:{_port(service)}"
    return ""


def _key(found: Object) -> str:
    return f"{found['metadata']['namespace']}/{found['metadata']['name']}"


def _other(systems: Mapping[str, str], os: str, than: str) -> str:
    return next((name for name, system in systems.items() if system == os and name != than), "")


def _tcp(service: Object) -> Iterable[Mapping[str, Any]]:
    return (p for p in service["spec"].get("ports") or () if p.get("protocol", "TCP") == "TCP")


def _port(service: Object) -> int:
    return int(next(iter(_tcp(service)))["port"])


def _first_ipv4(service: Object) -> bool:
    found = cluster_ips(service)
    return bool(found) and ":" not in found[0]


def _served(inventory: Inventory, service: Object) -> bool:
    meta = service["metadata"]
    return any(one.get("endpoints") for one in inventory.slices(meta["namespace"], meta["name"]))


def _service(inventory: Inventory, pod: Object | None, *, own: bool = False) -> Object | None:
    """A service with an address, a TCP port and endpoints; preferably in the pod's namespace."""
    space = pod["metadata"]["namespace"] if pod is not None else ""
    fitting = [
        s for s in inventory.services() if _first_ipv4(s) and any(_tcp(s)) and _served(inventory, s)
    ]
    near = [s for s in fitting if s["metadata"]["namespace"] == space]
    usual = sorted(
        near if own else near or fitting, key=lambda s: s["metadata"]["name"] == "kubernetes"
    )
    return usual[0] if usual else None


def _node_port(inventory: Inventory) -> str:
    """A service that every node serves, if there is one."""
    found = [
        (s["spec"].get("externalTrafficPolicy") == "Local", p["nodePort"])
        for s in inventory.services()
        for p in _tcp(s)
        if p.get("nodePort") and _first_ipv4(s) and _served(inventory, s)
    ]
    return str(min(found)[1]) if found else ""


def _balanced(inventory: Inventory) -> str:
    for service in inventory.services():
        if ingress_ips(service) and _first_ipv4(service) and any(_tcp(service)):
            return f"{ingress_ips(service)[0]}:{_port(service)}"
    return ""
