"""Addresses as they look from outside: what a proxied answer says about itself, turned into paths of the API server.

Pure functions; the rules are those of Kubernetes' proxy.
"""

from __future__ import annotations

import posixpath
import re
from typing import NamedTuple
from urllib.parse import quote, unquote

_ADDRESS = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?://(?P<host>[^/?#]*))?(?P<path>[^?#]*)(?P<rest>.*)", re.DOTALL
)
_PATH_SAFE = "$&+,/:;=@-_.~"


def escape_path(path: str) -> str:
    return quote(path, safe=_PATH_SAFE)


def join(prefix: str, path: str) -> str:
    """Go's path.Join: clean, without a slash at the end."""
    parts = [part for part in (prefix, path) if part]
    if not parts:
        return ""
    clean = posixpath.normpath("/".join(parts))
    return clean[1:] if clean.startswith("//") else clean


def clean(path: str) -> str:
    """The path without detours; a slash at its end stays."""
    joined = join("", path)
    return joined + "/" if path.endswith("/") and not joined.endswith("/") else joined


def proxied_path(whole: str, rest: str) -> str:
    """What follows `.../proxy` in a path, with its slashes: empty when nothing does. `rest` has none at its ends."""
    path = f"/{rest}" if rest and not rest.startswith("/") else rest
    return path + "/" if whole.endswith("/") and not path.endswith("/") else path


class Outside(NamedTuple):
    """How the place that answered looks from outside."""

    prefix: str  # the path of the proxy
    authority: str  # the host that was connected to
    host: str  # the host the client asked for

    def forwarded_uri(self, path: str) -> str:
        uri = join(self.prefix, path)
        return uri + "/" if path.endswith("/") else uri

    def rewrite(self, address: str) -> str:
        """An address in an answer, as the client has to ask for it. Those that lead elsewhere stay."""
        found = _ADDRESS.fullmatch(address)
        if found is None:
            return address
        host, path = found["host"] or "", found["path"]
        if (host and host not in (self.authority, self.host)) or not path.startswith("/"):
            return address
        keep = host == self.host and host
        front = f"{found['scheme']}://{host}" if keep and found["scheme"] else f"//{host}" if keep else ""
        decoded = unquote(path)
        if decoded.startswith(self.prefix):
            return front + path + found["rest"]
        joined = join(self.prefix, decoded)
        if decoded.endswith("/"):
            joined += "/"
        return front + escape_path(joined) + found["rest"]
