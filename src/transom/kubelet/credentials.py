"""Selects the credentials from a pod's pull secrets that apply to an image.

A credential is for a registry, or for part of it by path prefix; parts of a host name may be
patterns (`*.example.com`). More specific credentials are tried first. Pure: the caller passes in
the secrets.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import orjson

from transom.kit.caching import text_cache
from transom.kit.named_tuple import NamedTuple
from transom.kit.regexp import Regexp, RegexpError, compile_regexp
from transom.machinery import gojson
from transom.machinery.objects import Object
from transom.runtime.api import AuthConfig

_DEFAULT_HOST = "index.docker.io"
_JSON_TYPE, _JSON_KEY = "kubernetes.io/dockerconfigjson", ".dockerconfigjson"
_CFG_TYPE, _CFG_KEY = "kubernetes.io/dockercfg", ".dockercfg"


class CredentialError(ValueError):
    """A pull secret holds something that is not a docker configuration."""


class CredentialSource(NamedTuple):
    """The object that a credential comes from: a Secret or a ServiceAccount."""

    kind: str
    uid: str
    namespace: str
    name: str


class TrackedAuth(NamedTuple):
    """A credential. `source` is None for those that all pods of the node can use; `hash`
    identifies its content.
    """

    auth: AuthConfig
    source: CredentialSource | None = None
    hash: str = ""


class _Place(NamedTuple):
    host: str
    port: str
    path: str


def lookup_credentials(secrets: Iterable[Object], repository: str) -> list[TrackedAuth]:
    """Credentials for a repository (`registry/path`), in the order to try them. Raises
    CredentialError.
    """
    return select_credentials(
        (
            (place, TrackedAuth(_auth(entry), _secret_source(secret), _hash(entry)))
            for secret in secrets
            for place, entry in _entries(secret).items()
        ),
        repository,
    )


def select_credentials(
    entries: Iterable[tuple[str, TrackedAuth]], repository: str
) -> list[TrackedAuth]:
    """Those for the repository, of all entries of a docker configuration, by place."""
    by_key: dict[str, list[TrackedAuth]] = {}
    for place, tracked in entries:
        key = _key(place)
        if key is not None:
            by_key.setdefault(key, []).append(tracked)
    found = [
        auth
        for key in sorted(by_key, reverse=True)
        if _matches(key, repository)
        for auth in by_key[key]
    ]
    if not found and _is_default_registry(repository):
        return by_key.get(_DEFAULT_HOST, [])
    return found


def image_matches(patterns: Iterable[str], image: str) -> bool:
    """Whether one of the patterns of a credential provider is for the image."""
    return any(_matches(pattern, image) for pattern in patterns)


def _secret_source(secret: Object) -> CredentialSource:
    meta = secret.get("metadata") or {}
    return CredentialSource(
        "Secret", meta.get("uid") or "", meta.get("namespace") or "", meta.get("name") or ""
    )


def _hash(entry: Mapping[str, Any]) -> str:
    """Kubernetes' hash of a credential, of its JSON without empty fields."""
    auth = _auth(entry)
    fields = {
        "username": auth.username,
        "password": auth.password,
        "email": entry.get("email") or "",
    }
    text = b",".join(gojson.marshal({name: value})[1:-1] for name, value in fields.items() if value)
    return hashlib.sha256(b"{" + text + b"}").hexdigest()


def _entries(secret: Object) -> Mapping[str, Any]:
    data = secret.get("data") or {}
    kind = secret.get("type")
    raw = (
        data.get(_JSON_KEY)
        if kind == _JSON_TYPE
        else data.get(_CFG_KEY)
        if kind == _CFG_TYPE
        else None
    )
    if not raw:
        return {}
    try:
        config = orjson.loads(base64.b64decode(raw))
        entries = (config or {}).get("auths") if kind == _JSON_TYPE else config
    except (ValueError, AttributeError) as problem:
        raise CredentialError(str(problem)) from problem
    if entries is None:
        return {}
    if not isinstance(entries, dict) or not all(
        isinstance(entry, dict) for entry in entries.values()
    ):
        raise CredentialError(
            "json: cannot unmarshal into Go value of type credentialprovider.DockerConfig"
        )
    return entries


def _auth(entry: Mapping[str, Any]) -> AuthConfig:
    packed = entry.get("auth") or ""
    if not packed:
        return AuthConfig(entry.get("username") or "", entry.get("password") or "")
    try:
        text = packed if packed.strip().endswith("=") else packed + "=" * (-len(packed) % 4)
        username, colon, password = (
            base64.b64decode(text, validate=True).decode(errors="replace").partition(":")
        )
    except (binascii.Error, ValueError, AttributeError) as problem:
        raise CredentialError(f"illegal base64 data: {problem}") from problem
    if not colon:
        raise CredentialError(
            "unable to parse auth field, must be formatted as base64(username:password)"
        )
    return AuthConfig(username, password)


def _key(place: str) -> str | None:
    """`https://index.docker.io/v1/` -> `index.docker.io`; a path is kept."""
    rest = place.partition("://")[2] if place.startswith(("https://", "http://")) else place
    host, slash, path = rest.partition("/")
    path = unquote(slash + path.partition("?")[0].partition("#")[0])
    if path.startswith(("/v1/", "/v2/")):
        path = path[3:]
    host = host.rpartition("@")[2]
    return host + path if path and path != "/" else host


@text_cache(1024)
def _place(text: str) -> _Place:
    authority, slash, path = text.partition("/")
    host, colon, port = authority.rpartition(":")
    if not colon:
        host, port = authority, ""
    return _Place(host, port, slash + path)


def _matches(pattern: str, repository: str) -> bool:
    wanted, given = _place(pattern), _place(repository)
    parts, names = wanted.host.split("."), given.host.split(".")
    return (
        wanted.port == given.port
        and len(parts) == len(names)
        and given.path.startswith(wanted.path)
        and all(_fits(part, name) for part, name in zip(parts, names, strict=True))
    )


def _fits(pattern: str, name: str) -> bool:
    if pattern == name:
        return True
    expression = _expression(pattern)
    return expression is not None and expression.match_string(name)


@text_cache(256)
def _expression(pattern: str) -> Regexp | None:
    """A shell pattern by Go's rules: `*`, `?`, `[a-z]`, `[^a-z]`, `\\c`. None for a malformed one,
    which matches nothing.
    """
    out, i = [], 0
    while i < len(pattern):
        ch = pattern[i]
        i += 1
        if ch == "*":
            out.append("[^/]*")
        elif ch == "?":
            out.append("[^/]")
        elif ch == "\\":
            if i == len(pattern):
                return None
            out.append(re.escape(pattern[i]))
            i += 1
        elif ch == "[":
            end = pattern.find("]", i + 1)
            if end < 0:
                return None
            inner = pattern[i:end].replace("\\", "\\\\").replace("[", "\\[")
            out.append(f"[{inner}]")
            i = end + 1
        else:
            out.append(re.escape(ch))
    try:
        return compile_regexp(f"^(?:{''.join(out)})$")
    except RegexpError:
        return None


def _is_default_registry(repository: str) -> bool:
    first, slash, _ = repository.partition("/")
    if not first:
        return False
    return (
        not slash
        or first in ("docker.io", _DEFAULT_HOST)
        or ("." not in first and ":" not in first)
    )
