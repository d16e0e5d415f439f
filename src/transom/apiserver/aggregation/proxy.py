"""Forwards a request to an aggregated API server and returns its response: complete, streamed, or
upgraded.

This server authenticates and authorizes the user. The other server reads the user from front-proxy
headers, which it trusts because of this server's client certificate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from transom.apiserver.core.context import UserInfo
from transom.http import goerrors
from transom.http import relay as passing
from transom.http.goerrors import join_host_port
from transom.http.messages import Answer, Headers, HttpRequest, HttpResponse, text_response
from transom.http.outgoing import CallError, CallTarget, ResponseHead
from transom.http.pool import ConnectionPool
from transom.http.relay import escape_path
from transom.kit.http_message import encode_request

_DROPPED = passing.HOP_BY_HOP | {
    b"authorization",
    b"content-length",
    b"expect",
    b"host",
}
_CORS = b"access-control-"
_DISCOVERY_SECONDS = 5.0
_REPEATABLE = ("GET", "HEAD", "OPTIONS")
_TOKEN = frozenset(b"!#$&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def user_headers(user: UserInfo, *, uid: bool) -> Iterable[tuple[str, str]]:
    yield "X-Remote-User", user.name
    if uid and user.uid:
        yield "X-Remote-Uid", user.uid
    for group in user.groups:
        yield "X-Remote-Group", group
    for key, values in user.extra.items():
        name = "".join(chr(b) if b in _TOKEN else f"%{b:02X}" for b in key.encode())
        for value in values:
            yield f"X-Remote-Extra-{name}", value


def outgoing_request(
    request: HttpRequest, user: UserInfo, target: CallTarget, upgrade: bool, *, uid: bool = False
) -> bytes:
    """Forwards the path as it was parsed and authorized here, not as the client encoded it. `uid`:
    the server also learns the UID of the user.
    """
    host = join_host_port(target.host, target.port)
    _, mark, query = request.target.partition(b"?")
    wanted = escape_path(request.path).encode() + mark + query
    headers: list[tuple[str | bytes, str | bytes]] = [("Host", host)]
    headers += [
        (name, value)
        for name, value in request.headers.items()
        if name not in _DROPPED
        and not name.startswith((b"impersonate-", b"x-remote-", b"x-forwarded-"))
    ]
    before = request.header(b"x-forwarded-for")
    seen_from = f"{before}, {request.remote}" if before else request.remote
    headers += [
        ("X-Forwarded-For", seen_from),
        ("X-Forwarded-Host", host),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Uri", request.path),
        *user_headers(user, uid=uid),
    ]
    if upgrade:
        headers += [("Connection", "Upgrade"), ("Upgrade", request.header(b"upgrade"))]
    return encode_request(request.method, wanted, headers, request.body)


def api_service_unavailable() -> HttpResponse:
    return text_response(503, "service unavailable\n")


def is_discovery(path: str) -> bool:
    return len(path.strip("/").split("/")) == 3


async def forward_to_api_service(
    request: HttpRequest,
    user: UserInfo,
    target: CallTarget,
    pool: ConnectionPool,
    *,
    uid: bool = False,
) -> Answer:
    upgrade = passing.wants_upgrade(request) and bool(request.header(b"upgrade"))
    raw = outgoing_request(request, user, target, upgrade, uid=uid)
    head_only = request.method == "HEAD"
    repeatable = request.method in _REPEATABLE and not upgrade
    within = asyncio.timeout(_DISCOVERY_SECONDS if is_discovery(request.path) else None)
    try:
        async with within:
            connection, head = await pool.begin(
                target, raw, repeatable=repeatable, bodiless=head_only
            )
    except TimeoutError:
        return _failed(goerrors.DEADLINE, upgrade)
    except CallError as problem:
        return _failed(str(problem), upgrade)
    if upgrade and head.status == 101:
        return passing.relay_upgraded(connection, head)
    if upgrade and head.status < 400:
        connection.abort()
        return text_response(503, f"invalid upgrade response: status code {head.status}\n")
    try:
        return await passing.relay_response(
            connection, head, _headers(head), pool, bodiless=head_only
        )
    except CallError as problem:
        return _failed(str(problem), False)


def _failed(why: str, upgrade: bool) -> HttpResponse:
    what = "error dialing backend" if upgrade else "error trying to reach service"
    return text_response(503, f"{what}: {why}\n")


def _headers(head: ResponseHead) -> Headers:
    return [(k, v) for k, v in passing.relayed_headers(head) if not k.lower().startswith(_CORS)]
