"""A changed status cannot make the API server connect to its own machine, in any spelling of the
address.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.harness import Api

from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.service_resolver import ServiceAddress, _of_endpoints, _of_slice
from transom.apiserver.kubelets import dialing
from transom.apiserver.kubelets.options import KubeletOptions
from transom.apiserver.server import ServerOptions, build_api_server
from transom.http import HttpServer
from transom.http.messages import HttpResponse
from transom.kit.clock import RealClock
from transom.store.memory import MemoryStore

from .support import CA, NODE_IP, TOKEN, ApiHarness, Network, run, running_api_server, tls_files

# Spellings of addresses of the machine itself, and of its link.
LITERALS = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "::",
    "::1",
    "0:0:0:0:0:0:0:1",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::FFFF:127.0.0.1",
    "::ffff:0.0.0.0",
    "::ffff:169.254.169.254",
    "169.254.169.254",
    "fe80::1",
    "224.0.0.1",
    "239.1.1.1",
    "ff02::1",
    "ff0e::1",
    "255.255.255.255",
]
# What the resolver of a machine accepts as an address without a DNS query.
LOOSE = [
    "localhost",
    "LOCALHOST",
    "127.1",
    "127.0.1",
    "0",
    "0x7f.1",
    "0x7f000001",
    "2130706433",
    "017700000001",
    "fe80::1%lo",
    "::1%lo",
]
# Values that are not hosts.
ODD = [
    "",
    " ",
    "127.0.0.1 x",
    "10.0.0.7\r\nX-Injected: y",
    "10.0.0.7/x",
    "x@127.0.0.1",
    "127.0.0.1:80",
    "[::1]",
    "10.0.0.7#",
    "\u2488.0.0.1",
    "127\u30020.0.1",
    "a" * 300,
]
# Names that lead there.
NAMES = {
    "rebound.example.com": ["127.0.0.1"],
    "half.example.com": ["10.0.0.9", "::1"],
    "localhost.": ["127.0.0.1"],
    "127.0.0.1.": ["127.0.0.1"],
    "metadata.internal": ["169.254.169.254"],
    "mapped.example.com": ["::ffff:127.0.0.1"],
}
ALL = [*LITERALS, *LOOSE, *ODD, *NAMES]


async def resolve(host: str) -> list[str]:
    return NAMES[host] if host in NAMES else await dialing.resolve_dial_host(host)


@pytest.mark.parametrize("host", ALL)
async def test_the_own_machine_is_not_allowed(host: str) -> None:
    with pytest.raises((dialing.AddressNotAllowed, socket.gaierror)):
        await dialing.checked_addresses(host, resolve)


def test_leading_zeros_are_decimal_as_in_validation() -> None:
    """The resolver of the machine would read them as octal, and get to 127.0.0.1."""
    assert [str(a) for a in asyncio.run(dialing.checked_addresses("0177.0.0.1"))] == ["177.0.0.1"]
    endpoints = {"subsets": [{"addresses": [{"ip": "0177.0.0.1"}], "ports": [{"port": 1}]}]}
    assert list(_of_endpoints(endpoints, "")) == [ServiceAddress("177.0.0.1", 1)]
    named = {
        "addressType": "FQDN",
        "endpoints": [{"addresses": ["localhost"]}],
        "ports": [{"port": 1}],
    }
    assert list(_of_slice(named, "")) == []


@pytest.mark.parametrize(
    "host",
    [
        "10.0.0.7",
        "192.168.1.5",
        "172.17.0.1",
        "8.8.8.8",
        "100.64.0.1",
        "fd00::7",
        "2001:db8::1",
        "::ffff:10.0.0.7",
        "240.0.0.1",
    ],
)
def test_global_unicast_addresses_are_allowed(host: str) -> None:
    found = asyncio.run(dialing.checked_addresses(host))
    assert [str(a) for a in found] == [str(ipaddress.ip_address(host.removeprefix("::ffff:")))]


class Trap:
    """Listens on loopback, and counts who comes."""

    def __init__(self) -> None:
        self.visits = 0
        self.ports: list[int] = []

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Trap]:
        def visited(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.visits += 1
            writer.close()

        server = await asyncio.start_server(
            visited, ["127.0.0.1", "::1"] if socket.has_ipv6 else ["127.0.0.1"], 0
        )
        self.ports = [s.getsockname()[1] for s in server.sockets]
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()


@contextlib.asynccontextmanager
async def real_network(folder: Path) -> AsyncIterator[ApiHarness]:
    """An API server that connects by plain TCP, as to nodes outside of its process."""
    context, pair = tls_files(folder)
    clock = RealClock()
    admin = UserInfo("admin", ("system:masters", "system:authenticated"))
    options = KubeletOptions(None, pair, CA.certificate, resolve=resolve)
    server = build_api_server(
        ServerOptions(
            store=MemoryStore(clock), clock=clock, tokens={TOKEN: admin}, kubelets=options
        )
    )
    await server.start()
    api = Api(server, clock)
    await api.ok(
        "POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}
    )
    front = HttpServer(server.handler, None, bodies=server.handler)
    port = await front.start("127.0.0.1")
    try:
        yield ApiHarness(api, Network(), port, context)
    finally:
        await front.stop(0.0)
        await server.stop()


SPDY = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}
V5 = {**WEBSOCKET, "Sec-WebSocket-Protocol": "v5.channel.k8s.io"}
V4 = {**WEBSOCKET, "Sec-WebSocket-Protocol": "v4.channel.k8s.io"}
TUNNEL = {**WEBSOCKET, "Sec-WebSocket-Protocol": "SPDY/3.1+portforward.k8s.io"}
POD = "/api/v1/namespaces/default/pods/p"
COMMAND = "command=a&stdout=true"


async def change_addresses(w: ApiHarness, host: str, port: int) -> None:
    status = {
        "addresses": [{"type": "InternalIP", "address": host}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    await w.api.ok("PUT", "/api/v1/nodes/n1/status", {"metadata": {"name": "n1"}, "status": status})
    # Pods whose podIP is not an address are stored by an older release; here validation decides.
    await w.api.call(
        "PATCH",
        f"{POD}/status",
        {"status": {"phase": "Running", "podIP": host, "podIPs": [{"ip": host}]}},
        media="application/merge-patch+json",
    )


async def test_no_way_leads_to_the_own_machine(tmp_path: Path) -> None:
    async with run(), Trap().listening() as trap, real_network(tmp_path) as w:
        port = trap.ports[0]
        await w.node()
        await w.pod()
        services = "/api/v1/namespaces/default/services"
        await w.api.ok(
            "POST", services, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": port}]}}
        )
        ways: list[tuple[str, str, dict[str, str]]] = [
            ("GET", "/api/v1/nodes/n1/proxy/x", {}),
            ("POST", f"/api/v1/nodes/n1:{port}/proxy/x", {}),
            ("GET", f"/api/v1/nodes/n1:{port + 1}/proxy/", {}),
            ("GET", f"/api/v1/nodes/https:n1:{port + 1}/proxy/", {}),
            ("GET", f"/api/v1/nodes/http:n1:{port + 1}/proxy/", SPDY),
            ("GET", "/api/v1/nodes/n1/proxy/x", WEBSOCKET),
            ("GET", f"{POD}/log", {}),
            ("GET", f"{POD}/log?insecureSkipTLSVerifyBackend=true&follow=1", {}),
            ("GET", f"{POD}/log", WEBSOCKET),
            ("POST", f"{POD}/exec?{COMMAND}", SPDY),
            ("GET", f"{POD}/exec?{COMMAND}", V4),
            ("GET", f"{POD}/exec?{COMMAND}", V5),
            ("POST", f"{POD}/attach?stdout=1", SPDY),
            ("POST", f"{POD}/portforward", SPDY),
            ("GET", f"{POD}/portforward?ports=80", TUNNEL),
            ("GET", f"{POD}:{port}/proxy/", {}),
            ("GET", f"/api/v1/namespaces/default/pods/https:p:{port}/proxy/", SPDY),
            ("GET", f"{services}/s:{port}/proxy/", {}),
        ]
        for host in ALL:
            await change_addresses(w, host, port)
            endpoint = {
                "ip": host,
                "targetRef": {"kind": "Pod", "name": "p", "namespace": "default"},
            }
            await w.api.call(
                "PUT",
                "/api/v1/namespaces/default/endpoints/s",
                {
                    "metadata": {"name": "s"},
                    "subsets": [{"addresses": [endpoint], "ports": [{"port": port}]}],
                },
            )
            for method, target, headers in ways:
                got = await w.ask(method, target, headers)
                assert got.status in (400, 404, 500, 503), (host, target, got.status)
                assert got.status != 500 or "lookup" in got.json["message"], (
                    host,
                    target,
                    got.body,
                )
                if got.status == 400 and "/nodes/" in target:
                    assert (
                        "address not allowed" in got.json["message"]
                        or "lookup" in got.json["message"]
                    ), got.body
            assert trap.visits == 0, host
        assert trap.visits == 0


async def test_what_was_checked_is_what_is_dialed(tmp_path: Path) -> None:
    """A name that leads elsewhere the second time is not asked a second time."""
    requested: list[str] = []

    async def rebinding(host: str) -> list[str]:
        requested.append(host)
        return [NODE_IP] if len(requested) % 2 else ["127.0.0.1"]

    async with run(), running_api_server(tmp_path, resolve=rebinding) as w:
        dialed: list[str] = []
        connect = w.network.connect

        def recorded(host: str, port: int) -> Any:
            dialed.append(host)
            return connect(host, port)

        w.api.server.kubelets._transport.pool._connect = recorded
        w.network.listen(NODE_IP, 9100, lambda _request: HttpResponse(200, [], b"here"))
        await w.node(addresses=[{"type": "Hostname", "address": "n1.example.com"}])
        first = await w.ask("GET", "/api/v1/nodes/n1:9100/proxy/")
        assert (first.status, first.body, dialed) == (200, b"here", [NODE_IP])
        second = await w.ask("GET", "/api/v1/nodes/n1:9100/proxy/")
        assert (second.status, second.json["message"]) == (400, "address not allowed")
        assert (requested, dialed) == (["n1.example.com"] * 2, [NODE_IP])


@pytest.mark.parametrize("address", ["10.96.0.1", "10.96.255.1", "::ffff:10.96.0.1"])
async def test_no_kubelet_is_behind_the_addresses_of_services(tmp_path: Path, address: str) -> None:
    """There is this server itself, which trusts the certificate that it presents to kubelets."""

    async with run(), running_api_server(tmp_path) as w:
        await w.node(addresses=[{"type": "InternalIP", "address": address}])
        got = await w.ask("GET", "/api/v1/nodes/n1/proxy/api/v1/secrets")
        assert (got.status, got.json["message"]) == (400, "address not allowed")


async def test_an_unrequested_upgrade_ends_the_connection(tmp_path: Path) -> None:
    async def switch(far: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with far:
            await loop.sock_recv(far, 65536)
            await loop.sock_sendall(
                far,
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
                b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            )
            await loop.sock_recv(far, 65536)

    async def upgrading(_host: str, _port: int) -> socket.socket:
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        tasks.append(asyncio.create_task(switch(far)))
        return near

    tasks: list[asyncio.Task[None]] = []

    async with run(), running_api_server(tmp_path) as w:
        w.api.server.kubelets._transport.pool._connect = upgrading
        await w.pod()
        got = await w.ask("GET", f"{POD}/proxy/")
        assert (got.status, got.json["message"]) == (
            500,
            "error trying to reach service: unexpected 101 Switching Protocols response",
        )

        await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    "location",
    [
        "https://127.0.0.1:1/x",
        "https://other.example.com/x",
        "//127.0.0.1/x",
        f"https://{NODE_IP}.:1/x",
        f"ftp://{NODE_IP}/x",
        f"https://{NODE_IP}:99999/x",
        f"https://{NODE_IP}@127.0.0.1/x",
    ],
)
async def test_a_kubelet_cannot_redirect_elsewhere(tmp_path: Path, location: str) -> None:
    async with run(), running_api_server(tmp_path) as w:
        w.kubelet(lambda _request: HttpResponse(302, [(b"Location", location.encode())]))
        await w.node()
        await w.pod()
        got = await w.ask("POST", f"{POD}/exec?{COMMAND}", SPDY)
        assert got.status == 500
        message = got.json["message"]
        expected = (
            f"hostname mismatch: expected {NODE_IP}, found ",
            "malformed Location header",
            "invalid port",
            "error dialing",
        )
        assert message.startswith(expected), message
        log = await w.ask("GET", f"{POD}/log")
        assert (log.status, "redirects forbidden" in log.json["message"]) == (500, True)
