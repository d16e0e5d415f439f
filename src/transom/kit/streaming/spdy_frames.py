"""SPDY/3.1 frames: their encoding, and the compressed header block.

Streams and their states are in `spdy.py`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from enum import IntEnum

from transom.kit.named_tuple import NamedTuple

Headers = list[tuple[str, str]]
"""Names in lower case; a header with several values appears several times."""

VERSION = 3
MAX_STREAM_ID = 0x7FFFFFFF
MAX_LENGTH = 0xFFFFFF
FLAG_FIN = 0x01
FLAG_UNIDIRECTIONAL = 0x02


class FrameType(IntEnum):
    SYN_STREAM = 1
    SYN_REPLY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    HEADERS = 8
    WINDOW_UPDATE = 9


class ResetCode(IntEnum):
    """Why a stream is reset."""

    PROTOCOL_ERROR = 1
    INVALID_STREAM = 2
    REFUSED_STREAM = 3
    UNSUPPORTED_VERSION = 4
    CANCEL = 5
    INTERNAL_ERROR = 6
    FLOW_CONTROL_ERROR = 7
    STREAM_IN_USE = 8
    STREAM_ALREADY_CLOSED = 9
    FRAME_TOO_LARGE = 11


class GoAwayCode(IntEnum):
    """Why a connection ends."""

    OK = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2


class SettingId(IntEnum):
    MAX_CONCURRENT_STREAMS = 4
    INITIAL_WINDOW_SIZE = 7


class SpdyFrame(NamedTuple):
    """A frame as cut from the byte stream. `type` is None for data, then `stream` is set."""

    type: int | None
    flags: int
    stream: int
    payload: bytes
    version: int = VERSION


class HeaderError(Exception):
    """An invalid header block. If `fatal`, the compression state is lost."""

    def __init__(self, message: str, *, fatal: bool = True) -> None:
        super().__init__(message)
        self.fatal = fatal


_WORD = struct.Struct(">I")
_TWO_WORDS = struct.Struct(">II")
_SYN_STREAM = struct.Struct(">IIBB")


def peek_frame(buffer: bytearray, at: int) -> int | None:
    """The payload length of the frame at `at`, once its eight header bytes are there."""
    if len(buffer) - at < 8:
        return None
    return _WORD.unpack_from(buffer, at + 4)[0] & MAX_LENGTH


def cut_frame(buffer: bytearray, at: int, length: int) -> SpdyFrame:
    first, second = _TWO_WORDS.unpack_from(buffer, at)
    with memoryview(buffer) as view:
        payload = bytes(view[at + 8 : at + 8 + length])
    if first & 0x80000000:
        return SpdyFrame(first & 0xFFFF, second >> 24, 0, payload, first >> 16 & 0x7FFF)
    return SpdyFrame(None, second >> 24, first, payload)


def is_control(buffer: bytearray, at: int) -> bool:
    return bool(buffer[at] & 0x80)


def data_frame(stream: int, payload: bytes, fin: bool = False) -> bytes:
    return _TWO_WORDS.pack(stream, (FLAG_FIN if fin else 0) << 24 | len(payload)) + payload


def control_frame(type: int, payload: bytes, flags: int = 0) -> bytes:
    return _TWO_WORDS.pack(0x80000000 | VERSION << 16 | type, flags << 24 | len(payload)) + payload


def syn_stream_frame(stream: int, block: bytes, fin: bool = False) -> bytes:
    return control_frame(
        FrameType.SYN_STREAM, _SYN_STREAM.pack(stream, 0, 0, 0) + block, FLAG_FIN if fin else 0
    )


def syn_reply_frame(stream: int, block: bytes, fin: bool = False) -> bytes:
    return control_frame(FrameType.SYN_REPLY, _WORD.pack(stream) + block, FLAG_FIN if fin else 0)


def headers_frame(stream: int, block: bytes, fin: bool = False) -> bytes:
    return control_frame(FrameType.HEADERS, _WORD.pack(stream) + block, FLAG_FIN if fin else 0)


def rst_stream_frame(stream: int, why: int) -> bytes:
    return control_frame(FrameType.RST_STREAM, _TWO_WORDS.pack(stream, why))


def ping_frame(id: int) -> bytes:
    return control_frame(FrameType.PING, _WORD.pack(id))


def goaway_frame(last_stream: int, why: int) -> bytes:
    return control_frame(FrameType.GOAWAY, _TWO_WORDS.pack(last_stream, why))


def window_update_frame(stream: int, delta: int) -> bytes:
    return control_frame(FrameType.WINDOW_UPDATE, _TWO_WORDS.pack(stream, delta))


def settings_frame(values: dict[int, int]) -> bytes:
    return control_frame(
        FrameType.SETTINGS,
        _WORD.pack(len(values)) + b"".join(_TWO_WORDS.pack(*pair) for pair in values.items()),
    )


def read_word(payload: bytes, at: int = 0) -> int:
    return _WORD.unpack_from(payload, at)[0]


def parse_settings(payload: bytes) -> dict[int, int] | None:
    """Maps identifiers to values, without the persistence flags; None if the frame is malformed."""
    if len(payload) < 4 or len(payload) != 4 + 8 * read_word(payload):
        return None
    return {
        read_word(payload, at) & 0xFFFFFF: read_word(payload, at + 4)
        for at in range(4, len(payload), 8)
    }


# -- headers

# The zlib dictionary of the SPDY/3 specification: words with their lengths, then plain text.
_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding "
    "accept-language accept-ranges age allow"
    " authorization cache-control connection content-base content-encoding content-language "
    "content-length"
    " content-location content-md5 content-range content-type date etag expect expires from "
    "host if-match"
    " if-modified-since if-none-match if-range if-unmodified-since last-modified location "
    "max-forwards pragma"
    " proxy-authenticate proxy-authorization range referer retry-after server te trailer "
    "transfer-encoding upgrade"
    " user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 "
    "url public set-cookie"
    " keep-alive origin"
)
_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 "
    "Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, "
    "Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = (
    b"".join(_WORD.pack(len(w)) + w.replace("_", " ").encode() for w in _WORDS.split())
    + _TEXT.encode()
)


class HeaderWriter:
    """One zlib stream for all headers a side sends, flushed after each block."""

    def __init__(self) -> None:
        self._zlib = zlib.compressobj(9, zdict=DICTIONARY)

    def write(self, pairs: Iterable[tuple[str, str]]) -> bytes:
        merged: dict[str, list[str]] = {}
        for name, value in pairs:
            merged.setdefault(name.lower(), []).append(value)
        block = bytearray(_WORD.pack(len(merged)))
        for name, values in merged.items():
            for text in (name, "\0".join(values)):
                raw = text.encode("utf-8", "surrogateescape")
                block += _WORD.pack(len(raw)) + raw
        return self._zlib.compress(block) + self._zlib.flush(zlib.Z_SYNC_FLUSH)


class HeaderReader:
    """The counterpart of `HeaderWriter`. Every block must be read, including those of refused
    streams.
    """

    def __init__(self, limit: int, most: int) -> None:
        """`limit` is the size of a block in bytes, `most` the number of headers."""
        self._zlib = zlib.decompressobj(zdict=DICTIONARY)
        self._limit = limit
        self._most = most

    def read(self, block: bytes) -> Headers:
        try:
            plain = self._zlib.decompress(block, self._limit + 1)
        except zlib.error as error:
            raise HeaderError(f"the headers cannot be decompressed: {error}") from None
        if len(plain) > self._limit or self._zlib.unconsumed_tail:
            raise HeaderError(f"the headers are larger than {self._limit} bytes")
        if self._zlib.eof or self._zlib.unused_data:
            raise HeaderError("the compressed headers came to an end")
        if len(plain) >= 4 and read_word(plain) > self._most:
            raise HeaderError(f"there are more than {self._most} headers")
        return _parse_block(plain)


def _parse_block(plain: bytes) -> Headers:
    pairs: Headers = []
    seen: set[str] = set()
    wrong = ""
    at = 4
    if len(plain) < 4:
        raise HeaderError("the block of headers is cut short")
    for _ in range(read_word(plain)):
        name, at = _string(plain, at)
        value, at = _string(plain, at)
        if not name or name != name.lower():
            wrong = wrong or f"header name {name!r} is not allowed"
        if name in seen:
            wrong = wrong or f"header {name!r} is given twice"
        seen.add(name)
        pairs += [(name, one) for one in value.split("\0")]
    if at != len(plain):
        raise HeaderError("the block of headers has bytes left over")
    if wrong:
        raise HeaderError(wrong, fatal=False)
    return pairs


def _string(plain: bytes, at: int) -> tuple[str, int]:
    if at + 4 > len(plain):
        raise HeaderError("the block of headers is cut short")
    length = read_word(plain, at)
    end = at + 4 + length
    if end > len(plain):
        raise HeaderError("the block of headers is cut short")
    return plain[at + 4 : end].decode("utf-8", "surrogateescape"), end
