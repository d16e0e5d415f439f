"""Endpoints and EndpointSlices: addresses and ports behind a service."""

from __future__ import annotations

from functools import partial
from typing import Any

from transom.machinery.field import duplicate, invalid, required, too_many
from transom.machinery.validation.checks import (
    PROTOCOLS,
    check_each,
    dns_label,
    dns_subdomain,
    non_special_ip,
    one_of,
)
from transom.machinery.validation.meta import (
    immutable,
    validate_labels,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import (
    is_dns1123_label,
    is_dns1123_subdomain,
    is_qualified_name,
    is_valid_ip,
    is_valid_ipv4_address,
    is_valid_ipv6_address,
    is_valid_port_num,
    name_is_dns_subdomain,
)
from transom.machinery.validation.rules import Errors, Object, ValidationRules


def validate_endpoints(endpoints: Object) -> Errors:
    errors = validate_object_meta(endpoints["metadata"], True, name_is_dns_subdomain)
    for i, subset in enumerate(endpoints.get("subsets") or ()):
        path, ports = f"subsets[{i}]", subset.get("ports") or ()
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for name in ("addresses", "notReadyAddresses"):
            for j, address in enumerate(subset.get(name) or ()):
                errors += _address(address, f"{path}.{name}[{j}]")
        for j, port in enumerate(ports):
            errors += _endpoint_port(port, len(ports) > 1, f"{path}.ports[{j}]")
    return errors


def _address(address: dict[str, Any], path: str) -> Errors:
    ip, node = address.get("ip", ""), address.get("nodeName")
    errors = check_each(f"{path}.ip", ip, is_valid_ip(ip))
    if address.get("hostname"):
        errors += dns_label(address["hostname"], f"{path}.hostname")
    if node is not None:
        errors += dns_subdomain(node, f"{path}.nodeName")
    return errors + non_special_ip(ip, f"{path}.ip")


def _endpoint_port(port: dict[str, Any], need_name: bool, path: str) -> Errors:
    name, number, app = port.get("name", ""), port.get("port", 0), port.get("appProtocol")
    errors: Errors = []
    if name:
        errors += dns_label(name, f"{path}.name")
    elif need_name:
        errors.append(required(f"{path}.name"))
    errors += check_each(f"{path}.port", number, is_valid_port_num(number))
    errors += one_of(port.get("protocol", ""), f"{path}.protocol", PROTOCOLS)
    if app is not None:
        errors += check_each(f"{path}.appProtocol", app, is_qualified_name(app))
    return errors


def update_endpoints(new: Object, old: Object) -> Errors:
    return validate_object_meta_update(new["metadata"], old["metadata"]) + validate_endpoints(new)


def _fully_qualified_domain(address: str, path: str) -> Errors:
    if not address:
        return [required(path)]
    name = address.removesuffix(".")
    messages = is_dns1123_subdomain(name)
    if messages:
        return [invalid(path, name, ",".join(messages))]
    labels = name.split(".")
    if len(labels) < 2:
        return [
            invalid(path, name, "should be a domain with at least two segments separated by dots")
        ]
    for label in labels:
        if messages := is_dns1123_label(label):
            return [invalid(path, label, ",".join(messages))]
    return []


def _slice_address(kind: str, address: str, path: str) -> Errors:
    if kind == "IPv4":
        return check_each(path, address, is_valid_ipv4_address(address)) + non_special_ip(
            address, path
        )
    if kind == "IPv6":
        return check_each(path, address, is_valid_ipv6_address(address)) + non_special_ip(
            address, path
        )
    return _fully_qualified_domain(address, path) if kind == "FQDN" else []


def _topology(endpoint: dict[str, Any]) -> dict[str, str]:
    """The beta form, where the zone is one entry among others."""
    topology = dict(endpoint.get("deprecatedTopology") or {})
    if endpoint.get("zone") is not None:
        topology["topology.kubernetes.io/zone"] = endpoint["zone"]
    return topology


def _slice_endpoint(endpoint: dict[str, Any], kind: str, beta: bool, path: str) -> Errors:
    addresses = endpoint.get("addresses") or ()
    errors: Errors = []
    if not addresses:
        errors.append(required(f"{path}.addresses", "must contain at least 1 address"))
    elif len(addresses) > 100:
        errors.append(too_many(f"{path}.addresses", len(addresses), 100))
    for i, address in enumerate(addresses):
        errors += _slice_address(kind, address, f"{path}.addresses[{i}]")
    if endpoint.get("nodeName") is not None:
        errors += dns_subdomain(endpoint["nodeName"], f"{path}.nodeName")
    topology = _topology(endpoint) if beta else endpoint.get("deprecatedTopology") or {}
    if len(topology) > 16:
        errors.append(too_many(f"{path}.topology", len(topology), 16))
    errors += validate_labels(topology, f"{path}.topology")
    if endpoint.get("hostname") is not None:
        errors += dns_label(endpoint["hostname"], f"{path}.hostname")
    return errors


def _slice_ports(ports: Any) -> Errors:
    if len(ports) > 20000:
        return [too_many("ports", len(ports), 20000)]
    errors: Errors = []
    names: set[str] = set()
    for i, port in enumerate(ports):
        path, name, app = f"ports[{i}]", port.get("name") or "", port.get("appProtocol")
        if name:
            errors += dns_label(name, f"{path}.name")
        if name in names:
            errors.append(duplicate(f"{path}.name", name))
        names.add(name)
        if port.get("protocol") is None:
            errors.append(required(f"{path}.protocol"))
        else:
            errors += one_of(port["protocol"], f"{path}.protocol", PROTOCOLS, empty=None)
        if app is not None:
            errors += check_each(f"{path}.appProtocol", app, is_qualified_name(app))
    return errors


def validate_endpoint_slice(beta: bool, obj: Object) -> Errors:
    kind, endpoints = obj.get("addressType", ""), obj.get("endpoints") or ()
    errors = validate_object_meta(obj["metadata"], True, name_is_dns_subdomain)
    errors += one_of(kind, "addressType", ("FQDN", "IPv4", "IPv6"))
    if len(endpoints) > 1000:
        errors.append(too_many("endpoints", len(endpoints), 1000))
    else:
        for i, endpoint in enumerate(endpoints):
            errors += _slice_endpoint(endpoint, kind, beta, f"endpoints[{i}]")
    return errors + _slice_ports(obj.get("ports") or ())


def update_endpoint_slice(beta: bool, new: Object, old: Object) -> Errors:
    kind = new.get("addressType", "")
    return validate_endpoint_slice(beta, new) + immutable(
        kind, old.get("addressType", ""), "addressType"
    )


def _slice_rules(beta: bool) -> ValidationRules:
    return ValidationRules(
        partial(validate_endpoint_slice, beta), partial(update_endpoint_slice, beta)
    )


VALIDATORS = {
    "/Endpoints": ValidationRules(validate_endpoints, update_endpoints),
    "discovery.k8s.io/EndpointSlice": _slice_rules(False),
    "discovery.k8s.io/EndpointSlice@discovery.k8s.io/v1beta1": _slice_rules(True),
}
