"""Forwarded requests: which parts of a client's request are kept, and what is added.

This server has authenticated the user, so credentials and impersonation headers are removed.
"""

from __future__ import annotations

from collections.abc import Iterable

from transom.http import relay as passing
from transom.http.messages import HttpRequest
from transom.kit.http_message import encode_request
from transom.kit.streaming.channels import PROTOCOL_HEADER

_KEPT_BACK = frozenset((b"authorization", b"content-length", b"expect", b"host"))
# each value in a separate header: old kubelets do not split at commas
_APART = PROTOCOL_HEADER.lower().encode()

Lines = list[tuple[bytes, bytes]]


def encode_kubelet_request(
    method: str,
    target: str,
    host: str,
    lines: Iterable[tuple[bytes, bytes]] = (),
    body: bytes = b"",
) -> bytes:
    headers = [(b"Host", host.encode("latin-1", "replace")), *lines]
    return encode_request(method, target, headers, body)


def forwarded_headers(request: HttpRequest, *, upgrade: bool) -> Lines:
    """The client's headers with Go's canonical names, and the X-Forwarded headers."""
    dropped: set[bytes] = set(_KEPT_BACK)
    if not upgrade:
        dropped |= passing.HOP_BY_HOP
        dropped.update(
            word.strip().lower() for word in request.headers.get(b"connection", b"").split(b",")
        )
    before = request.headers.get(b"x-forwarded-for", b"")
    lines: Lines = []
    for name, value in request.headers.items():
        if name in dropped or name == b"x-forwarded-for" or name.startswith(b"impersonate-"):
            continue
        if name == _APART:
            lines += [(name.title(), part.strip()) for part in value.split(b",")]
        else:
            lines.append((name.title(), value))
    seen_from = b", ".join(part for part in (before, request.remote.encode()) if part)
    if seen_from:
        lines.append((b"X-Forwarded-For", seen_from))
    return lines
