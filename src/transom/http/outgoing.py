"""The server as a client: one connection to a webhook, an aggregated API server, a kubelet or a
pod.

Every failure raises `CallError` with Go's message. A connection carries one exchange at a time; the
body of a response is read piece by piece, with back-pressure on the peer. Knows nothing about
Kubernetes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import httptools

from transom.http import goerrors
from transom.http.goerrors import join_host_port
from transom.kit.named_tuple import NamedTuple
from transom.kit.tls_pairs import load_certificate_files

_HIGH_WATER = 64 * 1024  # bytes of a response that are buffered while its reader is behind
_FIRST_BYTES = 256  # of a response, kept for the error message if it is not HTTP
_SHUTDOWN = 0.5
_DIAL_SECONDS = 30.0
_LARGEST_HEAD = 1024 * 1024
_HEADER_COST = 128  # bytes that a header takes in memory beside its text
_MOST_FRAMING = 1024 * 1024  # bytes without a byte of the body: chunk extensions, trailers
_MOST_INTERIM = 5  # like Go's client


class CallError(Exception):
    """The call failed before a response arrived; the message is Go's."""


class ClientPair(NamedTuple):
    """Files of the client certificate and key that the server presents to its peers."""

    certificate: Path
    key: Path


class CallTarget(NamedTuple):
    host: str
    port: int
    server_name: str  # the expected name in the certificate
    ca_bundle: bytes = b""  # PEM; the system's CAs if empty
    insecure: bool = False
    pair: ClientPair | None = None
    tls: bool = True
    # of the host: if given, only these are dialed, and nothing is resolved
    addresses: tuple[str, ...] = ()
    context: ssl.SSLContext | None = None  # instead of the bundle, `insecure` and the pair


Connect = Callable[[str, int], Awaitable[socket.socket] | None]
"""Maps a host and port to a connected, non-blocking socket; OSError if it is unreachable, None
if plain TCP can be used.
"""


class ResponseHead(NamedTuple):
    status: int
    headers: list[tuple[bytes, bytes]]  # as they came

    def header(self, name: bytes) -> str:
        return next((v.decode("latin-1") for k, v in self.headers if k.lower() == name), "")

    @property
    def length(self) -> int | None:
        """The length of the body, as far as the headers specify it."""
        if self.status in (204, 304):
            return 0
        length = self.header(b"content-length")
        return int(length) if length.isdigit() else None


