"""Response heads, Status answers for errors outside the handler, and gzip of big bodies."""

from __future__ import annotations

import time
import zlib
from http import HTTPStatus

import orjson

from transom.http.messages import Headers, Response
from transom.machinery.errors import ApiError

GZIP_THRESHOLD = 128 * 1024
_JSON: Headers = [(b"Content-Type", b"application/json"), (b"Cache-Control", b"no-cache, private")]

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
END_OF_STREAM = b"0\r\n\r\n"

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


class Date:
    """The Date header, renewed by the server's clock tick instead of for each answer."""

    __slots__ = ("line",)

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        now = time.gmtime()
        day, month = _DAYS[now.tm_wday], _MONTHS[now.tm_mon - 1]
        self.line = time.strftime(f"Date: {day}, %d {month} %Y %H:%M:%S GMT\r\n", now).encode()


def head(status: int, headers: Headers, date: bytes, tail: bytes) -> bytes:
    """The head of an answer; `tail` holds the framing headers and the empty line."""
    line = _LINES.get(status) or b"HTTP/1.1 %d Status\r\n" % status
    block = b"".join([b"%b: %b\r\n" % pair for pair in headers])
    if block.count(b"\n") != len(headers) or block.count(b"\r") != len(headers):
        # A line break inside a value (a warning made of user text) must not become a header of its own.
        block = b"".join([b"%b: %b\r\n" % (_one_line(k), _one_line(v)) for k, v in headers])
    return line + block + date + tail


def _one_line(text: bytes) -> bytes:
    return text.replace(b"\r", b" ").replace(b"\n", b" ")


def status_response(error: ApiError) -> Response:
    """An ApiError as JSON Status, for errors the handler has not seen."""
    headers = _JSON + [(k.encode(), v.encode("latin-1", "replace")) for k, v in error.headers.items()]
    return Response(error.code, headers, orjson.dumps(error.status()) + b"\n")


def wants_gzip(accept_encoding: bytes | None) -> bool:
    return accept_encoding is not None and any(t.strip() == b"gzip" for t in accept_encoding.split(b","))


def gzip(body: bytes | list[bytes]) -> list[bytes]:
    """The body as gzip, level 1; zlib lets go of the interpreter lock, so this runs in a thread beside the loop."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    out = []
    for slab in body if isinstance(body, list) else (body,):
        piece = packer.compress(slab)
        if piece:
            out.append(piece)
    out.append(packer.flush())
    return out
