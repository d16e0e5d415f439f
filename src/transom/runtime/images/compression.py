"""Decompresses layers to streams of bytes: plain, gzip, zstd.

Detects the format by the first bytes, because media types are not reliable. zstd comes from Python
where available, otherwise from the machine's libzstd; without either such a layer is rejected.
"""

from __future__ import annotations

import ctypes
import importlib
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, BinaryIO, Final, Protocol

from transom.runtime.images.model import ImageError

_CHUNK: Final = 256 * 1024
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_BZIP2: Final = b"BZh"
_XZ: Final = b"\xfd7zXZ\x00"


class Decompressor(Protocol):
    def feed(self, data: bytes) -> Iterator[bytes]:
        """The output in chunks of bounded size, however much it is."""

    def end(self) -> None:
        """End of input; raises ImageError when there should be more."""


class _Plain:
    def feed(self, data: bytes) -> Iterator[bytes]:
        yield data

    def end(self) -> None:
        return


class _Gzip:
    """Any number of members in sequence; other trailing bytes are ignored, as gzip does with
    zeros.
    """

    def __init__(self) -> None:
        self._member: Any = zlib.decompressobj(wbits=31)
        self._over = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data and not self._over:
            if self._member is None:
                if data[0] == 0:  # padding
                    self._over = not data.strip(b"\0")
                    return
                self._member = zlib.decompressobj(wbits=31)
            try:
                out = self._member.decompress(data, _CHUNK)
            except zlib.error as problem:
                raise ImageError(f"gzip: {problem}") from problem
            if out:
                yield out
            if self._member.eof:
                data, self._member = self._member.unused_data, None
            else:
                data = self._member.unconsumed_tail

    def end(self) -> None:
        if self._member is not None:
            raise ImageError("unexpected EOF")


class _Zstd:
    """Wraps a decompressor object of one of Python's libraries, which ends with each frame."""

    def __init__(self, make: Callable[[], Any], failure: type[Exception]) -> None:
        self._make, self._failure = make, failure
        self._frame: Any = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._frame is None:
                self._frame = self._make()
            try:
                out = self._frame.decompress(data, max_length=_CHUNK)
                if out:
                    yield out
                while not self._frame.eof and not self._frame.needs_input:
                    yield self._frame.decompress(b"", max_length=_CHUNK)
            except self._failure as problem:
                raise ImageError(f"zstd: {problem}") from problem
            if not self._frame.eof:
                return
            data, self._frame = self._frame.unused_data, None

    def end(self) -> None:
        if self._frame is not None:
            raise ImageError("unexpected EOF")


class _Buffer(ctypes.Structure):
    _fields_ = [("place", ctypes.c_void_p), ("size", ctypes.c_size_t), ("at", ctypes.c_size_t)]


@lru_cache(maxsize=1)
def _library() -> Any:
    try:
        # ctypes.util.find_library would run compilers to find it
        library = ctypes.CDLL("libzstd.so.1")
    except OSError:
        return None
    library.ZSTD_createDStream.restype = ctypes.c_void_p
    library.ZSTD_freeDStream.argtypes = [ctypes.c_void_p]
    library.ZSTD_decompressStream.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    library.ZSTD_decompressStream.restype = ctypes.c_size_t
    library.ZSTD_isError.argtypes = [ctypes.c_size_t]
    library.ZSTD_getErrorName.argtypes = [ctypes.c_size_t]
    library.ZSTD_getErrorName.restype = ctypes.c_char_p
    return library


class _LibZstd:
    def __init__(self, library: Any) -> None:
        self._library = library
        self._stream = library.ZSTD_createDStream()
        self._room = ctypes.create_string_buffer(_CHUNK)
        self._open = False  # within a frame

    def feed(self, data: bytes) -> Iterator[bytes]:
        source = ctypes.create_string_buffer(data, len(data))
        given = _Buffer(ctypes.addressof(source), len(data), 0)
        full = True
        while given.at < given.size or full:
            taken = _Buffer(ctypes.addressof(self._room), _CHUNK, 0)
            left = self._library.ZSTD_decompressStream(
                self._stream, ctypes.byref(taken), ctypes.byref(given)
            )
            if self._library.ZSTD_isError(left):
                raise ImageError(f"zstd: {self._library.ZSTD_getErrorName(left).decode()}")
            self._open = left != 0
            full = taken.at == _CHUNK
            if taken.at:
                yield self._room.raw[: taken.at]
            elif given.at == given.size:
                break

    def end(self) -> None:
        if self._open:
            raise ImageError("unexpected EOF")

    def __del__(self) -> None:
        self._library.ZSTD_freeDStream(self._stream)


def _zstd() -> Decompressor:
    try:
        module: Any = importlib.import_module("compression.zstd")  # from Python 3.14 on
        return _Zstd(module.ZstdDecompressor, module.ZstdError)
    except ImportError:
        library = _library()
    if library is None:
        raise ImageError(
            "the layer is compressed with zstd, for which this machine has no library "
            "(package libzstd1)"
        )
    return _LibZstd(library)


def decompressor(start: bytes) -> Decompressor:
    """The decompressor for a stream with this beginning."""
    if start.startswith(_GZIP):
        return _Gzip()
    if start.startswith(_ZSTD):
        return _zstd()
    if start.startswith((_BZIP2, _XZ)):
        raise ImageError("layers are tar archives, plain or compressed with gzip or zstd")
    return _Plain()


def pieces(source: BinaryIO) -> Iterator[bytes]:
    """The decompressed bytes of a file, at most 256 KiB at a time."""
    data = source.read(_CHUNK)
    inner = decompressor(data)
    while data:
        yield from inner.feed(data)
        data = source.read(_CHUNK)
    inner.end()
