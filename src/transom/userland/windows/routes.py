"""route, arp, tracert and netsh, as Windows prints them."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from typing import Final

from transom.machines.windows.system import (
    PersistentRoute,
    forget_route,
    keep_route,
    persistent_routes,
)
from transom.userland.network_view import (
    LOOPBACK_INDEX,
    LOOPBACK_METRIC,
    LOOPBACK_NAME,
    METRIC,
    NetworkInterface,
)
from transom.userland.process import Command, Process
from transom.userland.windows import firewall
from transom.userland.windows.adapter_state import set_adapter_mtu, set_adapter_state
from transom.userland.windows.port_proxy import is_port_proxy_context, run_portproxy
from transom.userland.windows.unsupported_programs import (
    NOT_SUPPORTED,
    is_unsupported_netsh,
    unsupported_message,
)

_LINE: Final = "=" * 75
_PROBES: Final = 3
_MOST_HOPS: Final = 30
_LEAST_MTU: Final = 352  # of IPv4 on Windows


# ---- route ----


def route(process: Process) -> int:
    words = [word for word in process.argv[1:] if word.lower() not in ("-p", "-4", "-6", "-f")]
    verb = words[0].lower() if words else ""
    if verb == "print":
        return print_routes(process, words[1:])
    if verb in ("add", "change"):
        return _add_route(process, words[1:])
    if verb == "delete" and len(words) > 1:
        return _delete_route(
            process, words[1], words[3] if len(words) > 3 and words[2].lower() == "mask" else ""
        )
    process.print_line("\r\nManipulates network routing tables.\r\n")
    process.print_line(
        "ROUTE [-f] [-p] [-4|-6] command [destination]\r\n                  [MASK netmask]  "
        "[gateway] [METRIC metric]"
        "  [IF interface]\r\n",
    )
    return 1


def print_routes(process: Process, wanted: Sequence[str]) -> int:
    view = process.context.windows.network
    only4, only6 = ("-4" in process.argv[1:], "-6" in process.argv[1:])
    pattern = wanted[0].rstrip("*") if wanted else ""
    rows = [r for r in view.routes() if str(r.destination.network_address).startswith(pattern)]
    process.print_line(_LINE)
    process.print_line("Interface List")
    for interface in reversed(view.interfaces()):
        process.print_line(
            (
                f"{interface.index:>3}...{interface.mac.replace('-', ' ').lower()} "
                f"......{interface.description}"
            ),
        )
    process.print_line(f"{LOOPBACK_INDEX:>3}{'.' * 27}Software Loopback Interface 1")
    process.print_line(_LINE)
    if not only6:
        process.print_line(f"\r\nIPv4 Route Table\r\n{_LINE}\r\nActive Routes:")
        process.print_line(
            "Network Destination        Netmask          Gateway       Interface  Metric"
        )
        for r in rows:
            if r.destination.version == 4:
                first = f"{r.destination.network_address!s:>17}{r.destination.netmask!s:>17}"
                metric = r.metric + r.interface_metric
                process.print_line(
                    f"{first}{r.next_hop or 'On-link':>17}{r.address:>16}{metric:>7}"
                )
        process.print_line(f"{_LINE}\r\nPersistent Routes:")
        _print_persistent(process, pattern)
    if not only4:
        process.print_line(
            (
                f"\r\nIPv6 Route Table\r\n{_LINE}\r\nActive Routes:\r\n If Metric Network "
                "Destination      Gateway"
            ),
        )
        for r in rows:
            if r.destination.version == 6:
                metric = r.metric + r.interface_metric
                process.print_line(
                    f"{r.index:>3}{metric:>7} {r.destination!s:<24} {r.next_hop or 'On-link'}",
                )
        process.print_line(f"{_LINE}\r\nPersistent Routes:\r\n  None")
    return 0


def _print_persistent(process: Process, pattern: str) -> None:
    kept = [
        route
        for route in persistent_routes(process.context.windows.system.registry)
        if route.destination.startswith(pattern)
    ]
    if not kept:
        process.print_line("  None")
        return
    process.print_line("  Network Address          Netmask  Gateway Address  Metric")
    for route in kept:
        network = ipaddress.ip_network(route.destination)
        address, mask = str(network.network_address), str(network.netmask)
        process.print_line(f"{address:>17}{mask:>17}{route.gateway:>17}{route.metric:>8}")


def _destination(text: str, mask: str) -> str:
    """As network stacks write it. Raises ValueError."""
    if "/" in text:
        return str(ipaddress.ip_network(text))
    address = ipaddress.ip_address(text)
    return str(ipaddress.ip_network(f"{address}/{mask or address.max_prefixlen}"))


def _add_route(process: Process, words: Sequence[str]) -> int:
    """DESTINATION [MASK MASK] GATEWAY [METRIC n] [IF n]"""
    rest = list(words)
    options: dict[str, str] = {}
    for name in ("mask", "metric", "if"):
        found = next((i for i, word in enumerate(rest[:-1]) if word.lower() == name), -1)
        if found >= 0:
            options[name] = rest[found + 1]
            del rest[found : found + 2]
    view = process.context.windows.network
    try:
        destination = _destination(rest[0], options.get("mask", ""))
        gateway = str(ipaddress.ip_address(rest[1]))
    except (IndexError, ValueError):
        process.print_line(
            (
                "The route addition failed: The parameter is "
                f"incorrect.\r\n\r\n{rest[0] if rest else ''}: bad argument"
            ),
        )
        return 1
    interface = view.find(options["if"]) if "if" in options else None
    if "if" in options and interface is None:
        process.print_line("The route addition failed: Element not found.\r\n")
        return 1
    adds = any(word.lower() == "add" for word in process.argv[1:])
    if view.stack.has_route(destination) and adds:
        process.print_line("The route addition failed: The object already exists.\r\n")
        return 1
    link = view.link_of(interface) if interface is not None else ""
    if not view.add_route(destination, gateway, link):
        process.print_line(
            "The route addition failed: Either the interface index is wrong or the gateway "
            "does not lie on the same "
            "network as the interface. Check the IP Address Table for the machine.\r\n",
        )
        return 1
    if any(word.lower() == "-p" for word in process.argv[1:]):
        route_ = PersistentRoute(destination, gateway, options.get("metric", "1"))
        keep_route(process.context.windows.system.registry, route_)
    process.print_line(" OK!")
    return 0


def _delete_route(process: Process, text: str, mask: str) -> int:
    view = process.context.windows.network
    try:
        wanted = ipaddress.ip_address(text.partition("/")[0])
    except ValueError:
        process.print_line("The route deletion failed: The parameter is incorrect.\r\n")
        return 1
    exact = _destination(text, mask) if mask or "/" in text else ""
    found = [
        str(r.destination)
        for r in view.stack.routes()
        if (str(r.destination) == exact if exact else r.destination.network_address == wanted)
    ]
    if not found:
        process.print_line("The route deletion failed: Element not found.\r\n")
        return 1
    for destination in found:
        view.stack.delete_route(destination)
        forget_route(process.context.windows.system.registry, destination)
    process.print_line(" OK!")
    return 0


# ---- arp ----


def arp(process: Process) -> int:
    words = [word.lower().replace("/", "-") for word in process.argv[1:]]
    view = process.context.windows.network
    if words and words[0] == "-s" and len(words) > 2:
        link = next((link for link in view.stack.links.values() if link.kind != "loopback"), None)
        if link is None:
            process.print_line("The ARP entry addition failed: The parameter is incorrect.")
            return 1
        view.stack.replace_neighbour(words[1], words[2].replace("-", ":"), link.name)
        return 0
    if words and words[0] == "-d":
        for address in (
            [words[1]] if len(words) > 1 and words[1] != "*" else list(view.stack.neighbours)
        ):
            view.stack.delete_neighbour(address)
        return 0
    if not words or words[0] not in ("-a", "-g"):
        process.print_line(
            "\r\nDisplays and modifies the IP-to-Physical address translation tables used by\r\n"
            "address resolution protocol (ARP).\r\n\r\n"
            "ARP -s inet_addr eth_addr [if_addr]\r\nARP -d inet_addr [if_addr]\r\n"
            "ARP -a [inet_addr] [-N if_addr] [-v]",
        )
        return 1
    wanted = words[1] if len(words) > 1 else ""
    neighbours = [
        n for n in view.neighbours() if ":" not in n.address and wanted in ("", n.address)
    ]
    shown = False
    for interface in view.interfaces():
        rows = [
            (n.address, n.mac.lower(), "static" if n.state == "Permanent" else "dynamic")
            for n in neighbours
            if n.index == interface.index
        ]
        if interface.ipv4 and not wanted:
            last = str(interface.ipv4[0].network.broadcast_address)
            rows += [
                (last, "ff-ff-ff-ff-ff-ff", "static"),
                ("224.0.0.22", "01-00-5e-00-00-16", "static"),
                ("255.255.255.255", "ff-ff-ff-ff-ff-ff", "static"),
            ]
        if not rows or not interface.ipv4:
            continue
        shown = True
        process.print_line(f"\r\nInterface: {interface.ipv4[0].ip} --- {interface.index:#x}")
        process.print_line("  Internet Address      Physical Address      Type")
        for address, mac, kind in rows:
            process.print_line(f"  {address:<22}{mac:<22}{kind:<7}")
    if not shown:
        process.print_line("No ARP Entries Found.")
    return 0 if shown else 1


# ---- tracert ----


async def tracert(process: Process) -> int:
    options = {"-h": str(_MOST_HOPS), "-w": "4000"}
    host, words = "", [word.replace("/", "-") for word in process.argv[1:]]
    numbers = "-d" in (word.lower() for word in words)  # no names for the hops
    while words:
        word = words.pop(0)
        if word.lower() in options and words:
            options[word.lower()] = words.pop(0)
        elif not word.startswith("-"):
            host = word
    if not host or not all(value.isdigit() for value in options.values()):
        process.print_line(
            "\r\nUsage: tracert [-d] [-h maximum_hops] [-j host-list] [-w timeout]\r\n"
            "               [-R] [-S srcaddr] [-4] [-6] target_name",
        )
        return 1
    try:
        address = (await process.context.network.resolve(host))[0]
    except socket.gaierror:
        process.print_line(f"Unable to resolve target system name {host}.")
        return 1
    most, patience = int(options["-h"]), int(options["-w"]) / 1000
    named = address if host == address else f"{host} [{address}]"
    process.print_line(f"\r\nTracing route to {named}\r\nover a maximum of {most} hops:\r\n")
    ways = process.context.windows.network.hops(address)
    for number, hop in enumerate((*ways, address)[:most], 1):
        if hop == address and not await process.context.network.echo(address, patience):
            break
        process.print_line(
            f"{number:>3}{'    <1 ms' * _PROBES}  {hop if hop != address or numbers else named}",
        )
    else:
        process.print_line("\r\nTrace complete.")
        return 0
    for number in range(len(ways) + 1, most + 1):
        await process.sleep(patience * _PROBES)
        process.print_line(f"{number:>3}{'     *   ' * _PROBES}  Request timed out.")
    process.print_line("\r\nTrace complete.")
    return 0


# ---- netsh ----


def netsh(process: Process) -> int:
    words = [word.lower() for word in process.argv[1:]]
    if len(words) > 1 and is_port_proxy_context(*words[:2]):
        return run_portproxy(process, process.argv[3:])
    text = " ".join(words)
    for names, command in _NETSH:
        if any(text.startswith(name) for name in names):
            used = max(len(name.split()) for name in names if text.startswith(name))
            return command(process, process.argv[1 + used :])
    if is_unsupported_netsh(words):
        process.complain(unsupported_message(f"netsh {text}"))
        return NOT_SUPPORTED
    process.print_line(f"The following command was not found: {' '.join(process.argv[1:])}.")
    return 1


def _options(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Positional values, and `name=value`."""
    named = dict(word.split("=", 1) for word in words if "=" in word)
    return [word for word in words if "=" not in word], {
        name.lower(): value.strip('"') for name, value in named.items()
    }


