"""Networks: creating, modifying and deleting them, and the switches that they create on the
host.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from transom.machines.windows.hns import endpoints, errors, policies
from transom.machines.windows.hns.adapters import Adapter, virtual_adapter
from transom.machines.windows.hns.errors import HnsError
from transom.machines.windows.hns.features import require_hns_feature
from transom.machines.windows.hns.names import MacPool, is_mac, mac_number, mac_text
from transom.machines.windows.hns.store import (
    SCHEMA,
    HnsStore,
    NetworkRecord,
    Object,
    without_empty_dns,
)
from transom.machines.windows.hns.subnets import DEFAULT_ROUTES, HnsSubnet, hns_subnets
from transom.windows.builds import WindowsBuild

TYPES: Final = ("NAT", "Transparent", "L2Bridge", "L2Tunnel", "ICS", "Private", "Overlay")
EXTERNAL: Final = ("L2Bridge", "L2Tunnel", "Overlay", "Transparent")
INTERNAL: Final = ("NAT", "ICS")
NON_PERSISTENT: Final = 8
DISABLE_HOST_PORT: Final = 1024
# Overlay networks came to Windows Server 2019 with an update (KB4489899).
_OVERLAY_BUILD: Final = (17763, 379)
_SPELLED: Final = {name.lower(): name for name in TYPES}


def check_network_settings(settings: Object) -> None:
    """The client library's checks before it calls the service."""
    for ipam in settings.get("Ipams") or ():
        for subnet in ipam.get("Subnets") or ():
            if not subnet.get("IpAddressPrefix"):
                continue
            routes = subnet.get("Routes") or ()
            if any(not route.get("NextHop") for route in routes):
                raise errors.client_library_error(
                    "network create error, subnet has address prefix but no gateway specified"
                )
            if not any(route.get("DestinationPrefix") in DEFAULT_ROUTES for route in routes):
                raise errors.client_library_error("network create error, no default gateway")


def create_hns_network(store: HnsStore, settings: Object, v1: Object | None = None) -> Object:
    build, flags = store.build, settings.get("Flags") or 0
    network_type = _supported_type(build, settings)
    name = str(settings.get("Name") or "")
    if name and name in store.names_of["network"]:
        raise HnsError(errors.NETWORK_EXISTS)
    key = store.new_id("network", settings.get("ID"))
    found = policies.checked_policy(policies.NETWORK, settings.get("Policies"), build, network_type)
    ipams = _ipams(store, settings, network_type, key)
    ranges = _supported_subnets(build, ipams, network_type)
    pool = _mac_pool(store, settings, key)
    adapter = _adapter(store, network_type, found) if network_type in EXTERNAL else None
    record = NetworkRecord(
        network_type,
        ranges,
        MacPool(
            [
                (mac_number(r["StartMacAddress"]), mac_number(r["EndMacAddress"]))
                for r in pool["Ranges"]
            ]
        ),
        v1=v1 or {},
    )
    if adapter is not None:
        _bind(store, record, adapter)
        if not policies.policies_of_type({"Policies": found}, "NetAdapterName"):
            found.append(
                {"Type": "NetAdapterName", "Settings": {"NetworkAdapterName": adapter.name}}
            )
    else:
        record.switch = store.names.guid()
    if network_type == "Overlay" and not policies.policies_of_type(
        {"Policies": found}, "DrMacAddress"
    ):
        router = mac_text(0x00155D000000 + store.names.number(f"router {key}", 1 << 24))
        found.append({"Type": "DrMacAddress", "Settings": {"Address": router}})
    obj: Object = {"ID": key, "Name": name}
    if network_type != "NAT":  # it is the zero of its enumeration, so the service omits it
        obj["Type"] = network_type
    if found:
        obj["Policies"] = found
    obj["MacPool"] = pool
    dns = without_empty_dns(settings.get("Dns"))
    if dns:
        obj["Dns"] = dns
    obj["Ipams"] = ipams
    if flags:
        obj["Flags"] = flags
    obj["Health"] = store.health(SwitchGuid=record.switch)
    obj["SchemaVersion"] = SCHEMA
    store.network_records[key] = record
    if network_type in INTERNAL:
        _internal(store, key, name, record)
    return store.put("network", key, obj)


