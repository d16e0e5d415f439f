"""azure-vnet: pods use addresses of the machine's own network card. Mode bridge is an L2Bridge
network, tunnel an L2Tunnel one.

The plugin creates the network with the first pod, from the subnet that the IPAM plugin returns, and
keeps its state in a file. With docker (CNI_NETNS is not a GUID) it uses version 1 of the HNS API,
otherwise version 2.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from transom.kit.lazy import lazy_pattern
from transom.network.cni.plugin import CniCall, CniError, CniNode, Delegate, Result
from transom.network.cni.windows import shim
from transom.network.cni.windows.azure_ipam import CODE
from transom.network.cni.windows.azure_state import read_state, write_state
from transom.network.cni.windows.shim import HcsshimFailed, annotate_errors, config_value

if TYPE_CHECKING:
    from transom.machines.windows.hns import HostNetworkService

STATE: Final = r"C:\k\azure-vnet.json"
DEFAULT_MODE: Final = "tunnel"
WIRE_SERVER: Final = "168.63.129.16"  # also the platform's name server
_TYPES: Final = {"bridge": "L2Bridge", "tunnel": "L2Tunnel"}
_GUID: Final = lazy_pattern(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PROTOCOLS: Final = {"TCP": 6, "UDP": 17}


def azure_plugin(call: CniCall, machine: CniNode, delegate: Delegate) -> Result | None:
    with shim.plugin_errors(CODE):
        if call.command == "ADD":
            return _add(call, machine, delegate)
        if call.command == "DEL":
            _delete(call, machine, delegate)
    return None


def azure_endpoint_id(call: CniCall) -> str:
    """The first eight characters of the sandbox's id, and the interface."""
    parts = call.netns.split(":")
    sandbox = parts[1] if len(parts) == 2 else call.container_id
    return f"{sandbox[:8]}-{call.ifname}"


# ---- ADD ----


def _add(call: CniCall, machine: CniNode, delegate: Delegate) -> Result:
    hns, namespace = shim.hns_of_machine(machine), call.args.get("K8S_POD_NAMESPACE", "")
    missing = (
        (namespace, "Pod Namespace not specified in CNI Args"),
        (call.args.get("K8S_POD_NAME", ""), "Pod Name not specified in CNI Args"),
        (call.container_id, "Container ID not specified in CNI Args"),
        (call.ifname, "Interfacename not specified in CNI Args"),
    )
    for given, words in missing:
        if not given:
            raise HcsshimFailed(words)
    state = _state(machine, hns)
    network = state["Networks"].get(config_value(call.config, "name", ""))
    name = azure_endpoint_id(call)
    if network is not None and name in network["Endpoints"] and not _is_guid(call.netns):
        return _again(call, hns, network, name)
    given_by_ipam = _allocate(call, network, delegate)
    try:
        if network is None:
            network = _create_network(call, machine, hns, given_by_ipam)
            state["Networks"][network["Id"]] = network
            write_state(machine, STATE, "Network", state)
        dns = _endpoint_dns(call.config, given_by_ipam, namespace)
        with annotate_errors("Failed to create endpoint"):
            made = _create_endpoint(call, hns, network, name, given_by_ipam, dns)
    except HcsshimFailed:
        _release(call, network, delegate, given_by_ipam["ips"][0]["address"].partition("/")[0])
        raise
    network["Endpoints"][name] = {
        "Id": name,
        "HnsId": made["ID"],
        "SandboxKey": call.container_id,
        "IfName": call.ifname,
        "NetNs": call.netns,
        "IPAddresses": [ip["address"] for ip in given_by_ipam["ips"]],
        "MacAddress": made.get("MacAddress", ""),
    }
    write_state(machine, STATE, "Network", state)
    return {**given_by_ipam, "interfaces": [{"name": call.ifname}]}


def _again(call: CniCall, hns: HostNetworkService, network: Mapping[str, Any], name: str) -> Result:
    """A repeated ADD returns the pod's address, and attaches the pod's other containers to its
    endpoint.
    """
    endpoint = shim.v1_endpoint(hns, name)
    if endpoint is None:
        raise HcsshimFailed(
            f"GetHNSEndpointByName for {name} returned nil with err Endpoint {name} not found"
        )
    shim.hot_attach(hns, call.container_id, endpoint["ID"])
    gateway = endpoint.get("GatewayAddress", "")
    bits = network["Subnet"].rpartition("/")[2]
    result: Result = {
        "interfaces": [{"name": call.ifname}],
        "ips": [{"version": "4", "address": f"{endpoint['IPAddress']}/{bits}", "gateway": gateway}],
        "routes": [{"dst": "0.0.0.0/0", "gw": gateway}],
    }
    servers = config_value(config_value(call.config, "dns", {}), "nameservers", [])
    return {**result, "dns": {"nameservers": list(servers)} if servers else {}}


