"""ping, ipconfig and others, as Windows prints them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

from transom.kit.ip_addresses import is_ip_address
from transom.userland.api import OpenSocket
from transom.userland.network_view import NetworkInterface, NetworkView
from transom.userland.process import Command, Process
from transom.userland.windows import routes
from transom.userland.windows.report_rows import formatted_rows
from transom.userland.windows.wmi import image_name


async def windows_ping(process: Process) -> int:
    numbers = {"-n": 4, "-w": 4000, "-l": 32}
    host, forever = "", False
    arguments = process.argv[1:]
    position = 0
    only_v4 = False
    while position < len(arguments):
        argument = arguments[position].lower().replace("/", "-")
        position += 1
        if argument in ("-n", "-w", "-l", "-i") and position < len(arguments):
            value = arguments[position]
            position += 1
            if not value.isdigit():
                process.print_line(
                    f"Bad value for option {argument}, valid range is from 1 to 4294967295.",
                )
                return 1
            numbers[argument] = int(value)
        elif argument == "-t":
            forever = True
        elif argument in ("-4", "-6"):
            only_v4 = argument == "-4"
        elif argument.startswith("-"):
            process.print_line(f"Bad option {argument}.")
            return 1
        else:
            host = arguments[position - 1]
    count, wait, size = numbers["-n"], numbers["-w"], numbers["-l"]
    if not host:
        process.print_line("\r\nUsage: ping [-t] [-a] [-n count] [-l size] [-f] [-i TTL] [-v TOS]")
        return 1
    address = await _address(process, host, only_v4)
    if address is None:
        process.print_line(
            f"Ping request could not find host {host}. Please check the name and try again.",
        )
        return 1
    shown = (
        host
        if host == address
        else f"{process.context.network.hostname if host.lower() == 'localhost' else host} [{address}]"
    )
    process.print_line()
    process.print_line(f"Pinging {shown} with {size} bytes of data:")
    sent = received = 0
    try:
        while forever or sent < count:
            sent += 1
            if await process.context.network.echo(address, wait / 1000):
                received += 1
                v6 = ":" in address
                process.print_line(
                    f"Reply from {address}: time<1ms "
                    if v6
                    else f"Reply from {address}: bytes={size} time<1ms TTL=128",
                )
            else:
                process.print_line("Request timed out.")
            if forever or sent < count:
                await process.sleep(1)
    finally:
        if not forever:
            _print_ping_statistics(process, address, sent, received)
    return int(received == 0)


def _print_ping_statistics(process: Process, address: str, sent: int, received: int) -> None:
    lost = (sent - received) * 100 // sent if sent else 0
    process.print_line()
    process.print_line(f"Ping statistics for {address}:")
    process.print_line(
        f"    Packets: Sent = {sent}, Received = {received}, Lost = {sent - received} ({lost}% loss),"
    )
    if received:
        process.print_line("Approximate round trip times in milli-seconds:")
        process.print_line("    Minimum = 0ms, Maximum = 0ms, Average = 0ms")


async def _address(process: Process, host: str, only_v4: bool) -> str | None:
    if host.lower() == "localhost":
        return "127.0.0.1" if only_v4 else "::1"
    if is_ip_address(host.strip("[]")):
        return host
    try:
        return (await process.context.network.resolve(host))[0]
    except socket.gaierror:
        return None


_WIDE = ("Primary Dns Suffix", "Connection-specific DNS Suffix")


def adapter_row(process: Process, name: str, value: str) -> None:
    gap = "  " if name in _WIDE else " " if len(name) % 2 else ""
    padded = (name + gap + ". " * 20)[:34]
    process.print_line(f"   {padded}: {value}")


def _rows(process: Process, name: str, values: Sequence[str]) -> None:
    """The first value is next to the name, the others are below it."""
    for position, value in enumerate(values):
        if position == 0:
            adapter_row(process, name, value)
        else:
            process.print_line(" " * 39 + value)


_IPCONFIG_ACTIONS: Final = (
    *("/displaydns", "/flushdns", "/registerdns"),
    *("/release", "/renew", "/release6", "/renew6"),
)


def ipconfig(process: Process) -> int:
    arguments = [argument.lower().replace("-", "/") for argument in process.argv[1:]]
    everything = "/all" in arguments
    unknown = next((a for a in arguments if a not in ("/all", "/allcompartments")), "")
    if unknown and (len(arguments) > 1 or unknown not in _IPCONFIG_ACTIONS):
        process.print_line("\r\nError: unrecognized or incomplete command line.\r\n\r\nUSAGE:")
        process.print_line(
            "    ipconfig [/allcompartments] [/? | /all | /renew | /release | /flushdns |"
        )
        process.print_line("                                 /displaydns | /registerdns]")
        return 1
    if arguments and arguments[0] == "/displaydns":
        process.print_line("\r\nWindows IP Configuration\r\n")
        process.print_line("Could not display the DNS Resolver Cache.")
        return 1
    if arguments and arguments[0] == "/registerdns":
        if not process.context.windows.account.administrator:
            process.print_line("The requested operation requires elevation.")
            return 1
        process.print_line(
            "\r\nWindows IP Configuration\r\n\r\n"
            "Registration of the DNS resource records for all adapters of this computer has been "
            "initiated. Any errors will be reported in the Event Viewer in 15 minutes.",
        )
        return 0
    if arguments and arguments[0] == "/flushdns":
        process.print_line(
            "\r\nWindows IP Configuration\r\n\r\nSuccessfully flushed the DNS Resolver Cache.",
        )
        return 0
    if arguments and arguments[0] in ("/release", "/renew", "/release6", "/renew6"):
        process.print_line(
            "\r\nWindows IP Configuration\r\n\r\n"
            "The operation failed as no adapter is in the state permissible for \r\n"
            "this operation.",
        )
        return 1
    view = process.context.windows.network
    suffixes = view.dns.searches[:1]  # Windows shows one, however many are configured
    process.print_line()
    process.print_line("Windows IP Configuration")
    process.print_line()
    if "/allcompartments" in arguments:
        rule = "=" * 78
        process.print_line(
            f"\r\n{rule}\r\nNetwork Information for Compartment 1 (ACTIVE)\r\n{rule}"
        )
    if everything:
        adapter_row(process, "Host Name", process.context.network.hostname)
        adapter_row(process, "Primary Dns Suffix", "")
        adapter_row(process, "Node Type", "Hybrid")
        adapter_row(process, "IP Routing Enabled", "Yes" if view.stack.forwarding else "No")
        adapter_row(process, "WINS Proxy Enabled", "No")
        _rows(process, "DNS Suffix Search List", suffixes)
    for interface in view.interfaces():
        if not interface.under_switch and interface.status != "Disabled":
            _show_interface(process, view, interface, everything=everything)
    return 0


def _show_interface(
    process: Process, view: NetworkView, interface: NetworkInterface, *, everything: bool
) -> None:
    suffixes = view.dns.searches[:1]
    mark = "(Preferred) " if everything else ""
    process.print_line()
    process.print_line(f"Ethernet adapter {interface.name}:")
    process.print_line()
    if interface.status == "Disconnected":
        adapter_row(process, "Media State", "Media disconnected")
        adapter_row(process, "Connection-specific DNS Suffix", "")
        return
    adapter_row(process, "Connection-specific DNS Suffix", suffixes[0] if suffixes else "")
    if everything:
        adapter_row(process, "Description", interface.description)
        adapter_row(process, "Physical Address", interface.mac)
        adapter_row(process, "DHCP Enabled", "No")
        adapter_row(process, "Autoconfiguration Enabled", "Yes")
    for address in interface.ipv6:
        adapter_row(process, "IPv6 Address", str(address.ip) + mark)
    adapter_row(
        process, "Link-local IPv6 Address", f"{interface.link_local}%{interface.index}{mark}"
    )
    for address in interface.ipv4:
        adapter_row(process, "IPv4 Address", str(address.ip) + mark)
        adapter_row(process, "Subnet Mask", str(address.netmask))
    _rows(process, "Default Gateway", interface.gateways or ("",))
    if everything:
        _rows(process, "DNS Servers", view.dns_servers(interface))
        adapter_row(process, "NetBIOS over Tcpip", "Disabled" if interface.endpoint else "Enabled")
        if suffixes:
            process.print_line("   Connection-specific DNS Suffix Search List :")
            for suffix in suffixes:
                process.print_line(" " * 39 + suffix)


_NETSTAT_USAGE: Final = (
    "\r\nDisplays protocol statistics and current TCP/IP network connections.\r\n\r\n"
    "NETSTAT [-a] [-b] [-e] [-f] [-n] [-o] [-p proto] [-q] [-r] [-s]"
)
_PROTOCOLS: Final = ("tcp", "tcpv6", "udp", "udpv6")
_NETSTAT_SWITCHES: Final = frozenset("abefnopqrs")  # -t, -x and -y are refused


def netstat(process: Process) -> int:
    """Options may be joined, as in -ano."""
    switches, protocols = set[str](), list(_PROTOCOLS)
    words = iter(process.argv[1:])
    for word in words:
        letters = word[1:].lower()
        if word[:1] not in "-/" or not letters or set(letters) - _NETSTAT_SWITCHES:
            process.print_line(_NETSTAT_USAGE)
            return 1
        switches |= set(letters)
        if "p" in letters:
            protocols = [next(words, "").lower()]
            if protocols[0] not in _PROTOCOLS:
                process.print_line(_NETSTAT_USAGE)
                return 1
    if "r" in switches:
        return routes.print_routes(process, ())
    if switches & set("es"):
        return _statistics(process, "s" in switches)
    owner = "           PID" if "o" in switches else ""
    process.print_line("\r\nActive Connections\r\n")
    process.print_line("  Proto  Local Address          Foreign Address        State" + owner)
    names = {entry.pid: image_name(entry) for entry in process.context.processes.list()}
    for one in sorted(process.context.network.sockets()):
        version = "v6" if ":" in one.address else ""
        if one.protocol + version not in protocols or not (one.peer or switches & set("aq")):
            continue
        remote, state = _remote_end(one)
        row = f"  {one.protocol.upper():<6} {endpoint_text(one):<22} {remote:<22} {state:<15}"
        process.print_line((row + (f" {one.pid}" if owner else "")).rstrip())
        if "b" in switches:
            known = names.get(one.pid, "")
            process.print_line(f" [{known}]" if known else " Can not obtain ownership information")
    return 0


def _remote_end(one: OpenSocket) -> tuple[str, str]:
    if one.peer:
        peer = f"[{one.peer}]" if ":" in one.peer else one.peer
        return f"{peer}:{one.peer_port}", one.state
    if one.protocol == "udp":
        return "*:*", ""
    return "[::]:0" if ":" in one.address else "0.0.0.0:0", "LISTENING"


def _statistics(process: Process, by_protocol: bool) -> int:
    """The traffic of all adapters, or the connections of each protocol."""
    sockets = process.context.network.sockets()
    connected = sum(1 for one in sockets if one.state == "ESTABLISHED")
    received, sent = process.context.network.traffic()
    if not by_protocol:
        process.print_line("Interface Statistics\r\n")
        process.print_line(f"{'':<27}{'Received':>9}{'Sent':>16}\r\n")
        process.print_line(f"{'Bytes':<20}{received:>16}{sent:>16}")
        return 0
    process.print_line("\r\nTCP Statistics for IPv4\r\n")
    process.print_line(f"  Current Connections                 = {connected}")
    return 0


def endpoint_text(one: OpenSocket) -> str:
    address = f"[{one.address}]" if ":" in one.address else one.address
    return f"{address}:{one.port}"


def getmac(process: Process) -> int:
    """`/fo table|list|csv`, `/nh` (no heading), `/v` (names of connections and adapters)."""
    words = [word.lower() for word in process.argv[1:]]
    shape = words[words.index("/fo") + 1] if "/fo" in words[:-1] else "table"
    known = ("/fo", "/nh", "/v", "table", "list", "csv")
    wrong = next((word for word in words if word not in known), "")
    if wrong or shape not in known[3:]:
        process.complain(
            f"ERROR: Invalid argument/option - '{wrong or shape}'.\r\nType \"GETMAC /?\" for usage."
        )
        return 1
    columns = [("Physical Address", 19), ("Transport Name", 58)]
    if "/v" in words:
        columns = [("Connection Name", 15), ("Network Adapter", 15), *columns]
    rows: list[list[str]] = []
    for interface in process.context.windows.network.interfaces():
        device = f"\\Device\\Tcpip_{{{interface.guid}}}"
        name = "Media disconnected" if interface.under_switch else device
        more = [interface.name, interface.description] if "/v" in words else []
        rows.append([*more, interface.mac, name])
    for line in formatted_rows(columns, rows, shape, heading="/nh" not in words):
        process.print_line(line)
    return 0


COMMANDS: dict[str, Command] = {
    "getmac": getmac,
    "ipconfig": ipconfig,
    "netstat": netstat,
    "ping": windows_ping,
    **routes.COMMANDS,
}
