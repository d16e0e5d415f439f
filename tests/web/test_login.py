"""Login tokens work once and expire; sessions expire and end their streams."""

from __future__ import annotations

from transom.kit.clock import VirtualClock
from transom.web.login import IDLE_SECONDS, LOGIN_SECONDS, SESSION_SECONDS, Logins


def test_a_token_works_once() -> None:
    logins = Logins(VirtualClock(), "admin@cluster")
    token = logins.make_login_token()
    assert logins.log_in("") is None
    assert logins.log_in(token + "x") is None
    found = logins.log_in(token)
    assert found is not None
    cookie, session = found
    assert session.identity == "admin@cluster"
    assert logins.log_in(token) is None
    assert logins.find_session(cookie) is session
    assert logins.find_session("") is None


def test_a_token_expires() -> None:
    clock = VirtualClock()
    logins = Logins(clock, "")
    token = logins.make_login_token()
    clock.advance(LOGIN_SECONDS)
    assert logins.log_in(token) is None


def test_a_session_ends_when_idle_and_after_its_time() -> None:
    clock = VirtualClock()
    logins = Logins(clock, "")
    cookie, session = logins.log_in(logins.make_login_token()) or ("", None)
    clock.advance(IDLE_SECONDS - 1)
    assert logins.find_session(cookie) is session
    clock.advance(IDLE_SECONDS)
    assert logins.find_session(cookie) is None
    cookie, session = logins.log_in(logins.make_login_token()) or ("", None)
    assert session is not None
    for _ in range(int(SESSION_SECONDS / 600) - 1):
        clock.advance(600)
        assert logins.keep_alive(session)  # a page is open
    clock.advance(600)
    assert not logins.keep_alive(session)
    assert logins.find_session(cookie) is None


def test_streams_end_with_their_session() -> None:
    logins = Logins(VirtualClock(), "")
    cookie, session = logins.log_in(logins.make_login_token()) or ("", None)
    assert session is not None
    ended: list[str] = []
    session.on_end.append(lambda: ended.append("stream"))
    logins.log_out("other")
    assert ended == []
    logins.log_out(cookie)
    assert ended == ["stream"]
    assert logins.find_session(cookie) is None


def test_tokens_and_sessions_are_bounded() -> None:
    logins = Logins(VirtualClock(), "")
    first = logins.make_login_token()
    for _ in range(32):
        logins.make_login_token()
    assert logins.log_in(first) is None
    cookies = [(logins.log_in(logins.make_login_token()) or ("", None))[0] for _ in range(65)]
    assert logins.find_session(cookies[0]) is None
    assert all(logins.find_session(cookie) for cookie in cookies[1:])
