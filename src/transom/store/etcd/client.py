"""A client of an etcd cluster: several endpoints with failover, TLS, user and password.

One connection at a time carries all calls and the watch. A read is retried at other endpoints until
its deadline. A write is retried only if it was certainly not sent, because etcd may have committed
it before the connection was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

from transom.http.grpc_channel import GrpcChannel, GrpcStream
from transom.kit.lazy_dataclass import dataclass
from transom.kit.rpc import RpcError
from transom.kit.tls_pairs import load_certificate_files
from transom.store.etcd import wire

_log = logging.getLogger(__name__)

DEFAULT_PREFIX = "/registry"
DEFAULT_PORT = 2379
_PAGE = 2000  # keys of a range request
_CALL_SECONDS = 10.0  # longer than etcd itself waits for a quorum, so that its error is seen
_CONNECT_SECONDS = 2.0
_KEEPALIVE_SECONDS = 10.0  # etcd closes connections of clients that ask more often than every 5 s
_RETRY_SECONDS = 0.1
_GRACE_SECONDS = 1.0
# The member has no leader or was cut off; another one may know more.
_OTHER_MEMBER_MAY_HELP = (
    "no leader",
    "leader changed",
    "timed out",
    "server stopped",
    "not capable",
)
# The token has expired, or users or roles have changed since. The request had no effect.
_TOKEN_REFUSED = ("invalid auth token", "revision of auth store is old")
_TOKEN_RENEWALS = 3
_TIMED_OUT = RpcError("Unavailable", "etcdserver: request timed out")


class EtcdAddressError(ValueError):
    """The address of the cluster is not valid; the message is for the user."""


@dataclass(frozen=True, slots=True)
class EtcdAddress:
    """`etcd://[USER:PASSWORD@]HOST[:PORT][,HOST...][/PREFIX][?ca=FILE&cert=FILE&key=FILE]`; `etcds://`
    or any of the files means TLS.
    """

    endpoints: Sequence[tuple[str, int]]
    prefix: str = DEFAULT_PREFIX
    user: str = ""
    password: str = ""
    tls: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""


def parse_etcd_address(text: str) -> EtcdAddress:
    """Raises EtcdAddressError."""
    parts = urlsplit(text)
    if parts.scheme not in ("etcd", "etcds"):
        raise EtcdAddressError(f"{text!r} is not an address of an etcd cluster")
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    endpoints = []
    for host in hosts.split(","):
        try:
            one = urlsplit(f"//{host}")
            if not one.hostname:
                raise ValueError("a host name is missing")
            endpoints.append((one.hostname, one.port or DEFAULT_PORT))
        except ValueError as problem:
            raise EtcdAddressError(f"{host!r} is not a host and port: {problem}") from None
    options = parse_qs(parts.query, keep_blank_values=True)
    unknown = sorted(options.keys() - {"ca", "cert", "key"})
    if unknown:
        raise EtcdAddressError(f"unknown option {unknown[0]!r}: use ca, cert and key")
    files = {name: options.get(name, [""])[-1] for name in ("ca", "cert", "key")}
    if bool(files["cert"]) != bool(files["key"]):
        raise EtcdAddressError("a client certificate needs both cert and key")
    return EtcdAddress(
        endpoints=tuple(endpoints),
        prefix=parts.path.rstrip("/") or DEFAULT_PREFIX,
        user=unquote(user),
        password=unquote(password),
        tls=parts.scheme == "etcds" or any(files.values()),
        **files,
    )


def address_without_password(text: str) -> str:
    """To be shown, or kept where a password does not belong."""
    parts = urlsplit(text)
    login, _, hosts = parts.netloc.rpartition("@")
    user = login.partition(":")[0]
    return urlunsplit(parts._replace(netloc=f"{user}@{hosts}" if user else hosts))


def _tls_context(address: EtcdAddress) -> ssl.SSLContext | None:
    if not address.tls:
        return None
    context = ssl.create_default_context(cafile=address.ca or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    if address.cert:
        load_certificate_files(context, Path(address.cert), Path(address.key))
    return context


class EtcdClient:
    def __init__(self, address: EtcdAddress) -> None:
        self._address = address
        self._tls = _tls_context(address)
        self._endpoint = 0
        self._channel: GrpcChannel | None = None
        self._connecting: asyncio.Task[GrpcChannel] | None = None
        self._token: tuple[tuple[str, str], ...] = ()
        self._authenticating = asyncio.Lock()
        self._keepalive: asyncio.TimerHandle | None = None
        self._closed = False

    # ---- calls ----

    async def range(self, request: bytes, seconds: float = _CALL_SECONDS) -> wire.EtcdRange:
        return wire.read_range(await self._read("/etcdserverpb.KV/Range", request, seconds))

    async def range_all(self, prefix: bytes) -> tuple[int, list[wire.EtcdKeyValue]]:
        """All keys with the prefix, at one revision."""
        start, end = prefix, wire.prefix_end(prefix)
        found: list[wire.EtcdKeyValue] = []
        revision = 0
        while True:
            page = await self.range(wire.range_request(start, end, limit=_PAGE, revision=revision))
            revision = revision or page.revision
            found += page.kvs
            if not page.more:
                return revision, found
            start = page.kvs[-1].key + b"\0"

    async def txn(self, request: bytes, seconds: float = _CALL_SECONDS) -> wire.EtcdTxn:
        return wire.read_txn(await self._call("/etcdserverpb.KV/Txn", request, seconds))

    @property
    def has_several_endpoints(self) -> bool:
        return len(self._address.endpoints) > 1

    async def compact(self, revision: int) -> None:
        await self._write("/etcdserverpb.KV/Compact", wire.compaction_request(revision))

    async def grant_lease(self, seconds: int) -> int:
        answer = await self._write(
            "/etcdserverpb.Lease/LeaseGrant", wire.lease_grant_request(seconds)
        )
        return wire.read_lease(answer)

    async def version(self) -> str:
        return wire.read_text_field(
            await self._read("/etcdserverpb.Maintenance/Status", b"", _CALL_SECONDS)
        )

    async def watch(
        self,
        request: bytes,
        on_batch: Callable[[wire.EtcdWatchBatch], None],
        on_end: Callable[[RpcError], None],
    ) -> GrpcStream:
        channel = await self._connected()

        def received(message: bytes) -> None:
            on_batch(wire.read_watch(message))

        def ended(problem: RpcError) -> None:
            if self._another_may_help(problem):
                self._leave(channel, _GRACE_SECONDS)
            on_end(problem)

        # A member that was cut off from the others must end the watch, not keep silent.
        headers = (*self._token, ("hasleader", "true"))
        stream = channel.open_stream("/etcdserverpb.Watch/Watch", received, ended, headers)
        stream.send(request)
        return stream

    async def _read(self, path: str, request: bytes, seconds: float) -> bytes:
        """Retries at other endpoints until the deadline."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        attempts = 0
        while True:
            left = deadline - loop.time()
            try:
                # One member that does not answer must not use up the whole time.
                several = len(self._address.endpoints) > 1
                return await self._call(path, request, min(left, seconds / 2) if several else left)
            except RpcError as problem:
                attempts += 1
                waited = attempts % len(self._address.endpoints) == 0
                pause = _RETRY_SECONDS if waited else 0.0
                refused = problem.code not in ("Unavailable", "DeadlineExceeded", "Canceled")
                if refused or self._closed or loop.time() + pause >= deadline or attempts > 8:
                    raise
                await asyncio.sleep(pause)

    async def _write(self, path: str, request: bytes) -> bytes:
        return await self._call(path, request, _CALL_SECONDS)

    async def _call(self, path: str, request: bytes, seconds: float) -> bytes:
        channel = self._channel
        if channel is None or not channel.usable:
            loop = asyncio.get_running_loop()
            deadline = loop.time() + seconds
            try:
                async with asyncio.timeout_at(deadline):
                    channel = await self._connected()
            except TimeoutError:
                raise RpcError("DeadlineExceeded", "context deadline exceeded") from None
            seconds = deadline - loop.time()
        for renewals_left in reversed(range(_TOKEN_RENEWALS + 1)):
            token = self._token
            try:
                return await channel.call(path, request, seconds, token)
            except RpcError as problem:
                if renewals_left and any(text in problem.description for text in _TOKEN_REFUSED):
                    await self._renew_token(channel, token)
                    continue
                if self._another_may_help(problem):
                    timed_out = problem.code == "DeadlineExceeded"
                    self._leave(channel, 0.0 if timed_out else _GRACE_SECONDS)
                raise
        raise AssertionError("the last attempt returns or raises")

    def _another_may_help(self, problem: RpcError) -> bool:
        return len(self._address.endpoints) > 1 and (
            problem.code == "DeadlineExceeded"
            or (
                problem.code == "Unavailable"
                and any(text in problem.description for text in _OTHER_MEMBER_MAY_HELP)
            )
        )

    def _leave(self, channel: GrpcChannel, grace: float) -> None:
        """The next call uses the next endpoint. Calls in progress have `grace` seconds left; then they
        fail as if the member itself had given up.
        """
        if channel is self._channel:
            self._channel = None
            self._endpoint += 1
            asyncio.get_running_loop().call_later(grace, channel.close, _TIMED_OUT)

    # ---- the connection ----

    async def _connected(self) -> GrpcChannel:
        channel = self._channel
        if channel is not None and channel.usable:
            return channel
        if self._closed:
            raise RpcError("Canceled", "grpc: the client connection is closing")
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._connect_ended)
        return await asyncio.shield(self._connecting)

    def _connect_ended(self, task: asyncio.Task[GrpcChannel]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # callers that still wait get it

    async def _connect(self) -> GrpcChannel:
        problem: RpcError | None = None
        if self._channel is not None:
            self._channel = None
            self._endpoint += 1
        for _ in self._address.endpoints:
            host, port = self._address.endpoints[self._endpoint % len(self._address.endpoints)]
            try:
                channel = await self._dial(host, port)
            except RpcError as failed:
                problem = problem or failed
                self._endpoint += 1
                continue
            if self._closed:
                channel.close()
                raise RpcError("Canceled", "grpc: the client connection is closing")
            self._channel = channel
            self._ping_later()
            return channel
        assert problem is not None
        try:
            raise problem
        finally:
            problem = None  # its traceback refers to this frame

    async def _dial(self, host: str, port: int) -> GrpcChannel:
        named = f"[{host}]" if ":" in host else host
        channel = GrpcChannel(f"{named}:{port}", "https" if self._tls else "http")
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(
                    lambda: channel,
                    host,
                    port,
                    ssl=self._tls,
                    server_hostname=host if self._tls else None,
                )
                await channel.greeted()
                if self._address.user:
                    await self._authenticate(channel)
        except OSError as problem:  # also TimeoutError
            channel.close()
            # As the resolver and the system say it: asyncio's own text has the address once more.
            number = 0 if isinstance(problem, socket.gaierror) else problem.errno
            why = (os.strerror(number) if number else problem.strerror or str(problem)).lower()
            why = "i/o timeout" if isinstance(problem, TimeoutError) else f"connect: {why}"
            raise RpcError(
                "Unavailable", f"transport: Error while dialing: dial tcp {named}:{port}: {why}"
            ) from problem
        except BaseException:
            channel.close()
            raise
        return channel

    async def _authenticate(self, channel: GrpcChannel) -> None:
        request = wire.authenticate_request(self._address.user, self._address.password)
        answer = await channel.call("/etcdserverpb.Auth/Authenticate", request, _CONNECT_SECONDS)
        self._token = (("token", wire.read_text_field(answer)),)

    async def _renew_token(
        self, channel: GrpcChannel, refused: tuple[tuple[str, str], ...]
    ) -> None:
        """Once for all calls that were refused with this token: etcd hashes the password for 0.1 s."""
        async with self._authenticating:
            if self._address.user and self._token is refused:
                await self._authenticate(channel)

    def _ping_later(self) -> None:
        if self._keepalive is not None:
            self._keepalive.cancel()
        self._keepalive = asyncio.get_running_loop().call_later(_KEEPALIVE_SECONDS, self._ping)

    def _ping(self) -> None:
        channel = self._channel
        if channel is not None and channel.usable and channel.ping():
            self._ping_later()

    async def close(self) -> None:
        self._closed = True
        if self._keepalive is not None:
            self._keepalive.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
            with contextlib.suppress(asyncio.CancelledError, RpcError):
                await self._connecting
        if self._channel is not None:
            self._channel.close()


def has_reliable_progress(version: str) -> bool:
    """Before 3.4.31 and 3.5.13, a progress notification could overtake events."""
    try:
        major, minor, patch = (int(part) for part in version.partition("-")[0].split("."))
    except ValueError:
        return False
    since = {4: 31, 5: 13}.get(minor, 0 if minor > 5 else 1 << 30)
    return major > 3 or (major == 3 and patch >= since)
