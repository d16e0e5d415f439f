"""The response formats of a kubelet. Errors are plain text, some with a trailing newline and some
without, as each of Go's helpers writes them.
"""

from __future__ import annotations

import json as indented
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson

from transom.http.messages import Headers, HttpResponse
from transom.kit.lazy import lazy_import
from transom.kit.prometheus import CONTENT_TYPE

if TYPE_CHECKING:
    import html
else:
    html = lazy_import("html")

TEXT: Final = (b"Content-Type", b"text/plain; charset=utf-8")
JSON: Final = (b"Content-Type", b"application/json")
HTML: Final = (b"Content-Type", b"text/html; charset=utf-8")
METRICS: Final = (b"Content-Type", CONTENT_TYPE.encode())
_NO_SNIFF: Final = (b"X-Content-Type-Options", b"nosniff")


class HttpFailure(Exception):
    """Ends the handling of a request with this response."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def plain_text(status: int, body: str) -> HttpResponse:
    return HttpResponse(status, [TEXT], body.encode())


def http_error(status: int, body: str) -> HttpResponse:
    return HttpResponse(status, [TEXT, _NO_SNIFF], f"{body}\n".encode())


def not_found_answer() -> HttpResponse:
    return http_error(404, "404 page not found")


def json_answer(value: Any, end: bytes = b"") -> HttpResponse:
    return HttpResponse(200, [JSON], orjson.dumps(value) + end)


def metrics_answer(lines: str) -> HttpResponse:
    return HttpResponse(200, [METRICS], lines.encode())


def moved_answer(location: str) -> HttpResponse:
    target = quote(location, safe="/:@!$&'()*+,;=~", errors="replace")
    headers: Headers = [(b"Location", target.encode()), HTML]
    text = f'<a href="{html.escape(target)}">Moved Permanently</a>.\n\n'
    return HttpResponse(301, headers, text.encode())


def pretty_answer(value: Any) -> HttpResponse:
    """Indented by one space, as go-restful writes entities."""
    return HttpResponse(200, [JSON], indented.dumps(value, indent=1, ensure_ascii=False).encode())
