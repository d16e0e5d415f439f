"""A registry client for one image: the v2 protocol over Transom's own HTTP client.

TLS everywhere, except for registries on this machine and those configured as insecure. Credentials
are sent only to the registry and to the authorization server that it names. The texts are
containerd's.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import ipaddress
import random
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from typing import Final, Literal, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

import orjson

from transom.http.outgoing import CallError, CallTarget, Connect, OutgoingConnection, ResponseHead
from transom.http.pool import ConnectionPool
from transom.kit.clock import Clock
from transom.kit.http_message import encode_request
from transom.kit.lazy_dataclass import dataclass
from transom.runtime.api import AuthConfig
from transom.runtime.images import challenges, model
from transom.runtime.images.challenges import AuthChallenge
from transom.runtime.images.model import ContentDescriptor, ImageError, ImageNotFound
from transom.runtime.images.reference import HUB, ImageReference

_HUB_HOST: Final = "registry-1.docker.io"
_ACCEPT: Final = ", ".join(
    (model.DOCKER_MANIFEST, model.DOCKER_LIST, model.OCI_MANIFEST, model.OCI_INDEX, "*/*")
)
_MOST_TRIES: Final = 6
_MOST_TROUBLES: Final = 3  # server errors
_MOST_REDIRECTS: Final = 10
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_HEAD_SECONDS: Final = 60.0
_SILENT_SECONDS: Final = 60.0  # between two chunks of a body
_LONGEST_WAIT: Final = 30.0  # however long a registry asks to wait
_TOKEN_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Registries:
    """The machine's registry configuration, by `HOST` or `HOST:PORT` as in image names."""

    insecure: frozenset[str] = frozenset()  # unverified TLS, or plain HTTP
    # tried before the registry itself
    mirrors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # PEM, replacing the machine's own certificates
    authorities: Mapping[str, bytes] = field(default_factory=dict)
    connect: Connect | None = None  # opens sockets, where plain TCP cannot reach them


class RegistryEndpoint(NamedTuple):
    """Where requests go."""

    scheme: str
    authority: str  # as in URLs
    target: CallTarget

    def url(self, path: str) -> str:
        return f"{self.scheme}://{self.authority}{path}"


