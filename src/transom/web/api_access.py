"""The console's connection to the API server, with the credentials of one kubeconfig identity.

Unlike `client.http`, it returns responses as the server sent them (tables, errors, logs, upgrades):
what the identity may not do, the API server refuses. Bodies are bounded, streams are read at the
pace of their reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson

from transom.client.api import ApiUnreachable, error_from_status
from transom.client.kubeconfig import RestConfig
from transom.http.outgoing import CallError, OutgoingConnection, ResponseHead
from transom.http.upgraded import Upgraded
from transom.kit.http_message import encode_request
from transom.kit.lazy_dataclass import dataclass
from transom.kit.streaming import websocket
from transom.machinery.errors import ApiError

USER_AGENT: Final = "transom-console"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_LARGEST_BODY: Final = 16 * 1024 * 1024
_SECONDS: Final = 30.0  # until the head of a response
_CONNECT_SECONDS: Final = 10.0
_IDLE_KEPT: Final = 4
_MOST_OPEN: Final = 256

Query = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """A whole response of the API server."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def json(self) -> Any:
        """The document; raises the ApiError that an error response describes."""
        if self.status >= 300:
            raise api_error(self.status, self.body)
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as problem:
            raise ApiUnreachable(f"the answer of the API server is not JSON: {problem}") from None


class ApiStream:
    """The body of a response that does not end soon: a watch, a log that follows."""

    def __init__(self, connection: OutgoingConnection, head: ResponseHead) -> None:
        self._connection = connection
        self._rest = b""
        self.head = head

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""
        try:
            return await self._connection.read()
        except CallError as problem:
            raise ApiUnreachable(str(problem)) from problem

    async def read_lines(self) -> list[bytes]:
        """The next whole lines, at least one; none at the end."""
        while True:
            data = await self.read()
            if not data:
                rest, self._rest = self._rest, b""
                return [rest] if rest else []
            if b"\n" in data:
                lines = (self._rest + data).split(b"\n")
                self._rest = lines.pop()
                return lines
            self._rest += data
            if len(self._rest) > _LARGEST_BODY:
                raise ApiUnreachable("the API server sent a line that is too long")

    def close(self) -> None:
        self._connection.abort()


