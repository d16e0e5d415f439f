"""Load balancers and SDN routes: what several endpoints have in common.

A load balancer is known by its address, port and protocol: nobody else on the host may have them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from transom.hosts.windows.hns import errors, policies
from transom.hosts.windows.hns.errors import HnsError
from transom.hosts.windows.hns.features import require, supports
from transom.hosts.windows.hns.names import guid
from transom.hosts.windows.hns.store import SCHEMA, Object, Store

MAX_DESTINATIONS: Final = 64  # of a rule of the virtual filtering platform
DSR: Final = 1
IPV6: Final = 2
USE_MUX, PRESERVE_DIP = 4, 8  # flags of port mappings
PROTOCOLS: Final = (6, 17, 132)
Key = tuple[int, int, int, str]


def create(store: Store, settings: Object) -> Object:
    key = store.new_id("loadbalancer", settings.get("ID"))
    obj = _checked(store, settings, key)
    return _put(store, key, obj)


def modify(store: Store, key: str, settings: Object) -> None:
    """The whole of it anew."""
    require(store.build, "ModifyLoadbalancer")
    obj = _checked(store, settings, key)
    _forget(store, key)
    _put(store, key, obj)


def delete(store: Store, key: str) -> None:
    _forget(store, key)
    store.drop("loadbalancer", key)


def _put(store: Store, key: str, obj: Object) -> Object:
    for port in keys(obj):
        store.balancer_of[port] = key
    _use(store, key, "loadbalancer", obj["HostComputeEndpoints"])
    return store.put("loadbalancer", key, obj)


def _forget(store: Store, key: str) -> None:
    obj = store.objects["loadbalancer"][key]
    for port in keys(obj):
        del store.balancer_of[port]
    _unuse(store, key, obj["HostComputeEndpoints"])


def _use(store: Store, key: str, kind: str, endpoints: Iterable[str]) -> None:
    for endpoint in endpoints:
        store.users.setdefault(endpoint, {})[key] = kind


def _unuse(store: Store, key: str, endpoints: Iterable[str]) -> None:
    for endpoint in endpoints:
        users = store.users.get(endpoint)
        if users is not None:
            users.pop(key, None)
            if not users:
                del store.users[endpoint]


def keys(obj: Object) -> list[Key]:
    """(4 or 6, protocol, port, VIP); without addresses it is on every address of the host."""
    family = 6 if obj.get("Flags", 0) & IPV6 else 4
    return [
        (6 if ":" in vip else family, mapping["Protocol"], mapping["ExternalPort"], vip)
        for mapping in obj["PortMappings"]
        for vip in obj.get("FrontendVIPs") or ("",)
    ]


def _references(store: Store, settings: Object) -> list[str]:
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


def _checked(store: Store, settings: Object, key: str) -> Object:
    flags = settings.get("Flags") or 0
    if flags & DSR:
        require(store.build, "Direct Server Return (DSR)")
    if flags & IPV6:
        require(store.build, "IPv6 DualStack")
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
    taken = keys(obj)
    if len(set(taken)) < len(taken):
        raise HnsError(errors.PORT_EXISTS)
    for _, protocol, port, vip in taken:
        if (protocol, port, vip) in store.mapping_of:
            raise HnsError(errors.PORT_EXISTS)
    if any(store.balancer_of.get(each, key) != key for each in taken):
        raise HnsError(errors.PORT_EXISTS)
    if len(endpoints) > MAX_DESTINATIONS:
        raise HnsError(errors.BAD_PARAMETER, "Unable to initialize VFP LB rule: invalid number of destinations.")
    return obj


def _mapping(store: Store, given: Object) -> Object:
    protocol, internal, external = given.get("Protocol"), given.get("InternalPort"), given.get("ExternalPort")
    if not internal:
        raise HnsError(errors.INVALID_INTERNAL_PORT)
    if protocol not in PROTOCOLS or not policies.is_port(internal) or not policies.is_port(external):
        raise HnsError(errors.INVALID_POLICY)
    out: Object = {"Protocol": protocol, "InternalPort": internal, "ExternalPort": external}
    # A service that does not know of affinity does not complain either.
    if given.get("DistributionType") and supports(store.build, "Session Affinity"):
        out["DistributionType"] = given["DistributionType"]
    flags = given.get("Flags") or 0
    if not supports(store.build, "Preserve Destination"):  # nor of what comes with it
        flags &= ~(USE_MUX | PRESERVE_DIP)
    if flags:
        out["Flags"] = flags
    return out


# ---- routes --------------------------------------------------------------------------------------------------------


def create_route(store: Store, settings: Object) -> Object:
    if not settings.get("HostComputeEndpoints"):
        raise errors.plain("missing endpoints")
    key = store.new_id("route", settings.get("ID"))
    endpoints = _references(store, settings)
    given = [{"Type": "SDNRoute", "Settings": each} for each in settings.get("Setting") or ()]
    found = policies.checked(policies.ENDPOINT, given, store.build, "")
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


def delete_route(store: Store, key: str) -> None:
    _unuse(store, key, store.objects["route"][key]["HostComputeEndpoints"])
    store.drop("route", key)
