"""Registry authentication: the header WWW-Authenticate, and tokens from authorization servers."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import orjson

from transom.runtime.api import AuthConfig

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER: Final = re.compile(rf'\s*({_TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))\s*(?:,|$)')
_SCHEME: Final = re.compile(rf"\s*+,?\s*+({_TOKEN})(?:\s+|$)")
_CLIENT: Final = "containerd-client"
_LONGEST: Final = 8192  # a longer header is not sensible


class AuthChallenge(NamedTuple):
    scheme: str  # bearer, basic
    parameters: Mapping[str, str]


def parse_challenges(header: str) -> list[AuthChallenge]:
    """All challenges of a header; invalid ones are skipped."""
    found: list[AuthChallenge] = []
    at = 0
    header = header[:_LONGEST]
    while match := _SCHEME.match(header, at):
        at = match.end()
        parameters: dict[str, str] = {}
        while inner := _PARAMETER.match(header, at):
            quoted = inner[2]
            parameters.setdefault(
                inner[1].lower(),
                re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else inner[3],
            )
            at = inner.end()
        found.append(AuthChallenge(match[1].lower(), parameters))
    return sorted(found, key=lambda challenge: challenge.scheme != "bearer")


def basic_credentials(auth: AuthConfig) -> str:
    return "Basic " + base64.b64encode(f"{auth.username}:{auth.password}".encode()).decode()


class TokenRequest(NamedTuple):
    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


def token_requests(
    challenge: AuthChallenge, scopes: list[str], auth: AuthConfig | None
) -> list[TokenRequest]:
    """The requests to an authorization server, in order: by POST with a password, then by GET,
    which is all that some servers support.
    """
    realm, service = challenge.parameters.get("realm", ""), challenge.parameters.get("service", "")
    wanted = sorted({scope for scope in (*scopes, challenge.parameters.get("scope", "")) if scope})
    query = [("service", service)] if service else []
    query += [("scope", scope) for scope in wanted]
    joined = realm + (
        ("&" if urlsplit(realm).query else "?") + urlencode(query, quote_via=quote) if query else ""
    )
    if auth is None or not auth.password:
        return [TokenRequest("GET", joined)]
    form = [("scope", " ".join(wanted))] if wanted else []
    form += [("service", service), ("client_id", _CLIENT)]
    if auth.username:
        form += [
            ("grant_type", "password"),
            ("username", auth.username),
            ("password", auth.password),
        ]
    else:
        form += [("grant_type", "refresh_token"), ("refresh_token", auth.password)]
    post = TokenRequest(
        "POST",
        realm,
        (("Content-Type", "application/x-www-form-urlencoded; charset=utf-8"),),
        urlencode(form).encode(),
    )
    headers = (("Authorization", basic_credentials(auth)),) if auth.username else ()
    return [post, TokenRequest("GET", joined, headers)]


def token_from_response(body: bytes) -> str:
    """Raises ValueError, in Go's wording where known, when a response has no token."""
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
