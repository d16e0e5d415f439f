"""Cells of services and other network kinds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from transom.machinery.tables.text import (
    NONE,
    UNKNOWN,
    UNSET,
    Object,
    age_cell,
    labels_cell,
    name_cell,
    part_cell,
    selector_cell,
    shorten_list,
)

_SHOWN = 3


def _load_balancer(obj: Object) -> str:
    ingress = part_cell(obj, "status", "loadBalancer", "ingress") or ()
    return ",".join(
        sorted(
            {i.get("ip") or i.get("hostname") for i in ingress if i.get("ip") or i.get("hostname")}
        )
    )


def _external_ip(obj: Object) -> str:
    spec = part_cell(obj, "spec")
    kind, addresses = spec.get("type", ""), spec.get("externalIPs") or []
    if kind in ("ClusterIP", "NodePort"):
        return ",".join(addresses) or NONE
    if kind == "LoadBalancer":
        balancer = _load_balancer(obj)
        return ",".join([balancer, *addresses] if balancer else addresses) or "<pending>"
    return spec.get("externalName", "") if kind == "ExternalName" else UNKNOWN


def _service_port(port: Object) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort", 0) > 0 else ""
    return f"{port.get('port', 0)}{node_port}/{port.get('protocol', '')}"


def print_service(obj: Object, now: float) -> list[Any]:
    spec = part_cell(obj, "spec")
    addresses = spec.get("clusterIPs")
    return [
        name_cell(obj),
        spec.get("type", ""),
        addresses[0] if addresses else NONE,
        _external_ip(obj),
        ",".join(_service_port(p) for p in spec.get("ports") or ()) or NONE,
        age_cell(obj, now),
        labels_cell(spec.get("selector")),
    ]


def _host_port(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _endpoint_texts(subsets: Iterable[Object]) -> Iterable[str]:
    for subset in subsets:
        addresses = subset.get("addresses") or ()
        if not subset.get("ports"):  # a headless service may have no ports
            yield from (a.get("ip", "") for a in addresses)
            continue
        for port in subset["ports"]:
            yield from (_host_port(a.get("ip", ""), port.get("port", 0)) for a in addresses)


def _endpoints_cell(subsets: Sequence[Object]) -> str:
    """The total is computed: a subset of 10,000 addresses and ports has a hundred million pairs."""
    total = sum(
        len(subset.get("addresses") or ()) * (len(subset.get("ports") or ()) or 1)
        for subset in subsets
    )
    return shorten_list(list(islice(_endpoint_texts(subsets), _SHOWN)), _SHOWN, total=total)


def print_endpoints(obj: Object, now: float) -> list[Any]:
    subsets = obj.get("subsets")
    return [
        name_cell(obj),
        _endpoints_cell(subsets) if subsets else NONE,
        age_cell(obj, now),
    ]


def _slice_port(port: Object) -> str:
    if port.get("port") is not None:
        return str(port["port"])
    return port["name"] if port.get("name") is not None else "*"


def print_endpoint_slice(obj: Object, now: float) -> list[Any]:
    addresses = [a for e in obj.get("endpoints") or () for a in e.get("addresses") or ()]
    return [
        name_cell(obj),
        obj.get("addressType", ""),
        shorten_list([_slice_port(p) for p in obj.get("ports") or ()], _SHOWN) or UNSET,
        shorten_list(addresses, _SHOWN) or UNSET,
        age_cell(obj, now),
    ]


def _hosts(rules: Iterable[Object]) -> str:
    """Up to three host names; the number of further ones counts rules, with or without a host."""
    shown: list[str] = []
    more = total = 0
    for rule in rules:
        total += 1
        more = more or len(shown) == _SHOWN
        if not more and rule.get("host"):
            shown.append(rule["host"])
    if not shown:
        return "*"
    text = ",".join(shown)
    return f"{text} + {total - _SHOWN} more..." if more else text


def print_ingress(obj: Object, now: float) -> list[Any]:
    spec = part_cell(obj, "spec")
    ingress_class = spec.get("ingressClassName")
    return [
        name_cell(obj),
        NONE if ingress_class is None else ingress_class,
        _hosts(spec.get("rules") or ()),
        _load_balancer(obj),
        "80, 443" if spec.get("tls") else "80",
        age_cell(obj, now),
    ]


def print_ingress_class(obj: Object, now: float) -> list[Any]:
    spec = part_cell(obj, "spec")
    parameters, text = spec.get("parameters"), NONE
    if parameters is not None:
        group = parameters.get("apiGroup")
        kind = (
            parameters.get("kind", "") if group is None else f"{parameters.get('kind', '')}.{group}"
        )
        text = f"{kind}/{parameters.get('name', '')}"
    return [name_cell(obj), spec.get("controller", ""), text, age_cell(obj, now)]


def print_network_policy(obj: Object, now: float) -> list[Any]:
    return [
        name_cell(obj),
        selector_cell(part_cell(obj, "spec", "podSelector")),
        age_cell(obj, now),
    ]


CELLS = {
    "/Endpoints": print_endpoints,
    "/Service": print_service,
    "discovery.k8s.io/EndpointSlice": print_endpoint_slice,
    "networking.k8s.io/Ingress": print_ingress,
    "networking.k8s.io/IngressClass": print_ingress_class,
    "networking.k8s.io/NetworkPolicy": print_network_policy,
}