def _supported_type(build: WindowsBuild, settings: Object) -> str:
    """The type of the new network; raises HnsError if this build does not support it or its
    flags.
    """
    network_type = _SPELLED.get(str(settings.get("Type") or "NAT").lower())
    if network_type is None:
        raise HnsError(errors.INVALID_NETWORK_TYPE)
    if (settings.get("Flags") or 0) & DISABLE_HOST_PORT:
        require_hns_feature(build, "DisableHostPort")
    if (
        network_type == "Overlay"
        and build.number == _OVERLAY_BUILD[0]
        and build.ubr < _OVERLAY_BUILD[1]
    ):
        raise HnsError(errors.REQUEST_UNSUPPORTED)
    return network_type


def _supported_subnets(
    build: WindowsBuild, ipams: list[Object], network_type: str
) -> list[HnsSubnet]:
    try:
        subnets = hns_subnets(ipams, network_type)
    except ValueError:
        raise HnsError(errors.INVALID_PREFIX) from None
    if any(subnet.network.version == 6 for subnet in subnets):
        require_hns_feature(build, "IPv6 DualStack")
        if network_type == "Overlay":
            raise HnsError(errors.REQUEST_UNSUPPORTED)
    return subnets


def _ipams(store: HnsStore, settings: Object, network_type: str, key: str) -> list[Object]:
    given = settings.get("Ipams") or []
    if not isinstance(given, list):
        raise HnsError(errors.INVALID_NETWORK)
    out = []
    for ipam in given:
        kept = []
        for subnet in ipam.get("Subnets") or ():
            new = {
                name: subnet[name]
                for name in ("IpAddressPrefix", "Routes", "Flags")
                if subnet.get(name)
            }
            own = policies.checked_policy(
                policies.SUBNET, subnet.get("Policies"), store.build, network_type
            )
            if own:
                new["Policies"] = own
            kept.append(new)
        out.append({"Type": ipam.get("Type") or "Static", **({"Subnets": kept} if kept else {})})
    if network_type in INTERNAL and not any(ipam.get("Subnets") for ipam in out):
        out = [{"Type": "Static", "Subnets": [_own_subnet(store, key)]}]
    elif network_type in ("L2Bridge", "L2Tunnel", "Overlay") and not any(
        ipam.get("Subnets") for ipam in out
    ):
        raise HnsError(errors.INVALID_NETWORK)
    return out


def _own_subnet(store: HnsStore, key: str) -> Object:
    """A free subnet of 172.16.0.0/12 on this host."""
    taken = [
        subnet.network for record in store.network_records.values() for subnet in record.subnets
    ]
    taken += [
        ipaddress.ip_interface(a.address).network
        for a in store.adapters.by_name.values()
        if a.address
    ]
    base = int(ipaddress.IPv4Address("172.16.0.0"))
    start = store.names.number(f"subnet {key}", 256)
    for at in range(256):
        network = ipaddress.IPv4Network((base + ((start + at) % 256 << 12), 20))
        if not any(other.version == 4 and other.overlaps(network) for other in taken):
            return {
                "IpAddressPrefix": str(network),
                "Routes": [
                    {"NextHop": str(network.network_address + 1), "DestinationPrefix": "0.0.0.0/0"}
                ],
            }
    raise HnsError(errors.SUBNET_NOT_FOUND)


def _mac_pool(store: HnsStore, settings: Object, key: str) -> Object:
    ranges = (settings.get("MacPool") or {}).get("Ranges")
    if not ranges:
        first = 0x00155D000000 + (store.names.number(f"pool {key}", 1 << 12) << 12)
        ranges = [{"StartMacAddress": mac_text(first), "EndMacAddress": mac_text(first + 0xFFF)}]
    for each in ranges:
        if not (is_mac(each.get("StartMacAddress")) and is_mac(each.get("EndMacAddress"))):
            raise HnsError(errors.INVALID_NETWORK)
    return {"Ranges": ranges}


