"""Load balancers and SDN routes: objects shared by several endpoints.

A load balancer is identified by its address, port and protocol: they are unique on the host.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from transom.machines.windows.hns import errors, policies
from transom.machines.windows.hns.errors import HnsError
from transom.machines.windows.hns.features import hns_supports, require_hns_feature
from transom.machines.windows.hns.names import guid
from transom.machines.windows.hns.store import SCHEMA, HnsStore, Object

MAX_DESTINATIONS: Final = 64  # of a Virtual Filtering Platform rule
DSR: Final = 1
IPV6: Final = 2
USE_MUX, PRESERVE_DIP = 4, 8  # flags of port mappings
PROTOCOLS: Final = (6, 17, 132)
Key = tuple[int, int, int, str]


def create_load_balancer(store: HnsStore, settings: Object) -> Object:
    key = store.new_id("loadbalancer", settings.get("ID"))
    obj = _checked(store, settings, key)
    return _put(store, key, obj)


def modify_load_balancer(store: HnsStore, key: str, settings: Object) -> None:
    """Replaces it completely."""
    require_hns_feature(store.build, "ModifyLoadbalancer")
    obj = _checked(store, settings, key)
    _forget(store, key)
    _put(store, key, obj)


def delete_load_balancer(store: HnsStore, key: str) -> None:
    _forget(store, key)
    store.drop("loadbalancer", key)


def _put(store: HnsStore, key: str, obj: Object) -> Object:
    for port in load_balancer_keys(obj):
        store.balancer_of[port] = key
    _use(store, key, "loadbalancer", obj["HostComputeEndpoints"])
    return store.put("loadbalancer", key, obj)


def _forget(store: HnsStore, key: str) -> None:
    obj = store.objects["loadbalancer"][key]
    for port in load_balancer_keys(obj):
        del store.balancer_of[port]
    _unuse(store, key, obj["HostComputeEndpoints"])


def _use(store: HnsStore, key: str, kind: str, endpoints: Iterable[str]) -> None:
    for endpoint in endpoints:
        store.users.setdefault(endpoint, {})[key] = kind


def _unuse(store: HnsStore, key: str, endpoints: Iterable[str]) -> None:
    for endpoint in endpoints:
        users = store.users.get(endpoint)
        if users is not None:
            users.pop(key, None)
            if not users:
                del store.users[endpoint]


def load_balancer_keys(obj: Object) -> list[Key]:
    """(4 or 6, protocol, port, VIP); without addresses it applies to every address of the host."""
    family = 6 if obj.get("Flags", 0) & IPV6 else 4
    return [
        (6 if ":" in vip else family, mapping["Protocol"], mapping["ExternalPort"], vip)
        for mapping in obj["PortMappings"]
        for vip in obj.get("FrontendVIPs") or ("",)
    ]


def _references(store: HnsStore, settings: Object) -> list[str]:
    given = settings.get("HostComputeEndpoints") or []
    if not given:
        raise HnsError(errors.INVALID_REFERENCE, "A Reference is required")
    known = store.objects["endpoint"]
    out: dict[str, None] = {}
    for each in given:
        key = each if each in known else guid(each)
        if key not in known:
            raise HnsError(errors.ELEMENT_NOT_FOUND if key else errors.BAD_GUID)
        out[key] = None
    return list(out)


def _checked(store: HnsStore, settings: Object, key: str) -> Object:
    flags = settings.get("Flags") or 0
    if flags & DSR:
        require_hns_feature(store.build, "Direct Server Return (DSR)")
    if flags & IPV6:
        require_hns_feature(store.build, "IPv6 DualStack")
    endpoints = _references(store, settings)
    vips = list(settings.get("FrontendVIPs") or ())
    source = settings.get("SourceVIP") or ""
    if not all(map(policies.is_ip, vips)) or (source and not policies.is_ip(source)):
        raise HnsError(errors.INVALID_POLICY)
    mappings = [_mapping(store, mapping) for mapping in settings.get("PortMappings") or ()]
    if not mappings:
        raise HnsError(errors.INVALID_POLICY)
    obj: Object = {"ID": key, "HostComputeEndpoints": endpoints}
    if source:
        obj["SourceVIP"] = source
    if vips:
        obj["FrontendVIPs"] = vips
    obj["PortMappings"] = mappings
    obj["SchemaVersion"] = SCHEMA
    if flags:
        obj["Flags"] = flags
    taken = load_balancer_keys(obj)
    if len(set(taken)) < len(taken):
        raise HnsError(errors.PORT_EXISTS)
    for _, protocol, port, vip in taken:
        if (protocol, port, vip) in store.mapping_of:
            raise HnsError(errors.PORT_EXISTS)
    if any(store.balancer_of.get(each, key) != key for each in taken):
        raise HnsError(errors.PORT_EXISTS)
    if len(endpoints) > MAX_DESTINATIONS:
        raise HnsError(
            errors.BAD_PARAMETER,
            "Unable to initialize VFP LB rule: invalid number of destinations.",
        )
    return obj


def _mapping(store: HnsStore, given: Object) -> Object:
    protocol, internal, external = (
        given.get("Protocol"),
        given.get("InternalPort"),
        given.get("ExternalPort"),
    )
    if not internal:
        raise HnsError(errors.INVALID_INTERNAL_PORT)
    if (
        protocol not in PROTOCOLS
        or not policies.is_port(internal)
        or not policies.is_port(external)
    ):
        raise HnsError(errors.INVALID_POLICY)
    out: Object = {"Protocol": protocol, "InternalPort": internal, "ExternalPort": external}
    # A service without affinity support ignores it silently.
    if given.get("DistributionType") and hns_supports(store.build, "Session Affinity"):
        out["DistributionType"] = given["DistributionType"]
    flags = given.get("Flags") or 0
    if not hns_supports(store.build, "Preserve Destination"):  # and what comes with it
        flags &= ~(USE_MUX | PRESERVE_DIP)
    if flags:
        out["Flags"] = flags
    return out


# ---- routes ----


def create_route_policy(store: HnsStore, settings: Object) -> Object:
    if not settings.get("HostComputeEndpoints"):
        raise errors.client_library_error("missing endpoints")
    key = store.new_id("route", settings.get("ID"))
    endpoints = _references(store, settings)
    given = [{"Type": "SDNRoute", "Settings": each} for each in settings.get("Setting") or ()]
    found = policies.checked_policy(policies.ENDPOINT, given, store.build, "")
    if not found:
        raise HnsError(errors.INVALID_POLICY)
    obj = {
        "ID": key,
        "HostComputeEndpoints": endpoints,
        "Setting": [each["Settings"] for each in found],
        "SchemaVersion": SCHEMA,
    }
    _use(store, key, "route", endpoints)
    return store.put("route", key, obj)


def delete_route_policy(store: HnsStore, key: str) -> None:
    _unuse(store, key, store.objects["route"][key]["HostComputeEndpoints"])
    store.drop("route", key)