def _interfaces(process: Process, words: Sequence[str]) -> list[NetworkInterface]:
    view = process.context.windows.network
    plain, named = _options(words)
    wanted = named.get("name") or named.get("interface") or next(iter(plain), "")
    if not wanted:
        return [interface for interface in view.interfaces() if not interface.under_switch]
    found = view.find(wanted.strip('"'))
    return [found] if found is not None else []


def _wants_loopback(words: Sequence[str]) -> bool:
    plain, named = _options(words)
    wanted = (named.get("name") or named.get("interface") or next(iter(plain), "")).strip('"')
    return wanted.lower() in ("", LOOPBACK_NAME.lower(), str(LOOPBACK_INDEX))


def _show_loopback(process: Process) -> None:
    process.print_line(f'\r\nConfiguration for interface "{LOOPBACK_NAME}"')
    process.print_line(f"    {'DHCP enabled:':<38}No")
    process.print_line(f"    {'IP Address:':<38}127.0.0.1")
    process.print_line(f"    {'Subnet Prefix:':<38}127.0.0.0/8 (mask 255.0.0.0)")
    process.print_line(f"    {'InterfaceMetric:':<38}{LOOPBACK_METRIC}")


def _show_addresses(process: Process, words: Sequence[str]) -> int:
    return _show_config(process, words, names=False)


