"""Endpoints: the switch ports of containers and of the host, and remote ones that represent an
address elsewhere.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final

from transom.machines.windows.hns import errors, policies
from transom.machines.windows.hns.adapters import Adapter, virtual_adapter
from transom.machines.windows.hns.errors import HnsError
from transom.machines.windows.hns.features import hns_supports, require_hns_feature
from transom.machines.windows.hns.names import is_mac
from transom.machines.windows.hns.store import (
    ATTACHED,
    DETACHED,
    SCHEMA,
    SHARING,
    EndpointRecord,
    HnsStore,
    NetworkRecord,
    Object,
    without_empty_dns,
)

REMOTE: Final = 1
_FIRST_PORT: Final = 49152


def check_endpoint_settings(settings: Object) -> None:
    if settings.get("HostComputeNamespace"):
        raise errors.client_library_error(
            "endpoint create error, endpoint json HostComputeNamespace is read only and "
            "should not be set"
        )


def create_endpoint(
    store: HnsStore, settings: Object, network: str, v1: Object | None = None
) -> Object:
    record = store.network_records[network]
    remote = bool((settings.get("Flags") or 0) & REMOTE)
    key = store.new_id("endpoint", settings.get("ID"))
    found = policies.checked_policy(
        policies.ENDPOINT, settings.get("Policies"), store.build, record.type
    )
    mac = settings.get("MacAddress") or ""
    if mac and not is_mac(mac):
        raise HnsError(errors.INVALID_ENDPOINT)
    given = settings.get("IpConfigurations") or []
    _check_sets(store, network, found)
    ports = _ports(store, key, found)
    # From here on resources are allocated: nothing may fail after the address.
    addresses = _addresses(store, record, given, remote)
    mine = EndpointRecord(network, ports=ports, instance=store.names.guid(), v1=v1 or {})
    if not mac and not remote:
        mac = mine.pooled_mac = record.macs.take()
        if not mac:
            raise HnsError(errors.INVALID_ENDPOINT)
    obj: Object = {
        "ID": key,
        "Name": str(settings.get("Name") or "Ethernet"),
        "HostComputeNetwork": network,
    }
    if found:
        obj["Policies"] = found
    if addresses:
        obj["IpConfigurations"] = addresses
    if not remote:
        dns = without_empty_dns(settings.get("Dns") or store.objects["network"][network].get("Dns"))
        if dns:
            obj["Dns"] = dns
    routes = settings.get("Routes") or ([] if remote else _default_routes(record, addresses))
    if routes:
        obj["Routes"] = routes
    if mac:
        obj["MacAddress"] = mac
    if settings.get("Flags"):
        obj["Flags"] = settings["Flags"]
    obj["Health"] = store.health()
    obj["SchemaVersion"] = SCHEMA
    for port in ports:
        store.mapping_of[port] = key
    for address in addresses:
        record.by_ip[address["IpAddress"]] = key
    record.endpoints[key] = None
    record.total += 1
    record.most = max(record.most, len(record.endpoints))
    store.endpoint_records[key] = mine
    return store.put("endpoint", key, obj)


def _addresses(store: HnsStore, record: NetworkRecord, given: Any, remote: bool) -> list[Object]:
    if not given:
        return [] if remote else _assigned(record)
    out: list[Object] = []
    for wanted in given:
        text = wanted.get("IpAddress") if isinstance(wanted, dict) else None
        try:
            address = ipaddress.ip_address(text or "")
        except ValueError:
            raise HnsError(errors.INVALID_IP) from None
        if address.version == 6:
            require_hns_feature(store.build, "IPv6 DualStack")
        text = str(address)
        subnet = next((subnet for subnet in record.subnets if subnet.has(address)), None)
        if not remote and record.subnets and (subnet is None or text in subnet.reserved):
            raise HnsError(errors.BAD_ADDRESS)
        if text in record.by_ip or any(text == other["IpAddress"] for other in out):
            raise HnsError(errors.OBJECT_EXISTS)
        prefix = wanted.get("PrefixLength") or (
            subnet.network.prefixlen if subnet is not None else address.max_prefixlen
        )
        if type(prefix) is not int or not 0 < prefix <= address.max_prefixlen:
            raise HnsError(errors.INVALID_ENDPOINT)
        if prefix == 32 and address.version == 4 and not remote:
            require_hns_feature(store.build, "Slash 32 Endpoint prefixes")
        out.append({"IpAddress": text, "PrefixLength": prefix})
    return out


def _assigned(record: NetworkRecord) -> list[Object]:
    """One address of each family, from the first subnet that has one left."""
    out: list[Object] = []
    for version in sorted({subnet.network.version for subnet in record.subnets}):
        for subnet in record.subnets:
            address = subnet.free(record.by_ip) if subnet.network.version == version else ""
            if address:
                out.append({"IpAddress": address, "PrefixLength": subnet.network.prefixlen})
                break
        else:
            raise HnsError(errors.SUBNET_NOT_FOUND)
    return out


def _default_routes(record: NetworkRecord, addresses: list[Object]) -> list[Object]:
    routes = []
    for each in addresses:
        address = ipaddress.ip_address(each["IpAddress"])
        gateway = next((subnet.gateway for subnet in record.subnets if subnet.has(address)), "")
        if gateway:
            routes.append(
                {
                    "NextHop": gateway,
                    "DestinationPrefix": "0.0.0.0/0" if address.version == 4 else "::/0",
                }
            )
    return routes


def _check_sets(store: HnsStore, network: str, found: list[Object]) -> None:
    """Access lists may refer to the network's address sets."""
    if not found or not hns_supports(store.build, "SetPolicy"):
        return
    sets: set[str] | None = None
    for settings in policies.policies_of_type({"Policies": found}, "ACL"):
        for name in ("LocalAddresses", "RemoteAddresses"):
            for each in (settings.get(name) or "").split(","):
                if each and not policies.is_prefix(each.strip()):
                    if sets is None:
                        sets = {
                            s["Id"]
                            for s in policies.policies_of_type(
                                store.objects["network"][network], "SetPolicy"
                            )
                        }
                    if each.strip() not in sets:
                        raise HnsError(errors.INVALID_POLICY)


