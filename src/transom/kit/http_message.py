"""The head of an HTTP/1.1 message as bytes, for every client and server of the project.

It is in `kit` so that commands that need only one small request do not import the HTTP server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_WITH_BODY = ("POST", "PUT", "PATCH")
_FRAMING = (b"content-length", b"transfer-encoding")


def encode_headers(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The header lines, without the empty line after them."""
    block = b"".join([b"%b: %b\r\n" % pair for pair in headers])
    if block.count(b"\n") != len(headers) or block.count(b"\r") != len(headers):
        # A line break inside a value (a warning with user input) must not become a separate header.
        block = b"".join([b"%b: %b\r\n" % (_one_line(k), _one_line(v)) for k, v in headers])
    return block


def encode_request(
    method: str,
    target: str | bytes,
    headers: Iterable[tuple[str | bytes, str | bytes]],
    body: bytes = b"",
) -> bytes:
    """A whole request. Adds Content-Length if the request can have a body and `headers` do not
    frame it.
    """
    encoded = [(_as_bytes(name), _as_bytes(value)) for name, value in headers]
    if (body or method in _WITH_BODY) and not any(k.lower() in _FRAMING for k, _ in encoded):
        encoded.append((b"Content-Length", b"%d" % len(body)))
    return b"%b %b HTTP/1.1\r\n%b\r\n%b" % (
        method.encode(),
        _as_bytes(target),
        encode_headers(encoded),
        body,
    )


def _as_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def _one_line(text: bytes) -> bytes:
    return text.replace(b"\r", b" ").replace(b"\n", b" ")