def _allocate(call: CniCall, network: Mapping[str, Any] | None, delegate: Delegate) -> Result:
    with annotate_errors("Failed to allocate pool: Failed to delegate"):
        given = shim.run_ipam(delegate, _ipam_call(call, network), shim.ipam_type(call))
        if given is None or not given.get("ips"):
            raise HcsshimFailed("No IP's in the result")
    return given


def _ipam_call(call: CniCall, network: Mapping[str, Any] | None, address: str = "") -> CniCall:
    ipam = dict(config_value(call.config, "ipam", {}))
    if network is not None:
        ipam["subnet"] = network["Subnet"]
    if address:
        ipam["ipAddress"] = address
    return call.with_config({**call.config, "ipam": ipam})


def _release(
    call: CniCall, network: Mapping[str, Any] | None, delegate: Delegate, address: str
) -> None:
    shim.give_back(delegate, _ipam_call(call, network, address))


def _create_network(
    call: CniCall, machine: CniNode, hns: HostNetworkService, given: Result
) -> dict[str, Any]:
    subnet = str(ipaddress.ip_interface(given["ips"][0]["address"]).network)
    master = str(config_value(call.config, "master", "")) or _master(machine, subnet)
    if not master:
        raise HcsshimFailed("Failed to find the master interface")
    servers = _network_dns(call.config)
    mode = str(config_value(call.config, "mode", "")) or DEFAULT_MODE
    name = str(config_value(call.config, "name", ""))
    network = {
        "Id": name,
        "Mode": mode,
        "Subnet": subnet,
        "Gateway": given["ips"][0]["gateway"],
        "Servers": servers,
        "Adapter": ""
        if master.startswith("vEthernet")
        else master,  # HNS finds the card of an existing switch
        "Endpoints": {},
    }
    with annotate_errors("Failed to create network"):
        if mode not in _TYPES:
            raise HcsshimFailed("Network mode is invalid")
        network["HnsId"] = _make_network(hns, network, two=_is_guid(call.netns))
    return network


def _make_network(hns: HostNetworkService, network: Mapping[str, Any], *, two: bool) -> str:
    name, adapter, kind = network["Id"], network["Adapter"], _TYPES[network["Mode"]]
    if not two:
        body = {
            "Name": name,
            "Type": kind.lower(),
            "NetworkAdapterName": adapter,
            "DNSServerList": ",".join(network["Servers"]),
            "Subnets": [{"AddressPrefix": network["Subnet"], "GatewayAddress": network["Gateway"]}],
        }
        return str(shim.v1(hns, "POST", "/networks/", {k: v for k, v in body.items() if v})["ID"])
    settings: dict[str, Any] = {
        "Name": name,
        "Type": kind,
        "Dns": {"ServerList": network["Servers"]},
        "Policies": [{"Type": "NetAdapterName", "Settings": {"NetworkAdapterName": adapter}}]
        if adapter
        else [],
        "Ipams": [
            {
                "Type": "Static",
                "Subnets": [
                    {
                        "IpAddressPrefix": network["Subnet"],
                        "Routes": [
                            {"NextHop": network["Gateway"], "DestinationPrefix": "0.0.0.0/0"}
                        ],
                    }
                ],
            }
        ],
        "SchemaVersion": {"Major": 2, "Minor": 0},
    }
    with annotate_errors(f"Failed to create hcn network: {name} due to error"):
        return str(shim.v2_create(hns, "network", settings)["ID"])


def _master(machine: CniNode, subnet: str) -> str:
    """The first interface of the machine with an address in the subnet."""
    for link in machine.stack.links.values():
        if any(str(address.network) == subnet for address in link.addresses):
            return link.name
    return ""


