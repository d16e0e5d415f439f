"""Client certificates: the common name is the user, the organizations are the groups. TLS has verified the chain."""

from __future__ import annotations

from transom.apiserver.authentication.chain import with_authenticated
from transom.apiserver.context import User
from transom.apiserver.http.messages import Request

_KNOWN: dict[tuple[str, tuple[str, ...]], User] = {}
_KNOWN_LIMIT = 10_000


def authenticate(request: Request) -> User | None:
    peer = request.peer
    if peer is None or not peer.cn:
        return None
    key = (peer.cn, tuple(peer.organizations))
    user = _KNOWN.get(key)
    if user is None:
        if len(_KNOWN) >= _KNOWN_LIMIT:
            _KNOWN.clear()
        user = _KNOWN[key] = User(peer.cn, with_authenticated(peer.organizations))
    return user