@lru_cache(maxsize=256)
def client_context(ca_bundle: bytes, insecure: bool, pair: ClientPair | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.hostname_checks_common_name = False
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_bundle:
        # Every certificate in the bundle is trusted, including intermediate CAs.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        # nothing usable in it: then nothing is trusted
        with contextlib.suppress(ssl.SSLError, ValueError):
            context.load_verify_locations(cadata=ca_bundle.decode("latin-1"))
    else:
        context.load_default_certs()
    if pair is not None:
        load_certificate_files(context, *pair)
    return context


class OutgoingConnection(asyncio.Protocol):
    def __init__(
        self, local: str = "", remote: str = "", texts: goerrors.NetworkTexts = goerrors.POSIX
    ) -> None:
        self._local, self._remote = local, remote
        self._texts = texts
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._first = b""
        self._parts: list[bytes] = []
        self._size = 0
        self._head_size = 0
        self._framing = 0  # bytes since the last one of the body
        self._interim = 0  # 1xx responses
        self._paused = False
        self._head: asyncio.Future[ResponseHead] | None = None
        self._more: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._bodiless = False
        self._framed = False  # the response itself delimits the body
        self._raw = False  # after 101
        self._keep = True
        self._complete = True
        self._lost: str | None = None  # why; an exception would keep what its readers used
        self.idle_since = 0.0
        self.on_lost: Callable[[OutgoingConnection], None] | None = None

    @property
    def usable(self) -> bool:
        """Another exchange may start."""
        return self._transport is not None and self._lost is None and self._complete and self._keep

    # ---- an exchange ----

    async def send(self, request: bytes, *, bodiless: bool = False) -> ResponseHead:
        """Sends a whole request and waits for the head of its response. `bodiless`: it is a
        HEAD.
        """
        if self._transport is None or self._lost is not None:
            raise CallError(self._lost or "EOF")
        self._parser = httptools.HttpResponseParser(self)
        self._headers, self._first, self._parts, self._size = [], b"", [], 0
        self._head_size = self._framing = self._interim = 0
        self._complete, self._framed, self._bodiless = False, False, bodiless
        self._head = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._head
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            self._head = None

    async def read(self) -> bytes:
        """The next piece of the body, or of the data after an upgrade; empty at the end."""
        while not self._parts:
            if self._complete:
                return b""
            if self._lost is not None:
                raise CallError(self._lost)
            self._more = asyncio.get_running_loop().create_future()
            try:
                await self._more
            finally:
                self._more = None
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size = [], 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def read_all(self, limit: int) -> bytes:
        parts, size = [], 0
        while data := await self.read():
            parts.append(data)
            size += len(data)
            if size > limit:
                self.abort()
                raise CallError(f"response body is larger than {limit} bytes")
        return b"".join(parts)

    async def write(self, data: bytes) -> None:
        """Writes bytes after an upgrade."""
        if self._transport is None:
            raise CallError(self._lost or "EOF")
        self._transport.write(data)
        if self._drained is not None:
            await self._drained

    def abort(self) -> None:
        if self._lost is None:
            self._fail("use of closed network connection")
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        self._keep = False
        if self._transport is not None:
            self._transport.close()

    def spend(self) -> None:
        """Prevents further exchanges: the body is incomplete."""
        self._keep = False

    def detach(self) -> tuple[Any, bytes]:
        """After an upgrade: returns the transport, for another protocol, and the bytes received so
        far.
        """
        transport, early = self._transport, b"".join(self._parts)
        if transport is None:
            raise CallError(self._lost or "EOF")
        self._transport, self._parts = None, []
        self._fail("use of closed network connection")
        if self.on_lost is not None:
            self.on_lost(self)
        return transport, early

    # ---- asyncio.Protocol ----

    def connection_made(
        self, transport: Any
    ) -> None:  # uvloop's transports are not asyncio's classes
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._raw:
            self.on_body(data)
            return
        if self._complete or self._parser is None:
            self.abort()  # unexpected bytes
            return
        if len(self._first) < _FIRST_BYTES:
            self._first += data[:_FIRST_BYTES]
        if self._head is not None and not self._head.done():
            self._head_size += len(data)
            if self._head_size > _LARGEST_HEAD:
                self._fail(
                    f"net/http: server response headers exceeded {_LARGEST_HEAD} bytes; aborted"
                )
                self.abort()
                return
        self._framing += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._raw = True
            rest = data[upgrade.args[0] :]
            if rest:
                self.on_body(rest)
        except httptools.HttpParserError:
            self._fail(goerrors.malformed_response_error(self._first))
            self.abort()
        if self._framing > _MOST_FRAMING and not self._raw:
            self._fail("chunked encoding contains too much non-data")
            self.abort()

    def eof_received(self) -> bool:
        if self._head is None and (self._raw or not (self._complete or self._framed)):
            self._finish()  # the connection's end delimits a body, or an upgraded connection
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._parser = None  # it refers to this object
        if self._lost is None:
            self._fail(self._loss(exc))
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if self.on_lost is not None:
            self.on_lost(self)

    def _loss(self, exc: Exception | None) -> str:
        if isinstance(exc, ssl.SSLError):
            return goerrors.tls_error(exc)
        if isinstance(exc, OSError):
            return goerrors.read_error(self._local, self._remote, exc, self._texts)
        if self._head is None or not self._first:
            return "EOF" if self._head is not None else "unexpected EOF"
        return "net/http: HTTP/1.x transport connection broken: unexpected EOF"

    def pause_writing(self) -> None:
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def _fail(self, problem: str) -> None:
        self._lost = problem
        if self._head is not None and not self._head.done():
            self._head.set_exception(CallError(problem))
        self._wake()

    def _finish(self) -> None:
        self._complete = True
        self._wake()

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    # ---- httptools ----

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is None or self._head.done():
            return  # a trailer
        self._head_size += _HEADER_COST
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 200 and status != 101:  # more follows
            self._headers = []
            self._interim += 1
            if self._interim > _MOST_INTERIM:
                self._fail("net/http: too many 1xx informational responses")
                self.abort()
            return
        names = {name.lower() for name, _ in self._headers}
        self._framed = b"content-length" in names or b"transfer-encoding" in names
        self._keep = self._parser.should_keep_alive() and self._framed and status != 101
        if self._head is not None and not self._head.done():
            self._head.set_result(ResponseHead(status, self._headers))
        if self._bodiless or status in (204, 304):
            self._keep = self._keep and not self._bodiless
            self._finish()

    def on_body(self, data: bytes) -> None:
        self._framing = 0
        self._parts.append(data)
        self._size += len(data)
        self._wake()
        if self._size > _HIGH_WATER and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if self._parser.get_status_code() < 200:
            return
        self._finish()
        if not self._keep and self._transport is not None:
            self._transport.close()


async def dial_target(target: CallTarget, connect: Connect | None = None) -> OutgoingConnection:
    """Connects, by default with TCP, and does the TLS handshake; CallError if that fails."""
    sock, address = await _socket(target, connect)
    name = sock.getsockname()
    # a socket pair has no address
    local = join_host_port(*name[:2]) if isinstance(name, tuple) else ""
    context = None
    if target.tls:
        context = target.context or client_context(target.ca_bundle, target.insecure, target.pair)
    loop = asyncio.get_running_loop()
    try:
        transport, connection = await loop.create_connection(
            lambda: OutgoingConnection(local, address),
            sock=sock,
            ssl=context,
            server_hostname=target.server_name if target.tls else None,
            ssl_shutdown_timeout=_SHUTDOWN if target.tls else None,
        )
        if target.tls:
            _limit_encrypted_input(transport)
        return connection
    except ssl.SSLCertVerificationError as problem:
        raise CallError(await _explain(target, connect, problem)) from problem
    except ssl.SSLError as problem:
        raise CallError(goerrors.tls_error(problem)) from problem
    except OSError as problem:
        text = "EOF" if problem.errno is None else goerrors.read_error(local, address, problem)
        raise CallError(text) from problem


def _limit_encrypted_input(transport: Any) -> None:
    """By default the TLS layer keeps 1 MiB that its reader has not asked for. A log that a client
    does not read would keep as much, for each such client.
    """
    transport.set_read_buffer_limits(high=_HIGH_WATER)


async def _socket(target: CallTarget, connect: Connect | None) -> tuple[socket.socket, str]:
    first: CallError | None = None
    for host in target.addresses or (target.host,):
        try:
            return await _open(host, target.port, connect)
        except CallError as problem:
            first = first or problem
    assert first is not None
    try:
        raise first
    finally:
        first = None  # its traceback refers to this frame


async def _open(host: str, port: int, connect: Connect | None) -> tuple[socket.socket, str]:
    opening = None if connect is None else connect(host, port)
    if opening is None:
        return await _connect(host, port)
    address = join_host_port(host, port)
    try:
        return await opening, address
    except socket.gaierror as problem:
        raise CallError(goerrors.lookup_error(host, problem)) from problem
    except TimeoutError as problem:
        raise CallError(f"dial tcp {address}: i/o timeout") from problem
    except OSError as problem:
        raise CallError(goerrors.dial_error(address, problem)) from problem


async def _connect(host: str, port: int) -> tuple[socket.socket, str]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as problem:
        raise CallError(goerrors.lookup_error(host, problem)) from problem
    first: CallError | None = None
    for family, kind, protocol, _, address in found:
        text = join_host_port(str(address[0]), int(address[1]))
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(_DIAL_SECONDS):
                await loop.sock_connect(sock, address)
        except TimeoutError:
            sock.close()
            first = first or CallError(f"dial tcp {text}: i/o timeout")
        except OSError as problem:
            sock.close()
            first = first or CallError(goerrors.dial_error(text, problem))
        except BaseException:
            sock.close()
            raise
        else:
            return sock, text
    assert first is not None
    try:
        raise first
    finally:
        first = None  # its traceback refers to this frame


async def _explain(
    target: CallTarget, connect: Connect | None, problem: ssl.SSLCertVerificationError
) -> str:
    """Fetches the certificate again, to examine it."""
    sock, _ = await _socket(target, connect)
    loop = asyncio.get_running_loop()
    context = client_context(b"", True, target.pair)
    try:
        transport, _ = await loop.create_connection(
            asyncio.Protocol,
            sock=sock,
            ssl=context,
            server_hostname=target.server_name,
            ssl_shutdown_timeout=_SHUTDOWN,
        )
    except OSError:
        return "x509: certificate signed by unknown authority"
    der = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    transport.abort()
    # OpenSSL also checks the system clock, whatever clock the server uses.
    return goerrors.certificate_error(
        der or b"", target.server_name, target.ca_bundle, time.time(), problem
    )