def _ports(store: HnsStore, key: str, found: list[Object]) -> tuple[tuple[int, int, str], ...]:
    """The host ports of the endpoint's mappings. One without an external port gets one."""
    out: list[tuple[int, int, str]] = []
    for settings in policies.policies_of_type({"Policies": found}, "PortMapping"):
        protocol, address = settings["Protocol"], settings.get("VIP") or ""
        if not settings.get("ExternalPort"):
            settings["ExternalPort"] = next(
                port
                for port in range(_FIRST_PORT, 65536)
                if (protocol, port, address) not in store.mapping_of
                and (protocol, port, address) not in out
            )
        port = (protocol, settings["ExternalPort"], address)
        family = 6 if ":" in address else 4
        if (
            store.mapping_of.get(port, key) != key
            or port in out
            or (family, protocol, port[1], address) in store.balancer_of
        ):
            raise HnsError(errors.PORT_EXISTS)
        out.append(port)
    return tuple(out)


# ---- changes ----


def modify_endpoint(store: HnsStore, key: str, request: Object) -> None:
    obj, record = store.objects["endpoint"][key], store.endpoint_records[key]
    settings = request.get("Settings") or {}
    match request.get("ResourceType"), request.get("RequestType"):
        case "Policy", "Add" | "Update" | "Remove" as verb:
            given = policies.checked_policy(
                policies.ENDPOINT,
                settings.get("Policies"),
                store.build,
                store.network_records[record.network].type,
            )
            present = obj.get("Policies", [])
            if verb == "Remove":
                found = policies.without_policies(present, given)
            else:
                found = policies.with_policies(present, given) if verb == "Add" else given
            set_endpoint_policies(store, key, found)
        case "Port", "Add":
            _not_remote(obj)
            _not_attached(record)
            record.machine = str(settings.get("VirtualNicName") or settings.get("PortId") or "port")
            record.state = ATTACHED
            store.notify("endpoint", key, "changed")
        case "Port", "Remove":
            if not record.machine:
                raise HnsError(errors.ELEMENT_NOT_FOUND)
            record.machine = ""
            record.state = DETACHED
            store.notify("endpoint", key, "changed")
        case _, "Refresh":
            store.put("endpoint", key, {**obj, "Health": store.health()})
        case _:
            raise HnsError(errors.REQUEST_UNSUPPORTED)


