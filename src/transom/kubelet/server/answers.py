"""The shapes in which a kubelet answers. Errors are plain text, some with a line end and some without, as Go's helpers
for each of them do it."""

from __future__ import annotations

import json as indented
from typing import Any, Final

import orjson

from transom.http.messages import Headers, Response

TEXT: Final = (b"Content-Type", b"text/plain; charset=utf-8")
JSON: Final = (b"Content-Type", b"application/json")
HTML: Final = (b"Content-Type", b"text/html; charset=utf-8")
METRICS: Final = (b"Content-Type", b"text/plain; version=0.0.4; charset=utf-8")
_NO_SNIFF: Final = (b"X-Content-Type-Options", b"nosniff")


class Failure(Exception):
    """Ends the handling of a request with this answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def text(status: int, body: str) -> Response:
    return Response(status, [TEXT], body.encode())


def http_error(status: int, body: str) -> Response:
    return Response(status, [TEXT, _NO_SNIFF], f"{body}\n".encode())


def not_found() -> Response:
    return http_error(404, "404 page not found")


def json(value: Any, end: bytes = b"") -> Response:
    return Response(200, [JSON], orjson.dumps(value) + end)


def metrics(lines: str) -> Response:
    return Response(200, [METRICS], lines.encode())


def moved(location: str) -> Response:
    headers: Headers = [(b"Location", location.encode()), HTML]
    return Response(301, headers, f'<a href="{location}">Moved Permanently</a>.\n\n'.encode())


def pretty(value: Any) -> Response:
    """Indented by one space, as go-restful writes entities."""
    return Response(200, [JSON], indented.dumps(value, indent=1, ensure_ascii=False).encode())
