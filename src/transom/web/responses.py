"""The console's answers: pages, JSON, redirects, live event streams, and the headers of all of them.

`secure_headers` is the one place of the content security policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson

from transom.client.api import ApiUnreachable
from transom.http.messages import Headers, HttpResponse, ResponseStream, StreamResponse
from transom.machinery.errors import ApiError
from transom.web.markup import Markup
from transom.web.routing import PageRequest

HEARTBEAT_SECONDS: Final = 15.0
CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
_SECURE: Final[Headers] = [
    (b"Content-Security-Policy", CONTENT_SECURITY_POLICY.encode()),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"X-Frame-Options", b"DENY"),
    (b"Referrer-Policy", b"same-origin"),
    (b"Cross-Origin-Opener-Policy", b"same-origin"),
    (b"Cross-Origin-Resource-Policy", b"same-origin"),
    (b"Permissions-Policy", b"camera=(), geolocation=(), microphone=()"),
]


def secure_headers(content_type: str, cache: str = "no-store") -> Headers:
    return [
        (b"Content-Type", content_type.encode()),
        (b"Cache-Control", cache.encode()),
        *_SECURE,
    ]


def html_response(page: Markup, status: int = 200) -> HttpResponse:
    return HttpResponse(status, secure_headers("text/html; charset=utf-8"), page.text.encode())


def json_page(value: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(status, secure_headers("application/json"), orjson.dumps(value))


def json_error(status: int, message: str, reason: str = "", details: Any = None) -> HttpResponse:
    return json_page({"message": message, "reason": reason, "details": details}, status)


def redirect_to_page(path: str) -> HttpResponse:
    """`path` is a path of the console."""
    headers = secure_headers("text/plain; charset=utf-8")
    return HttpResponse(303, [*headers, (b"Location", path.encode())], b"")


class EventStream:
    """Server-sent events to one browser. A browser that does not read is disconnected."""

    def __init__(self, stream: ResponseStream) -> None:
        self._stream = stream

    async def send(self, event: str, data: Any) -> None:
        """Sends one event with JSON data, and waits while the browser is behind."""
        self._stream.write(b"event: %b\ndata: %b\n\n" % (event.encode(), orjson.dumps(data)))
        await self._stream.drained()

    def beat(self) -> None:
        if self._stream.alive:
            self._stream.write(b": still here\n\n")


def event_response(
    request: PageRequest, produce: Callable[[EventStream], Awaitable[None]]
) -> StreamResponse | HttpResponse:
    """A live event stream: `produce` runs until it returns, the browser leaves or the session ends.

    Errors of the API server become a last event `failed`. The browser reconnects after `produce`
    returns, but not after `failed`.
    """
    services, session = request.services, request.session
    if services.streams.full:
        return json_error(503, "too many open pages: close some and reload this one")

    def start(stream: ResponseStream) -> None:
        async def run() -> None:
            events = EventStream(stream)
            beating = asyncio.ensure_future(beat(events))
            try:
                await produce(events)
            except ApiError as problem:
                await events.send("failed", {"message": problem.message, "code": problem.code})
            except ApiUnreachable as problem:
                await events.send("failed", {"message": str(problem), "code": 0})
            finally:
                beating.cancel()
                session.on_end.remove(task.cancel)
                stream.close()

        async def beat(events: EventStream) -> None:
            while services.logins.keep_alive(session):
                events.beat()
                await services.clock.sleep(HEARTBEAT_SECONDS)

        task = services.streams.start(run())
        session.on_end.append(task.cancel)
        stream.on_close = task.cancel

    headers = secure_headers("text/event-stream")
    return StreamResponse(200, headers, start, resumable=True)