def set_endpoint_policies(store: HnsStore, key: str, found: list[Object]) -> None:
    obj, record = store.objects["endpoint"][key], store.endpoint_records[key]
    _check_sets(store, record.network, found)
    ports = _ports(store, key, found)
    for port in record.ports:
        del store.mapping_of[port]
    record.ports = ports
    for port in ports:
        store.mapping_of[port] = key
    changed = {**obj, "Policies": found}
    if not found:
        del changed["Policies"]
    store.put("endpoint", key, changed)


def delete_endpoint(store: HnsStore, key: str) -> None:
    """Removes it from its users: load balancers lose a destination, its namespace an endpoint."""
    obj, record = store.objects["endpoint"][key], store.endpoint_records.pop(key)
    network = store.network_records[record.network]
    for address in obj.get("IpConfigurations", ()):
        network.by_ip.pop(address["IpAddress"], None)
    del network.endpoints[key]
    for port in record.ports:
        del store.mapping_of[port]
    if record.pooled_mac:
        network.macs.give_back(record.pooled_mac)
    if record.host:
        for name in store.adapters.of_endpoint(key):
            store.adapters.remove(name)
    namespace = obj.get("HostComputeNamespace")
    if namespace:
        left_namespace(store, namespace, key)
    for user, kind in store.users.pop(key, {}).items():
        table = store.objects[kind]
        rest = [each for each in table[user]["HostComputeEndpoints"] if each != key]
        store.put(kind, user, {**table[user], "HostComputeEndpoints": rest})
    store.drop("endpoint", key)


def left_namespace(store: HnsStore, namespace: str, key: str) -> None:
    obj = store.objects["namespace"].get(namespace)
    if obj is None:
        return
    rest = [each for each in obj.get("Resources", ()) if each["Data"]["ID"] != key]
    changed = {**obj, "Resources": rest}
    if not rest:
        del changed["Resources"]
    store.put("namespace", namespace, changed)


# ---- attachment ----


def _not_remote(obj: Object) -> None:
    if obj.get("Flags", 0) & REMOTE:
        raise HnsError(errors.INVALID_REMOTE_OPERATION)


def _not_attached(record: EndpointRecord) -> None:
    if record.containers or record.host or record.machine:
        raise HnsError(errors.ALREADY_ATTACHED)


def attach_container(store: HnsStore, key: str, container: str) -> None:
    """A second container shares it with the first."""
    obj, record = store.objects["endpoint"][key], store.endpoint_records[key]
    _not_remote(obj)
    if record.host or record.machine or container in record.containers:
        raise HnsError(errors.ALREADY_ATTACHED)
    record.containers.append(container)
    record.state = SHARING if len(record.containers) > 1 else ATTACHED
    store.notify("endpoint", key, "changed")


def detach_container(store: HnsStore, key: str, container: str) -> None:
    record = store.endpoint_records[key]
    if container not in record.containers:
        raise HnsError(errors.ELEMENT_NOT_FOUND)
    record.containers.remove(container)
    record.state = (
        (SHARING if len(record.containers) > 1 else ATTACHED) if record.containers else DETACHED
    )
    store.notify("endpoint", key, "changed")


def attach_host(store: HnsStore, key: str, compartment: int) -> None:
    obj, record = store.objects["endpoint"][key], store.endpoint_records[key]
    _not_remote(obj)
    _not_attached(record)
    if obj.get("HostComputeNamespace"):
        raise HnsError(errors.ALREADY_ATTACHED)
    record.host = compartment or 1
    record.state = ATTACHED
    name = virtual_adapter(obj["Name"])
    number = 1
    while name in store.adapters.by_name:
        number += 1
        name = f"{virtual_adapter(obj['Name'])} {number}"
    first = obj.get("IpConfigurations", [{}])[0]
    address = f"{first['IpAddress']}/{first['PrefixLength']}" if first else ""
    mac = obj.get("MacAddress", "")
    store.adapters.add(
        Adapter(name, mac, address, kind="endpoint", compartment=record.host, endpoint=key)
    )
    store.notify("endpoint", key, "changed")


def detach_host(store: HnsStore, key: str) -> None:
    record = store.endpoint_records[key]
    if not record.host:
        raise HnsError(errors.ELEMENT_NOT_FOUND)
    record.host = 0
    record.state = DETACHED
    for name in store.adapters.of_endpoint(key):
        store.adapters.remove(name)
    store.notify("endpoint", key, "changed")
