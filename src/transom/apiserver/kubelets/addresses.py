"""Rewrites addresses in proxied responses to paths of the API server.

Pure functions; the rules are those of Kubernetes' proxy.
"""

from __future__ import annotations

import posixpath
import re
from typing import NamedTuple
from urllib.parse import unquote

from transom.http.relay import escape_path

_ADDRESS = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?://(?P<host>[^/?#]*))?(?P<path>[^?#]*)(?P<rest>.*)",
    re.DOTALL,
)


def join_path(prefix: str, path: str) -> str:
    """Go's path.Join: clean, without a trailing slash."""
    parts = [part for part in (prefix, path) if part]
    if not parts:
        return ""
    clean = posixpath.normpath("/".join(parts))
    return clean[1:] if clean.startswith("//") else clean


def clean_path(path: str) -> str:
    """The cleaned path; keeps a trailing slash."""
    joined = join_path("", path)
    return joined + "/" if path.endswith("/") and not joined.endswith("/") else joined


class ExternalLocation(NamedTuple):
    """The target of a proxied request, as seen by the client."""

    prefix: str  # the path of the proxy
    authority: str  # the target host
    host: str  # the host in the client's request

    def forwarded_uri(self, path: str) -> str:
        uri = join_path(self.prefix, path)
        return uri + "/" if path.endswith("/") else uri

    def rewrite(self, address: str) -> str:
        """An address in a response, rewritten for the client. Addresses of other hosts are
        unchanged.
        """
        found = _ADDRESS.fullmatch(address)
        if found is None:
            return address
        host, path = found["host"] or "", found["path"]
        if (host and host not in (self.authority, self.host)) or not path.startswith("/"):
            return address
        keep = host == self.host and host
        front = (
            f"{found['scheme']}://{host}"
            if keep and found["scheme"]
            else f"//{host}"
            if keep
            else ""
        )
        decoded = unquote(path)
        if decoded.startswith(self.prefix):
            return front + path + found["rest"]
        joined = join_path(self.prefix, decoded)
        if decoded.endswith("/"):
            joined += "/"
        return front + escape_path(joined) + found["rest"]
