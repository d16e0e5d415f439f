"""A client connection, first layer: the transport, its buffers, and the deadline of the connection.

There is no timer here: a connection only sets its deadline, and the server checks all deadlines
together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from enum import IntEnum
from time import monotonic
from typing import Any

from transom.http.interfaces import ConnectionHost

log = logging.getLogger("transom.http")

NEVER = float("inf")
_FLUSH_AT = 256 * 1024
_MOST_BUFFERED = 16 * 1024  # by a transport, before its connection has to wait


class Deadline(IntEnum):
    """What the connection waits for."""

    NONE = 0
    REQUEST = 1
    HEAD = 2
    BODY = 3
    READER = 4  # a client that is behind reads the pending output
    CLOSE = 5


# Reading enum attributes is slow, and these are read several times for each request.
NO_DEADLINE, FOR_REQUEST, FOR_HEAD, FOR_BODY, FOR_READER, FOR_CLOSE = Deadline


class TransportLayer(asyncio.Protocol):
    __slots__ = (
        "_deadline_for",
        "_feeding",
        "_out",
        "_out_size",
        "_owner",
        "_read_paused",
        "_remote",
        "_window",
        "deadline",
        "lower",
        "server",
        "transport",
        "write_paused",
    )

    def __init__(self, server: ConnectionHost) -> None:
        self.server = server
        self.transport: Any = None
        self.lower: Any = None  # the socket's transport: below TLS, if that is known
        self.write_paused = False
        self.deadline = NEVER
        self._deadline_for: Deadline = NO_DEADLINE
        self._read_paused = False
        self._feeding = False
        self._out: list[bytes] = []
        self._out_size = 0
        self._window = 0
        self._owner = ""
        self._remote = ""

    def window(self) -> int:
        """How many bytes may be encoded ahead of the client now; the transport's buffer limits
        follow it.
        """
        window = self.server.budget.window(self._owner)
        if window != self._window and self.transport is not None and not self._closing():
            self._window = window
            high = min(window // 2, _MOST_BUFFERED)
            if self.lower is not None and self.lower is not self.transport:
                self.lower.set_write_buffer_limits(high=high)
                high //= 4  # above TLS there is only what the transport below did not accept
            self.transport.set_write_buffer_limits(high=high)
        return window

    def _closing(self) -> bool:
        return bool(
            self.transport.is_closing() or (self.lower is not None and self.lower.is_closing())
        )

    def buffered(self) -> int:
        """Bytes buffered for the client in this process."""
        size: int = self.write_buffer_size()
        if (
            self.lower is not None
            and self.lower is not self.transport
            and not self.lower.is_closing()
        ):
            size += self.lower.get_write_buffer_size()
        return size

    def _write(self, data: bytes) -> None:
        if not self._feeding:
            if self.transport is not None:
                self.transport.write(data)
            return
        self._out.append(data)
        self._out_size += len(data)
        if self._out_size > _FLUSH_AT:
            self._flush()

    def _flush(self) -> None:
        out = self._out
        if out and self.transport is not None:
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))
        self._out = []
        self._out_size = 0

    def write_buffer_size(self) -> int:
        return self.transport.get_write_buffer_size() if self.transport is not None else 0

    def pause_reading(self) -> None:
        if not self._read_paused and self.transport is not None:
            self._read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._read_paused and self.transport is not None:
            self._read_paused = False
            self.transport.resume_reading()

    def read_later(self) -> None:
        """Lets other connections have the event loop before more is read from this one."""
        if not self._read_paused and self.transport is not None and not self._closing():
            self.transport.pause_reading()
            self.server.loop.call_soon(self._read_again)

    def _read_again(self) -> None:
        if not self._read_paused and self.transport is not None and not self._closing():
            self.transport.resume_reading()

    def _arm(self, about: Deadline, seconds: float) -> None:
        self._deadline_for = about
        self.deadline = monotonic() + seconds

    def _guarded(self, callback: Any) -> None:
        try:
            callback()
        except Exception:
            log.exception("a close callback failed")

    def close(self) -> None:
        """Closes when everything is written, or at the latest after the linger time."""
        if self.transport is not None:
            if self._out:
                self._flush()
            if self._deadline_for != FOR_CLOSE:
                self._arm(FOR_CLOSE, self.server.limits.linger)
            # after a second close, a transport of Python 3.11.2 cannot be aborted any more
            if not self.transport.is_closing():
                self.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _reset(self) -> None:
        """Aborts, and makes the kernel drop unread data too: otherwise it keeps the data for
        minutes.
        """
        if self.transport is not None:
            sock: Any = self.transport.get_extra_info("socket")
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.abort()