def _show_name_servers(process: Process, servers: Sequence[str]) -> None:
    shown = servers or ("None",)
    process.print_line(f"    {'Statically Configured DNS Servers:':<38}{shown[0]}")
    for server in shown[1:]:
        process.print_line(f"{'':<42}{server}")
    process.print_line(f"    {'Register with which suffix:':<38}Primary only")
    process.print_line(f"    {'Statically Configured WINS Servers:':<38}None")


def _show_config(process: Process, words: Sequence[str], *, names: bool = True) -> int:
    """`names`: with the name servers."""
    view = process.context.windows.network
    found, loopback = _interfaces(process, words), _wants_loopback(words)
    if not found and not loopback:
        process.print_line("The filename, directory name, or volume label syntax is incorrect.\r\n")
        return 1
    for interface in found:
        process.print_line(f'\r\nConfiguration for interface "{interface.name}"')
        process.print_line(f"    {'DHCP enabled:':<38}No")
        for address in interface.ipv4:
            network = address.network
            process.print_line(f"    {'IP Address:':<38}{address.ip}")
            process.print_line(f"    {'Subnet Prefix:':<38}{network} (mask {network.netmask})")
        for gateway in interface.gateways:
            process.print_line(f"    {'Default Gateway:':<38}{gateway}")
            process.print_line(f"    {'Gateway Metric:':<38}256")
        process.print_line(f"    {'InterfaceMetric:':<38}{METRIC}")
        if names:
            _show_name_servers(process, view.dns_servers(interface))
    if loopback:
        _show_loopback(process)
        if names:
            _show_name_servers(process, ())
    process.print_line()
    return 0


