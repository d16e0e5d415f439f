"""The link between the API servers and the process that runs the nodes, over two Unix sockets.

`nodes.sock` takes HTTP requests: what the API serves below /transom, resource usage, and the calls of
controllers to the emulated cloud. The servers have authorized them. `dial.sock` opens connections
into the cluster's network and hands them over as open files, so that bytes between an API server
and a kubelet take no detour.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from transom.apiserver.kubelets.options import KubeletOptions
from transom.cloud.calls import CloudCalls, call_cloud
from transom.cloud.errors import CloudError
from transom.cluster.config import ClusterConfig
from transom.cluster.ha.sockets import connect_unix, listen_unix
from transom.cluster.pki import ClusterPki
from transom.http import HttpServer
from transom.http import relay as passing
from transom.http.messages import Answer, HttpRequest, HttpResponse, text_response
from transom.http.outgoing import CallError, CallTarget, ClientPair
from transom.http.pool import ConnectionPool
from transom.kit.clock import RealClock
from transom.kit.http_message import encode_request
from transom.metrics.scraper import MetricsScraper
from transom.node.address_ranges import address_ranges

if TYPE_CHECKING:
    from transom.cluster.run import ClusterNodes

log = logging.getLogger("transom.cluster")

_HTTP: Final = "nodes.sock"
_DIAL: Final = "dial.sock"
_USAGE: Final = "/usage"
_CLOUD: Final = "/cloud/"
_NAMES_SECONDS: Final = 5.0
_TARGET: Final = CallTarget("nodes", 80, "nodes", tls=False)
_NOT_FORWARDED: Final = passing.HOP_BY_HOP | {b"content-length", b"authorization"}


# ---- in the process of the nodes ----


class NodesLinkServer:
    def __init__(self, config: ClusterConfig, nodes: ClusterNodes) -> None:
        self._config = config
        self._nodes = nodes
        self._http = HttpServer(self._handle, None)

    async def run(self) -> None:
        folder = self._config.state
        listening = (listen_unix(folder / _HTTP), listen_unix(folder / _DIAL))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._accept(listening[0], self._http.adopt, group))
                group.create_task(self._accept(listening[1], self._dial, group))
        finally:
            for sock, name in zip(listening, (_HTTP, _DIAL), strict=True):
                sock.close()
                (folder / name).unlink(missing_ok=True)
            await self._http.stop(1.0)

    async def _accept(self, listening: socket.socket, serve: Any, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(listening)
            sock.setblocking(False)
            group.create_task(self._serve(sock, serve))

    async def _serve(self, sock: socket.socket, serve: Any) -> None:
        try:
            await serve(sock)
        except OSError as problem:
            log.debug("a connection of an API server ended: %s", problem)
            sock.close()

    async def _handle(self, request: HttpRequest) -> Answer:
        if request.path == _USAGE:
            return _json(list(self._nodes.node_names()))
        if request.path.startswith(_USAGE + "/"):
            try:
                return _json(await self._nodes.usage(request.path.removeprefix(_USAGE + "/")))
            except ConnectionRefusedError as problem:
                return text_response(503, f"{problem}\n")
        if request.path.startswith(_CLOUD):
            return await self._call_cloud(request)
        return await self._nodes.control(request)

    async def _call_cloud(self, request: HttpRequest) -> HttpResponse:
        verb = request.path.removeprefix(_CLOUD)
        try:
            found = await call_cloud(self._nodes.cloud(), verb, orjson.loads(request.body))
        except CloudError as problem:
            return _json({"error": str(problem), "node": problem.current_node})
        return _json({"found": found})

    async def _dial(self, sock: socket.socket) -> None:
        """One request: address and port as JSON. The answer is an open socket, or an error. An API
        server that ends after it has connected sends no request.
        """
        loop = asyncio.get_running_loop()
        with sock:
            try:
                address, port = json.loads(await loop.sock_recv(sock, 4096))
                address, port = str(address), int(port)
            except (ValueError, TypeError, RecursionError) as problem:
                log.debug("a request for a connection is incomplete: %s", problem)
                return
            try:
                found = await self._nodes.connect(address, port)
            except OSError as problem:
                answer = json.dumps([problem.errno or 0, problem.strerror or str(problem)])
                await loop.sock_sendall(sock, answer.encode())
                return
            with found:
                socket.send_fds(sock, [b"[]"], [found.fileno()])


def _json(value: Any) -> HttpResponse:
    return HttpResponse(200, [(b"Content-Type", b"application/json")], orjson.dumps(value))


# ---- in an API server ----


class RemoteNodes:
    """The nodes, as an API server sees them (`cluster.run.NodesOfCluster`)."""

    def __init__(self, config: ClusterConfig, pki: ClusterPki) -> None:
        self._config = config
        self._pki = pki
        self._pool = ConnectionPool(self._open)
        self._names: list[str] = []
        self.metrics = MetricsScraper(self._node_names, self._usage, RealClock())

    async def run(self) -> None:
        """Follows the names of the nodes and collects their resource usage."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.metrics.run())
            group.create_task(self._follow_names())

    def cloud_calls(self) -> CloudCalls:
        return CloudCalls(self._call_cloud)

    async def _call_cloud(self, verb: str, values: Mapping[str, Any]) -> Any:
        """Raises CloudError."""
        try:
            answer = await self._exchange("POST", _CLOUD + verb, orjson.dumps(values))
        except OSError as problem:
            raise CloudError(f"the cloud provider does not answer: {problem}") from problem
        if "error" in answer:
            raise CloudError(answer["error"], answer["node"])
        return answer["found"]

    def kubelets(self) -> KubeletOptions:
        pair = ClientPair(self._pki.kubelet_client_cert, self._pki.kubelet_client_key)
        return KubeletOptions(self._connection, pair, self._pki.ca.read_bytes())

    async def control(self, request: HttpRequest) -> Answer:
        upgrade = passing.wants_upgrade(request) and bool(request.header(b"upgrade"))
        headers = [(k, v) for k, v in request.headers.items() if k not in _NOT_FORWARDED]
        if upgrade:
            headers += [(b"Connection", b"Upgrade"), (b"Upgrade", request.headers[b"upgrade"])]
        raw = encode_request(request.method, request.target, headers, request.body)
        repeatable = request.method in ("GET", "HEAD") and not upgrade
        try:
            connection, head = await self._pool.begin(_TARGET, raw, repeatable=repeatable)
            if head.status == 101:
                return passing.relay_upgraded(connection, head)
            return await passing.relay_response(
                connection, head, passing.relayed_headers(head), self._pool
            )
        except CallError as problem:
            return text_response(503, f"the process of the nodes does not answer: {problem}\n")

    def _open(self, _host: str, _port: int) -> Awaitable[socket.socket]:
        async def connected() -> socket.socket:
            return connect_unix(self._config.state / _HTTP)

        return connected()

    def _connection(self, host: str, port: int) -> Awaitable[socket.socket] | None:
        if not address_ranges(self._config).contains(host):
            return None
        return self._dial(host, port)

    async def _dial(self, host: str, port: int) -> socket.socket:
        loop = asyncio.get_running_loop()
        try:
            asking = connect_unix(self._config.state / _DIAL)
        except FileNotFoundError as problem:
            raise ConnectionRefusedError(111, "Connection refused") from problem
        with asking:
            await loop.sock_sendall(asking, json.dumps([host, port]).encode())
            readable = asyncio.Event()
            loop.add_reader(asking, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(asking)
            answer, found, _, _ = socket.recv_fds(asking, 4096, 1)
        if not found:
            number, text = json.loads(answer) if answer else (111, "Connection refused")
            raise OSError(number, text) if number else OSError(text)
        sock = socket.socket(fileno=found[0])
        sock.setblocking(False)
        return sock

    def _node_names(self) -> Iterable[str]:
        return self._names

    async def _usage(self, node: str) -> Mapping[str, Any]:
        found = await self._get(f"{_USAGE}/{node}")
        if not isinstance(found, dict):
            raise ConnectionRefusedError("the node does not answer")
        return found

    async def _follow_names(self) -> None:
        while True:
            try:
                self._names = await self._get(_USAGE)
            except OSError as problem:
                log.debug("the process of the nodes does not answer: %s", problem)
            await asyncio.sleep(_NAMES_SECONDS)

    async def _get(self, path: str) -> Any:
        return await self._exchange("GET", path)

    async def _exchange(self, method: str, path: str, body: bytes = b"") -> Any:
        headers = [(b"Host", b"nodes")]
        raw = encode_request(method, path, headers, body)
        try:
            connection, head = await self._pool.begin(_TARGET, raw)
            body = await connection.read_all(16 << 20)
        except CallError as problem:
            raise ConnectionRefusedError(str(problem)) from problem
        self._pool.give_back(connection)
        if head.status != 200:
            raise ConnectionRefusedError(body.decode(errors="replace"))
        return orjson.loads(body)
