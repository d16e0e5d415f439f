"""The log of a container, from its kubelet to the client: as a response body, or as WebSocket
messages.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from transom.apiserver.kubelets import requests
from transom.apiserver.kubelets.locations import ProxyLocation, location_url, plain_location_error
from transom.apiserver.kubelets.transport import KubeletTransport
from transom.http import relay as passing
from transom.http.messages import Answer, HttpRequest, HttpResponse, UpgradeResponse
from transom.http.outgoing import CallError, OutgoingConnection, ResponseHead
from transom.http.raw import RawConnection
from transom.kit.streaming import websocket
from transom.machinery import errors
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.server_responses import generic_server_response

_TEXT = [(b"Content-Type", b"text/plain"), (b"Cache-Control", b"no-cache, private")]
_AGENT = [(b"User-Agent", b"Go-http-client/1.1")]
_MOST_OF_AN_ERROR = 50_000
_REDIRECTS = (301, 302, 303, 307, 308)
_BINARY, _BASE64 = "binary.k8s.io", "base64.binary.k8s.io"


def query_of(options: Mapping[str, Any]) -> str:
    """PodLogOptions as query parameters of a kubelet."""
    pairs = {name: "true" for name in ("follow", "previous", "timestamps") if options.get(name)}
    pairs |= {
        name: str(options[name])
        for name in ("sinceSeconds", "tailLines", "limitBytes")
        if name in options
    }
    if "sinceTime" in options:
        pairs["sinceTime"] = options["sinceTime"]
    return urlencode(sorted(pairs.items()))


async def serve_log(
    transport: KubeletTransport,
    request: HttpRequest,
    kubelet: ProxyLocation,
    pod: Object,
    container: str,
    options: Mapping[str, Any],
) -> Answer:
    meta = pod["metadata"]
    path = f"/containerLogs/{meta['namespace']}/{meta['name']}/{container}"
    query = query_of(options)
    where = location_url(kubelet, path, query)
    raw = requests.encode_kubelet_request(
        "GET", f"{path}?{query}" if query else path, kubelet.authority, _AGENT
    )
    try:
        target = await transport.target(
            kubelet, insecure=bool(options.get("insecureSkipTLSVerifyBackend"))
        )
        connection, head = await transport.pool.begin(target, raw)
        if head.status in _REDIRECTS and head.header(b"location"):
            connection.abort()
            raise CallError("redirects forbidden")
        if not 200 <= head.status <= 206:
            raise _refusal(head, await _beginning(connection), meta["name"])
    except CallError as problem:
        raise plain_location_error(f'Get "{where}": {problem}') from problem
    if websocket.is_websocket_upgrade(
        {"upgrade": request.header(b"upgrade"), "connection": request.header(b"connection")}
    ):
        return _websocket(request, connection)
    return passing.relay_stream(connection, 200, _TEXT, transport.pool)


async def _beginning(connection: OutgoingConnection) -> str:
    body = b""
    while len(body) < _MOST_OF_AN_ERROR and (piece := await connection.read()):
        body += piece
    connection.close()
    return body[:_MOST_OF_AN_ERROR].decode(errors="replace")


def _refusal(head: ResponseHead, body: str, name: str) -> ApiError:
    status = head.status
    if status == 500:
        return errors.internal(body)
    if status == 400:
        return errors.bad_request(body)
    reason, text = generic_server_response(status, body)
    return ApiError(
        status, reason, f"{text} ( pods/log {name})", {"name": name, "kind": "pods/log"}
    )


# ---- WebSocket ----


def _websocket(request: HttpRequest, connection: OutgoingConnection) -> Answer:
    offered = websocket.header_tokens(request.header(b"sec-websocket-protocol"))
    chosen = websocket.choose_subprotocol(offered, ("", _BINARY, _BASE64))
    if chosen is None or request.header(b"sec-websocket-version") != "13":
        connection.abort()
        return HttpResponse(403 if chosen is None else 400, [])
    headers = websocket.response_headers(request.header(b"sec-websocket-key"), chosen)
    answer = UpgradeResponse(headers, _Messages(connection, chosen == _BASE64).start)
    passing.unless_started(answer, connection.abort)
    return answer


class _Messages:
    """A log as WebSocket messages; ignores messages of the client other than close."""

    def __init__(self, connection: OutgoingConnection, text: bool) -> None:
        self._connection = connection
        self._text = text
        self._socket = websocket.WebSocketConnection(client=False, pieces=True)
        self._task: asyncio.Task[None] | None = None
        self._caught_up = asyncio.Event()

    def start(self, raw: RawConnection) -> None:
        self._task = asyncio.get_running_loop().create_task(self._pump(raw))
        raw.on_close = self._task.cancel  # type: ignore[assignment]
        raw.on_writable = self._caught_up.set
        raw.receive(lambda data: self._received(raw, data))

    def _received(self, raw: RawConnection, data: bytes) -> None:
        self._socket.receive_data(data)
        raw.write(self._socket.data_to_send())
        if self._socket.finished:
            raw.close()

    async def _pump(self, raw: RawConnection) -> None:
        try:
            self._send(raw, b"")  # the client sees that the connection is established
            while data := await self._connection.read():
                self._send(raw, data)
                while raw.alive and not raw.writable:
                    self._caught_up.clear()
                    await self._caught_up.wait()
        except CallError:
            raw.abort()
            return
        finally:
            self._connection.abort()
        self._socket.close()
        raw.write(self._socket.data_to_send())
        raw.close()

    def _send(self, raw: RawConnection, data: bytes) -> None:
        self._socket.send(base64.b64encode(data) if self._text else data, text=self._text)
        raw.write(self._socket.data_to_send())
