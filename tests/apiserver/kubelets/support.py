"""An API server on a real socket, with kubelets and pods that are only handlers."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
from tests.apiserver.harness import Api

from transom.apiserver.core.context import UserInfo
from transom.apiserver.kubelets.options import KubeletOptions
from transom.apiserver.server import ServerOptions, build_api_server
from transom.http import HttpServer, server_context
from transom.http.messages import BodyPolicy, Handler
from transom.http.outgoing import ClientPair
from transom.kit import pki
from transom.kit.clock import RealClock
from transom.store.memory import MemoryStore

CA = pki.make_ca("kubernetes")
TOKEN = "secret"
NODE_IP, POD_IP = "10.0.0.7", "10.244.0.3"


def tls_files(folder: Path) -> tuple[ssl.SSLContext, ClientPair]:
    """What a kubelet serves with, and what the API server shows it."""
    pki.save_key_pair(
        pki.issue_server(CA, "n1", ["n1"], [NODE_IP]), folder / "k.crt", folder / "k.key"
    )
    pki.save_key_pair(
        pki.issue_client(CA, "kube-apiserver-kubelet-client", ["system:masters"]),
        folder / "c.crt",
        folder / "c.key",
    )
    (folder / "ca.crt").write_bytes(CA.certificate)
    return server_context(folder / "k.crt", folder / "k.key", folder / "ca.crt"), ClientPair(
        folder / "c.crt", folder / "c.key"
    )


class Network:
    """Address and port -> who answers there. A connection is a pair of sockets."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, int], HttpServer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(
        self, host: str, port: int, handler: Handler, context: ssl.SSLContext | None = None
    ) -> None:
        bodies = handler if isinstance(handler, BodyPolicy) else None
        self._servers[host, port] = HttpServer(handler, context, bodies=bodies)

    async def connect(self, host: str, port: int) -> socket.socket:
        server = self._servers.get((host, port))
        if server is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        task = asyncio.get_running_loop().create_task(_adopt(server, far))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return near

    async def stop(self) -> None:
        for server in self._servers.values():
            await server.stop(0.0)


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


class Peer:
    """A client that sees the bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(
        self, method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> None:
        lines = {"Host": "api:6443", "Authorization": f"Bearer {TOKEN}", **(headers or {})}
        if body and "Transfer-Encoding" not in lines:
            lines["Content-Length"] = str(len(body))
        head = (
            f"{method} {target} HTTP/1.1\r\n"
            + "".join(f"{k}: {v}\r\n" for k, v in lines.items())
            + "\r\n"
        )
        self.writer.write(head.encode() + body)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        raw = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers: dict[str, str] = {}
        for line in raw[1:]:
            name, found, value = line.partition(": ")
            if found:
                name = name.lower()
                headers[name] = f"{headers[name]}|{value}" if name in headers else value
        return int(raw[0].split()[1]), headers

    async def chunk(self) -> bytes:
        size = int((await self.reader.readuntil(b"\r\n"))[:-2], 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def answer(self, bodiless: bool = False) -> Answer:
        status, headers = await self.head()
        body = b""
        if bodiless:
            pass
        elif "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"]))
        elif headers.get("transfer-encoding") == "chunked":
            while piece := await self.chunk():
                body += piece
        return Answer(status, headers, body)

    async def ask(
        self, method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        await self.send(method, target, headers, body)
        return await self.answer(method == "HEAD")

    def close(self) -> None:
        self.writer.close()


class ApiHarness:
    def __init__(self, api: Api, network: Network, port: int, context: ssl.SSLContext) -> None:
        self.api, self.network, self._port, self._context = api, network, port, context

    def kubelet(self, handler: Handler) -> None:
        self.network.listen(NODE_IP, 10250, handler, self._context)

    async def peer(self) -> Peer:
        return Peer(*await asyncio.open_connection("127.0.0.1", self._port, limit=16 * 1024 * 1024))

    async def ask(
        self, method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        peer = await self.peer()
        try:
            return await peer.ask(method, target, headers, body)
        finally:
            peer.close()

    async def node(self, **status: Any) -> None:
        await self.api.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
        status = {
            "addresses": [
                {"type": "InternalIP", "address": NODE_IP},
                {"type": "Hostname", "address": "n1"},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            **status,
        }
        await self.api.ok(
            "PUT", "/api/v1/nodes/n1/status", {"metadata": {"name": "n1"}, "status": status}
        )

    async def pod(
        self,
        name: str = "p",
        *,
        ports: tuple[int, ...] = (80,),
        containers: tuple[str, ...] = ("c",),
        node: str = "n1",
        ip: str = POD_IP,
    ) -> None:
        made = [
            {"name": c, "image": "x", "ports": [{"containerPort": p} for p in ports]}
            for c in containers
        ]
        spec = {
            "containers": made,
            "automountServiceAccountToken": False,
            **({"nodeName": node} if node else {}),
        }
        await self.api.ok(
            "POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec}
        )
        status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]} if ip else {}
        await self.api.ok(
            "PATCH",
            f"/api/v1/namespaces/default/pods/{name}/status",
            {"status": status},
            media="application/merge-patch+json",
        )


@asynccontextmanager
async def running_api_server(
    folder: Path, *, release: str = "1.20", **options: Any
) -> AsyncIterator[ApiHarness]:
    context, pair = tls_files(folder)
    network, clock = Network(), RealClock()
    admin = UserInfo("admin", ("system:masters", "system:authenticated"))
    server = build_api_server(
        ServerOptions(
            store=MemoryStore(clock),
            clock=clock,
            release=release,
            tokens={TOKEN: admin},
            kubelets=KubeletOptions(network.connect, pair, **options),
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
        yield ApiHarness(api, network, port, context)
    finally:
        await front.stop(0.0)
        await network.stop()
        await server.stop()


@asynccontextmanager
async def run() -> AsyncIterator[None]:
    async with asyncio.timeout(30):
        yield


async def _adopt(server: HttpServer, sock: socket.socket) -> None:
    with suppress(OSError):  # a client that rejects the certificate
        await server.adopt(sock)
