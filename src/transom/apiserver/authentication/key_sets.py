"""The public keys of token issuers, from their discovery documents.

Keys are fetched when a token needs them, over HTTPS, with a timeout and a limit on the size. They
are fetched again when a token names a key that is not known, at most every few seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from transom.http import goerrors
from transom.http.outgoing import CallError, CallTarget
from transom.http.pool import ConnectionPool
from transom.kit.clock import Clock
from transom.kit.http_message import encode_request
from transom.kit.jwk import JsonWebKey, read_jwk

log = logging.getLogger("transom.apiserver")

_WELL_KNOWN: Final = "/.well-known/openid-configuration"
_SECONDS: Final = 10.0  # for one document
_MOST_BYTES: Final = 1 << 20
_MOST_KEYS: Final = 1000
_RETRY_SECONDS: Final = 10.0  # after a failure, as Kubernetes' poll
_REFRESH_SECONDS: Final = 5.0  # between two fetches for keys that are not known


class KeySet:
    """The keys of one issuer."""

    def __init__(
        self, issuer: str, discovery_url: str, ca: str, clock: Clock, pool: ConnectionPool
    ) -> None:
        self.issuer = issuer
        self.problem = f'oidc: authenticator for issuer "{issuer}" is not initialized'
        self._discovery = discovery_url or issuer.removesuffix("/") + _WELL_KNOWN
        self._ca = ca.encode()
        self._clock = clock
        self._pool = pool
        self._keys: tuple[JsonWebKey, ...] | None = None
        self._jwks_url = ""
        self._next = float("-inf")  # when keys may be fetched again
        self._fetching: asyncio.Task[None] | None = None

    @property
    def initialized(self) -> bool:
        return self._keys is not None

    def find(self, key_id: str) -> Sequence[JsonWebKey]:
        """The keys that may have signed a token."""
        return [key for key in self._keys or () if not key_id or key.id == key_id]

    @property
    def may_fetch(self) -> bool:
        return self._fetching is not None or self._clock.monotonic() >= self._next

    async def fetch(self) -> bool:
        """Fetches the keys; requests at the same time share one call. Does not raise."""
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())
        await asyncio.shield(self._fetching)
        return True

    async def _fetch(self) -> None:
        wait = _RETRY_SECONDS
        try:
            async with asyncio.timeout(_SECONDS):
                await self._load()
            self.problem = ""
            wait = _REFRESH_SECONDS
        except TimeoutError:
            self.problem = f'Get "{self._discovery}": {goerrors.DEADLINE}'
        except (CallError, ValueError) as problem:
            self.problem = str(problem)
        finally:
            self._next = self._clock.monotonic() + wait
            self._fetching = None
        if self.problem:
            log.error("oidc authenticator: fetching keys of %s: %s", self.issuer, self.problem)

    async def _load(self) -> None:
        if not self._jwks_url:
            found = await self._get(self._discovery)
            if found.get("issuer") != self.issuer:
                raise ValueError(
                    "oidc: issuer did not match the issuer returned by provider, expected "
                    f'"{self.issuer}" got "{found.get("issuer", "")}"'
                )
            url = found.get("jwks_uri")
            if not isinstance(url, str) or not url:
                raise ValueError("provider did not return JWKS URL")
            self._jwks_url = url
        listed = (await self._get(self._jwks_url)).get("keys")
        if not isinstance(listed, list) or len(listed) > _MOST_KEYS:
            raise ValueError("oidc: failed to decode keys")
        self._keys = tuple(key for key in map(_usable_key, listed) if key is not None)

    async def _get(self, url: str) -> dict[str, Any]:
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f'Get "{url}": unsupported protocol scheme "{parts.scheme}"')
        target = CallTarget(parts.hostname, parts.port or 443, parts.hostname, self._ca)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = [("Host", parts.netloc), ("Accept", "application/json")]
        try:
            connection, head = await self._pool.begin(
                target, encode_request("GET", path, headers, b"")
            )
        except CallError as problem:
            raise CallError(f'Get "{url}": {problem}') from None
        try:
            body = await connection.read_all(_MOST_BYTES)
        except BaseException:
            connection.abort()
            raise
        self._pool.give_back(connection)
        if head.status != 200:
            raise ValueError(f"{head.status}: {body[:200].decode(errors='replace')}")
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError as problem:
            raise ValueError(f"oidc: failed to decode provider document: {problem}") from None
        if not isinstance(value, dict):
            raise ValueError("oidc: failed to decode provider document: not an object")
        return value


def _usable_key(value: Any) -> JsonWebKey | None:
    try:
        return read_jwk(value)
    except ValueError as problem:
        log.warning("oidc authenticator: a key is ignored: %s", problem)
        return None
