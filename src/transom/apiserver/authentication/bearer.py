"""Bearer tokens: where they stand in a request, and the authenticators that are asked about them in turn.

Each authenticator knows one kind of token; a TokenReview asks the same ones, for other audiences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from transom.apiserver.context import User
from transom.http.messages import Request
from transom.kit import jws
from transom.machinery import errors
from transom.machinery.field import aggregate_text

_SUBPROTOCOL = "base64url.bearer.authorization.k8s.io."
_INVALID = "invalid bearer token"


class Verified(NamedTuple):
    """Who a token speaks for, and for which of the audiences that were asked for it is meant."""

    user: User
    audiences: tuple[str, ...]


class BadToken(Exception):
    """The token is of this kind, but does not hold."""


# (token, audiences asked for) -> None when the token is not of this kind; BadToken.
TokenAuthenticator = Callable[[str, Sequence[str]], Verified | None]


class BearerTokens:
    def __init__(self, authenticators: Sequence[TokenAuthenticator], audiences: Sequence[str]) -> None:
        """`audiences` are those of this server."""
        self._authenticators = tuple(authenticators)
        self.audiences = tuple(audiences)

    def __call__(self, request: Request) -> User | None:
        token = bearer(request)
        if not token:
            return None
        verified, _ = self.verify(token, self.audiences)
        if verified is None:
            raise errors.unauthorized()
        return verified.user

    def verify(self, token: str, audiences: Sequence[str]) -> tuple[Verified | None, str]:
        """Who it is, or why not."""
        problems = [_INVALID]
        for authenticate in self._authenticators:
            try:
                verified = authenticate(token, audiences)
            except BadToken as problem:
                problems.append(str(problem))
                continue
            if verified is not None:
                return verified, ""
        return None, aggregate_text(problems)


def for_any_audience(
    own: Sequence[str], authenticate: Callable[[str], User | None]
) -> Callable[[str, Sequence[str]], Verified | None]:
    """Makes an authenticator of one whose tokens name no audience: they are meant for this server only."""

    def with_audiences(token: str, audiences: Sequence[str]) -> Verified | None:
        meant = tuple(a for a in audiences if a in own)
        user = authenticate(token) if meant else None
        return None if user is None else Verified(user, meant)

    return with_audiences


def bearer(request: Request) -> str:
    """The bearer token of a request, or ""."""
    if b"authorization" in request.headers:
        parts = request.header(b"authorization").strip().split(" ")
        return parts[1] if len(parts) > 1 and parts[0].lower() == "bearer" else ""
    if b"sec-websocket-protocol" in request.headers and request.header(b"upgrade").lower() == "websocket":
        return _from_subprotocols(request)
    return ""


def _from_subprotocols(request: Request) -> str:
    """Browsers cannot set headers on a WebSocket: the token may stand among the protocols, and is taken from them."""
    offered = [p.strip() for p in request.header(b"sec-websocket-protocol").split(",")]
    tokens = [p[len(_SUBPROTOCOL) :] for p in offered if p.startswith(_SUBPROTOCOL)]
    if not tokens:
        return ""
    others = [p for p in offered if not p.startswith(_SUBPROTOCOL)]
    try:
        token = jws.decode(tokens[0]).decode()
    except ValueError:
        raise errors.unauthorized() from None
    if len(tokens) > 1 or not others:
        raise errors.unauthorized()
    request.headers[b"sec-websocket-protocol"] = ", ".join(others).encode("latin-1")
    return token
