"""The external host serves ports 80 and 443, and resolves the nodes' names."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl

import pytest
from tests.network.fabrics import OUTSIDE, make_cluster

from transom.kit import dnswire as wire
from transom.kit.clock import RealClock
from transom.machines.linux import NAME_SERVER
from transom.network.model.dataplane import ModelDataplane
from transom.network.resolver import addresses_in
from transom.node.external_host import ExternalHost

REQUEST = b"GET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n"


async def _fetched(connection: socket.socket, tls: ssl.SSLContext | None) -> bytes:
    reader, writer = await asyncio.open_connection(
        sock=connection, ssl=tls, server_hostname="x" if tls else None
    )
    writer.write(REQUEST)
    try:
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.windows("TRB-74")
async def test_web_server_and_name_server() -> None:
    cluster = make_cluster("l2bridge", 1, 1)
    pod = cluster.pod("here", "windows-1")
    plane = ModelDataplane(cluster.fabric, RealClock(), random.Random(1))
    taken = plane.listen(OUTSIDE, 443, socket.socket.close)
    host = ExternalHost(plane, cluster.fabric, (OUTSIDE,), lambda: {"linux-1": ["172.20.0.2"]})
    host.open()
    taken()  # another program had it: it stays free until the next start
    with pytest.raises(ConnectionRefusedError):
        await plane.connect(OUTSIDE, 443, pod)
    host.close()
    host.open()
    insecure = ssl._create_unverified_context()
    for port, tls in ((80, None), (443, insecure)):
        answer = await _fetched(await plane.connect(OUTSIDE, port, pod), tls)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and b"Example Domain" in answer
    with pytest.raises(ConnectionRefusedError):
        await plane.connect(OUTSIDE, 81, pod)
    for name, found in (
        ("linux-1", ["172.20.0.2"]),
        ("WWW.example.com", [OUTSIDE]),
        ("localhost", ["127.0.0.1"]),
    ):
        reply = await plane.ask(
            NAME_SERVER, 53, wire.encode_query(1, wire.encode_name(name), wire.A), pod
        )
        assert addresses_in(wire.parse_dns_message(reply)) == found
    reply = await plane.ask(
        NAME_SERVER, 53, wire.encode_query(1, wire.encode_name("nowhere.example"), wire.A), pod
    )
    assert wire.parse_dns_message(reply).rcode == wire.NXDOMAIN
    host.close()
    with pytest.raises(ConnectionRefusedError):
        await plane.connect(OUTSIDE, 80, pod)