def _show_ipv6_addresses(process: Process, words: Sequence[str]) -> int:
    shown = [(LOOPBACK_INDEX, LOOPBACK_NAME, [("Other", "::1")])]
    for interface in _interfaces(process, words):
        addresses = [("Manual", str(address.ip)) for address in interface.ipv6]
        addresses.append(("Other", f"{interface.link_local}%{interface.index}"))
        shown.append((interface.index, interface.name, addresses))
    for index, name, addresses in shown:
        process.print_line(
            f"\r\nInterface {index}: {name}\r\n\r\n"
            "Addr Type  DAD State   Valid Life Pref. Life Address\r\n"
            "---------  ----------- ---------- ---------- ------------------------"
        )
        for kind, address in addresses:
            process.print_line(f"{kind:<9}  Preferred     infinite   infinite {address}")
    process.print_line()
    return 0


def _show_dns(process: Process, words: Sequence[str]) -> int:
    view = process.context.windows.network
    for interface in _interfaces(process, words):
        servers = view.dns_servers(interface) or ("None",)
        process.print_line(f'\r\nConfiguration for interface "{interface.name}"')
        process.print_line(f"    {'Statically Configured DNS Servers:':<38}{servers[0]}")
        for server in servers[1:]:
            process.print_line(f"{'':<42}{server}")
        process.print_line(f"    {'Register with which suffix:':<38}Primary only")
    process.print_line()
    return 0


