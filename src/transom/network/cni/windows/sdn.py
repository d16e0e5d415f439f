"""nat, sdnbridge, sdnoverlay: Microsoft's plugins for runtimes with namespaces, one program for
three types.

They use only version 2 of the HNS API, create the network if it does not exist, and let HNS assign
addresses without an IPAM plugin. sdnbridge is the one that gives a pod addresses of both families
(`enableDualStack`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from transom.network.cni.plugin import CniCall, CniError, CniNode, Delegate, Plugin, Result
from transom.network.cni.windows import shim
from transom.network.cni.windows.netconf import protocol_number
from transom.network.cni.windows.shim import HcsshimFailed, config_value
from transom.network.stacks import Interface

if TYPE_CHECKING:
    from transom.machines.windows.hns import HostNetworkService

TYPES: Final = {"nat": "NAT", "sdnbridge": "L2Bridge", "sdnoverlay": "Overlay"}
VERSIONS: Final = ("0.2.0", "0.3.0", "0.4.0", "1.0.0")
_LOCAL_ROUTED, _IPV6 = 1, 2  # flags of a port mapping


def sdn_plugin(kind: str) -> Plugin:
    return partial(_run, TYPES[kind])


def _run(kind: str, call: CniCall, machine: CniNode, delegate: Delegate) -> Result | None:
    with shim.plugin_errors():
        hns = shim.hns_of_machine(machine)
        if call.command == "ADD":
            return _add(kind, call, hns, delegate)
        if call.command == "DEL":
            _delete(call, hns, delegate)
    return None  # CHECK does nothing


def _add(kind: str, call: CniCall, hns: HostNetworkService, delegate: Delegate) -> Result:
    config, flags = call.config, config_value(call.config, "optionalFlags", {})
    if config_value(flags, "loopbackDSR", False) and not hns.supports("Direct Server Return (DSR)"):
        raise HcsshimFailed("platform does not support feature Direct Server Return (DSR)")
    if not call.netns:
        raise HcsshimFailed("cannot create endpoint without a namespace")
    dual, dns = (
        bool(config_value(flags, "enableDualStack", False)),
        _dns(config, call.args.get("K8S_POD_NAMESPACE", "")),
    )
    network = _network(kind, config, hns, dns, dual=dual)
    name = _endpoint_name(call)
    before = shim.find_by_name(hns.endpoints, name)
    if before is not None and before["HostComputeNetwork"] == network["ID"]:
        return _result(call, network, before, dual=dual)
    if not shim.ipam_type(call):
        return _create(call, hns, network, name, dns, None, dual=dual)
    given = shim.run_ipam(delegate, call, shim.ipam_type(call)) or {}
    try:
        return _create(call, hns, network, name, dns, given, dual=dual)
    except HcsshimFailed:
        shim.give_back(delegate, call)
        raise


def _endpoint_name(call: CniCall) -> str:
    return f"{call.container_id}_{config_value(call.config, 'name', '')}"


def _network(
    kind: str,
    config: Mapping[str, Any],
    hns: HostNetworkService,
    dns: Mapping[str, Any],
    *,
    dual: bool,
) -> dict[str, Any]:
    name = str(config_value(config, "name", ""))
    found = shim.find_by_name(hns.networks, name)
    if dual:
        if found is None:
            raise HcsshimFailed(f'Network name "{name}" not found')
        if found.get("Type", "NAT") != "L2Bridge":
            raise HcsshimFailed("Dual stack specified with non l2bridge network")
    if found is not None:
        return found
    settings: dict[str, Any] = {
        "Name": name,
        "Type": kind,
        "SchemaVersion": {"Major": 2, "Minor": 0},
        "Dns": dns,
        "Policies": [
            dict(config_value(entry, "value", {}))
            for entry in config_value(config, "AdditionalArgs", [])
            if config_value(entry, "name", "") == "NetworkPolicy"
        ],
    }
    subnet = _subnet(config)
    if subnet is not None:
        settings["Ipams"] = [{"Type": "Static", "Subnets": [subnet]}]
    return shim.v2_create(hns, "network", settings)


def _subnet(config: Mapping[str, Any]) -> dict[str, Any] | None:
    ipam = config_value(config, "ipam", {})
    text = str(config_value(ipam, "subnet", ""))
    if not text:
        return None
    interface = ipaddress.ip_interface(text)
    routes = config_value(ipam, "routes", [])
    gateway = str(config_value(routes[0], "gw", "")) if routes else ""
    return {
        "IpAddressPrefix": str(interface.network),
        "Routes": [{"NextHop": gateway or str(interface.ip + 1), "DestinationPrefix": "0.0.0.0/0"}],
    }


def _dns(config: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """The first suffix of the configuration is completed with the pod's namespace; the runtime's
    are used unchanged.
    """
    fixed, given = (
        config_value(config, "dns", {}),
        config_value(config_value(config, "runtimeConfig", {}), "dns", {}),
    )
    search = list(config_value(fixed, "search", []))
    if search and namespace:
        search[0] = f"{namespace}.{search[0]}"
    found = {
        "Domain": str(config_value(fixed, "domain", "")),
        "Search": list(config_value(given, "searches", [])) or search,
        "ServerList": list(config_value(given, "servers", []))
        or list(config_value(fixed, "nameservers", [])),
        "Options": list(config_value(given, "options", []))
        or list(config_value(fixed, "options", [])),
    }
    return {name: known for name, known in found.items() if known}


def _create(
    call: CniCall,
    hns: HostNetworkService,
    network: Mapping[str, Any],
    name: str,
    dns: Mapping[str, Any],
    given: Result | None,
    *,
    dual: bool,
) -> Result:
    config, flags = call.config, config_value(call.config, "optionalFlags", {})
    addresses: list[Interface] = [
        ipaddress.ip_interface(ip["address"]) for ip in (given or {}).get("ips", ())
    ]
    gateways = {
        "6" if ":" in ip["gateway"] else "4": ip["gateway"]
        for ip in (given or {}).get("ips", ())
        if ip.get("gateway")
    }
    subnet = _subnet(config)
    if subnet is not None and given is None:
        gateways["4"] = subnet["Routes"][0]["NextHop"]
    if not dual:  # only the first IPv4 address is used
        addresses = list([address for address in addresses if address.version == 4][:1])
        gateways.pop("6", None)
    if addresses and addresses[0].version == 4 and config_value(flags, "forceBridgeGateway", False):
        gateways["4"] = str(addresses[0].network[2])
    if config_value(flags, "gatewayFromAdditionalRoutes", False):
        for route in config_value(config, "additionalRoutes", []):
            if config_value(route, "dst", "") in ("0.0.0.0/0", "::/0"):
                gateways.setdefault(
                    "6" if ":" in config_value(route, "gw", "") else "4",
                    config_value(route, "gw", ""),
                )
    routes = [
        {"NextHop": gateways[family], "DestinationPrefix": prefix}
        for family, prefix in (("4", "0.0.0.0/0"), ("6", "::/0"))
        if family in gateways
    ]
    settings = {
        "Name": name,
        "HostComputeNetwork": network["ID"],
        "Dns": dict(dns),
        "Routes": routes,
        "IpConfigurations": [{"IpAddress": str(address.ip)} for address in addresses],
        "Policies": _policies(config, flags, addresses, dual=dual),
        "SchemaVersion": {"Major": 2, "Minor": 0},
    }
    try:
        endpoint = shim.v2_create(hns, "endpoint", settings)
    except HcsshimFailed as error:
        raise HcsshimFailed(f"error creating endpoint {error} : endpoint config {name}") from error
    try:
        shim.join_namespace(hns, call.netns, endpoint["ID"])
    except HcsshimFailed as error:
        # The endpoint stays behind; DEL finds it.
        raise HcsshimFailed(
            f"error adding endpoint to namespace {error} : endpoint {endpoint['ID']}"
        ) from error
    return _result(call, network, dict(hns.query("endpoint", endpoint["ID"])), dual=dual)


def _policies(
    config: Mapping[str, Any], flags: Mapping[str, Any], addresses: list[Interface], *, dual: bool
) -> list[Any]:
    """In version 2 format, which the configuration already has."""
    found: list[dict[str, Any]] = []
    local = _LOCAL_ROUTED if config_value(flags, "localRoutedPortMapping", False) else 0
    for mapping in config_value(config_value(config, "runtimeConfig", {}), "portMappings", []):
        number = protocol_number(str(mapping.get("protocol", "")))
        if number is None:
            raise HcsshimFailed(
                "failed during GetEndpointInfo from netconf: invalid protocol supplied to "
                "port mapping policy"
            )
        ports = {
            "ExternalPort": mapping.get("hostPort", 0),
            "InternalPort": mapping.get("containerPort", 0),
            "Protocol": number,
        }
        if mapping.get("hostIP"):
            ports["VIP"] = mapping["hostIP"]
        found.append(
            {"Type": "PortMapping", "Settings": {**ports, **({"Flags": local} if local else {})}}
        )
        if dual:
            six = {k: v for k, v in ports.items() if k != "VIP"}
            found.append({"Type": "PortMapping", "Settings": {**six, "Flags": local | _IPV6}})
        if config_value(flags, "allowAclPortMapping", False):
            acl = {
                "Protocols": str(number),
                "Action": "Allow",
                "Direction": "In",
                "LocalPorts": str(ports["InternalPort"]),
            }
            found.append({"Type": "ACL", "Settings": {**acl, "Priority": 1000}})
    found += [
        dict(config_value(entry, "value", {}))
        for entry in config_value(config, "AdditionalArgs", [])
        if config_value(entry, "name", "") == "EndpointPolicy"
    ]
    if config_value(flags, "loopbackDSR", False) and addresses:
        found.append({"Type": "OutBoundNAT", "Settings": {"Destinations": [str(addresses[0].ip)]}})
    return found


def _result(
    call: CniCall, network: Mapping[str, Any], endpoint: Mapping[str, Any], *, dual: bool
) -> Result:
    """One address of the endpoint with the mask of the network's subnet, or one of each family with
    its own mask.
    """
    hops = {
        "6" if ":" in r["NextHop"] else "4": r["NextHop"]
        for r in endpoint.get("Routes") or ()
        if r.get("NextHop")
    }
    ips = []
    for config in endpoint["IpConfigurations"] if dual else endpoint["IpConfigurations"][:1]:
        address = config["IpAddress"]
        family = "6" if ":" in address else "4"
        bits = (
            config.get("PrefixLength")
            if dual
            else shim.subnet_of(network)["IpAddressPrefix"].rpartition("/")[2]
        )
        ip = {"version": family, "interface": 0, "address": f"{address}/{bits}"}
        ips.append({**ip, "gateway": hops[family]} if family in hops else ip)
    return {
        "interfaces": [{"name": call.ifname, "mac": endpoint.get("MacAddress", "")}],
        "ips": ips,
        "dns": {},
    }


def _delete(call: CniCall, hns: HostNetworkService, delegate: Delegate) -> None:
    kind = shim.ipam_type(call)
    if kind:
        try:
            delegate(kind, call)
        except CniError as error:
            raise HcsshimFailed(f"ipam deletion failed, {error}") from error
    endpoint = shim.find_by_name(hns.endpoints, _endpoint_name(call))
    if endpoint is not None:
        shim.v2_delete(hns, "endpoint", endpoint["ID"])