# ---- the host side ----


def _adapter(store: HnsStore, network_type: str, found: list[Object]) -> Adapter:
    named = [
        s["NetworkAdapterName"]
        for s in policies.policies_of_type({"Policies": found}, "NetAdapterName")
    ]
    addressed = [
        s["ProviderAddress"]
        for s in policies.policies_of_type({"Policies": found}, "ProviderAddress")
    ]
    if named:
        adapter = store.adapters.physical(named[0])
    elif addressed:
        holder = store.adapters.with_address(addressed[0])
        adapter = (
            store.adapters.physical(holder.below or holder.name) if holder is not None else None
        )
    else:
        adapter = store.adapters.physical()
    if adapter is None:
        raise HnsError(errors.ADAPTER_NOT_FOUND)
    # Networks of one type share a switch.
    if any(
        record.adapter == adapter.name and record.type != network_type
        for record in store.network_records.values()
    ):
        raise HnsError(errors.LAYER_EXISTS)
    return adapter


def _bind(store: HnsStore, record: NetworkRecord, adapter: Adapter) -> None:
    if not adapter.switch:
        store.outages.append((store.now(), adapter.name))
        store.adapters.bind(adapter, store.names.guid())
    record.adapter = adapter.name
    record.switch = adapter.switch


def _internal(store: HnsStore, key: str, name: str, record: NetworkRecord) -> None:
    subnet = record.subnets[0]
    address = f"{subnet.gateway}/{subnet.network.prefixlen}"
    store.adapters.add(
        Adapter(
            virtual_adapter(name),
            record.macs.take(),
            address,
            kind="internal",
            network=key,
            switch=record.switch,
        )
    )


# ---- changes ----


def modify_hns_network(store: HnsStore, key: str, request: Object) -> None:
    obj, record = store.objects["network"][key], store.network_records[key]
    settings = request.get("Settings") or {}
    match request.get("ResourceType"), request.get("RequestType"):
        case "Policy", "Add" | "Update" | "Remove" as verb:
            given = policies.checked_policy(
                policies.NETWORK, settings.get("Policies"), store.build, record.type
            )
            present = obj.get("Policies", [])
            present = (
                policies.without_policies(present, given)
                if verb == "Remove"
                else policies.with_policies(present, given)
            )
            changed = {**obj, "Policies": present}
            if not present:
                del changed["Policies"]
        case "DNS", "Add" | "Update":
            changed = {**obj, "Dns": without_empty_dns(settings)}
        case "DNS", "Remove":
            changed = {name: value for name, value in obj.items() if name != "Dns"}
        case "Extension", "Add" | "Update":
            given = policies.checked_policy(
                policies.NETWORK,
                [{"Type": "VSwitchExtension", "Settings": settings}],
                store.build,
                record.type,
            )
            changed = {**obj, "Policies": policies.with_policies(obj.get("Policies", []), given)}
        case _, "Refresh":
            changed = {**obj, "Health": store.health(SwitchGuid=record.switch)}
        case _:
            raise HnsError(errors.REQUEST_UNSUPPORTED)
    store.put("network", key, changed)


def delete_hns_network(store: HnsStore, key: str) -> None:
    """With all its endpoints; removing the last network of a switch releases the adapter."""
    record = store.network_records[key]
    for endpoint in list(record.endpoints):
        endpoints.delete_endpoint(store, endpoint)
    store.drop("network", key)
    del store.network_records[key]
    for name in [
        name for name, adapter in store.adapters.by_name.items() if adapter.network == key
    ]:
        store.adapters.remove(name)
    if record.adapter and not any(
        other.adapter == record.adapter for other in store.network_records.values()
    ):
        physical = store.adapters.physical(record.adapter)
        if physical is not None:
            store.outages.append((store.now(), physical.name))
            store.adapters.unbind(physical)