def _show_ip_interfaces(process: Process, words: Sequence[str]) -> int:
    process.print_line("\r\nIdx     Met         MTU          State                Name")
    process.print_line("---  ----------  ----------  ------------  ---------------------------")
    process.print_line(
        (
            f"{LOOPBACK_INDEX:>3}  {LOOPBACK_METRIC:>10}  {4294967295:>10}  {'connected':<12}  "
            f"{LOOPBACK_NAME}"
        ),
    )
    for interface in _interfaces(process, words):
        process.print_line(
            (
                f"{interface.index:>3}  {METRIC:>10}  {interface.mtu:>10}  {'connected':<12}  "
                f"{interface.name}"
            ),
        )
    process.print_line()
    return 0


def _show_subinterfaces(process: Process, words: Sequence[str]) -> int:
    process.print_line("\r\n   MTU  MediaSenseState   Bytes In  Bytes Out  Interface")
    process.print_line("------  ---------------  ---------  ---------  -------------")
    for interface in _interfaces(process, words):
        process.print_line(f"{interface.mtu:>6}  {1:>15}  {0:>9}  {0:>9}  {interface.name}")
    process.print_line()
    return 0


def _show_adapters(process: Process, words: Sequence[str]) -> int:
    process.print_line("\r\nAdmin State    State          Type             Interface Name")
    process.print_line("-" * 73)
    for interface in process.context.windows.network.interfaces():
        admin = "Disabled" if interface.status == "Disabled" else "Enabled"
        state = "Connected" if interface.status == "Up" else "Disconnected"
        process.print_line(f"{admin:<15}{state:<15}{'Dedicated':<17}{interface.name}")
    process.print_line()
    return 0


def _set_adapter(process: Process, words: Sequence[str]) -> int:
    """`set interface "Ethernet" admin=disabled`"""
    plain, named = _options(words)
    name = named.get("name") or (plain[0].strip('"') if plain else "")
    state = named.get("admin", plain[1] if len(plain) > 1 else "").lower()
    view = process.context.windows.network
    interface = view.find(name)
    if not process.context.windows.account.administrator:
        process.print_line("The requested operation requires elevation (Run as administrator).")
        return 1
    if interface is None or state not in ("", "enabled", "enable", "disabled", "disable"):
        process.print_line(
            "An interface with this name is not registered with the router."
            if interface is None
            else f"{state} is not an acceptable value for admin."
        )
        return 1
    if state:
        set_adapter_state(view, interface, up=state.startswith("enable"))
    process.print_line()
    return 0


def _set_mtu(process: Process, words: Sequence[str]) -> int:
    """`set subinterface "Ethernet" mtu=1400`"""
    plain, named = _options(words)
    name = named.get("interface") or (plain[0].strip('"') if plain else "")
    mtu = named.get("mtu", plain[1] if len(plain) > 1 else "")
    view = process.context.windows.network
    interface = view.find(name)
    if not process.context.windows.account.administrator:
        process.print_line("The requested operation requires elevation (Run as administrator).")
        return 1
    if interface is None:
        process.print_line("The filename, directory name, or volume label syntax is incorrect.\r\n")
        return 1
    if not mtu.isdigit() or int(mtu) < _LEAST_MTU:
        process.print_line("The parameter is incorrect.\r\n")
        return 1
    set_adapter_mtu(view, interface, int(mtu))
    process.print_line("Ok.\r\n")
    return 0


def _show_routes(process: Process, words: Sequence[str]) -> int:
    version = 6 if any(word.lower() in ("ipv6",) for word in process.argv[1:]) else 4
    process.print_line(
        "\r\nPublish  Type      Met  Prefix                    Idx  Gateway/Interface Name"
    )
    process.print_line(
        "-------  --------  ---  ------------------------  ---  ------------------------"
    )
    for r in process.context.windows.network.routes():
        if r.destination.version == version:
            kind = "Manual" if r.next_hop else "System"
            where = r.next_hop or r.interface
            process.print_line(
                (
                    f"{'No':<7}  {kind:<8}  {r.metric:<3}  {r.destination!s:<24}  {r.index:>3}  "
                    f"{where}"
                ),
            )
    process.print_line()
    return 0


