"""Logins and sessions of the console: one-time login tokens, sessions that expire, CSRF tokens.

All times come from the clock that is passed in. Knows nothing of HTTP.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import field
from typing import Final

from transom.kit.clock import Clock
from transom.kit.lazy_dataclass import dataclass

LOGIN_SECONDS: Final = 600.0  # a login link is valid for this long
SESSION_SECONDS: Final = 12 * 3600.0
IDLE_SECONDS: Final = 3600.0  # without a request or an open page
_MOST_TOKENS: Final = 32
_MOST_SESSIONS: Final = 64


@dataclass(slots=True, eq=False)
class Session:
    """One logged-in browser. `identity` names the kubeconfig identity that it acts as."""

    identity: str
    csrf: str
    ends: float  # by the monotonic clock
    seen: float
    on_end: list[Callable[[], object]] = field(default_factory=list)  # open streams

    def accepts_csrf(self, token: str) -> bool:
        return hmac.compare_digest(self.csrf.encode(), token.encode())


class Logins:
    """Login tokens that work once, and the sessions that they opened. Both are kept as hashes."""

    def __init__(self, clock: Clock, identity: str) -> None:
        self._clock = clock
        self._identity = identity
        self._tokens: dict[bytes, float] = {}  # hash -> end
        self._sessions: dict[bytes, Session] = {}

    def make_login_token(self) -> str:
        """A new token; the oldest one becomes invalid if there are too many."""
        self._drop_expired()
        while len(self._tokens) >= _MOST_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        token = secrets.token_urlsafe(32)
        self._tokens[_hash(token)] = self._clock.monotonic() + LOGIN_SECONDS
        return token

    def log_in(self, token: str) -> tuple[str, Session] | None:
        """Uses a login token: the value of the session cookie and the session, or None."""
        self._drop_expired()
        if self._tokens.pop(_hash(token), None) is None:
            return None
        while len(self._sessions) >= _MOST_SESSIONS:
            self._end(next(iter(self._sessions)))
        now = self._clock.monotonic()
        cookie = secrets.token_urlsafe(32)
        session = Session(self._identity, secrets.token_urlsafe(32), now + SESSION_SECONDS, now)
        self._sessions[_hash(cookie)] = session
        return cookie, session

    def find_session(self, cookie: str) -> Session | None:
        """The session of a cookie; this counts as activity."""
        self._drop_expired()
        session = self._sessions.get(_hash(cookie)) if cookie else None
        if session is not None:
            session.seen = self._clock.monotonic()
        return session

    def keep_alive(self, session: Session) -> bool:
        """An open page is activity too. False if the session has ended."""
        self._drop_expired()
        if session not in self._sessions.values():
            return False
        session.seen = self._clock.monotonic()
        return True

    def log_out(self, cookie: str) -> None:
        if _hash(cookie) in self._sessions:
            self._end(_hash(cookie))

    def end_all(self) -> None:
        for key in list(self._sessions):
            self._end(key)

    def _drop_expired(self) -> None:
        now = self._clock.monotonic()
        for token, end in list(self._tokens.items()):
            if end <= now:
                del self._tokens[token]
        for key, session in list(self._sessions.items()):
            if session.ends <= now or session.seen + IDLE_SECONDS <= now:
                self._end(key)

    def _end(self, key: bytes) -> None:
        session = self._sessions.pop(key)
        for end in list(session.on_end):
            end()


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
