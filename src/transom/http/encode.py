"""Response heads, Status responses for errors outside the handler, and gzip of large bodies."""

from __future__ import annotations

import asyncio
import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from http import HTTPStatus

import orjson

from transom.http.messages import BodyReader, Buffer, Headers, HttpResponse
from transom.kit.http_message import encode_headers
from transom.machinery.errors import ApiError

_COMMON = 4  # headers: the media type, the cache control and two of the priority level
GZIP_THRESHOLD = 128 * 1024
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_LAST_BLOCK = b"\x03\x00"
_JSON: Headers = [(b"Content-Type", b"application/json"), (b"Cache-Control", b"no-cache, private")]

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
END_OF_STREAM = b"0\r\n\r\n"

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


class Date:
    """The Date header, updated by the server's clock tick instead of for each response."""

    __slots__ = ("line",)

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        now = time.gmtime()
        day, month = _DAYS[now.tm_wday], _MONTHS[now.tm_mon - 1]
        self.line = time.strftime(f"Date: {day}, %d {month} %Y %H:%M:%S GMT\r\n", now).encode()


def head(status: int, headers: Headers, date: bytes, tail: bytes) -> bytes:
    """The head of a response; `tail` holds the framing headers and the empty line."""
    line = _LINES.get(status) or b"HTTP/1.1 %d Status\r\n" % status
    block = _encode_common(*headers) if len(headers) <= _COMMON else encode_headers(headers)
    return line + block + date + tail


@lru_cache(64)
def _encode_common(*headers: tuple[bytes, bytes]) -> bytes:
    """Most responses have the same headers."""
    return encode_headers(headers)


def status_response(error: ApiError) -> HttpResponse:
    """An ApiError as JSON Status, for errors outside the handler."""
    headers = _JSON + [
        (k.encode(), v.encode("latin-1", "replace")) for k, v in error.headers.items()
    ]
    return HttpResponse(error.code, headers, orjson.dumps(error.status()) + b"\n")


def wants_gzip(accept_encoding: bytes | None) -> bool:
    return accept_encoding is not None and any(
        t.strip() == b"gzip" for t in accept_encoding.split(b",")
    )


def gzip(body: bytes | list[bytes]) -> list[bytes]:
    """Compresses the body with gzip, level 1; zlib releases the interpreter lock, so this runs in a
    thread.
    """
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    out = []
    for slab in body if isinstance(body, list) else (body,):
        piece = packer.compress(slab)
        if piece:
            out.append(piece)
    out.append(packer.flush())
    return out


@cache
def _slow_bodies() -> ThreadPoolExecutor:
    """One thread for all slow bodies, which take turns piece by piece: more of them would only
    compete with the event loop for the interpreter.
    """
    return ThreadPoolExecutor(1, "slow-bodies")


class GzipReader:
    """A body compressed piece by piece. Between two pieces it keeps only a checksum and no
    compressor, whose tables take 256 KiB: each piece consists of separate deflate blocks, and all
    of them together form one gzip stream. A slow body is also read in the thread.
    """

    __slots__ = ("_body", "_crc", "_ended", "_size", "_slow")

    def __init__(self, body: BodyReader, slow: bool = False) -> None:
        self._body = body
        self._slow = slow
        self._crc = 0
        self._size = 0
        self._ended = False

    async def next(self, loop: asyncio.AbstractEventLoop, most: int) -> bytes:
        """The next piece, of about `most` bytes; empty at the end. The thread reads immutable
        bytes.
        """
        if self._ended:
            return b""
        if self._slow:
            parts = await loop.run_in_executor(_slow_bodies(), _read_parts, self._body, most)
        else:
            parts = _read_parts(self._body, most)
        start = b"" if self._size else _GZIP_HEAD
        if not parts:
            self._ended = True
            return start + _LAST_BLOCK + struct.pack("<LL", self._crc, self._size & 0xFFFFFFFF)
        packed, self._crc = await loop.run_in_executor(None, _deflate, parts, self._crc)
        self._size += sum(map(len, parts))
        return start + packed


class ThreadReader:
    """A slow body, read piece by piece in a thread."""

    __slots__ = ("_body",)

    def __init__(self, body: BodyReader) -> None:
        self._body = body

    async def next(self, loop: asyncio.AbstractEventLoop, most: int) -> Buffer:
        """The next piece, of about `most` bytes; empty at the end."""
        return await loop.run_in_executor(_slow_bodies(), self._body.read, most)


def _read_parts(body: BodyReader, most: int) -> list[Buffer]:
    parts: list[Buffer] = []
    size = 0
    while size < most and (piece := body.read(most - size)):
        parts.append(piece)
        size += len(piece)
    return parts


def _deflate(parts: list[Buffer], crc: int) -> tuple[bytes, int]:
    packer = zlib.compressobj(1, zlib.DEFLATED, -15)
    out = []
    for part in parts:
        crc = zlib.crc32(part, crc)
        out.append(packer.compress(part))
    out.append(packer.flush(zlib.Z_FULL_FLUSH))
    return b"".join(out), crc