class RegistryClient:
    def __init__(
        self,
        registries: Registries,
        reference: ImageReference,
        auth: AuthConfig | None,
        clock: Clock,
    ) -> None:
        self._settings = registries
        self._reference = reference
        self._auth = auth
        self._clock = clock
        self._pool = ConnectionPool(registries.connect)
        self._random = random.Random()
        own = reference.registry
        self._own = _HUB_HOST if own == HUB else own
        self._hosts = (*registries.mirrors.get(own, ()), self._own)
        self._working: dict[str, RegistryEndpoint] = {}  # how a host is reached
        self._challenges: dict[str, AuthChallenge] = {}  # what a host has requested
        self._tokens: dict[tuple[str, str], str] = {}

    def close(self) -> None:
        self._pool.close()

    # ---- operations for a pull ----

    async def resolve(self) -> ContentDescriptor:
        """The descriptor that the name resolves to."""
        reference = self._reference
        what = reference.digest or reference.tag
        first: ImageError | None = None
        for kind in ("manifests", "blobs") if reference.digest else ("manifests",):
            for host in self._hosts:
                try:
                    found = await self._resolve(host, kind, what)
                except ImageError as problem:
                    first = first or problem
                    if isinstance(problem, _Final):
                        raise ImageError(
                            f'failed to resolve reference "{reference}": {problem}'
                        ) from problem
                    continue
                if found is not None:
                    return found
        if first is not None:
            raise ImageError(
                f'failed to resolve reference "{reference}": {first}', first.code
            ) from first
        raise ImageNotFound(f'failed to resolve reference "{reference}": {reference}')

    async def _resolve(self, host: str, kind: str, what: str) -> ContentDescriptor | None:
        path = self._path(kind, what)
        async with self._requested("HEAD", host, path) as (_, head):
            if head.status == 404:
                return None
            if head.status > 299:
                raise _Final(f"unexpected status code [{kind} {what}]: {_status(head.status)}")
            digest, size = head.header(b"docker-content-digest"), head.length
            media = _media_type(head)
        if self._reference.digest:
            digest = self._reference.digest
        elif digest and not model.is_digest(digest):
            raise _Final(f'"{digest[:200]}" in header not a valid digest')
        if not digest or size is None:
            async with self._requested("GET", host, path) as (connection, head):
                if head.status > 299:
                    raise _Final(f"unexpected status code [{kind} {what}]: {_status(head.status)}")
                body = await _body(connection, model.LONGEST_DOCUMENT)
            found, media, size = model.digest_of(body), _media_type(head), len(body)
            if digest and digest != found:
                raise _Final(f"unexpected digest {found} of the manifest, expected {digest}")
            digest = found
        if size > model.LONGEST_DOCUMENT:
            raise ImageNotFound(f"rejecting {size} byte manifest for {self._reference}")
        return ContentDescriptor(media, digest, size)

    async def document(self, blob: ContentDescriptor, kind: Literal["manifests", "blobs"]) -> bytes:
        """A manifest or configuration, verified."""
        if blob.size > model.LONGEST_DOCUMENT:
            raise ImageError(f"{blob.digest} is larger than {model.LONGEST_DOCUMENT} bytes")
        async with self._opened(blob, kind, 0) as (connection, _):
            data = await _body(connection, blob.size)
        if model.digest_of(data) != blob.digest or len(data) != blob.size:
            raise ImageError(
                (
                    f"unexpected commit digest {model.digest_of(data)}, expected {blob.digest}: "
                    "failed precondition"
                ),
                "FailedPrecondition",
            )
        return data

    @asynccontextmanager
    async def blob(
        self, blob: ContentDescriptor, offset: int
    ) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        """The offset at which the bytes begin, `offset` if the registry supports ranges, and the
        bytes. They may end early, when the connection is lost.
        """
        async with self._opened(blob, "blobs", offset) as (connection, head):
            start = 0
            if offset and head.status == 206:
                content_range = head.header(b"content-range")
                if not content_range.startswith(f"bytes {offset}-"):
                    raise ImageError(f"unhandled content range in response: {content_range[:200]}")
                start = offset
            yield start, _pieces(connection)

    @asynccontextmanager
    async def _opened(
        self, blob: ContentDescriptor, kind: str, offset: int
    ) -> AsyncIterator[tuple[OutgoingConnection, ResponseHead]]:
        """A successful GET from the first host that responds."""
        path = self._path(kind, blob.digest)
        headers = {"Accept": f"{blob.media_type}, */*" if blob.media_type else "*/*"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        first: ImageError | None = None
        for host in self._hosts:
            stack = contextlib.AsyncExitStack()
            try:
                connection, head = await stack.enter_async_context(
                    self._requested("GET", host, path, headers)
                )
                problem = (
                    None if head.status < 300 else await self._refusal(host, path, connection, head)
                )
            except ImageError as failed:
                problem = failed
            except BaseException:
                await stack.aclose()
                raise
            if problem is not None:
                await stack.aclose()
                first = first or problem
                continue
            async with stack:
                yield connection, head
            return
        assert first is not None
        if isinstance(first, ImageNotFound) and kind == "blobs":
            first = ImageNotFound(
                f"could not fetch content descriptor {blob.digest} ({blob.media_type}) from remote"
            )
        first.args = (f"failed to copy: httpReadSeeker: failed open: {first}",)
        raise first

    async def _refusal(
        self, host: str, path: str, connection: OutgoingConnection, head: ResponseHead
    ) -> ImageError:
        url = self._working[host].url(path)
        if head.status == 404:
            return ImageNotFound(f"content at {url} not found")
        if head.status == 416:
            return BadRange("the registry has less than was asked for")
        text = f"unexpected status code {url}: {_status(head.status)}"
        with contextlib.suppress(CallError, ImageError, ValueError):
            errors = orjson.loads(await _body(connection, _TOKEN_BYTES)).get("errors") or []
            server_messages = [
                f"{e.get('code', '').lower()}: {e.get('message', '')}" for e in errors
            ]
            if server_messages:
                text += f" - Server message: {'; '.join(server_messages)[:500]}"
        return (
            RegistryTemporaryError(text)
            if head.status >= 500 or head.status in (408, 429)
            else ImageError(text)
        )

    def _path(self, kind: str, what: str) -> str:
        return f"/v2/{self._reference.path}/{kind}/{quote(what, safe=':')}"

    # ---- requests ----

    @asynccontextmanager
    async def _requested(
        self, method: str, host: str, path: str, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[tuple[OutgoingConnection, ResponseHead]]:
        """A request with the authorization that the registry requires. The connection is returned
        to the pool, or closed if the body was not read to its end.
        """
        connection, head = await self._ask(method, host, path, headers or {"Accept": _ACCEPT})
        try:
            yield connection, head
        finally:
            if connection.usable:
                self._pool.give_back(connection)
            else:
                connection.abort()

    async def _ask(
        self, method: str, host: str, path: str, headers: Mapping[str, str]
    ) -> tuple[OutgoingConnection, ResponseHead]:
        refused = 0
        for attempt in range(1, _MOST_TRIES + 1):
            authorization = await self._authorization(host)
            connection, head = await self._send(method, host, path, headers, authorization)
            if attempt == _MOST_TRIES:
                break
            if head.status == 401:
                refused += 1
                if not self._challenged(host, head, refused, bool(authorization)):
                    break
            elif head.status == 405 and method == "HEAD" and "/manifests/" in path:
                method = "GET"  # a registry without HEAD support
            elif head.status in (408, 429) or (
                head.status in (500, 502, 503, 504) and attempt < _MOST_TROUBLES
            ):
                await self._clock.sleep(self._pause(head, attempt))
            else:
                break
            connection.abort()
        return connection, head

    def _pause(self, head: ResponseHead, attempt: int) -> float:
        retry_after = head.header(b"retry-after")
        wait = (
            float(retry_after)
            if retry_after.isdigit()
            else 0.1 * 2**attempt * (1 + self._random.random())
        )
        return min(wait, _LONGEST_WAIT)

    async def _send(
        self, method: str, host: str, path: str, headers: Mapping[str, str], authorization: str
    ) -> tuple[OutgoingConnection, ResponseHead]:
        """To a registry, by the first scheme that works."""
        failure: CallError | None = None
        known = self._working.get(host)
        for place in (known,) if known else self._places(host):
            sent = dict(headers)
            if authorization:
                sent["Authorization"] = authorization
            try:
                connection, head = await self._follow(method, place, path, sent)
            except CallError as problem:
                failure = failure or problem
                continue
            if (
                not known
                and place.scheme == "http"
                and head.status == 400
                and len(self._places(host)) > 1
            ):
                connection.abort()  # how a server reports that it expects TLS
                failure = failure or CallError("http: server gave HTTPS response to HTTP client")
                continue
            self._working[host] = place
            return connection, head
        assert failure is not None
        url = (known or self._places(host)[0]).url(path)
        raise RegistryUnreachable(f'failed to do request: {method.title()} "{url}": {failure}')

    async def _follow(
        self, method: str, place: RegistryEndpoint, path: str, headers: dict[str, str]
    ) -> tuple[OutgoingConnection, ResponseHead]:
        """Follows redirects: a registry's blobs are often on another server, which must not see its
        credentials.
        """
        registry = place.authority
        for _ in range(_MOST_REDIRECTS):
            connection, head = await self._once(method, place, path, headers)
            location = head.header(b"location")
            if head.status not in _REDIRECTS or not location:
                return connection, head
            connection.abort()
            url = urljoin(place.url(path), location)
            other = self._place_of(url)
            if (
                place.scheme == "https"
                and other.scheme == "http"
                and not self._is_insecure(other.authority)
            ):
                raise CallError(f"refused to follow a redirection from https to {url[:200]}")
            if other.authority != place.authority or other.scheme != place.scheme:
                headers = {
                    name: value for name, value in headers.items() if name != "Authorization"
                }
            parts = urlsplit(url)
            place = await self._reachable(other, registry)
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        raise CallError(f"stopped after {_MOST_REDIRECTS} redirects")

    async def _reachable(self, place: RegistryEndpoint, registry: str) -> RegistryEndpoint:
        """The target of a registry's redirect, dialed by the addresses that were checked: a remote
        registry must not make this machine call its own services, or its cloud's metadata service.
        """
        if place.authority == registry or place.authority in self._settings.insecure:
            return place
        if is_loopback_host(_split(registry)[0]):
            return place
        target = place.target
        addresses = [target.host]
        if _address(target.host) is None:
            if self._settings.connect is not None:
                return place  # names of the cluster's network
            try:
                found = await asyncio.get_running_loop().getaddrinfo(
                    target.host, target.port, type=socket.SOCK_STREAM
                )
            except OSError as problem:
                raise CallError(f"lookup {target.host}: {problem.strerror}") from problem
            addresses = [str(row[4][0]) for row in found]
        for address in addresses:
            if not is_global_unicast_host(address):
                raise CallError(
                    f"refused to follow {registry} to {target.host}: {address} is not a global "
                    "unicast address"
                )
        return place._replace(target=target._replace(addresses=tuple(addresses)))

    async def _once(
        self,
        method: str,
        place: RegistryEndpoint,
        path: str,
        headers: Mapping[str, str],
        body: bytes = b"",
    ) -> tuple[OutgoingConnection, ResponseHead]:
        fields = [("Host", place.authority), ("User-Agent", "transom"), *headers.items()]
        if any("\r" in text or "\n" in text for field in ((path,), *fields) for text in field):
            raise CallError("net/http: invalid header field value")
        encoded = [(name, value.encode("latin-1", "replace")) for name, value in fields]
        request = encode_request(method, path.encode("latin-1", "replace"), encoded, body)
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                return await self._pool.begin(place.target, request, bodiless=method == "HEAD")
        except TimeoutError as problem:
            raise CallError("net/http: timeout awaiting response headers") from problem

    # ---- hosts ----

    def _is_insecure(self, authority: str) -> bool:
        return authority in self._settings.insecure or is_loopback_host(_split(authority)[0])

    def _places(self, authority: str) -> list[RegistryEndpoint]:
        """Ways to reach a registry, likeliest first."""
        secure, plain = self._place("https", authority), self._place("http", authority)
        if is_loopback_host(_split(authority)[0]):
            return [plain, secure]
        return [secure, plain] if authority in self._settings.insecure else [secure]

    def _place(self, scheme: str, authority: str) -> RegistryEndpoint:
        host, port = _split(authority)
        tls = scheme == "https"
        trusted = self._settings.authorities.get(authority, b"")
        unproven = not trusted and self._is_insecure(authority)
        target = CallTarget(host, port or (443 if tls else 80), host, trusted, unproven, tls=tls)
        return RegistryEndpoint(scheme, authority, target)

    def _place_of(self, url: str) -> RegistryEndpoint:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError as problem:
            raise CallError(f'parse "{url[:200]}": {problem}') from problem
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.username is not None
        ):
            raise CallError(f'unsupported protocol scheme or no host in request URL "{url[:200]}"')
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return self._place(parts.scheme, f"{host}:{port}" if port else host)

    # ---- authorization ----

    def _credentials(self, host: str) -> AuthConfig | None:
        """For a host; mirrors get none."""
        auth = self._auth
        if auth is None or host != self._own or not (auth.username or auth.password):
            return None
        if auth.server:
            server = auth.server if "://" in auth.server else f"https://{auth.server}"
            named = urlsplit(server).netloc
            if named not in (host, self._reference.registry) and not (
                host == _HUB_HOST and named.endswith("docker.io")
            ):
                return None
        return auth

    def _challenged(self, host: str, head: ResponseHead, refused: int, authorized: bool) -> bool:
        """Whether to retry after a 401."""
        headers = [
            value.decode("latin-1")
            for name, value in head.headers
            if name.lower() == b"www-authenticate"
        ]
        for challenge in (
            found for header in headers for found in challenges.parse_challenges(header)
        ):
            if challenge.scheme == "bearer":
                if refused > 1 and challenge.parameters.get("error"):
                    raise ImageError(
                        "pull access denied, repository does not exist or may require "
                        "authorization: server message: "
                        f"{challenge.parameters['error']}: authorization failed"
                    )
                for key in [key for key in self._tokens if key[0] == host]:
                    del self._tokens[key]  # invalid or expired
                self._challenges[host] = challenge
                return True
            if challenge.scheme == "basic" and self._credentials(host) is not None:
                self._challenges[host] = challenge
                return not authorized
        return False

    async def _authorization(self, host: str) -> str:
        challenge = self._challenges.get(host)
        if challenge is None:
            return ""
        auth = self._credentials(host)
        if challenge.scheme == "basic":
            return challenges.basic_credentials(auth) if auth is not None else ""
        key = (host, challenge.parameters.get("scope", ""))
        if key not in self._tokens:
            kind = "oauth" if auth is not None and auth.password else "anonymous"
            try:
                self._tokens[key] = await self._fetch_token(challenge, auth, host)
            except (CallError, ValueError) as problem:
                raise ImageError(
                    f"failed to authorize: failed to fetch {kind} token: {problem}"
                ) from problem
        return f"Bearer {self._tokens[key]}"

    async def _fetch_token(
        self, challenge: AuthChallenge, auth: AuthConfig | None, registry: str
    ) -> str:
        if not challenge.parameters.get("realm"):
            raise ValueError("no realm specified for token auth challenge")
        scope = f"repository:{self._reference.path}:pull"
        status = 0
        for wanted in challenges.token_requests(challenge, [scope], auth):
            place = await self._reachable(self._place_of(wanted.url), registry)
            if (
                auth is not None
                and place.scheme != "https"
                and not self._is_insecure(place.authority)
            ):
                raise ValueError(f"refused to send credentials to {wanted.url[:200]} without TLS")
            parts = urlsplit(wanted.url)
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection, head = await self._once(
                wanted.method, place, path, dict(wanted.headers), wanted.body
            )
            try:
                if head.status < 400:
                    return challenges.token_from_response(await _body(connection, _TOKEN_BYTES))
            finally:
                connection.abort()
            status = head.status
            if wanted.method == "POST" and status not in (401, 404, 405):
                break
        raise ValueError(f"unexpected status: {_status(status)}")


class _Final(ImageError):
    """A failure that another host would not avoid."""


class RegistryUnreachable(ImageError):
    """No response. A retry may help."""


class RegistryTemporaryError(ImageError):
    """The registry has a temporary error. A retry may help."""


class BadRange(ImageError):
    """The requested range does not exist."""


def is_loopback_host(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def is_global_unicast_host(host: str) -> bool:
    """Like Go's IsGlobalUnicast: includes private ranges, excludes loopback, link-local, multicast
    and the unspecified address.
    """
    address = _address(host)
    return address is not None and not (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or str(address) == "255.255.255.255"
    )


def _split(authority: str) -> tuple[str, int]:
    host, colon, port = authority.rpartition(":")
    if not colon or not port.isdigit():
        return authority.strip("[]"), 0
    return host.strip("[]"), int(port)


def _status(number: int) -> str:
    try:
        return f"{number} {http.HTTPStatus(number).phrase}"
    except ValueError:
        return str(number)


def _media_type(head: ResponseHead) -> str:
    return head.header(b"content-type").partition(";")[0].strip()


async def _pieces(connection: OutgoingConnection) -> AsyncIterator[bytes]:
    while True:
        try:
            async with asyncio.timeout(_SILENT_SECONDS):
                data = await connection.read()
        except (CallError, TimeoutError):
            connection.abort()
            return
        if not data:
            return
        yield data


async def _body(connection: OutgoingConnection, limit: int) -> bytes:
    try:
        async with asyncio.timeout(_SILENT_SECONDS):
            return await connection.read_all(limit)
    except CallError as problem:
        raise RegistryUnreachable(f"failed to read body: {problem}") from problem
    except TimeoutError as problem:
        raise RegistryUnreachable("failed to read body: i/o timeout") from problem
