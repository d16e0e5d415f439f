"""Endpoints and EndpointSlices: addresses and ports behind a service."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from transom.machinery.field import duplicate, invalid, required, too_many
from transom.machinery.releases import has_tables
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation.addresses import STRICT_ADDRESSES, canonical_ip, legacy_ip
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
    is_ipv6,
    is_label_value,
    is_qualified_name,
    is_valid_ip,
    is_valid_ipv4_address,
    is_valid_ipv6_address,
    is_valid_port_num,
    name_is_dns_subdomain,
)
from transom.machinery.validation.rules import Errors, Object, RulesFactory, ValidationRules

_MAX_HINTS = 8


def validate_endpoints(endpoints: Object, *, strict: bool | None = None) -> Errors:
    """`strict` is set in releases where addresses have the errors of all legacy fields."""
    errors = validate_object_meta(endpoints["metadata"], True, name_is_dns_subdomain)
    for i, subset in enumerate(endpoints.get("subsets") or ()):
        path, ports = f"subsets[{i}]", subset.get("ports") or ()
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for name in ("addresses", "notReadyAddresses"):
            for j, address in enumerate(subset.get(name) or ()):
                errors += _address(address, f"{path}.{name}[{j}]", strict)
        for j, port in enumerate(ports):
            errors += _endpoint_port(port, len(ports) > 1, f"{path}.ports[{j}]")
    return errors


def _address(address: dict[str, Any], path: str, strict: bool | None) -> Errors:
    ip, node = address.get("ip", ""), address.get("nodeName")
    errors = (
        check_each(f"{path}.ip", ip, is_valid_ip(ip))
        if strict is None
        else legacy_ip(ip, f"{path}.ip", strict=strict)
    )
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


def validate_endpoints_update(new: Object, old: Object) -> Errors:
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


def validate_endpoint_slice_update(beta: bool, new: Object, old: Object) -> Errors:
    kind = new.get("addressType", "")
    return validate_endpoint_slice(beta, new) + immutable(
        kind, old.get("addressType", ""), "addressType"
    )


def _hints(hints: dict[str, Any], path: str) -> Errors:
    """Zones and nodes that should use an endpoint, at most eight of each."""
    errors: Errors = []
    for name, check in (("forZones", is_label_value), ("forNodes", is_dns1123_subdomain)):
        items, where = hints.get(name) or (), f"{path}.{name}"
        if len(items) > _MAX_HINTS:
            return [*errors, too_many(where, len(items), _MAX_HINTS)]
        names = [item.get("name", "") for item in items]
        for i, value in enumerate(names):
            if value in names[:i]:
                errors.append(duplicate(f"{where}[{i}].name", value))
            errors += check_each(f"{where}[{i}].name", value, check(value))
    return errors


def _legacy_slice_address(kind: str, address: str, path: str, index: int, strict: bool) -> Errors:
    """The rules of 1.33; those of IPv6 were always strict."""
    where = f"{path}[{index}]"
    if kind == "FQDN":
        return _fully_qualified_domain(address, where)
    if kind not in ("IPv4", "IPv6"):
        return []
    errors = (
        legacy_ip(address, where, strict=strict) if kind == "IPv4" else canonical_ip(address, where)
    )
    if errors:
        return errors
    if is_ipv6(address) != (kind == "IPv6"):
        errors.append(invalid(path, address, f"must be an {kind} address"))
    return errors + non_special_ip(address, where)


class SliceOptions(NamedTuple):
    legacy: bool  # addresses have the errors of all legacy fields; ports come before endpoints
    strict: bool
    hints: bool


def _release_endpoint(
    endpoint: dict[str, Any], kind: str, path: str, options: SliceOptions
) -> Errors:
    addresses = endpoint.get("addresses") or ()
    where = f"{path}.addresses"
    errors: Errors = []
    if not addresses:
        errors.append(required(where, "must contain at least 1 address"))
    elif len(addresses) > 100:
        errors.append(too_many(where, len(addresses), 100))
    for i, address in enumerate(addresses):
        errors += (
            _legacy_slice_address(kind, address, where, i, options.strict)
            if options.legacy
            else _slice_address(kind, address, f"{where}[{i}]")
        )
    if endpoint.get("nodeName") is not None:
        errors += dns_subdomain(endpoint["nodeName"], f"{path}.nodeName")
    topology = endpoint.get("deprecatedTopology") or {}
    where = f"{path}.deprecatedTopology"
    if len(topology) > 16:
        errors.append(too_many(where, len(topology), 16))
    errors += validate_labels(topology, where)
    if endpoint.get("hostname") is not None:
        errors += dns_label(endpoint["hostname"], f"{path}.hostname")
    hints = endpoint.get("hints")
    return errors + (_hints(hints, f"{path}.hints") if hints and options.hints else [])


def _release_slice(obj: Object, old: Object | None, options: SliceOptions) -> Errors:
    kind, endpoints = obj.get("addressType", ""), obj.get("endpoints") or ()
    errors = validate_object_meta(obj["metadata"], True, name_is_dns_subdomain)
    errors += one_of(kind, "addressType", ("FQDN", "IPv4", "IPv6"))
    ports = _slice_ports(obj.get("ports") or ())
    found: Errors = []
    if len(endpoints) > 1000:
        found.append(too_many("endpoints", len(endpoints), 1000))
    else:
        for i, endpoint in enumerate(endpoints):
            found += _release_endpoint(endpoint, kind, f"endpoints[{i}]", options)
    if not options.legacy:
        return errors + found + ports
    if old is not None and old.get("endpoints") == obj.get("endpoints"):
        found = []
    return errors + ports + found


def _slice_rules(beta: bool, features: FeatureSet) -> ValidationRules:
    if not has_tables(features.release) or beta:
        return ValidationRules(
            partial(validate_endpoint_slice, beta), partial(validate_endpoint_slice_update, beta)
        )
    options = SliceOptions(
        has_behaviour(features.release, "LegacyAddressErrors"),
        features.enabled(STRICT_ADDRESSES),
        features.enabled("TopologyAwareHints"),
    )

    def update(new: Object, old: Object) -> Errors:
        kind = new.get("addressType", "")
        errors = _release_slice(new, old, options)
        return errors + immutable(kind, old.get("addressType", ""), "addressType")

    return ValidationRules(lambda obj: _release_slice(obj, None, options), update)


def _endpoints_rules(features: FeatureSet) -> ValidationRules:
    if not has_behaviour(features.release, "LegacyAddressErrors"):
        return ValidationRules(validate_endpoints, validate_endpoints_update)
    strict = features.enabled(STRICT_ADDRESSES)

    def update(new: Object, old: Object) -> Errors:
        errors = validate_object_meta_update(new["metadata"], old["metadata"])
        if new.get("subsets") == old.get("subsets"):  # valid when it was stored
            return errors + validate_object_meta(new["metadata"], True, name_is_dns_subdomain)
        return errors + validate_endpoints(new, strict=strict)

    return ValidationRules(partial(validate_endpoints, strict=strict), update)


VALIDATORS: Mapping[str, RulesFactory] = {
    "/Endpoints": _endpoints_rules,
    "discovery.k8s.io/EndpointSlice": partial(_slice_rules, False),
    "discovery.k8s.io/EndpointSlice@discovery.k8s.io/v1beta1": partial(_slice_rules, True),
}
