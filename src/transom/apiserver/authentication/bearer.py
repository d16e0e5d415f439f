"""Bearer tokens: finds the token of a request and calls the token authenticators in turn.

Each authenticator handles one kind of token; a TokenReview uses the same ones, for other audiences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from transom.apiserver.core.context import UserInfo
from transom.http.messages import HttpRequest
from transom.kit import jws
from transom.kit.named_tuple import NamedTuple
from transom.machinery import errors
from transom.machinery.field import aggregate_text

_SUBPROTOCOL = "base64url.bearer.authorization.k8s.io."
_INVALID = "invalid bearer token"
_EXTRA_SPACE = (
    "the provided Authorization header contains extra space before the bearer token, and is ignored"
)


class VerifiedToken(NamedTuple):
    """The user of a token, and the requested audiences for which it is valid."""

    user: UserInfo
    audiences: tuple[str, ...]
    warning: str = ""  # for the client
    annotations: Mapping[str, str] = {}  # of the audit event


class BadToken(Exception):
    """The token is of this kind, but invalid."""

    def __init__(self, text: str, annotations: Mapping[str, str] | None = None) -> None:
        """`annotations` are those of the audit event."""
        super().__init__(text)
        self.annotations = annotations or {}


class TokenVerification(NamedTuple):
    """What the authenticators found out about a token."""

    verified: VerifiedToken | None
    problem: str  # why there is none
    annotations: Mapping[str, str]


# (token, requested audiences) -> None if the token is not of this kind; raises BadToken.
TokenAuthenticator = Callable[[str, Sequence[str]], VerifiedToken | None]


class BearerTokens:
    def __init__(
        self,
        authenticators: Sequence[TokenAuthenticator],
        audiences: Sequence[str],
        *,
        warns_of_spaces: bool = False,
    ) -> None:
        """`audiences` are those of this server."""
        self.configure(authenticators)
        self._warns_of_spaces = warns_of_spaces
        self.audiences = tuple(audiences)

    def configure(self, authenticators: Sequence[TokenAuthenticator]) -> None:
        self._authenticators = tuple(authenticators)

    def __call__(self, request: HttpRequest) -> UserInfo | None:
        token = bearer(request)
        if not token:
            if self._warns_of_spaces and _has_extra_space(request):
                request.warn(_EXTRA_SPACE)
            return None
        verified, _, annotations = self.verify(token, self.audiences)
        if annotations:
            request.audit_annotations = annotations
        if verified is None:
            raise errors.unauthorized()
        if verified.warning:
            request.warn(verified.warning)
        return verified.user

    def verify(self, token: str, audiences: Sequence[str]) -> TokenVerification:
        problems: list[str] = [_INVALID]
        annotations: dict[str, str] = {}
        for authenticate in self._authenticators:
            try:
                verified = authenticate(token, audiences)
            except BadToken as problem:
                problems.append(str(problem))
                annotations.update(problem.annotations)
                continue
            if verified is not None:
                annotations.update(verified.annotations)
                return TokenVerification(verified, "", annotations)
        return TokenVerification(None, aggregate_text(problems), annotations)


def for_any_audience(
    own: Sequence[str], authenticate: Callable[[str], UserInfo | None]
) -> Callable[[str, Sequence[str]], VerifiedToken | None]:
    """Adapts an authenticator whose tokens have no audience: they are valid for this server
    only.
    """

    def with_audiences(token: str, audiences: Sequence[str]) -> VerifiedToken | None:
        meant = tuple(a for a in audiences if a in own)
        user = authenticate(token) if meant else None
        return None if user is None else VerifiedToken(user, meant)

    return with_audiences


def bearer(request: HttpRequest) -> str:
    """The bearer token of a request, or ""."""
    if b"authorization" in request.headers:
        parts = request.header(b"authorization").strip().split(" ")
        return parts[1] if len(parts) > 1 and parts[0].lower() == "bearer" else ""
    if (
        b"sec-websocket-protocol" in request.headers
        and request.header(b"upgrade").lower() == "websocket"
    ):
        return _from_subprotocols(request)
    return ""


def _has_extra_space(request: HttpRequest) -> bool:
    parts = request.header(b"authorization").strip().split(" ", 2)
    return len(parts) == 3 and parts[0].lower() == "bearer" and not parts[1]


def _from_subprotocols(request: HttpRequest) -> str:
    """Browsers cannot set headers on a WebSocket, so the token may be among the subprotocols; it is
    removed from them.
    """
    offered = [p.strip() for p in request.header(b"sec-websocket-protocol").split(",")]
    tokens = [p[len(_SUBPROTOCOL) :] for p in offered if p.startswith(_SUBPROTOCOL)]
    if not tokens:
        return ""
    others = [p for p in offered if not p.startswith(_SUBPROTOCOL)]
    try:
        token = jws.base64url_decode(tokens[0]).decode()
    except ValueError:
        raise errors.unauthorized() from None
    if len(tokens) > 1 or not others:
        raise errors.unauthorized()
    request.headers[b"sec-websocket-protocol"] = ", ".join(others).encode("latin-1")
    return token
