""".NET's HttpListener: a script receives one request after another and writes the responses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from transom.userland.powershell.dotnet_collections import ResizableList
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import (
    Hashtable,
    PowerShellError,
    PsObject,
    to_items,
    to_number,
    to_text,
)
from transom.userland.servers.http import ProgramHttpRequest, ProgramHttpResponse, ProgramHttpServer

KIND = "System.Net.HttpListener"
_ANSWER, _STREAM = "System.Net.HttpListenerResponse", "System.Net.HttpResponseStream"
_LAST_ANSWERS = 0.1
_PREFIX = re.compile(r"https?://([^:/]+)(?::(\d+))?/.*", re.IGNORECASE)


def _fault(method: str, message: str, count: int = 0) -> PowerShellError:
    return PowerShellError(
        f'Exception calling "{method}" with "{count}" argument(s): "{message}"',
        "NotSpecified: (:) [], MethodInvocationException",
        "HttpListenerException",
    )


class HttpListener(PsObject):
    """`$listener`. Requests wait until the script receives them."""

    __slots__ = ("server", "waiting")

    def __init__(self) -> None:
        super().__init__(
            KIND,
            {
                "Prefixes": ResizableList(),
                "IsListening": False,
                "AuthenticationSchemes": "Anonymous",
            },
        )
        self.server: ProgramHttpServer | None = None
        self.waiting: asyncio.Queue[PsObject] = asyncio.Queue()


class _Answer(PsObject):
    """`$context.Response`; closing it sends it."""

    __slots__ = ("body", "sent")

    def __init__(self) -> None:
        self.body = bytearray()
        self.sent: asyncio.Future[ProgramHttpResponse] = asyncio.get_running_loop().create_future()
        stream = _Stream(self)
        super().__init__(
            _ANSWER,
            {
                "StatusCode": 200,
                "StatusDescription": "OK",
                "ContentLength64": 0,
                "ContentType": None,
                "KeepAlive": True,
                "Headers": Hashtable(),
                "OutputStream": stream,
            },
        )

    def send(self) -> None:
        if not self.sent.done():
            named = [
                (to_text(name), to_text(value))
                for name, value in self.properties["Headers"].items()
            ]
            if self.properties["ContentType"]:
                named.append(("Content-Type", to_text(self.properties["ContentType"])))
            self.sent.set_result(
                ProgramHttpResponse(
                    int(to_number(self.properties["StatusCode"])), bytes(self.body), tuple(named)
                )
            )


class _Stream(PsObject):
    __slots__ = ("answer",)

    def __init__(self, answer: _Answer) -> None:
        super().__init__(_STREAM, {})
        self.answer = answer


def _start(evaluator: PowerShellSession, listener: HttpListener, _arguments: list[Any]) -> None:
    if listener.server is not None:
        return

    async def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        answer = _Answer()
        listener.waiting.put_nowait(
            PsObject(
                "System.Net.HttpListenerContext",
                {
                    "Request": _request(request),
                    "Response": answer,
                    "User": None,
                },
            )
        )
        return await answer.sent

    server = ProgramHttpServer(evaluator.process.context, handle, "Microsoft-HTTPAPI/2.0")
    for prefix in listener.properties["Prefixes"]:
        match = _PREFIX.fullmatch(to_text(prefix))
        if match is None:
            raise _fault("Add", "Only Uri prefixes ending in '/' are allowed.", 1)
        try:
            server.listen(int(match[2] or 80))
        except OSError:
            server.close()
            raise _fault(
                "Start",
                f"Failed to listen on prefix '{to_text(prefix)}' because it conflicts with an "
                "existing registration on "
                "the machine.",
            ) from None
    evaluator.process.program.spawn(_until_the_end(evaluator, server))
    listener.server = server
    listener.properties["IsListening"] = True


async def _until_the_end(evaluator: PowerShellSession, server: ProgramHttpServer) -> None:
    """The system sends responses: those given before the process ended are still sent."""
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        server.stop_listening()
        evaluator.process.context.clock.call_later(_LAST_ANSWERS, server.close)


def _stop(_evaluator: PowerShellSession, listener: HttpListener, _arguments: list[Any]) -> None:
    if listener.server is not None:
        listener.server.stop_listening()
        listener.server = None
    listener.properties["IsListening"] = False


async def _context(
    _evaluator: PowerShellSession, listener: HttpListener, _arguments: list[Any]
) -> PsObject:
    if listener.server is None:
        raise _fault("GetContext", "Please call the Start() method before calling this method.")
    return await listener.waiting.get()


def _request(request: ProgramHttpRequest) -> PsObject:
    host = request.headers.get("host", "localhost")
    parts = urlsplit(request.target)
    address, _, port = request.peer.rpartition(":")
    address = address.strip("[]") or "127.0.0.1"
    caller = PsObject(
        "System.Net.IPEndPoint", {"Address": address, "Port": int(port or 0)}, request.peer
    )
    url = f"http://{host}{request.target}"
    return PsObject(
        "System.Net.HttpListenerRequest",
        {
            "Url": PsObject(
                "System.Uri",
                {
                    "AbsoluteUri": url,
                    "AbsolutePath": parts.path,
                    "LocalPath": request.path,
                    "PathAndQuery": request.target,
                    "Query": f"?{parts.query}" if parts.query else "",
                    "Host": host.partition(":")[0],
                    "Scheme": "http",
                },
                url,
            ),
            "RawUrl": request.target,
            "HttpMethod": request.method,
            "RemoteEndPoint": caller,
            "UserHostName": host,
            "UserAgent": request.headers.get("user-agent"),
            "Headers": Hashtable(request.headers),
            "QueryString": Hashtable(request.query),
            "ContentLength64": len(request.body),
            "HasEntityBody": bool(request.body),
        },
    )


def _write(_evaluator: PowerShellSession, stream: _Stream, arguments: list[Any]) -> None:
    given = arguments[0]
    data = (
        given
        if isinstance(given, bytes)
        else bytes(int(to_number(one)) & 0xFF for one in to_items(given))
    )
    first = int(to_number(arguments[1])) if len(arguments) > 1 else 0
    size = int(to_number(arguments[2])) if len(arguments) > 2 else len(data) - first
    stream.answer.body += data[first : first + size]


METHODS: dict[tuple[str, str], Callable[..., Any]] = {
    (KIND, "start"): _start,
    (KIND, "stop"): _stop,
    (KIND, "close"): _stop,
    (KIND, "abort"): _stop,
    (KIND, "getcontext"): _context,
    (_ANSWER, "close"): lambda _evaluator, answer, _arguments: answer.send(),
    (_STREAM, "write"): _write,
    (_STREAM, "flush"): lambda _evaluator, _stream, _arguments: None,
    (_STREAM, "close"): lambda _evaluator, stream, _arguments: stream.answer.send(),
}
