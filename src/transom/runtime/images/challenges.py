"""How a registry wants to be asked: the header WWW-Authenticate, and the tokens that authorization servers give for it."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import orjson

from transom.runtime.api import Auth

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER: Final = re.compile(rf'\s*({_TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))\s*(?:,|$)')
_SCHEME: Final = re.compile(rf"\s*,?\s*({_TOKEN})(?:\s+|$)")
_CLIENT: Final = "containerd-client"
_LONGEST: Final = 8192  # a header that says more says nothing sensible


class Challenge(NamedTuple):
    scheme: str  # bearer, basic
    parameters: Mapping[str, str]


def parse(header: str) -> list[Challenge]:
    """All challenges of a header; those that cannot be read are left out."""
    found: list[Challenge] = []
    at = 0
    header = header[:_LONGEST]
    while match := _SCHEME.match(header, at):
        at = match.end()
        parameters: dict[str, str] = {}
        while inner := _PARAMETER.match(header, at):
            quoted = inner[2]
            parameters.setdefault(inner[1].lower(), re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else inner[3])
            at = inner.end()
        found.append(Challenge(match[1].lower(), parameters))
    return sorted(found, key=lambda challenge: challenge.scheme != "bearer")


def basic(auth: Auth) -> str:
    return "Basic " + base64.b64encode(f"{auth.username}:{auth.password}".encode()).decode()


class TokenRequest(NamedTuple):
    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


def token_requests(challenge: Challenge, scopes: list[str], auth: Auth | None) -> list[TokenRequest]:
    """What to ask an authorization server, one after the other: with a password by POST, and by GET where that fails, as
    some servers know only that."""
    realm, service = challenge.parameters.get("realm", ""), challenge.parameters.get("service", "")
    wanted = sorted({scope for scope in (*scopes, challenge.parameters.get("scope", "")) if scope})
    query = [("service", service)] if service else []
    query += [("scope", scope) for scope in wanted]
    joined = realm + (("&" if urlsplit(realm).query else "?") + urlencode(query, quote_via=quote) if query else "")
    if auth is None or not auth.password:
        return [TokenRequest("GET", joined)]
    form = [("scope", " ".join(wanted))] if wanted else []
    form += [("service", service), ("client_id", _CLIENT)]
    if auth.username:
        form += [("grant_type", "password"), ("username", auth.username), ("password", auth.password)]
    else:
        form += [("grant_type", "refresh_token"), ("refresh_token", auth.password)]
    post = TokenRequest("POST", realm, (("Content-Type", "application/x-www-form-urlencoded; charset=utf-8"),),
                        urlencode(form).encode())  # fmt: skip
    headers = (("Authorization", basic(auth)),) if auth.username else ()
    return [post, TokenRequest("GET", joined, headers)]


def token(body: bytes) -> str:
    """ValueError, with Go's words as far as they are known, when there is none in an answer."""
    try:
        found: Any = orjson.loads(body)
    except orjson.JSONDecodeError as problem:
        raise ValueError(f"unable to decode token response: {problem}") from problem
    value = (found.get("token") or found.get("access_token")) if isinstance(found, dict) else None
    if not isinstance(value, str) or not value:
        raise ValueError("authorization server did not include a token in the response")
    if not value.isascii() or not value.isprintable():
        raise ValueError("authorization server did not include a valid token in the response")
    return value