def _show_neighbours(process: Process, words: Sequence[str]) -> int:
    neighbours = process.context.windows.network.neighbours()
    for interface in _interfaces(process, words):
        process.print_line(f"\r\nInterface {interface.index}: {interface.name}\r\n\r\n")
        process.print_line("Internet Address                              Physical Address   Type")
        process.print_line(
            "--------------------------------------------  -----------------  -----------"
        )
        for n in neighbours:
            if n.index == interface.index:
                process.print_line(f"{n.address:<44}  {n.mac.lower():<17}  {n.state}")
    process.print_line()
    return 0


def _netsh_add_route(process: Process, words: Sequence[str]) -> int:
    plain, named = _options(words)
    prefix = named.get("prefix") or (plain[0] if plain else "")
    name = named.get("interface") or (plain[1] if len(plain) > 1 else "")
    hop = named.get("nexthop") or (plain[2] if len(plain) > 2 else "0.0.0.0")
    view = process.context.windows.network
    interface = view.find(name.strip('"'))
    try:
        destination = str(ipaddress.ip_network(prefix))
        ipaddress.ip_address(hop)
    except ValueError:
        process.print_line("The parameter is incorrect.\r\n")
        return 1
    if interface is None:
        process.print_line("The filename, directory name, or volume label syntax is incorrect.\r\n")
        return 1
    if view.stack.has_route(destination):
        process.print_line("The object already exists.\r\n")
        return 1
    view.add_route(destination, hop, view.link_of(interface))
    process.print_line("Ok.\r\n")
    return 0


def _netsh_delete_route(process: Process, words: Sequence[str]) -> int:
    plain, named = _options(words)
    prefix = named.get("prefix") or (plain[0] if plain else "")
    view = process.context.windows.network
    try:
        destination = str(ipaddress.ip_network(prefix))
    except ValueError:
        process.print_line("The parameter is incorrect.\r\n")
        return 1
    if not view.stack.has_route(destination):
        process.print_line("Element not found.\r\n")
        return 1
    view.stack.delete_route(destination)
    process.print_line("Ok.\r\n")
    return 0


def _show_proxy(process: Process, _words: Sequence[str]) -> int:
    process.print_line(
        "\r\nCurrent WinHTTP proxy settings:\r\n\r\n    Direct access (no proxy server).\r\n",
    )
    return 0


_IP: Final = ("interface ipv4", "interface ip", "int ipv4", "int ip", "interface ipv6", "int ipv6")


def _under(*names: str) -> tuple[str, ...]:
    return tuple(f"{context} {name}" for context in _IP for name in names)


_NETSH: Final = (
    (
        tuple(
            f"{context} ipv6 show {name}"
            for context in ("interface", "int")
            for name in ("addresses", "address")
        ),
        _show_ipv6_addresses,
    ),
    (_under("show config"), _show_config),
    (_under("show addresses", "show address", "show ipaddresses"), _show_addresses),
    (_under("show dnsservers", "show dns"), _show_dns),
    (_under("show interfaces", "show interface"), _show_ip_interfaces),
    (_under("show subinterfaces", "show subinterface"), _show_subinterfaces),
    (_under("set subinterface", "set interface"), _set_mtu),
    (_under("show route", "show routes"), _show_routes),
    (_under("show neighbors", "show neighbours"), _show_neighbours),
    (_under("add route"), _netsh_add_route),
    (_under("delete route"), _netsh_delete_route),
    (
        ("interface show interface", "int show interface", "interface show int", "int show int"),
        _show_adapters,
    ),
    (("interface set interface", "int set interface", "int set int"), _set_adapter),
    (("winhttp show proxy",), _show_proxy),
    (("advfirewall",), firewall.advfirewall),
)

COMMANDS: dict[str, Command] = {"arp": arp, "netsh": netsh, "route": route, "tracert": tracert}
