"""The log of a container, from its kubelet to the client: as the body of an answer, or as messages of a WebSocket."""

from __future__ import annotations

import asyncio
import base64
from urllib.parse import urlencode

from transom.apiserver import passing
from transom.apiserver.kubelets import requests
from transom.apiserver.kubelets.locations import Location, plain_error, url
from transom.apiserver.kubelets.way import Way
from transom.http.messages import Answer, Request, Response, UpgradeResponse
from transom.http.outgoing import CallError, Head, Outgoing
from transom.http.stream import RawConnection
from transom.kit.streaming import websocket
from transom.machinery import errors
from transom.machinery.errors import ApiError
from transom.machinery.field import go_quote
from transom.machinery.objects import Object

_TEXT = [(b"Content-Type", b"text/plain"), (b"Cache-Control", b"no-cache, private")]
_AGENT = [(b"User-Agent", b"Go-http-client/1.1")]
_MOST_OF_AN_ERROR = 50_000
_REDIRECTS = (301, 302, 303, 307, 308)
_BINARY, _BASE64 = "binary.k8s.io", "base64.binary.k8s.io"
# What Kubernetes makes of an answer that it has no words for itself.
_REASONS = {
    401: ("Unauthorized", "the server has asked for the client to provide credentials"),
    404: ("NotFound", "the server could not find the requested resource"),
    405: ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
    409: ("Conflict", "the server reported a conflict"),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "the server was unable to return a response in the time allotted, but may still be processing the "
                     "request"),
}  # fmt: skip
_OWN_WORDS = {403: "Forbidden", 406: "NotAcceptable", 415: "UnsupportedMediaType"}


def query_of(options: Object) -> str:
    """PodLogOptions as a kubelet takes them."""
    pairs = {name: "true" for name in ("follow", "previous", "timestamps") if options.get(name)}
    pairs |= {name: str(options[name]) for name in ("sinceSeconds", "tailLines", "limitBytes") if name in options}
    if "sinceTime" in options:
        pairs["sinceTime"] = options["sinceTime"]
    return urlencode(sorted(pairs.items()))


async def serve(way: Way, request: Request, kubelet: Location, pod: Object, container: str, options: Object) -> Answer:
    meta = pod["metadata"]
    path = f"/containerLogs/{meta['namespace']}/{meta['name']}/{container}"
    query = query_of(options)
    where = url(kubelet, path, query)
    target = way.target(kubelet, insecure=bool(options.get("insecureSkipTLSVerifyBackend")))
    raw = requests.encode("GET", f"{path}?{query}" if query else path, kubelet.authority, _AGENT)
    try:
        connection, head = await way.pool.begin(target, raw)
        if head.status in _REDIRECTS and head.header(b"location"):
            connection.abort()
            raise CallError("redirects forbidden")
        if not 200 <= head.status <= 206:
            raise _refusal(head, await _beginning(connection), meta["name"])
    except CallError as problem:
        raise plain_error(f'Get "{where}": {problem}') from problem
    if websocket.is_upgrade({"upgrade": request.header(b"upgrade"), "connection": request.header(b"connection")}):
        return _websocket(request, connection)
    return passing.through(connection, 200, _TEXT, way.pool)


async def _beginning(connection: Outgoing) -> str:
    body = b""
    while len(body) < _MOST_OF_AN_ERROR and (piece := await connection.read()):
        body += piece
    connection.close()
    return body[:_MOST_OF_AN_ERROR].decode(errors="replace")


def _refusal(head: Head, body: str, name: str) -> ApiError:
    status = head.status
    if status == 500:
        return errors.internal(body)
    if status == 400:
        return errors.bad_request(body)
    if status in _OWN_WORDS:
        reason, text = _OWN_WORDS[status], body
    elif status in _REASONS:
        reason, text = _REASONS[status]
    elif status > 500:
        reason, text = "InternalError", f"an error on the server ({go_quote(body)}) has prevented the request from succeeding"
    else:
        reason, text = "", f"the server responded with the status code {status} but did not return more information"
    return ApiError(status, reason, f"{text} ( pods/log {name})", {"name": name, "kind": "pods/log"})


# ---- WebSocket -------------------------------------------------------------------------------------------------------


def _websocket(request: Request, connection: Outgoing) -> Answer:
    offered = websocket.tokens(request.header(b"sec-websocket-protocol"))
    chosen = websocket.choose_subprotocol(offered, ("", _BINARY, _BASE64))
    if chosen is None or request.header(b"sec-websocket-version") != "13":
        connection.abort()
        return Response(403 if chosen is None else 400, [])
    headers = websocket.response_headers(request.header(b"sec-websocket-key"), chosen)
    answer = UpgradeResponse(headers, _Messages(connection, chosen == _BASE64).start)
    passing.unless_started(answer, connection.abort)
    return answer


class _Messages:
    """A log as messages of a WebSocket; what the client says but for its goodbye is not listened to."""

    def __init__(self, connection: Outgoing, text: bool) -> None:
        self._connection = connection
        self._text = text
        self._socket = websocket.Connection(client=False)
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
            self._send(raw, b"")  # tells the client that the connection stands
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
