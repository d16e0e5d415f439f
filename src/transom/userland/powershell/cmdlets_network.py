"""Cmdlets for adapters, addresses, routes, neighbours and name servers of a machine or a container,
from the network stack and the host networking service.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from transom.machines.windows.system import set_name_servers
from transom.userland.network_view import (
    LOOPBACK_INDEX,
    LOOPBACK_METRIC,
    LOOPBACK_NAME,
    METRIC,
    NetworkInterface,
    NetworkView,
    RouteRow,
)
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import (
    PowerShellError,
    PsObject,
    to_items,
    to_number,
    to_text,
)

_FOREVER: Final = "Infinite ([TimeSpan]::MaxValue)"
_FAMILIES: Final = {4: "IPv4", 6: "IPv6"}


def _view(call: CmdletCall) -> NetworkView:
    view: NetworkView = call.process.context.windows.network
    return view


def _matches(call: CmdletCall, name: str, index: int) -> bool:
    """Applies the parameters that all these cmdlets have."""
    names = [
        to_text(one) for one in (*to_items(call.get("InterfaceAlias")), *to_items(call.get("Name")))
    ]
    indexes = [int(to_number(one)) for one in to_items(call.get("InterfaceIndex"))]
    given = [value for value in call.input or [] if isinstance(value, PsObject)]
    indexes += [
        int(to_number(value.get("ifIndex") or value.get("InterfaceIndex") or 0)) for value in given
    ]
    return (not names or any(matches_wildcard(name, one) for one in names)) and (
        not indexes or index in indexes
    )


# Parameters that select objects by the property of the same name.
_SELECTING: Final = (
    "AddressState",
    "ConnectionState",
    "Dhcp",
    "Forwarding",
    "InterfaceMetric",
    "LinkLayerAddress",
    "NlMtuBytes",
    "PrefixLength",
    "PrefixOrigin",
    "RouteMetric",
    "State",
    "SuffixOrigin",
    "Type",
)


def _emit_selected(call: CmdletCall, found: PsObject) -> bool:
    """Emits an object if its properties have the values that the call asks for."""
    for name in _SELECTING:
        if call.has(name):
            own = to_text(found.get(name.removesuffix("Bytes"))).lower()
            if own not in [to_text(one).lower() for one in to_items(call.get(name))]:
                return False
    call.emit(found)
    return True


def _not_found(call: CmdletCall, kind: str, key: str, value: str) -> None:
    call.fail(
        (
            f"No {kind} objects found with property '{key}' equal to '{value}'.  Verify the "
            "value of the property and retry."
        ),
        f"ObjectNotFound: ({value}:String) [{call.cmdlet.name}], CimJobException",
        f"CmdletizationQuery_NotFound_{key},{call.cmdlet.name}",
    )


def _report_missing(call: CmdletCall, kind: str, found: bool) -> None:
    """Reports names without wildcards, indexes and addresses that do not exist."""
    if found:
        return
    for key in ("Name", "InterfaceAlias", "InterfaceIndex", "IPAddress", "DestinationPrefix"):
        for one in to_items(call.get(key)):
            if "*" not in to_text(one):
                _not_found(call, kind, key, to_text(one))
                return


def _adapter_object(interface: NetworkInterface) -> PsObject:
    return PsObject(
        "MSFT_NetAdapter",
        {
            "Name": interface.name,
            "InterfaceDescription": interface.description,
            "ifIndex": interface.index,
            "Status": interface.status,
            "MacAddress": interface.mac,
            "LinkSpeed": "10 Gbps" if interface.status == "Up" else "0 bps",
            "InterfaceIndex": interface.index,
            "InterfaceAlias": interface.name,
            "Virtual": not interface.physical,
            "MtuSize": interface.mtu,
        },
        "MSFT_NetAdapter",
    )


def _get_adapter(call: CmdletCall) -> None:
    found = False
    for interface in _view(call).interfaces():
        if _matches(call, interface.name, interface.index) and (
            interface.physical or not call.has("Physical")
        ):
            found = True
            call.emit(_adapter_object(interface))
    _report_missing(call, "MSFT_NetAdapter", found)


def _get_address(call: CmdletCall) -> None:
    family, wanted, found = call.text("AddressFamily").lower(), call.text("IPAddress", "*"), False
    loopback = (
        (ipaddress.ip_interface("::1/128"), "IPv6"),
        (ipaddress.ip_interface("127.0.0.1/8"), "IPv4"),
    )
    rows = [
        (str(a.ip), a.network.prefixlen, version, LOOPBACK_NAME, LOOPBACK_INDEX)
        for a, version in loopback
    ]
    for interface in reversed(_view(call).interfaces()):
        if interface.under_switch:
            continue
        own = [(f"{interface.link_local}%{interface.index}", 64)]
        own += [(str(address.ip), address.network.prefixlen) for address in interface.addresses]
        rows = [
            (a, n, "IPv6" if ":" in a else "IPv4", interface.name, interface.index) for a, n in own
        ] + rows
    for address, length, version, name, index in sorted(rows, key=lambda r: r[2], reverse=True):
        if (
            family in ("", version.lower())
            and matches_wildcard(address, wanted)
            and _matches(call, name, index)
        ):
            link_local = address.startswith("fe80")
            origin = "WellKnown" if index == LOOPBACK_INDEX or link_local else "Manual"
            shown = PsObject(
                "MSFT_NetIPAddress",
                {
                    "IPAddress": address,
                    "InterfaceIndex": index,
                    "InterfaceAlias": name,
                    "AddressFamily": version,
                    "Type": "Unicast",
                    "PrefixLength": length,
                    "PrefixOrigin": origin,
                    "SuffixOrigin": "Link" if link_local else origin,
                    "AddressState": "Preferred",
                    "ValidLifetime": _FOREVER,
                    "PreferredLifetime": _FOREVER,
                    "SkipAsSource": False,
                    "PolicyStore": "ActiveStore",
                    "ifIndex": index,
                    "ifAlias": name,
                },
            )
            found = _emit_selected(call, shown) or found
    _report_missing(call, "MSFT_NetIPAddress", found)


# ---- routes ----


def _route_object(route: RouteRow) -> PsObject:
    hop = route.next_hop or ("::" if route.destination.version == 6 else "0.0.0.0")
    return PsObject(
        "MSFT_NetRoute",
        {
            "ifIndex": route.index,
            "DestinationPrefix": str(route.destination),
            "NextHop": hop,
            "RouteMetric": route.metric,
            "ifMetric": route.interface_metric,
            "PolicyStore": "ActiveStore",
            "InterfaceIndex": route.index,
            "InterfaceAlias": route.interface,
            "InterfaceMetric": route.interface_metric,
            "AddressFamily": _FAMILIES[route.destination.version],
            "ifAlias": route.interface,
        },
    )


def _wanted_routes(call: CmdletCall) -> list[RouteRow]:
    prefix, hop = call.text("DestinationPrefix", "*"), call.text("NextHop", "*")
    family = call.text("AddressFamily").lower()
    found = []
    for route in _view(call).routes():
        shown = route.next_hop or ("::" if route.destination.version == 6 else "0.0.0.0")
        if (
            matches_wildcard(str(route.destination), prefix)
            and matches_wildcard(shown, hop)
            and family in ("", _FAMILIES[route.destination.version].lower())
            and _matches(call, route.interface, route.index)
        ):
            found.append(route)
    return sorted(
        found, key=lambda r: (-r.destination.version, -int(r.destination.network_address), r.index)
    )


def _get_route(call: CmdletCall) -> None:
    found = [route for route in _wanted_routes(call) if _emit_selected(call, _route_object(route))]
    _report_missing(call, "MSFT_NetRoute", bool(found))


def _find_route(call: CmdletCall) -> None:
    """The address that packets to a destination come from, and their route."""
    try:
        remote = ipaddress.ip_address(call.text("RemoteIPAddress"))
    except ValueError as error:
        raise _cim(call, "The parameter is incorrect.", "Windows System Error 87") from error
    fitting = [
        route
        for route in _view(call).routes()
        if route.destination.version == remote.version and remote in route.destination
    ]
    if not fitting:
        raise _cim(
            call,
            "The network location cannot be reached. For information about network "
            "troubleshooting, see Windows Help.",
            "Windows System Error 1231",
        )
    best = min(
        fitting, key=lambda r: (-r.destination.prefixlen, r.metric + (r.interface_metric or 0))
    )
    call.values["InterfaceIndex"] = best.index
    call.values["AddressFamily"] = _FAMILIES[remote.version]
    call.values["PrefixOrigin"] = ["Manual", "Dhcp"]
    _get_address(call)
    call.emit(_route_object(best))


def _new_route(call: CmdletCall) -> None:
    view, hop = _view(call), call.text("NextHop", "0.0.0.0")
    try:
        destination = str(ipaddress.ip_network(call.text("DestinationPrefix")))
        ipaddress.ip_address(hop)
    except ValueError as error:
        raise _cim(call, "The parameter is incorrect.", "Windows System Error 87") from error
    wanted = call.text("InterfaceAlias") or call.text("InterfaceIndex")
    interface = view.find(wanted)
    if interface is None:
        raise _cim(call, "The system cannot find the file specified.", "Windows System Error 2")
    if view.stack.has_route(destination):
        raise _cim(call, "Instance MSFT_NetRoute already exists", "Windows System Error 87")
    view.add_route(destination, hop, view.link_of(interface))
    for route in view.routes():
        if str(route.destination) == destination and route.index == interface.index:
            call.emit(_route_object(route))


def _remove_route(call: CmdletCall) -> None:
    view = _view(call)
    given = [
        to_text(value.get("DestinationPrefix"))
        for value in call.input or []
        if isinstance(value, PsObject)
    ]
    wanted = given or [str(route.destination) for route in _wanted_routes(call)]
    if not wanted:
        _report_missing(call, "MSFT_NetRoute", False)
    for destination in wanted:
        view.stack.delete_route(destination)


def _cim(call: CmdletCall, message: str, identity: str) -> PowerShellError:
    return PowerShellError(
        message,
        (
            "InvalidArgument: (MSFT_NetRoute:ROOT/StandardCimv2/MSFT_NetRoute) "
            f"[{call.cmdlet.name}], CimException"
        ),
        f"{identity},{call.cmdlet.name}",
        where=call.cmdlet.name,
    )


# ---- other cmdlets ----


def _get_ip_interface(call: CmdletCall) -> None:
    family, forwarding = call.text("AddressFamily").lower(), _view(call).stack.forwarding
    rows = [
        (i.index, i.name, i.mtu, METRIC) for i in _view(call).interfaces() if not i.under_switch
    ]
    for index, name, mtu, metric in [
        *reversed(rows),
        (LOOPBACK_INDEX, LOOPBACK_NAME, 4294967295, LOOPBACK_METRIC),
    ]:
        for version in ("IPv6", "IPv4"):
            if family in ("", version.lower()) and _matches(call, name, index):
                routes = forwarding and index != LOOPBACK_INDEX
                _emit_selected(
                    call,
                    PsObject(
                        "MSFT_NetIPInterface",
                        {
                            "ifIndex": index,
                            "InterfaceAlias": name,
                            "AddressFamily": version,
                            "InterfaceMetric": metric,
                            "Dhcp": "Disabled",
                            "ConnectionState": "Connected",
                            "PolicyStore": "ActiveStore",
                            "InterfaceIndex": index,
                            "NlMtu": mtu,
                            "Forwarding": "Enabled" if routes else "Disabled",
                            "ifAlias": name,
                        },
                    ),
                )


def _get_neighbour(call: CmdletCall) -> None:
    wanted, family, found = call.text("IPAddress", "*"), call.text("AddressFamily").lower(), False
    for n in _view(call).neighbours():
        version = "IPv6" if ":" in n.address else "IPv4"
        if (
            matches_wildcard(n.address, wanted)
            and family in ("", version.lower())
            and _matches(call, n.interface, n.index)
        ):
            shown = PsObject(
                "MSFT_NetNeighbor",
                {
                    "ifIndex": n.index,
                    "IPAddress": n.address,
                    "LinkLayerAddress": n.mac.upper(),
                    "State": n.state,
                    "PolicyStore": "ActiveStore",
                    "InterfaceIndex": n.index,
                    "InterfaceAlias": n.interface,
                    "AddressFamily": version,
                    "ifAlias": n.interface,
                },
            )
            found = _emit_selected(call, shown) or found
    _report_missing(call, "MSFT_NetNeighbor", found)


def _change_neighbour(call: CmdletCall) -> None:
    """New-NetNeighbor and Set-NetNeighbor."""
    view, address = _view(call), call.text("IPAddress")
    mac = call.text("LinkLayerAddress").replace("-", ":").lower()
    interface = view.find(call.text("InterfaceAlias") or call.text("InterfaceIndex"))
    try:
        ipaddress.ip_address(address)
    except ValueError as error:
        raise _cim(call, "The parameter is incorrect.", "Windows System Error 87") from error
    if interface is None or not view.link_of(interface):
        raise _cim(call, "Element not found.", "Windows System Error 1168")
    fixed = address in view.stack.neighbours
    if call.cmdlet.name == "New-NetNeighbor" and fixed:
        raise _cim(call, "Instance MSFT_NetNeighbor already exists", "Windows System Error 87")
    if call.cmdlet.name == "Set-NetNeighbor" and not fixed:
        _not_found(call, "MSFT_NetNeighbor", "IPAddress", address)
        return
    view.stack.replace_neighbour(address, mac, view.link_of(interface))
    if call.cmdlet.name == "New-NetNeighbor":
        _get_neighbour(call)


def _remove_neighbour(call: CmdletCall) -> None:
    given = [to_text(one.get("IPAddress")) for one in call.input or [] if isinstance(one, PsObject)]
    wanted, view = call.text("IPAddress", "*"), _view(call)
    found = given or [
        n.address
        for n in view.neighbours()
        if matches_wildcard(n.address, wanted) and _matches(call, n.interface, n.index)
    ]
    _report_missing(call, "MSFT_NetNeighbor", bool(found))
    for address in found:
        view.stack.delete_neighbour(address)


def _new_address(call: CmdletCall) -> None:
    view = _view(call)
    interface = view.find(call.text("InterfaceAlias") or call.text("InterfaceIndex"))
    try:
        address = ipaddress.ip_address(call.text("IPAddress"))
        length = call.text("PrefixLength", str(address.max_prefixlen))
        made = ipaddress.ip_interface(f"{address}/{length}")
    except ValueError as error:
        raise _cim(call, "The parameter is incorrect.", "Windows System Error 87") from error
    if interface is None or not view.link_of(interface):
        raise _cim(call, "Element not found.", "Windows System Error 1168")
    if str(address) in view.stack.addresses():
        raise _cim(call, "Instance MSFT_NetIPAddress already exists", "Windows System Error 5010")
    view.stack.add_address(view.link_of(interface), str(made))
    if call.has("DefaultGateway"):
        everything = "::/0" if made.version == 6 else "0.0.0.0/0"
        view.add_route(everything, call.text("DefaultGateway"), view.link_of(interface))
    _get_address(call)


def _remove_address(call: CmdletCall) -> None:
    """Remove-NetIPAddress, and Set-NetIPAddress, which puts it back with another prefix."""
    view, wanted, found = _view(call), call.text("IPAddress"), False
    given = [to_text(one.get("IPAddress")) for one in call.input or [] if isinstance(one, PsObject)]
    for interface in view.interfaces():
        if not _matches(call, interface.name, interface.index):
            continue
        for address in interface.addresses:
            if str(address.ip) not in (given or [wanted]):
                continue
            found = True
            view.stack.delete_address(view.link_of(interface), str(address))
            if call.cmdlet.name == "Set-NetIPAddress":
                length = call.text("PrefixLength", str(address.network.prefixlen))
                view.stack.add_address(view.link_of(interface), f"{address.ip}/{length}")
    if not found:
        _not_found(call, "MSFT_NetIPAddress", "IPAddress", (given or [wanted])[0])


def _set_dns_servers(call: CmdletCall) -> None:
    """Set-DnsClientServerAddress: writes the value NameServer of the interface, which the resolver,
    ipconfig and netsh read.
    """
    view, registry = _view(call), call.process.context.windows.system.registry
    wanted = call.text("InterfaceAlias") or call.text("InterfaceIndex")
    if call.input is not None:
        interfaces = [one for one in view.interfaces() if _matches(call, one.name, one.index)]
    else:
        interfaces = [one for one in (view.find(wanted),) if one is not None]
    if not interfaces:
        _not_found(call, "MSFT_DNSClientServerAddress", "InterfaceAlias", wanted)
        return
    servers = [to_text(one) for one in to_items(call.get("ServerAddresses"))]
    try:
        for server in servers:
            ipaddress.ip_address(server)
    except ValueError as error:
        raise _cim(call, "The parameter is incorrect.", "Windows System Error 87") from error
    reset = call.has("ResetServerAddresses") or not servers
    for version in (4, 6):
        family = [server for server in servers if ipaddress.ip_address(server).version == version]
        for interface in interfaces:
            if reset or family:
                set_name_servers(registry, interface.guid, version, () if reset else family)


def _get_ip_configuration(call: CmdletCall) -> None:
    view = _view(call)
    for interface in view.interfaces():
        if not interface.under_switch and _matches(call, interface.name, interface.index):
            call.emit(
                PsObject(
                    "NetIPConfiguration",
                    {
                        "InterfaceAlias": interface.name,
                        "InterfaceIndex": interface.index,
                        "InterfaceDescription": interface.description,
                        "NetProfile.Name": "Network",
                        "IPv4Address": [str(address.ip) for address in interface.ipv4],
                        "IPv6DefaultGateway": [
                            gateway for gateway in interface.gateways if ":" in gateway
                        ],
                        "IPv4DefaultGateway": [
                            gateway for gateway in interface.gateways if ":" not in gateway
                        ],
                        "DNSServer": list(view.dns_servers(interface)),
                    },
                )
            )


def _dns_servers(call: CmdletCall) -> None:
    view, family = _view(call), call.text("AddressFamily").lower()
    for interface in view.interfaces():
        if interface.under_switch or not _matches(call, interface.name, interface.index):
            continue
        for version, number_ in (("IPv4", 2), ("IPv6", 23)):
            if family in ("", version.lower()):
                servers = [
                    server
                    for server in view.dns_servers(interface)
                    if (":" in server) == (version == "IPv6")
                ]
                call.emit(
                    PsObject(
                        "MSFT_DNSClientServerAddress",
                        {
                            "InterfaceAlias": interface.name,
                            "InterfaceIndex": interface.index,
                            "AddressFamily": number_,
                            "ServerAddresses": servers,
                        },
                    )
                )


def _dns_client(call: CmdletCall) -> None:
    view = _view(call)
    for interface in view.interfaces():
        if not interface.under_switch and _matches(call, interface.name, interface.index):
            call.emit(
                PsObject(
                    "MSFT_DNSClient",
                    {
                        "InterfaceAlias": interface.name,
                        "InterfaceIndex": interface.index,
                        "ConnectionSpecificSuffix": next(iter(view.dns.searches), ""),
                        "ConnectionSpecificSuffixSearchList": list(view.dns.searches[:1]),
                        "RegisterThisConnectionsAddress": True,
                        "UseSuffixWhenRegistering": False,
                    },
                )
            )


def _dns_global(call: CmdletCall) -> None:
    call.emit(
        PsObject(
            "MSFT_DNSClientGlobalSetting",
            {
                "UseSuffixSearchList": True,
                "SuffixSearchList": list(_view(call).dns.searches[:1]),
                "UseDevolution": True,
                "DevolutionLevel": 0,
            },
        )
    )


def _nothing(_call: CmdletCall) -> None:
    """Nothing is cached: every name is looked up again."""


_COMMON: Final = "InterfaceAlias InterfaceIndex AddressFamily"

CMDLETS = (
    cmdlet_row(
        "Get-NetAdapter",
        _get_adapter,
        "Name",
        "Physical IncludeHidden",
        "InterfaceAlias InterfaceIndex InterfaceDescription",
    ),
    cmdlet_row(
        "Get-NetIPAddress",
        _get_address,
        "IPAddress",
        "",
        f"{_COMMON} PrefixLength PrefixOrigin SuffixOrigin AddressState Type",
    ),
    cmdlet_row(
        "Get-NetRoute",
        _get_route,
        "DestinationPrefix",
        "",
        f"{_COMMON} NextHop PolicyStore RouteMetric InterfaceMetric",
    ),
    cmdlet_row("Find-NetRoute", _find_route, "RemoteIPAddress"),
    cmdlet_row(
        "New-NetRoute",
        _new_route,
        "DestinationPrefix",
        "",
        f"{_COMMON} NextHop RouteMetric PolicyStore",
    ),
    cmdlet_row(
        "Remove-NetRoute", _remove_route, "DestinationPrefix", "", f"{_COMMON} NextHop PolicyStore"
    ),
    cmdlet_row(
        "Get-NetIPInterface",
        _get_ip_interface,
        "InterfaceAlias",
        "",
        "InterfaceIndex AddressFamily ConnectionState Dhcp Forwarding InterfaceMetric NlMtuBytes",
    ),
    cmdlet_row(
        "Get-NetNeighbor", _get_neighbour, "IPAddress", "", f"{_COMMON} State LinkLayerAddress"
    ),
    cmdlet_row(
        "New-NetNeighbor",
        _change_neighbour,
        "",
        "",
        f"{_COMMON} IPAddress LinkLayerAddress State",
    ),
    cmdlet_row(
        "Set-NetNeighbor", _change_neighbour, "IPAddress", "", f"{_COMMON} LinkLayerAddress State"
    ),
    cmdlet_row("Remove-NetNeighbor", _remove_neighbour, "IPAddress", "", _COMMON),
    cmdlet_row(
        "New-NetIPAddress", _new_address, "IPAddress", "", f"{_COMMON} PrefixLength DefaultGateway"
    ),
    cmdlet_row("Set-NetIPAddress", _remove_address, "IPAddress", "", f"{_COMMON} PrefixLength"),
    cmdlet_row("Remove-NetIPAddress", _remove_address, "IPAddress", "", f"{_COMMON} PrefixLength"),
    cmdlet_row(
        "Set-DnsClientServerAddress",
        _set_dns_servers,
        "InterfaceAlias",
        "ResetServerAddresses",
        "InterfaceIndex ServerAddresses",
    ),
    cmdlet_row(
        "Get-NetIPConfiguration",
        _get_ip_configuration,
        "InterfaceAlias",
        "All Detailed",
        "InterfaceIndex",
    ),
    cmdlet_row(
        "Get-DnsClientServerAddress",
        _dns_servers,
        "InterfaceAlias",
        "",
        "InterfaceIndex AddressFamily",
    ),
    cmdlet_row("Get-DnsClient", _dns_client, "InterfaceAlias", "", "InterfaceIndex"),
    cmdlet_row("Get-DnsClientGlobalSetting", _dns_global),
    cmdlet_row("Get-DnsClientCache", _nothing, "Name"),
    cmdlet_row("Clear-DnsClientCache", _nothing),
)
