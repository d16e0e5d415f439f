"""Bearer tokens that the server was started with (`--token-auth-file` of Kubernetes)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from transom.apiserver.context import User
from transom.apiserver.http.messages import Request


def bearer(request: Request) -> str:
    """The bearer token of a request, or ""."""
    scheme, _, token = request.header(b"authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


class StaticTokens:
    """Tokens are kept and compared as digests."""

    def __init__(self, tokens: Mapping[str, User]) -> None:
        self._users = {_digest(token): user for token, user in tokens.items()}

    def __call__(self, request: Request) -> User | None:
        token = bearer(request)
        if not token:
            return None
        given = _digest(token)
        for known, user in self._users.items():
            if hmac.compare_digest(known, given):
                return user
        return None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
