"""Bearer tokens that the server was started with (`--token-auth-file` of Kubernetes)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from transom.apiserver.authentication.chain import with_authenticated
from transom.apiserver.core.context import UserInfo


class StaticTokens:
    """Tokens are kept and compared as digests."""

    def __init__(self, tokens: Mapping[str, UserInfo]) -> None:
        self._users = {
            _digest(token): UserInfo(
                user.name, with_authenticated(user.groups), user.uid, user.extra
            )
            for token, user in tokens.items()
        }

    def __call__(self, token: str) -> UserInfo | None:
        if not self._users:
            return None
        given = _digest(token)
        for known, user in self._users.items():
            if hmac.compare_digest(known, given):
                return user
        return None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
