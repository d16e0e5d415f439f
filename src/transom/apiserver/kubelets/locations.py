"""Resolves a pod, service or node name in a path to a scheme, a host and a port.

Reads stored objects only. Errors have Kubernetes' texts. `way` decides whether the host may be
dialed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from transom.apiserver.kubelets import dialing
from transom.apiserver.kubelets.options import KubeletOptions
from transom.kit.goquote import go_quote
from transom.kit.named_tuple import NamedTuple
from transom.machinery import errors
from transom.machinery.errors import ApiError, GroupResource
from transom.machinery.integers import parse_int
from transom.machinery.objects import Object
from transom.machinery.validation.names import parse_ip

_DEFAULT_PORTS = {"http": 80, "https": 443}


class FindObject(Protocol):
    def __call__(self, plural: str, namespace: str, name: str) -> Object | None:
        """An object of the core group."""


class ProxyLocation(NamedTuple):
    scheme: str
    host: str
    port: str  # empty: the scheme's default
    kubelet: bool = False  # the target is a kubelet, which requires the client certificate

    @property
    def authority(self) -> str:
        if self.port:
            return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def number(self) -> int | None:
        """The port to connect to; None if the given port is invalid."""
        if not self.port:
            return _DEFAULT_PORTS.get(self.scheme)
        return (
            int(self.port)
            if self.port.isascii() and self.port.isdigit() and parse_int(self.port) < 65536
            else None
        )


def plain_location_error(message: str) -> ApiError:
    """An error for which Kubernetes returns a Status without a reason."""
    return ApiError(500, "", message)


def find_required_object(find: FindObject, plural: str, namespace: str, name: str) -> Object:
    found = find(plural, namespace, name)
    if found is None:
        raise errors.not_found(GroupResource("", plural), name)
    return found


def split_proxy_name(kind: str, text: str) -> tuple[str, str, str]:
    """`name`, `name:port` or `scheme:name:port`."""
    parts = text.split(":")
    scheme, name, port = ("", *parts, "")[:3] if len(parts) < 3 else (*parts, "", "")[:3]
    if len(parts) > 3 or not name or scheme not in ("", "http", "https"):
        raise errors.bad_request(f"invalid {kind} request {go_quote(text)}")
    return scheme, name, port


def kubelet_location(node: Object, options: KubeletOptions) -> ProxyLocation:
    status = node.get("status") or {}
    addresses: Sequence[Object] = status.get("addresses") or ()
    for wanted in options.address_types:
        for address in addresses:
            if address.get("type") == wanted:
                port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get(
                    "Port"
                ) or 0
                return ProxyLocation(
                    "https",
                    address.get("address", ""),
                    str(port if port > 0 else options.port),
                    True,
                )
    known = " ".join(f"{{{a.get('type', '')} {a.get('address', '')}}}" for a in addresses)
    raise plain_location_error(f"no preferred addresses found; known addresses: [{known}]")


def node_location(find: FindObject, text: str, options: KubeletOptions) -> ProxyLocation:
    scheme, name, port = split_proxy_name("node", text)
    kubelet = kubelet_location(find_required_object(find, "nodes", "", name), options)
    if port in ("", kubelet.port):
        return kubelet
    return ProxyLocation(scheme or "http", kubelet.host, port)


def pod_location(find: FindObject, namespace: str, text: str) -> ProxyLocation:
    scheme, name, port = split_proxy_name("pod", text)
    pod = find_required_object(find, "pods", namespace, name)
    if not port:
        containers = (pod.get("spec") or {}).get("containers") or ()
        declared = next((c["ports"][0] for c in containers if c.get("ports")), None)
        port = str(declared["containerPort"]) if declared is not None else ""
    addresses = _addresses(pod)
    try:
        address = dialing.check_dial_address(parse_ip(addresses[0] if addresses else ""))
    except dialing.AddressNotAllowed as problem:
        raise errors.bad_request(str(problem)) from problem
    return ProxyLocation(scheme or "http", str(address), port)


def service_location(
    find: FindObject, namespace: str, text: str, rng: random.Random
) -> ProxyLocation:
    """One of its endpoints that belongs to a pod."""
    scheme, name, port = split_proxy_name("service", text)
    unavailable = errors.service_unavailable(f"no endpoints available for service {go_quote(name)}")
    if port.removeprefix("-").isdigit():
        ports = (find_required_object(find, "services", namespace, name).get("spec") or {}).get(
            "ports"
        ) or ()
        declared = next((p for p in ports if p.get("port") == parse_int(port)), None)
        if declared is None:
            raise errors.service_unavailable(
                f"no service port {parse_int(port)} found for service {go_quote(name)}"
            )
        port = declared.get("name", "")
    subsets = find_required_object(find, "endpoints", namespace, name).get("subsets") or []
    if not subsets:
        raise unavailable
    for subset in _from_anywhere(subsets, rng):
        for candidate in subset.get("ports") or ():
            if candidate.get("name", "") == port:
                for address in _from_anywhere(subset.get("addresses") or (), rng):
                    if _is_pods(find, namespace, address):
                        return ProxyLocation(
                            scheme or "http", address["ip"], str(candidate["port"])
                        )
    raise errors.service_unavailable(f"no endpoints available for service {go_quote(text)}")


def _from_anywhere(items: Sequence[Object], rng: random.Random) -> Sequence[Object]:
    start = rng.randrange(len(items)) if len(items) > 1 else 0
    return [*items[start:], *items[:start]]


def _is_pods(find: FindObject, namespace: str, address: Object) -> bool:
    reference = address.get("targetRef") or {}
    if reference.get("namespace", "") != namespace:
        return False
    pod = find("pods", namespace, reference.get("name", ""))
    return pod is not None and address["ip"] in _addresses(pod)


def _addresses(pod: Object) -> list[str]:
    return [one["ip"] for one in (pod.get("status") or {}).get("podIPs") or () if one.get("ip")]


def location_url(location: ProxyLocation, path: str, query: str) -> str:
    return f"{location.scheme}://{location.authority}{path}" + (f"?{query}" if query else "")
