"""The limits of an HTTP server."""

from __future__ import annotations

from transom.kit.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Sizes in bytes, times in seconds."""

    head: int = 64 * 1024
    body: int = 3 * 1024 * 1024
    discard: int = 64 * 1024 * 1024  # how much of a rejected body is read and discarded
    # what a handler may write to a stream whose client does not read
    stream_buffer: int = 2 * 1024 * 1024
    stream_pause: float = 0.005  # between two flushes of all streams
    pipelined: int = 64
    connections: int = 20_000
    handshakes: int = 1_000  # TLS handshakes that are not finished
    handshake_timeout: float = 10.0
    head_timeout: float = 30.0
    body_timeout: float = 60.0
    idle_timeout: float = 180.0
    stall_timeout: float = (
        30.0  # a response or watch whose client reads nothing for this long is closed
    )
    stream_stall_timeout: float = (
        900.0  # the same for logs, exec, port-forward and proxied streams, which hold little
    )
    response_timeout: float = (
        60.0  # from then on the client of a response must read at the minimum rate
    )
    least_rate: int = 64 * 1024  # bytes per second
    unsent: int = 256 * 1024  # bytes of a connection that the kernel buffers
    linger: float = 5.0
    tick: float = 1.0  # the resolution of time-outs
