"""How users name the ends of a connection: pods, nodes, services, names, addresses, and
`external`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

from transom.kit.ip_addresses import is_ip_address
from transom.kit.lazy_dataclass import dataclass
from transom.network.model.addresses import is_within
from transom.network.stacks import Fabric, NetworkStack
from transom.network.trace.inventory import Inventory, Object, TraceError

Kind = Literal["pod", "node", "service", "name", "address", "external"]
_KINDS: Final[dict[str, Kind]] = {
    "pod": "pod",
    "po": "pod",
    "pods": "pod",
    "node": "node",
    "no": "node",
    "nodes": "node",
    "svc": "service",
    "service": "service",
    "services": "service",
}
_NAME: Final = re.compile(r"[a-zA-Z0-9_]([-a-zA-Z0-9_.]*[a-zA-Z0-9_])?\.?")
KUBELET_PORT: Final = 10250
DEFAULT_PORT: Final = 80


@dataclass(frozen=True, slots=True)
class TracePlace:
    kind: Kind
    text: str
    addresses: tuple[str, ...] = ()  # empty for a name that is not resolved yet
    stack: NetworkStack | None = None  # where a packet can start
    object: Object | None = None
    namespace: str = ""
    name: str = ""

    @property
    def shown(self) -> str:
        if self.kind in ("pod", "service"):
            return f"{self.kind} {self.namespace}/{self.name}"
        return f"node {self.name}" if self.kind == "node" else self.text


def split_target(text: str) -> tuple[str, str]:
    """Splits `TO[:PORT]`; the port is a number or a name."""
    if text.startswith("["):
        address, _, port = text[1:].partition("]")
        return address, port.removeprefix(":")
    if text.count(":") > 1:
        return text, ""
    where, _, port = text.partition(":")
    return where, port


def find_trace_place(
    text: str,
    fabric: Fabric,
    inventory: Inventory,
    namespace: str,
    *,
    origin: TracePlace | None = None,
) -> TracePlace:
    """`origin` is the source of the connection; without it, the place itself is the source."""
    if text == "external":
        return _external(text, fabric)
    if is_ip_address(text):
        return _address(text, fabric, start=origin is None)
    kind, _, rest = text.partition("/")
    if kind in _KINDS and rest:
        return _place_of_kind(_KINDS[kind], text, rest, fabric, inventory, namespace)
    if "/" in text:
        space, _, name = text.partition("/")
        found = _pod(text, space, name, fabric, inventory) or _service(text, space, name, inventory)
        if found is None:
            missing = f"there is no pod or service {name!r} in namespace {space!r}"
            raise TraceError(missing, "kubectl get pods,services -A lists them")
        return found
    found = _pod(text, namespace, text, fabric, inventory) or _node(text, fabric, inventory)
    if found is not None:
        return found
    if origin is None:
        missing = f"there is no pod {text!r} in namespace {namespace!r}, and no such node"
        raise TraceError(missing, "name one of: a pod, a node, an address, external")
    if origin.kind != "pod":
        # Sources without the cluster's resolver refer to the object by its name.
        found = _service(text, namespace, text, inventory)
        if found is not None:
            return found
    if not _NAME.fullmatch(text):
        hint = "for example: default/web, svc/web:80, 10.96.0.1:443, kubernetes"
        raise TraceError(f"{text!r} is neither an address nor a name", hint)
    return TracePlace("name", text)


def _place_of_kind(
    kind: Kind, text: str, rest: str, fabric: Fabric, inventory: Inventory, namespace: str
) -> TracePlace:
    space, slash, name = rest.partition("/")
    if not slash:
        space, name = namespace, rest
    if kind == "node":
        found = _node(rest, fabric, inventory, text)
        missing = f"there is no node {rest!r}"
    else:
        found = (
            _pod(text, space, name, fabric, inventory)
            if kind == "pod"
            else _service(text, space, name, inventory)
        )
        missing = f"there is no {kind} {name!r} in namespace {space!r}"
    if found is None:
        raise TraceError(missing, f"kubectl get {kind}s -A lists them")
    return found


def _external(text: str, fabric: Fabric) -> TracePlace:
    stack = next((s for s in fabric.stacks.values() if s.role == "external"), None)
    if stack is None:
        raise TraceError("this network has no outside")
    addresses = sorted(
        stack.addresses(),
        key=lambda a: is_within(a, fabric.underlay) or is_within(a, fabric.underlay6),
    )
    return TracePlace("external", text, tuple(addresses), stack)


def _address(text: str, fabric: Fabric, *, start: bool) -> TracePlace:
    stack = fabric.owner(text)
    if start and stack is None:
        raise TraceError(
            f"no pod, node or service of this cluster has the address {text}",
            "a connection starts at a pod, a node, or external",
        )
    return TracePlace("address", text, (text,), stack)


def _pod(
    text: str, namespace: str, name: str, fabric: Fabric, inventory: Inventory
) -> TracePlace | None:
    pod = inventory.pod(namespace, name)
    if pod is None:
        return None
    status = pod.get("status") or {}
    addresses = tuple(ip["ip"] for ip in status.get("podIPs") or () if ip.get("ip"))
    stack = next((s for a in addresses if (s := fabric.owner(a)) is not None), None)
    if not addresses or status.get("phase") in ("Succeeded", "Failed"):
        raise TraceError(
            f"pod {namespace}/{name} has no address: it is {status.get('phase', 'Pending')}",
            "wait until it runs",
        )
    return TracePlace("pod", text, addresses, stack, pod, namespace, name)


def _node(name: str, fabric: Fabric, inventory: Inventory, text: str = "") -> TracePlace | None:
    node = inventory.node(name)
    if node is None:
        return None
    addresses = tuple(
        a["address"]
        for a in (node.get("status") or {}).get("addresses") or ()
        if a["type"] == "InternalIP"
    )
    return TracePlace("node", text or name, addresses, fabric.stacks.get(name), node, name=name)


def _service(text: str, namespace: str, name: str, inventory: Inventory) -> TracePlace | None:
    service = inventory.service(namespace, name)
    if service is None:
        return None
    return TracePlace("service", text, cluster_ips(service), None, service, namespace, name)


def cluster_ips(service: Object) -> tuple[str, ...]:
    spec = service["spec"]
    found = spec.get("clusterIPs") or [spec.get("clusterIP", "")]
    return tuple(ip for ip in found if ip and ip != "None")


def ingress_ips(service: Object) -> tuple[str, ...]:
    status = (service.get("status") or {}).get("loadBalancer") or {}
    return tuple(i["ip"] for i in status.get("ingress") or () if i.get("ip"))


def outside_addresses(service: Object) -> tuple[str, ...]:
    return (*ingress_ips(service), *(service["spec"].get("externalIPs") or ()))


def ready_endpoints(one: Object) -> Iterator[tuple[str, str]]:
    """Address and node of the ready endpoints of a slice."""
    for endpoint in one.get("endpoints") or ():
        if (endpoint.get("conditions") or {}).get("ready", True) is not False:
            topology = endpoint.get("deprecatedTopology") or endpoint.get("topology") or {}
            node = endpoint.get("nodeName") or topology.get("kubernetes.io/hostname", "")
            for address in endpoint["addresses"]:
                yield address, node


def port_of(place: TracePlace, requested: str, protocol: str) -> int:
    """The number of the requested port, by number or name; by default the first of the service or
    pod.
    """
    if requested.isdigit():
        if not 1 <= int(requested) <= 65535:
            raise TraceError(
                f"{requested} is not a valid port", "ports are numbers from 1 to 65535"
            )
        return int(requested)
    ports = _ports(place, protocol)
    if requested:
        named = next((number for name, number in ports if name == requested), None)
        if named is None:
            raise TraceError(f"{place.shown} has no port named {requested!r}", "give its number")
        return named
    if ports:
        return ports[0][1]
    return KUBELET_PORT if place.kind == "node" else DEFAULT_PORT


def _ports(place: TracePlace, protocol: str) -> list[tuple[str, int]]:
    if place.object is None:
        return []
    if place.kind == "service":
        found = [
            (p.get("name", ""), p["port"], p.get("protocol", "TCP"))
            for p in place.object["spec"].get("ports") or ()
        ]
    elif place.kind == "pod":
        found = [
            (p.get("name", ""), p["containerPort"], p.get("protocol", "TCP"))
            for c in place.object["spec"].get("containers") or ()
            for p in c.get("ports") or ()
        ]
    else:
        found = []
    return [(name, number) for name, number, of in found if of.lower() == protocol]
