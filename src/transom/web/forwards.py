"""Port-forwards: a port of this machine that leads to a port of a pod, through the API server's proxy.

Each forward has a port of its own, because what a pod serves must not run in the console's origin.
Only the browser that opened it may use it: the link has a key that becomes a cookie of that port.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import quote

from transom.client.api import ApiUnreachable
from transom.http.limits import HttpLimits
from transom.http.messages import (
    Answer,
    Headers,
    HttpRequest,
    HttpResponse,
    ResponseStream,
    StreamResponse,
    UpgradeResponse,
    text_response,
)
from transom.http.outgoing import CallError, OutgoingConnection, ResponseHead
from transom.http.raw import RawConnection
from transom.http.server import HttpServer
from transom.http.upgraded import Upgraded, splice
from transom.kit.lazy_dataclass import dataclass
from transom.machinery.errors import ApiError
from transom.web.api_access import ApiAccess
from transom.web.login import Session
from transom.web.tasks import StreamLimit

log = logging.getLogger("transom.web")

MOST_FORWARDS: Final = 16
_KEY: Final = "transom-forward"
_OWN_COOKIES: Final = b"transom-"  # how their names begin
_LIMITS: Final = HttpLimits(connections=128)
_STOP_GRACE: Final = 0.5
_HOP_BY_HOP: Final = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
_NOT_FORWARDED: Final = _HOP_BY_HOP | {b"host", b"cookie", b"authorization", b"content-length"}
# Clear-Site-Data is about all ports of a host: it would end the console's session.
_NOT_RETURNED: Final = _HOP_BY_HOP | {b"content-length", b"clear-site-data"}
_NOT_RETURNED_UPGRADED: Final = frozenset((b"date", b"content-length", b"clear-site-data"))


@dataclass(frozen=True, slots=True)
class Forward:
    """One open forward."""

    id: str
    namespace: str
    pod: str
    port: int
    link: str
    server: HttpServer


class _OpenForward(NamedTuple):
    session: Session
    forward: Forward
    ending: Callable[[], object]  # what the session calls at its end


class PortForwards:
    """`host` is the loopback address that forwards listen on."""

    def __init__(self, api: ApiAccess, streams: StreamLimit, host: str = "127.0.0.1") -> None:
        self._api = api
        self._streams = streams
        self._host = host
        self._forwards: dict[str, _OpenForward] = {}

    async def open(self, session: Session, namespace: str, pod: str, port: int) -> Forward:
        if len(self._forwards) >= MOST_FORWARDS:
            raise ApiError(429, "TooManyRequests", f"at most {MOST_FORWARDS} forwards can be open")
        name, key = secrets.token_hex(8), secrets.token_urlsafe(24)
        below = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}:{port}/proxy"
        handler = _ForwardHandler(self._api, self._streams, below, key)
        server = HttpServer(handler, None, limits=_LIMITS)
        listening = await server.start(self._host, 0)
        link = f"http://{self._host}:{listening}/?{_KEY}={key}"
        forward = Forward(name, namespace, pod, port, link, server)
        ending = partial(self._end_later, name)
        self._forwards[name] = _OpenForward(session, forward, ending)
        session.on_end.append(ending)
        return forward

    def of_pod(self, session: Session, namespace: str, pod: str) -> list[Forward]:
        return [
            one.forward
            for one in self._forwards.values()
            if one.session is session
            and (one.forward.namespace, one.forward.pod) == (namespace, pod)
        ]

    async def close(self, session: Session, name: str) -> None:
        """Closes a forward of the session; does nothing if it is none of its forwards."""
        found = self._forwards.get(name)
        if found is not None and found.session is session:
            await self._close(name)

    async def stop(self) -> None:
        for name in list(self._forwards):
            await self._close(name)

    async def _close(self, name: str) -> None:
        found = self._forwards.pop(name, None)
        if found is None:
            return
        if found.ending in found.session.on_end:
            found.session.on_end.remove(found.ending)
        await found.forward.server.stop(_STOP_GRACE)

    def _end_later(self, name: str) -> None:
        self._streams.start(self._close(name))


class _ForwardHandler:
    """Serves one forward."""

    def __init__(self, api: ApiAccess, streams: StreamLimit, below: str, key: str) -> None:
        self._api = api
        self._streams = streams
        self._below = below  # the path of the API server
        self._key = key

    async def __call__(self, request: HttpRequest) -> Answer:
        host = request.header(b"host")
        if host.partition(":")[0] not in ("127.0.0.1", "localhost"):
            return text_response(421, "the forward does not serve this host name\n")
        cookie = f"{_KEY}-{host.rpartition(':')[2]}"
        given = (request.query.get(_KEY) or [""])[-1]
        if given and self._is_key(given):
            text = f"{cookie}={self._key}; Path=/; HttpOnly; SameSite=Strict"
            headers = [
                (b"Location", b"/"),
                (b"Set-Cookie", text.encode()),
                (b"Cache-Control", b"no-store"),
            ]
            return HttpResponse(303, headers)
        own, others = _split_cookies(request.header(b"cookie"), cookie)
        if not self._is_key(own):
            return text_response(403, "open this forward from the console's page of the pod\n")
        try:
            return await self._forward(request, others)
        except ApiUnreachable as problem:
            return text_response(502, f"{problem}\n")

    def _is_key(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._key.encode())

    async def _forward(self, request: HttpRequest, cookies: str) -> Answer:
        target = request.target.decode("latin-1")
        if not target.startswith("/"):
            return text_response(400, "the request has no path\n")
        # The API server rewrites links in HTML to its own path: both forms lead to the pod.
        target = target.removeprefix(self._below) or "/"
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in request.headers.items()
            if name not in _NOT_FORWARDED
        ]
        if cookies:
            headers.append(("Cookie", cookies))
        upgrade = request.header(b"upgrade")
        if upgrade:
            headers += [("Connection", "Upgrade"), ("Upgrade", upgrade)]
        connection, head = await self._api.send_raw(
            request.method, self._below + target, headers, request.body
        )
        if head.status == 101:
            return _upgraded(connection, head)
        kept = [
            (name, self._own_location(value) if name.lower() == b"location" else value)
            for name, value in head.headers
            if name.lower() not in _NOT_RETURNED and not _sets_own_cookie(name, value)
        ]
        return self._streamed(connection, head, kept)

    def _own_location(self, value: bytes) -> bytes:
        return value.removeprefix(self._below.encode("latin-1")) or b"/"

    def _streamed(
        self, connection: OutgoingConnection, head: ResponseHead, headers: Headers
    ) -> Answer:
        def start(stream: ResponseStream) -> None:
            async def copy() -> None:
                try:
                    while data := await connection.read():
                        stream.write(data)
                        await stream.drained()
                    stream.close()
                except CallError as problem:
                    log.info("a forwarded response ended early: %s", problem)
                    stream.abort()
                finally:
                    connection.abort()

            task = asyncio.ensure_future(copy())
            stream.on_close = task.cancel

        return StreamResponse(head.status, headers, start)


def _upgraded(connection: OutgoingConnection, head: ResponseHead) -> Answer:
    upstream = Upgraded(connection)

    def start(browser: RawConnection) -> None:
        splice(browser, upstream)

    kept = [
        (name, value)
        for name, value in head.headers
        if name.lower() not in _NOT_RETURNED_UPGRADED and not _sets_own_cookie(name, value)
    ]
    return UpgradeResponse(kept, start)


def _sets_own_cookie(name: bytes, value: bytes) -> bool:
    """Whether a pod's response replaces a cookie of the console, which has the same host name."""
    return name.lower() == b"set-cookie" and value.lstrip().lower().startswith(_OWN_COOKIES)


def _split_cookies(header: str, name: str) -> tuple[str, str]:
    """The value of the forward's own cookie, and the cookies that belong to the pod."""
    own, others = "", []
    for pair in header.split(";"):
        key, _, value = pair.strip().partition("=")
        if key == name:
            own = value
        elif key and not key.lower().startswith(_OWN_COOKIES.decode()):
            others.append(pair.strip())
    return own, "; ".join(others)