def _create_endpoint(
    call: CniCall,
    hns: HostNetworkService,
    network: Mapping[str, Any],
    name: str,
    given: Result,
    dns: Mapping[str, Any],
) -> dict[str, Any]:
    address, _, bits = given["ips"][0]["address"].partition("/")
    if not _is_guid(call.netns):
        body = {
            "Name": name,
            "VirtualNetwork": network["HnsId"],
            "IPAddress": address,
            "PrefixLength": int(bits),
            "DNSSuffix": dns["suffix"],
            "DNSServerList": ",".join(dns["servers"]),
            "Policies": _policies(call.config, 1),
        }
        endpoint = shim.v1_create(hns, body)
        try:
            shim.hot_attach(hns, call.container_id, endpoint["ID"])
        except HcsshimFailed:
            shim.v1(hns, "DELETE", f"/endpoints/{endpoint['ID']}")
            raise
        return endpoint
    if not hns.supports("V2 Api/Schema"):
        raise HcsshimFailed("platform does not support feature V2 Api/Schema")
    with annotate_errors(f"Failed to create endpoint: {name} due to error"):
        endpoint = shim.v2_create(
            hns,
            "endpoint",
            {
                "Name": name,
                "HostComputeNetwork": network["HnsId"],
                "Dns": {
                    k: v
                    for k, v in (
                        ("Search", dns["suffix"].split(",")),
                        ("ServerList", dns["servers"]),
                        ("Options", dns["options"]),
                    )
                    if v
                },
                "Routes": [
                    {"NextHop": r["gw"], "DestinationPrefix": r["dst"]}
                    for r in given.get("routes", ())
                ],
                "IpConfigurations": [{"IpAddress": address, "PrefixLength": int(bits)}],
                "Policies": _policies(call.config, 2),
                "SchemaVersion": {"Major": 2, "Minor": 0},
            },
        )
    try:
        words = (
            f"Failed to add endpoint: {endpoint['ID']} to hcn namespace: {call.netns} due to error"
        )
        with annotate_errors(words):
            shim.join_namespace(hns, call.netns, endpoint["ID"])
    except HcsshimFailed:
        shim.v2_delete(hns, "endpoint", endpoint["ID"])
        raise
    return endpoint


# ---- policies and DNS ----


def _policies(config: Mapping[str, Any], api: int) -> list[dict[str, Any]]:
    """Policies of AdditionalArgs are in version 1 format, port mappings in version 2 format: each
    is converted to the format of the API in use.
    """
    found: list[dict[str, Any]] = []
    for entry in config_value(config, "AdditionalArgs", []):
        if config_value(entry, "name", "") != "EndpointPolicy":
            continue
        policy = config_value(entry, "value", {})
        if policy.get("Type") == "OutBoundNAT" and not policy.get("ExceptionList"):
            if api == 2:
                raise HcsshimFailed("OutBoundNAT policy not set")
            continue
        found.append(dict(policy) if api == 1 else _second(policy))
    for mapping in config_value(config_value(config, "runtimeConfig", {}), "portMappings", []):
        ports = {
            "InternalPort": mapping.get("containerPort", 0),
            "ExternalPort": mapping.get("hostPort", 0),
        }
        protocol = str(mapping.get("protocol", "")).strip().upper()
        if api == 1:
            found.append({"Type": "NAT", **ports, "Protocol": protocol})
            continue
        settings = {**ports, "Protocol": _PROTOCOLS.get(protocol, 0)}
        if mapping.get("hostIP"):
            settings["VIP"] = mapping["hostIP"]
        found.append({"Type": "PortMapping", "Settings": settings})
    return found


def _second(policy: Mapping[str, Any]) -> dict[str, Any]:
    match policy.get("Type"):
        case "OutBoundNAT":
            return {
                "Type": "OutBoundNAT",
                "Settings": {"Exceptions": list(policy["ExceptionList"])},
            }
        case "ROUTE":
            settings = {
                "DestinationPrefix": policy.get("DestinationPrefix", ""),
                "NeedEncap": bool(policy.get("NeedEncap")),
            }
            return {"Type": "SDNRoute", "Settings": settings}
        case "PortMapping":
            return dict(policy)
        case "ACL":
            return {"Type": "ACL", "Settings": {k: v for k, v in policy.items() if k != "Type"}}
    raise HcsshimFailed(f"Failed to set Policy: Type: EndpointPolicy, Data: {policy}")


def _custom_dns(config: Mapping[str, Any]) -> dict[str, Any] | None:
    given = config_value(config_value(config, "runtimeConfig", {}), "dns", {})
    servers, searches = (
        list(config_value(given, "servers", [])),
        list(config_value(given, "searches", [])),
    )
    if not servers and not searches:
        return None
    return {
        "servers": servers,
        "suffix": ",".join(searches),
        "options": list(config_value(given, "options", [])),
    }


def _fixed_dns(config: Mapping[str, Any]) -> dict[str, Any]:
    fixed = config_value(config, "dns", {})
    servers, search = (
        list(config_value(fixed, "nameservers", [])),
        list(config_value(fixed, "search", [])),
    )
    if bool(servers) != bool(search):
        raise HcsshimFailed(f"Wrong DNS configuration: {fixed}")
    return {
        "servers": servers,
        "search": search,
        "options": list(config_value(fixed, "options", [])),
    }


def _network_dns(config: Mapping[str, Any]) -> list[str]:
    with annotate_errors("Failed to getDNSSettings"):
        custom = _custom_dns(config)
        return list((custom or _fixed_dns(config))["servers"])