class ApiAccess:
    def __init__(self, target: RestConfig) -> None:
        self._target = target
        self._idle: list[OutgoingConnection] = []
        self._open: set[OutgoingConnection] = set()

    @property
    def target(self) -> RestConfig:
        """The server and the credentials, for work in threads, which has connections of its own."""
        return self._target

    @property
    def server(self) -> str:
        return f"{self._target.host}:{self._target.port}"

    async def request(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        *,
        body: bytes = b"",
        media_type: str = "application/json",
        accept: str = "application/json",
    ) -> ApiAnswer:
        """A whole response; `path` is not escaped yet. Raises ApiUnreachable if there is none."""
        headers = [("Accept", accept)]
        if body:
            headers.append(("Content-Type", media_type))
        request = self._encode(method, api_target(path, query), headers, body)
        connection, head = await self._begin(request, again=method == "GET")
        try:
            async with asyncio.timeout(_SECONDS):
                found = await connection.read_all(_LARGEST_BODY)
        except CallError as problem:
            raise ApiUnreachable(str(problem)) from problem
        except TimeoutError:
            raise ApiUnreachable("the API server did not answer in time") from None
        finally:
            self._release(connection)
        return ApiAnswer(head.status, head.headers, found)

    async def get_json(self, path: str, query: Query | None = None) -> Any:
        return (await self.request("GET", path, query)).json()

    async def open_stream(
        self, path: str, query: Query | None = None, accept: str = "application/json"
    ) -> ApiStream:
        """A response that is read as it arrives. Raises ApiError if the server refuses."""
        request = self._encode("GET", api_target(path, query), [("Accept", accept)])
        connection, head = await self._begin(request, again=False)
        if head.status >= 300:
            try:
                raise api_error(head.status, await connection.read_all(_LARGEST_BODY))
            except CallError as problem:
                raise ApiUnreachable(str(problem)) from problem
            finally:
                connection.abort()
        return ApiStream(connection, head)

    async def open_websocket(
        self, path: str, query: Query | None, protocols: Sequence[str]
    ) -> tuple[Upgraded, str]:
        """An upgraded connection and the protocol that the server chose. Raises ApiError if the
        server refuses.
        """
        headers = [
            (name.decode(), value.decode())
            for name, value in websocket.request_headers(websocket.make_key(), list(protocols))
        ]
        request = self._encode("GET", api_target(path, query), headers)
        connection, head = await self._begin(request, again=False)
        if head.status != 101:
            try:
                raise api_error(head.status, await connection.read_all(_LARGEST_BODY))
            except CallError as problem:
                raise ApiUnreachable(str(problem)) from problem
            finally:
                connection.abort()
        return Upgraded(connection), head.header(b"sec-websocket-protocol")

    async def send_raw(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> tuple[OutgoingConnection, ResponseHead]:
        """For proxied requests: `target` is escaped already. The caller reads the body and aborts
        the connection afterwards.
        """
        request = self._encode(method, target, headers, body)
        return await self._begin(request, again=False, bodiless=method == "HEAD")

    def close(self) -> None:
        for connection in list(self._open):
            connection.abort()

    def _encode(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes = b""
    ) -> bytes:
        every = [*self._target.request_headers(), ("User-Agent", USER_AGENT), *headers]
        return encode_request(method, self._target.prefix + target, every, body)

    async def _begin(
        self, request: bytes, *, again: bool, bodiless: bool = False
    ) -> tuple[OutgoingConnection, ResponseHead]:
        try:
            async with asyncio.timeout(_SECONDS):
                while self._idle and again:
                    kept = self._idle.pop()
                    try:
                        return kept, await kept.send(request)
                    except CallError:
                        kept.abort()  # it was closed meanwhile
                connection = await self._connect()
                return connection, await connection.send(request, bodiless=bodiless)
        except CallError as problem:
            raise ApiUnreachable(f"{self.server}: {problem}") from problem
        except TimeoutError:
            raise ApiUnreachable(f"{self.server} did not answer in time") from None

    async def _connect(self) -> OutgoingConnection:
        if len(self._open) >= _MOST_OPEN:
            raise ApiUnreachable("the console has too many open connections")
        target = self._target
        loop = asyncio.get_running_loop()
        secure = target.tls is not None
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, connection = await loop.create_connection(
                    lambda: OutgoingConnection(remote=self.server),
                    target.host,
                    target.port,
                    ssl=target.tls,
                    server_hostname=(target.server_name or target.host) if secure else None,
                    ssl_shutdown_timeout=0.5 if secure else None,
                )
        except OSError as problem:
            raise ApiUnreachable(f"cannot connect to {self.server}: {problem}") from problem
        connection.on_lost = self._forget
        self._open.add(connection)
        return connection

    def _release(self, connection: OutgoingConnection) -> None:
        if connection.usable and len(self._idle) < _IDLE_KEPT:
            self._idle.append(connection)
        else:
            connection.abort()

    def _forget(self, connection: OutgoingConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


def api_target(path: str, query: Query | None = None) -> str:
    """The request target of a path and query, escaped."""
    return quote(path, safe="/:@!$&'()*+,;=~") + (
        "?" + urlencode(query, doseq=True) if query else ""
    )


def api_error(status: int, body: bytes) -> ApiError:
    """The error of a response that is not a success."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    if isinstance(document, dict) and document.get("kind") == "Status":
        return error_from_status(document, status)
    if isinstance(document, dict) and "message" in document:  # paths below /transom
        hint = f" ({document['hint']})" if document.get("hint") else ""
        return ApiError(status, "", f"{document['message']}{hint}")
    text = body[:2048].decode(errors="replace").strip()
    return ApiError(status, "", text or f"the API server answered {status}")
