"""Where a pod, a service or a node is to be found: from its name in a path to a scheme, a host and a port.

Reads stored objects only. Refusals have Kubernetes' texts.
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from transom.apiserver.kubelets.options import KubeletOptions
from transom.machinery import errors
from transom.machinery.errors import ApiError, GroupResource
from transom.machinery.field import go_quote
from transom.machinery.objects import Object

_DEFAULT_PORTS = {"http": 80, "https": 443}


class Find(Protocol):
    def __call__(self, plural: str, namespace: str, name: str) -> Object | None:
        """An object of the core group."""


class Location(NamedTuple):
    scheme: str
    host: str
    port: str  # empty: the scheme's own
    kubelet: bool = False  # it is one, and must be spoken to as such

    @property
    def authority(self) -> str:
        if self.port:
            return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def number(self) -> int | None:
        """The port to connect to; None when what was given is no port."""
        if not self.port:
            return _DEFAULT_PORTS[self.scheme]
        return int(self.port) if self.port.isascii() and self.port.isdigit() and int(self.port) < 65536 else None


def plain_error(message: str) -> ApiError:
    """What becomes of an error for which Kubernetes has no reason."""
    return ApiError(500, "", message)


def required(find: Find, plural: str, namespace: str, name: str) -> Object:
    found = find(plural, namespace, name)
    if found is None:
        raise errors.not_found(GroupResource("", plural), name)
    return found


def split(kind: str, text: str) -> tuple[str, str, str]:
    """`name`, `name:port` or `scheme:name:port`."""
    parts = text.split(":")
    scheme, name, port = ("", *parts, "")[:3] if len(parts) < 3 else (*parts, "", "")[:3]
    if len(parts) > 3 or not name or scheme not in ("", "http", "https"):
        raise errors.bad_request(f"invalid {kind} request {go_quote(text)}")
    return scheme, name, port


def of_kubelet(node: Object, options: KubeletOptions) -> Location:
    status = node.get("status") or {}
    addresses: Sequence[Object] = status.get("addresses") or ()
    for wanted in options.address_types:
        for address in addresses:
            if address.get("type") == wanted:
                told = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or 0
                return Location("https", address.get("address", ""), str(told if told > 0 else options.port), True)
    known = " ".join(f"{{{a.get('type', '')} {a.get('address', '')}}}" for a in addresses)
    raise plain_error(f"no preferred addresses found; known addresses: [{known}]")


def of_node(find: Find, text: str, options: KubeletOptions) -> Location:
    scheme, name, port = split("node", text)
    kubelet = of_kubelet(required(find, "nodes", "", name), options)
    if port in ("", kubelet.port):
        return kubelet
    # A host name is not looked up here: whoever connects finds out where it leads.
    if _is_address(kubelet.host):
        _check_proxyable(kubelet.host)
    return Location(scheme or "http", kubelet.host, port)


def of_pod(find: Find, namespace: str, text: str) -> Location:
    scheme, name, port = split("pod", text)
    pod = required(find, "pods", namespace, name)
    if not port:
        containers = (pod.get("spec") or {}).get("containers") or ()
        declared = next((c["ports"][0] for c in containers if c.get("ports")), None)
        port = str(declared["containerPort"]) if declared is not None else ""
    addresses = _addresses(pod)
    _check_proxyable(addresses[0] if addresses else "")
    return Location(scheme or "http", addresses[0], port)


def of_service(find: Find, namespace: str, text: str, rng: random.Random) -> Location:
    """One of its endpoints that belongs to a pod."""
    scheme, name, port = split("service", text)
    unavailable = errors.service_unavailable(f"no endpoints available for service {go_quote(name)}")
    if port.removeprefix("-").isdigit():
        ports = (required(find, "services", namespace, name).get("spec") or {}).get("ports") or ()
        declared = next((p for p in ports if p.get("port") == int(port)), None)
        if declared is None:
            raise errors.service_unavailable(f"no service port {int(port)} found for service {go_quote(name)}")
        port = declared.get("name", "")
    subsets = required(find, "endpoints", namespace, name).get("subsets") or []
    if not subsets:
        raise unavailable
    for subset in _from_anywhere(subsets, rng):
        for candidate in subset.get("ports") or ():
            if candidate.get("name", "") == port:
                for address in _from_anywhere(subset.get("addresses") or (), rng):
                    if _is_pods(find, namespace, address):
                        return Location(scheme or "http", address["ip"], str(candidate["port"]))
    raise errors.service_unavailable(f"no endpoints available for service {go_quote(text)}")


def _from_anywhere(items: Sequence[Object], rng: random.Random) -> Sequence[Object]:
    start = rng.randrange(len(items)) if len(items) > 1 else 0
    return [*items[start:], *items[:start]]


def _is_pods(find: Find, namespace: str, address: Object) -> bool:
    reference = address.get("targetRef") or {}
    if reference.get("namespace", "") != namespace:
        return False
    pod = find("pods", namespace, reference.get("name", ""))
    return pod is not None and address["ip"] in _addresses(pod)


def _addresses(pod: Object) -> list[str]:
    return [one["ip"] for one in (pod.get("status") or {}).get("podIPs") or () if one.get("ip")]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _check_proxyable(host: str) -> None:
    """The server's own surroundings are not for others."""
    address = ipaddress.ip_address(host) if _is_address(host) else None
    if address is None or address.is_loopback or address.is_link_local or _is_near_multicast(address):
        raise errors.bad_request("address not allowed")


def _is_near_multicast(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Multicast that does not leave the link or the interface."""
    if isinstance(address, ipaddress.IPv4Address):
        return address in _LOCAL_MULTICAST
    return address.is_multicast and address.packed[1] & 0x0F in (1, 2)


_LOCAL_MULTICAST = ipaddress.ip_network("224.0.0.0/24")


def url(location: Location, path: str, query: str) -> str:
    return f"{location.scheme}://{location.authority}{path}" + (f"?{query}" if query else "")


