"""The request that an aggregated server receives: as authorized here, without the client's own
identity headers.
"""

from __future__ import annotations

import pytest

from transom.apiserver.aggregation.proxy import outgoing_request
from transom.apiserver.core.context import UserInfo
from transom.http.messages import HttpRequest, decode_path
from transom.http.outgoing import CallTarget

TARGET = CallTarget("10.1.1.1", 443, "s.n.svc")


def sent(target: bytes, headers: dict[bytes, bytes] | None = None) -> list[bytes]:
    path = decode_path(target)
    assert path is not None
    request = HttpRequest("GET", target, path, headers or {}, remote="127.0.0.1")
    return outgoing_request(request, UserInfo("ann", ("dev",)), TARGET, False).split(b"\r\n")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"/apis/g/v1/namespaces/a/things/b?x=%2F", b"/apis/g/v1/namespaces/a/things/b?x=%2F"),
        (b"/apis/g/v1/namespaces/a%2Fthings%2Fb", b"/apis/g/v1/namespaces/a/things/b"),
        (
            b"/apis/g/v1/things/a%3Fb%23c%20d%0d%0aHost:%20x",
            b"/apis/g/v1/things/a%3Fb%23c%20d%0D%0AHost:%20x",
        ),
        (b"https://elsewhere/apis/g/v1/things", b"/apis/g/v1/things"),
        (
            b"/apis/g/v1/things/../../../api/v1/secrets",
            b"/apis/g/v1/things/../../../api/v1/secrets",
        ),
    ],
)
def test_the_path_is_that_which_was_authorized(target: bytes, expected: bytes) -> None:
    assert sent(target)[0] == b"GET " + expected + b" HTTP/1.1"


def test_identity_headers_of_the_client_are_dropped() -> None:
    forged = {
        b"x-remote-user": b"admin",
        b"x-remote-group": b"system:masters",
        b"x-remote-extra-a": b"b",
        b"x-remote-uid": b"1",
        b"impersonate-user": b"admin",
        b"authorization": b"Bearer x",
        b"connection": b"X-Remote-User",
        b"x-mine": b"kept",
    }
    lines = sent(b"/apis/g/v1/things", forged)
    about = (b"x-remote-", b"impersonate", b"authorization", b"connection")
    assert [line for line in lines if line.lower().startswith(about)] == [
        b"X-Remote-User: ann",
        b"X-Remote-Group: dev",
    ]
    assert b"x-mine: kept" in lines


def test_newer_releases_send_the_uid_of_the_user() -> None:
    request = HttpRequest("GET", b"/", "/", {b"x-remote-uid": b"forged"}, remote="127.0.0.1")
    user = UserInfo("ann", (), "1234")
    lines = outgoing_request(request, user, TARGET, False, uid=True).split(b"\r\n")
    assert [line for line in lines if b"uid" in line.lower()] == [b"X-Remote-Uid: 1234"]
    lines = outgoing_request(request, user, TARGET, False).split(b"\r\n")
    assert not [line for line in lines if b"uid" in line.lower()]
