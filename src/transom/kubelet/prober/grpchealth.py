"""gRPC probes: a call of grpc.health.v1.Health/Check."""

from __future__ import annotations

import asyncio
import socket

from transom.http.goerrors import join_host_port
from transom.http.grpc import GrpcConnection
from transom.kit.clock import Clock
from transom.kit.durations import format_duration
from transom.kit.goquote import go_quote
from transom.kit.rpc import RpcError
from transom.kubelet.deadline import TimeLimit
from transom.network.api import Dial

HEALTHY = "service healthy"
_CHECK = "/grpc.health.v1.Health/Check"
_RETRY_SECONDS = 1.0
_MAX_MESSAGE = 4 << 20  # gRPC's default
_MAX_FRAMES = 10_000  # of one response
_SERVING_STATUSES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
_SERVING = 1


class Unhealthy(Exception):
    """The text is the message of the probe."""


async def check_grpc_health(
    dial: Dial, clock: Clock, host: str, port: int, service: str, agent: str, seconds: float
) -> str:
    """`service healthy`. Raises Unhealthy."""
    address = join_host_port(host, port)
    end = clock.monotonic() + seconds
    shown = format_duration(seconds)
    try:
        async with TimeLimit(clock, seconds):
            connection = await _connect(dial, clock, host, port, address, agent)
    except TimeoutError:
        raise Unhealthy(
            f"timeout: failed to connect service {go_quote(address)} within {shown}: "
            "context deadline exceeded"
        ) from None
    try:
        async with TimeLimit(clock, end - clock.monotonic()):
            response = await connection.call(_CHECK, _request(service), seconds)
    except TimeoutError:
        raise Unhealthy(f"timeout: health rpc did not complete within {shown}") from None
    except RpcError as error:
        raise Unhealthy(_message(error, shown)) from None
    finally:
        connection.close()
    return _result(response)


async def _connect(
    dial: Dial, clock: Clock, host: str, port: int, address: str, agent: str
) -> GrpcConnection:
    """Retry until an HTTP/2 server accepts the connection."""
    while True:
        try:
            sock = await dial(host, port)
        except OSError:
            await clock.sleep(_RETRY_SECONDS)
            continue
        connection = await _open(sock, address, agent)
        settings_received = False
        try:
            settings_received = await connection.settings_received()
        finally:
            if not settings_received:
                connection.close()
        if settings_received:
            return connection
        await clock.sleep(_RETRY_SECONDS)


async def _open(sock: socket.socket, address: str, agent: str) -> GrpcConnection:
    loop = asyncio.get_running_loop()
    try:
        _, connection = await loop.create_connection(
            lambda: GrpcConnection(address, agent, _MAX_MESSAGE, _MAX_FRAMES), sock=sock
        )
    except BaseException:
        sock.close()
        raise
    return connection


def _request(service: str) -> bytes:
    """HealthCheckRequest: field 1 is the name of the service."""
    name = service.encode()
    if not name:
        return b""
    length, size = bytearray(), len(name)
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return b"\x0a" + bytes(length) + name


def _message(error: RpcError, shown: str) -> str:
    if error.code == "DeadlineExceeded":
        return f"timeout: health rpc did not complete within {shown}"
    if error.code == "Unimplemented":
        return (
            "error: this server does not implement the grpc health protocol "
            f"(grpc.health.v1.Health): {error.description}"
        )
    text = "error reading from server: EOF" if error.code == "Unavailable" else error.description
    return f"error: health rpc probe failed: rpc error: code = {error.code} desc = {text}"


def _result(response: bytes) -> str:
    """HealthCheckResponse: field 1 is the serving status, 0 by default."""
    value = response[1] if len(response) >= 2 and response[0] == 0x08 else 0
    if value != _SERVING:
        known = value < len(_SERVING_STATUSES)
        name = _SERVING_STATUSES[value] if known else str(value)
        raise Unhealthy(f"service unhealthy (responded with {go_quote(name)})")
    return HEALTHY
