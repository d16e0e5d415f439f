"""The container's network for a Unix process in it: plain sockets behind the interface of
programs.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from transom.kit.ip_addresses import is_ip_address
from transom.kit.task_set import TaskSet
from transom.network.api import Accept, Respond
from transom.network.kernel.listeners import waiting_sockets
from transom.userland.api import OpenSocket

_BACKLOG: Final = 128
_UDP_TIMEOUT: Final = 5.0
_LARGEST: Final = 65535
_ECHO_REQUEST, _ECHO_REPLY = 8, 0


def open_sockets_text() -> list[OpenSocket]:
    """The container's sockets that wait for connections or datagrams."""
    tcp = [OpenSocket("tcp", str(address), port) for address, port in waiting_sockets("tcp")]
    udp = [OpenSocket("udp", str(address), port) for address, port in waiting_sockets("udp")]
    return [*tcp, *udp]


def stand_in_traffic() -> tuple[int, int]:
    """Bytes received and sent by all interfaces except the loopback one."""
    received = sent = 0
    for line in Path("/proc/net/dev").read_text().splitlines()[2:]:
        name, _, rest = line.partition(":")
        fields = rest.split()
        if name.strip() != "lo" and len(fields) > 8:
            received, sent = received + int(fields[0]), sent + int(fields[8])
    return received, sent


def listen_stand_in(port: int, accept: Accept, address: str = "") -> Callable[[], None]:
    """On all addresses, of both families, or on one. Raises OSError."""
    loop, opened = asyncio.get_running_loop(), list[socket.socket]()

    def close() -> None:
        for one in opened:
            loop.remove_reader(one)
            one.close()
        opened.clear()

    def ready(listener: socket.socket) -> None:
        with suppress(BlockingIOError, ConnectionError):
            accept(listener.accept()[0])

    for host in (address,) if address else ("0.0.0.0", "::"):
        try:
            opened.append(_listener(host, port))
        except OSError:
            if host == "::":  # there may be no IPv6
                continue
            close()
            raise
    for one in opened:
        loop.add_reader(one, ready, one)
    return close


def _listener(host: str, port: int) -> socket.socket:
    made = socket.socket(_family(host), socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if made.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((host, port))
        made.listen(_BACKLOG)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


async def connect_stand_in(addresses: Iterable[str], port: int) -> socket.socket:
    """Connects to the first address that accepts. Raises OSError."""
    problem: OSError = ConnectionRefusedError("there is no address")
    for address in addresses:
        made = socket.socket(_family(address), socket.SOCK_STREAM)
        made.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(made, (address, port))
        except OSError as failure:
            made.close()
            problem = failure
        except BaseException:
            made.close()
            raise
        else:
            return made
    raise problem


async def ask_stand_in(server: str, port: int, payload: bytes) -> bytes:
    with socket.socket(_family(server), socket.SOCK_DGRAM) as made:
        made.setblocking(False)
        made.connect((server, port))
        loop = asyncio.get_running_loop()
        made.send(payload)
        return await asyncio.wait_for(loop.sock_recv(made, _LARGEST), _UDP_TIMEOUT)


def answer_stand_in(port: int, respond: Respond) -> Callable[[], None]:
    loop, made = asyncio.get_running_loop(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    made.bind(("0.0.0.0", port))
    tasks = TaskSet()

    async def reply(payload: bytes, caller: tuple[str, int]) -> None:
        response = await respond(payload, caller[0])
        if response is not None:
            made.sendto(response, caller)

    def ready() -> None:
        with suppress(BlockingIOError):
            tasks.start(reply(*made.recvfrom(_LARGEST)))

    def close() -> None:
        loop.remove_reader(made)
        made.close()

    loop.add_reader(made, ready)
    return close


async def ping_stand_in(address: str, patience: float) -> bool:
    """For IPv4 addresses. Every user in a container may ping."""
    if not is_ip_address(address) or ":" in address:
        return False
    number = random.randrange(1 << 16)
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as made:
        made.setblocking(False)
        made.connect((address, 0))

        async def replied() -> bool:
            while True:
                packet = await loop.sock_recv(made, _LARGEST)
                body = packet[(packet[0] & 15) * 4 :]
                if body[0] == _ECHO_REPLY and body[4:6] == number.to_bytes(2):
                    return True

        made.send(_request(number))
        try:
            return await asyncio.wait_for(replied(), patience)
        except (TimeoutError, ConnectionError):
            return False


def _request(number: int) -> bytes:
    body = struct.pack("!BBHHH", _ECHO_REQUEST, 0, 0, number, 1) + bytes(range(97, 129))
    total = sum(struct.unpack(f"!{len(body) // 2}H", body))
    total = (total & 0xFFFF) + (total >> 16)
    return body[:2] + (~(total + (total >> 16)) & 0xFFFF).to_bytes(2) + body[4:]


def gateway_address() -> str:
    """The next hop of the default route; empty without one."""
    try:
        with open("/proc/net/route", encoding="ascii") as file:
            rows = [line.split() for line in file][1:]
    except OSError:
        return ""
    found = next((row[2] for row in rows if len(row) > 2 and row[1] == "00000000"), "")
    return socket.inet_ntoa(bytes.fromhex(found)[::-1]) if found else ""


def stand_in_addresses() -> list[str]:
    """The value that the runtime has passed to the container's first process; empty where it may
    not be read.
    """
    try:
        with open("/proc/1/environ", "rb") as file:
            variables = dict(one.partition(b"=")[::2] for one in file.read().split(b"\0"))
    except OSError:
        return []
    return list(filter(None, [os.fsdecode(variables.get(b"TRANSOM_ADDRESS", b""))]))
