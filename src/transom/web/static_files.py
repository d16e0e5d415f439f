"""The console's style sheet, scripts and icon: files of the package, read once."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from transom.http.messages import HttpRequest, HttpResponse
from transom.web.responses import json_error, secure_headers

_FOLDER: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def static_response(request: HttpRequest, name: str) -> HttpResponse:
    """A file by name; browsers ask each time, and get 304 while it is the same."""
    found = _read(name) if name in _names() else None
    if found is None:
        return json_error(404, f"there is no file {name}")
    body, etag = found
    headers = secure_headers(_TYPES[Path(name).suffix], "no-cache")
    headers.append((b"ETag", etag))
    if request.headers.get(b"if-none-match") == etag:
        return HttpResponse(304, headers)
    return HttpResponse(200, headers, body)


@cache
def _names() -> frozenset[str]:
    return frozenset(path.name for path in _FOLDER.iterdir() if path.suffix in _TYPES)


@cache
def _read(name: str) -> tuple[bytes, bytes]:
    body = (_FOLDER / name).read_bytes()
    return body, b'"%b"' % hashlib.sha256(body).hexdigest()[:32].encode()