def _endpoint_dns(config: Mapping[str, Any], given: Result, namespace: str) -> dict[str, Any]:
    """The runtime's settings, otherwise the configuration's with the pod's namespace in front,
    otherwise the platform's.
    """
    with annotate_errors("Failed to getEndpointDNSSettings"):
        custom = _custom_dns(config)
        if custom is not None:
            return custom
        fixed = _fixed_dns(config)
    if fixed["search"]:
        return {**fixed, "suffix": f"{namespace}.{','.join(fixed['search'])}"}
    servers = list(given.get("dns", {}).get("nameservers", ()))
    return {
        "servers": servers,
        "suffix": given.get("dns", {}).get("domain", ""),
        "options": fixed["options"],
    }


# ---- DEL and state ----


def _delete(call: CniCall, machine: CniNode, delegate: Delegate) -> None:
    hns = shim.hns_of_machine(machine)
    state = _state(machine, hns)
    network = state["Networks"].get(config_value(call.config, "name", ""))
    name = azure_endpoint_id(call)
    endpoint = network["Endpoints"].get(name) if network is not None else None
    if network is None or endpoint is None:
        shim.give_back(delegate, _ipam_call(call, network))  # releases leftovers; not an error
        return
    with annotate_errors("Failed to delete endpoint"):
        _delete_endpoint(hns, endpoint)
    del network["Endpoints"][name]
    write_state(machine, STATE, "Network", state)
    for address in endpoint["IPAddresses"]:
        try:
            delegate(shim.ipam_type(call), _ipam_call(call, network, address.partition("/")[0]))
        except CniError as error:
            words = (
                f"Failed to release address {address} with error: Failed to release ipv4 "
                "address: Failed to delegate"
            )
            raise HcsshimFailed(f"{words}: {error}") from error


def _delete_endpoint(hns: HostNetworkService, endpoint: Mapping[str, Any]) -> None:
    id = endpoint["HnsId"]
    if not _is_guid(endpoint["NetNs"]):
        if id in hns.endpoints:
            shim.v1(hns, "DELETE", f"/endpoints/{id}")
        return
    if id not in hns.endpoints:
        raise HcsshimFailed(
            f'Failed to get hcn endpoint with id: {id} due to err: Endpoint ID "{id}" not found'
        )
    with annotate_errors(f"Failed to delete hcn endpoint: {id} due to error"):
        shim.v2_delete(hns, "endpoint", id)


def _state(machine: CniNode, hns: HostNetworkService) -> dict[str, Any]:
    """After a reboot no endpoints are left, and networks that the service lost are recreated."""
    state, rebooted = read_state(machine, STATE, "Network")
    networks = state.setdefault("Networks", {})
    if rebooted:
        for network in networks.values():
            network["Endpoints"] = {}
            if network["HnsId"] not in hns.networks:
                before = shim.find_by_name(hns.networks, network["Id"])
                network["HnsId"] = (
                    before["ID"] if before is not None else _make_network(hns, network, two=False)
                )
    return state


def _is_guid(text: str) -> bool:
    return _GUID.fullmatch(text) is not None


def azure_conflist(
    mode: str, *, dns: str, exceptions: list[str], service_cidr: str
) -> dict[str, Any]:
    """A node's configuration as Azure's own scripts write it: pods must not reach the platform's
    wire server, which has the machine's secrets.
    """
    policies: list[dict[str, Any]] = [
        {"Type": "OutBoundNAT", "ExceptionList": exceptions},
        {"Type": "ROUTE", "DestinationPrefix": service_cidr, "NeedEncap": True},
        {
            "Type": "ACL",
            "Protocols": "6",
            "Action": "Block",
            "Direction": "Out",
            "RemoteAddresses": f"{WIRE_SERVER}/32",
            "RemotePorts": "80",
            "Priority": 200,
            "RuleType": "Switch",
        },
        {"Type": "ACL", "Action": "Allow", "Direction": "In", "Priority": 65500},
        {"Type": "ACL", "Action": "Allow", "Direction": "Out", "Priority": 65500},
    ]
    return {
        "cniVersion": "0.3.0",
        "name": "azure",
        "plugins": [
            {
                "type": "azure-vnet",
                "mode": mode,
                "bridge": "azure0",
                "capabilities": {"portMappings": True, "dns": True},
                "ipam": {"type": "azure-vnet-ipam"},
                "dns": {"Nameservers": [dns, WIRE_SERVER], "Search": ["svc.cluster.local"]},
                "AdditionalArgs": [
                    {"Name": "EndpointPolicy", "Value": policy} for policy in policies
                ],
            }
        ],
    }
