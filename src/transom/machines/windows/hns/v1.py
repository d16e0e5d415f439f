"""Converts v2 documents to the v1 schema, and v1 requests to v2 settings.

A request yields two things: the settings, and v1-only fields, which are stored with the object for
its view.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from transom.machines.windows.hns import errors
from transom.machines.windows.hns.errors import HnsError
from transom.machines.windows.hns.names import guid
from transom.machines.windows.hns.policies import policies_of_type
from transom.machines.windows.hns.store import EndpointRecord, NetworkRecord, Object
from transom.machines.windows.hns.subnets import DEFAULT_ROUTES
from transom.machines.windows.hns.v1policies import policy_to_v1, policy_to_v2

_ENDPOINT_ONLY: Final = ("EnableInternalDNS", "DisableICC", "EnableLowMetric")
_NETWORK_ONLY: Final = ("DNSServerCompartment",)
# Network policies that are separate fields in v1: policy type -> its setting, the field.
_NETWORK_FIELDS: Final = {
    "NetAdapterName": ("NetworkAdapterName", "NetworkAdapterName"),
    "SourceMacAddress": ("SourceMacAddress", "SourceMac"),
    "AutomaticDNS": ("Enable", "AutomaticDNS"),
    "DrMacAddress": ("Address", "DrMacAddress"),
}
_SWITCHED: Final = ("L2Bridge", "L2Tunnel")
# Flags of a load balancer's port mapping, and their names in v1.
_MAPPING_FLAGS: Final = {
    "ILB": 1,
    "LocalRoutedVip": 2,
    "UseMux": 4,
    "PreserveDip": 8,
    "IsVipExternalIP": 16,
}
_BALANCER_FLAGS: Final = {"IsDSR": 1, "IsIPv6": 2}
_APPLIED: Final = 2


def _split(text: object) -> list[str]:
    return [part for part in str(text or "").split(",") if part]


def _dns_settings(body: Mapping[str, Any]) -> Object:
    dns = {
        "Domain": body.get("DNSDomain") or "",
        "Search": _split(body.get("DNSSuffix")),
        "ServerList": _split(body.get("DNSServerList")),
    }
    return {name: value for name, value in dns.items() if value}


def _dns_view(obj: Mapping[str, Any]) -> Object:
    dns = obj.get("Dns") or {}
    view = {
        "DNSDomain": dns.get("Domain") or "",
        "DNSSuffix": ",".join(dns.get("Search") or ()),
        "DNSServerList": ",".join(dns.get("ServerList") or ()),
    }
    return {name: value for name, value in view.items() if value}


def _version(version: tuple[int, int]) -> int:
    return version[0] << 32 | version[1]


# ---- networks ----


def network_settings(body: Mapping[str, Any]) -> tuple[Object, Object]:
    found = [policy_to_v2(policy) for policy in body.get("Policies") or ()]
    for kind, (setting, field) in _NETWORK_FIELDS.items():
        if body.get(field):
            found.append({"Type": kind, "Settings": {setting: body[field]}})
    if body.get("ManagementIP") and not body.get("NetworkAdapterName"):
        found.append(
            {"Type": "ProviderAddress", "Settings": {"ProviderAddress": body["ManagementIP"]}}
        )
    subnets = []
    for subnet in body.get("Subnets") or ():
        prefix, gateway = subnet.get("AddressPrefix"), subnet.get("GatewayAddress")
        if prefix and not gateway:
            raise errors.client_library_error(
                "network create error, subnet has address prefix but no gateway specified"
            )
        new: Object = {"IpAddressPrefix": prefix}
        if gateway:
            new["Routes"] = [
                {"NextHop": gateway, "DestinationPrefix": DEFAULT_ROUTES[":" in gateway]}
            ]
        if subnet.get("Flags"):
            new["Flags"] = subnet["Flags"]
        if subnet.get("Policies"):
            new["Policies"] = [policy_to_v2(policy) for policy in subnet["Policies"]]
        subnets.append(new)
    settings: Object = {
        "Name": body.get("Name"),
        "Type": body.get("Type"),
        "Flags": body.get("Flags") or 0,
        "Policies": found,
    }
    settings["Dns"] = _dns_settings(body)
    if body.get("ID"):
        settings["ID"] = body["ID"]
    if body.get("MacPools"):
        settings["MacPool"] = {"Ranges": body["MacPools"]}
    if subnets:
        settings["Ipams"] = [{"Type": "Static", "Subnets": subnets}]
    return settings, {name: body[name] for name in _NETWORK_ONLY if body.get(name)}


def network_view(
    obj: Mapping[str, Any], record: NetworkRecord, management_ip: str, version: tuple[int, int]
) -> Object:
    view: Object = {
        "CurrentEndpointCount": len(record.endpoints),
        "Flags": obj.get("Flags", 0),
        "Health": obj["Health"]["Data"],
        "ID": obj["ID"],
        "IPv6": any(subnet.network.version == 6 for subnet in record.subnets),
        "LayeredOn": record.switch,
        "MacPools": obj["MacPool"]["Ranges"],
        "MaxConcurrentEndpoints": record.most,
        "Name": obj["Name"],
        "Policies": [
            policy_to_v1(policy)
            for policy in obj.get("Policies", ())
            if policy["Type"] not in _NETWORK_FIELDS
        ],
        "State": 1,
        "Subnets": [
            _subnet_view(subnet) for ipam in obj["Ipams"] for subnet in ipam.get("Subnets", ())
        ],
        "SwitchGuid": record.switch,
        "TotalEndpoints": record.total,
        "Type": "nat" if record.type == "NAT" else record.type,
        "Version": _version(version),
        **_dns_view(obj),
        **record.v1,
    }
    for kind, (setting, field) in _NETWORK_FIELDS.items():
        for settings in policies_of_type(obj, kind):
            if settings.get(setting):
                view[field] = settings[setting]
    if management_ip:
        view["ManagementIP"] = management_ip
    return view


def _subnet_view(subnet: Mapping[str, Any]) -> Object:
    gateway = next(
        (
            r["NextHop"]
            for r in subnet.get("Routes", ())
            if r.get("DestinationPrefix") in DEFAULT_ROUTES
        ),
        "",
    )
    view = {
        "AddressPrefix": subnet.get("IpAddressPrefix", ""),
        "Flags": subnet.get("Flags", 0),
        "GatewayAddress": gateway,
    }
    return {**view, "Policies": [policy_to_v1(policy) for policy in subnet.get("Policies", ())]}


# ---- endpoints ----


def endpoint_settings(body: Mapping[str, Any]) -> tuple[Object, Object]:
    # An endpoint without policies shows this one; it was not configured.
    found = [
        policy_to_v2(policy)
        for policy in body.get("Policies") or ()
        if policy.get("Type") != "L2Driver"
    ]
    if body.get("EncapOverhead") and not any(policy["Type"] == "EncapOverhead" for policy in found):
        found.append({"Type": "EncapOverhead", "Settings": {"Overhead": body["EncapOverhead"]}})
    addresses, routes = [], []
    for address, length, gateway, default in (
        ("IPAddress", "PrefixLength", "GatewayAddress", "0.0.0.0/0"),
        ("IPv6Address", "IPv6PrefixLength", "GatewayAddressV6", "::/0"),
    ):
        if body.get(address):
            addresses.append({"IpAddress": body[address], "PrefixLength": body.get(length) or 0})
        if body.get(gateway):
            routes.append({"NextHop": body[gateway], "DestinationPrefix": default})
    flags = (body.get("Flags") or 0) | (1 if body.get("IsRemoteEndpoint") else 0)
    settings = {
        "Name": body.get("Name"),
        "Policies": found,
        "IpConfigurations": addresses,
        "Dns": _dns_settings(body),
        "Routes": [*routes, *(body.get("Routes") or ())],
        "MacAddress": body.get("MacAddress") or "",
        "Flags": flags,
    }
    if body.get("ID"):
        settings["ID"] = body["ID"]
    return settings, {name: body[name] for name in _ENDPOINT_ONLY if body.get(name)}


def endpoint_view(
    obj: Mapping[str, Any],
    record: EndpointRecord,
    network: Mapping[str, Any],
    kind: str,
    version: tuple[int, int],
) -> Object:
    found = [
        policy_to_v1(policy)
        for policy in obj.get("Policies", ())
        if policy["Type"] != "EncapOverhead"
    ]
    view: Object = {
        "Flags": obj.get("Flags", 0),
        "Health": obj["Health"]["Data"],
        "ID": obj["ID"],
        "MacAddress": obj.get("MacAddress", ""),
        "Name": obj["Name"],
        "Policies": found or ([{"Type": "L2Driver"}] if kind in _SWITCHED else []),
        "State": record.state,
        "Type": "nat" if kind == "NAT" else kind,
        "Version": _version(version),
        "VirtualNetwork": obj["HostComputeNetwork"],
        "VirtualNetworkName": network["Name"],
        **_dns_view(obj),
        **record.v1,
    }
    for address in obj.get("IpConfigurations", ()):
        ip, length = (
            ("IPv6Address", "IPv6PrefixLength")
            if ":" in address["IpAddress"]
            else ("IPAddress", "PrefixLength")
        )
        view[ip], view[length] = address["IpAddress"], address["PrefixLength"]
    others = []
    for route in obj.get("Routes", ()):
        if route.get("DestinationPrefix") == "0.0.0.0/0" and "GatewayAddress" not in view:
            view["GatewayAddress"] = route.get("NextHop", "")
        elif route.get("DestinationPrefix") == "::/0" and "GatewayAddressV6" not in view:
            view["GatewayAddressV6"] = route.get("NextHop", "")
        else:
            others.append(route)
    if others:
        view["Routes"] = others
    for settings in policies_of_type(obj, "EncapOverhead"):
        view["EncapOverhead"] = settings["Overhead"]
    if obj.get("Flags", 0) & 1:
        view["IsRemoteEndpoint"] = True
    if record.containers:
        view["SharedContainers"] = list(record.containers)
    if obj.get("HostComputeNamespace"):
        view["Namespace"] = {"ID": obj["HostComputeNamespace"]}
    return view


# ---- policy lists ----


def policylist_settings(body: Mapping[str, Any]) -> tuple[str, Object]:
    """A load balancer or a route, whatever its policies are."""
    references = []
    for reference in body.get("References") or ():
        head, _, key = str(reference).strip("/").rpartition("/")
        if head != "endpoints" or not guid(key):
            raise HnsError(errors.INVALID_REFERENCE)
        references.append(guid(key))
    given = [policy for policy in body.get("Policies") or () if isinstance(policy, dict)]
    settings: Object = {"HostComputeEndpoints": references}
    if body.get("ID"):
        settings["ID"] = body["ID"]
    kinds = {policy.get("Type") for policy in given}
    if kinds == {"ROUTE"}:
        return "route", {
            **settings,
            "Setting": [policy_to_v2(policy)["Settings"] for policy in given],
        }
    if kinds != {"ELB"}:
        raise HnsError(errors.INVALID_POLICY)
    first = given[0]
    vips = list(first.get("VIPs") or ())
    settings["SourceVIP"] = first.get("SourceVIP") or ""
    settings["FrontendVIPs"] = vips
    settings["Flags"] = sum(bit for name, bit in _BALANCER_FLAGS.items() if first.get(name))
    settings["PortMappings"] = [_port_mapping(policy, bool(vips)) for policy in given]
    return "loadbalancer", settings


def _port_mapping(policy: Mapping[str, Any], addressed: bool) -> Object:
    flags = sum(bit for name, bit in _MAPPING_FLAGS.items() if policy.get(name))
    if not addressed:
        flags |= _MAPPING_FLAGS["LocalRoutedVip"]
    mapping = {
        name: policy.get(name)
        for name in ("Protocol", "InternalPort", "ExternalPort", "DistributionType")
    }
    return {**mapping, "Flags": flags}


def balancer_view(obj: Mapping[str, Any], version: tuple[int, int]) -> Object:
    shared: Object = {
        name: True for name, bit in _BALANCER_FLAGS.items() if obj.get("Flags", 0) & bit
    }
    if obj.get("SourceVIP"):
        shared["SourceVIP"] = obj["SourceVIP"]
    if obj.get("FrontendVIPs"):
        shared["VIPs"] = obj["FrontendVIPs"]
    found = []
    for mapping in obj["PortMappings"]:
        flat = {name: value for name, value in mapping.items() if name != "Flags"}
        flags = {
            name: True for name, bit in _MAPPING_FLAGS.items() if mapping.get("Flags", 0) & bit
        }
        found.append({"Type": "ELB", **flat, **flags, **shared})
    return _policylist(obj, found, version)


def route_view(obj: Mapping[str, Any], version: tuple[int, int]) -> Object:
    return _policylist(obj, [{"Type": "ROUTE", **setting} for setting in obj["Setting"]], version)


def _policylist(obj: Mapping[str, Any], found: list[Object], version: tuple[int, int]) -> Object:
    references = [f"/endpoints/{key}" for key in obj["HostComputeEndpoints"]]
    return {
        "ID": obj["ID"],
        "Policies": found,
        "References": references,
        "State": _APPLIED,
        "Version": _version(version),
    }


# ---- namespaces ----


def namespace_view(obj: Mapping[str, Any]) -> Object:
    view: Object = {"ID": obj["ID"], "CompartmentId": obj["NamespaceId"]}
    if obj["Type"] in ("HostDefault", "GuestDefault"):
        view["IsDefault"] = True
    if obj.get("Resources"):
        view["ResourceList"] = [
            {"Type": each["Type"], "Data": {"Id": each["Data"]["ID"]}} for each in obj["Resources"]
        ]
    return view
