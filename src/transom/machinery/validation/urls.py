"""URLs as Go's net/url parses them: their parts, or its error message."""

from __future__ import annotations

from urllib.parse import quote, unquote

from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_pattern
from transom.kit.named_tuple import NamedTuple

_SCHEME = lazy_pattern(r"[A-Za-z][A-Za-z0-9+.-]*\Z")
_PORT = lazy_pattern(r"(:[0-9]*)?\Z")
_BAD_ESCAPE = lazy_pattern(r"%(?![0-9A-Fa-f]{2}).{0,2}")
_USER_INFO = lazy_pattern(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*\Z")
_HOST_CHAR = lazy_pattern(r"[A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"%\u0080-\U0010ffff]")


class URL(NamedTuple):
    scheme: str
    host: str
    user: str | None
    query: str
    fragment: str


class URLError(ValueError):
    pass


def parse_url(text: str) -> URL:
    """The parts of `text`; raises URLError with Go's message."""
    bare, _, fragment = text.partition("#")
    try:
        scheme, host, user, query = _parse(bare)
    except URLError as error:
        raise URLError(f"parse {go_quote(bare)}: {error}") from None
    if bad := _BAD_ESCAPE.search(fragment):
        raise URLError(f"parse {go_quote(text)}: invalid URL escape {go_quote(bad.group())}")
    return URL(scheme, host, user, query, unquote(fragment))


def _parse(text: str) -> tuple[str, str, str | None, str]:
    if any(char < " " or char == "\x7f" for char in text):
        raise URLError("net/url: invalid control character in URL")
    scheme, colon, rest = text.partition(":")
    if colon and not scheme:
        raise URLError("missing protocol scheme")
    if not colon or not _SCHEME.match(scheme):
        scheme, rest = "", text
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return scheme.lower(), "", None, query
        if ":" in rest.partition("/")[0]:
            raise URLError("first path segment in URL cannot contain colon")
    host, user = "", None
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
        host, user = _authority(authority)
    if bad := _BAD_ESCAPE.search(rest):
        raise URLError(f"invalid URL escape {go_quote(bad.group())}")
    return scheme.lower(), host, user, query


def _authority(authority: str) -> tuple[str, str | None]:
    info, at, host = authority.rpartition("@")
    if host.startswith("["):
        end = host.rfind("]")
        if end < 0:
            raise URLError("missing ']' in host")
        port = host[end + 1 :]
    else:
        port = host[host.rfind(":") :] if ":" in host else ""
    if not _PORT.match(port):
        raise URLError(f"invalid port {go_quote(port)} after host")
    if bad := _BAD_ESCAPE.search(host):
        raise URLError(f"invalid URL escape {go_quote(bad.group())}")
    for char in host:
        if not _HOST_CHAR.match(char):
            raise URLError(f"invalid character {go_quote(char)} in host name")
    if not at:
        return unquote(host), None
    if not _USER_INFO.match(info):
        raise URLError("net/url: invalid userinfo")
    name, colon, password = info.partition(":")
    return unquote(host), quote(unquote(name), "$&+,;=") + (
        ":" + quote(unquote(password), "$&+,;=") if colon else ""
    )
