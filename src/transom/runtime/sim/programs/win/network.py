"""ping, ipconfig and their like, as Windows prints them."""

from __future__ import annotations

import ipaddress
import re
import socket

from transom.runtime.sim.programs.commands.network import is_address
from transom.runtime.sim.programs.launch import Command
from transom.runtime.sim.programs.process import Process


def _say(process: Process, text: str = "") -> None:
    process.write(text + "\r\n")


async def ping(process: Process) -> int:
    count, wait, forever, size = 4, 4000, False, 32
    host = ""
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
                _say(process, f"Bad value for option {argument}, valid range is from 1 to 4294967295.")
                return 1
            if argument == "-n":
                count = int(value)
            elif argument == "-w":
                wait = int(value)
            elif argument == "-l":
                size = int(value)
        elif argument == "-t":
            forever = True
        elif argument in ("-4", "-6"):
            only_v4 = argument == "-4"
        elif argument.startswith("-"):
            _say(process, f"Bad option {argument}.")
            return 1
        else:
            host = arguments[position - 1]
    if not host:
        _say(process, "\r\nUsage: ping [-t] [-a] [-n count] [-l size] [-f] [-i TTL] [-v TOS]")
        return 1
    address = await _address(process, host, only_v4)
    if address is None:
        _say(process, f"Ping request could not find host {host}. Please check the name and try again.")
        return 1
    shown = host if host == address else f"{process.context.hostname if host.lower() == 'localhost' else host} [{address}]"
    _say(process)
    _say(process, f"Pinging {shown} with {size} bytes of data:")
    sent = received = 0
    try:
        while forever or sent < count:
            sent += 1
            if await process.context.echo(address, wait / 1000):
                received += 1
                v6 = ":" in address
                _say(
                    process,
                    f"Reply from {address}: time<1ms " if v6 else f"Reply from {address}: bytes={size} time<1ms TTL=128",
                )
            else:
                _say(process, "Request timed out.")
            if forever or sent < count:
                await process.sleep(1)
    finally:
        if not forever:
            lost = (sent - received) * 100 // sent if sent else 0
            _say(process)
            _say(process, f"Ping statistics for {address}:")
            _say(process, f"    Packets: Sent = {sent}, Received = {received}, Lost = {sent - received} ({lost}% loss),")
            if received:
                _say(process, "Approximate round trip times in milli-seconds:")
                _say(process, "    Minimum = 0ms, Maximum = 0ms, Average = 0ms")
    return int(received == 0)


async def _address(process: Process, host: str, only_v4: bool) -> str | None:
    if host.lower() == "localhost":
        return "127.0.0.1" if only_v4 else "::1"
    if is_address(host):
        return host
    try:
        return (await process.context.resolve(host))[0]
    except socket.gaierror:
        return None


_WIDE = ("Primary Dns Suffix", "Connection-specific DNS Suffix")


def row(process: Process, name: str, value: str) -> None:
    gap = "  " if name in _WIDE else " " if len(name) % 2 else ""
    padded = (name + gap + ". " * 20)[:34]
    _say(process, f"   {padded}: {value}")


def ipconfig(process: Process) -> int:
    context = process.context
    arguments = [argument.lower().replace("-", "/") for argument in process.argv[1:]]
    everything = "/all" in arguments
    if arguments and arguments[0] in ("/flushdns", "/registerdns"):
        _say(process, "\r\nWindows IP Configuration\r\n\r\nSuccessfully flushed the DNS Resolver Cache.")
        return 0
    address = next((ip for ip in context.ips if ":" not in ip), "")
    six = next((ip for ip in context.ips if ":" in ip), "")
    suffixes = context.dns.searches[:1]  # Windows has one, whatever it is told
    _say(process)
    _say(process, "Windows IP Configuration")
    _say(process)
    if everything:
        row(process, "Host Name", context.hostname)
        row(process, "Primary Dns Suffix", "")
        row(process, "Node Type", "Hybrid")
        row(process, "IP Routing Enabled", "No")
        row(process, "WINS Proxy Enabled", "No")
        for suffix in suffixes:
            row(process, "DNS Suffix Search List", suffix)
    _say(process)
    _say(process, f"Ethernet adapter vEthernet ({context.container_id[:8]}):")
    _say(process)
    row(process, "Connection-specific DNS Suffix", suffixes[0] if suffixes else "")
    if everything:
        row(process, "Description", "Hyper-V Virtual Ethernet Container Adapter")
        row(process, "Physical Address", physical_address(address))
        row(process, "DHCP Enabled", "No")
        row(process, "Autoconfiguration Enabled", "Yes")
    mark = "(Preferred) " if everything else ""
    if six:
        row(process, "IPv6 Address", six + mark)
    row(process, "Link-local IPv6 Address", link_local(address) + mark)
    if address:
        row(process, "IPv4 Address", address + mark)
        row(process, "Subnet Mask", "255.255.255.0")
        row(process, "Default Gateway", address.rpartition(".")[0] + ".1")
    if everything:
        for index, server in enumerate(context.dns.servers):
            if index == 0:
                row(process, "DNS Servers", server)
            else:
                _say(process, " " * 39 + server)
        row(process, "NetBIOS over Tcpip", "Disabled")
        if suffixes:
            _say(process, "   Connection-specific DNS Suffix Search List :")
            for suffix in suffixes:
                _say(process, " " * 39 + suffix)
    return 0


def physical_address(address: str) -> str:
    """One that belongs to an address; Windows' overlay networks begin it with 00-15-5D."""
    digits = [piece for piece in address.split(".") if piece.isdigit()]
    numbers = [int(piece) for piece in (digits[1:] if len(digits) == 4 else ["0", "0", "1"])]
    return "00-15-5D-" + "-".join(f"{number:02X}" for number in numbers)


def link_local(address: str) -> str:
    """What the adapter with this address calls itself on its link."""
    number = int(ipaddress.ip_address(address)) if address else 1
    return f"fe80::{number >> 16 & 0xFFFF:x}:{number & 0xFFFF:x}:c0de:2%30"


def netstat(process: Process) -> int:
    _say(process, "\r\nActive Connections\r\n\r\n  Proto  Local Address          Foreign Address        State")
    for mapping in process.context.ports:
        _say(process, f"  TCP    0.0.0.0:{mapping.container_port:<15} 0.0.0.0:0              LISTENING")
    return 0


def getmac(process: Process) -> int:
    address = next(iter(process.context.ips), "")
    _say(
        process,
        "\r\nPhysical Address    Transport Name\r\n=================== "
        "==========================================================",
    )
    _say(
        process,
        f"{physical_address(address):<19} "
        f"\\Device\\Tcpip_{{{process.context.container_id[:8].upper()}-0000-0000-0000-000000000000}}",
    )
    return 0


def route(process: Process) -> int:
    address = next(iter(process.context.ips), "127.0.0.1")
    gateway = re.sub(r"\d+$", "1", address)
    _say(process, "IPv4 Route Table\r\n" + "=" * 75 + "\r\nActive Routes:")
    _say(process, "Network Destination        Netmask          Gateway       Interface  Metric")
    _say(process, f"{'0.0.0.0':>17}{'0.0.0.0':>17}{gateway:>17}{address:>16}{5256:>8}")
    return 0


COMMANDS: dict[str, Command] = {
    "getmac": getmac,
    "ipconfig": ipconfig,
    "netstat": netstat,
    "ping": ping,
    "route": route,
}
