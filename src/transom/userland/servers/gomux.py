"""What Go's HTTP server does before and after a handler: it cleans paths and detects content types."""

from __future__ import annotations

import inspect
import posixpath

from transom.userland.servers.http import Handler, ProgramHttpRequest, ProgramHttpResponse

_SEEN = 512  # bytes used to detect the type
_SPACE = b"\t\n\x0c\r "
_TAGS = (
    b"<!DOCTYPE HTML",
    b"<HTML",
    b"<HEAD",
    b"<SCRIPT",
    b"<IFRAME",
    b"<H1",
    b"<DIV",
    b"<FONT",
    b"<TABLE",
    b"<A",
    b"<STYLE",
    b"<TITLE",
    b"<B",
    b"<BODY",
    b"<BR",
    b"<P",
    b"<!--",
)
_STARTS: tuple[tuple[bytes, str], ...] = (
    (b"%PDF-", "application/pdf"),
    (b"%!PS-Adobe-", "application/postscript"),
    (b"\xfe\xff", "text/plain; charset=utf-16be"),
    (b"\xff\xfe", "text/plain; charset=utf-16le"),
    (b"\xef\xbb\xbf", "text/plain; charset=utf-8"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x1f\x8b\x08", "application/x-gzip"),
    (b"PK\x03\x04", "application/zip"),
)
_BINARY = frozenset((*range(0x09), 0x0B, *range(0x0E, 0x1B), *range(0x1C, 0x20)))


def content_type_of(body: bytes) -> str:
    """The detected content type of a body."""
    seen = body[:_SEEN]
    bare = seen.lstrip(_SPACE)
    upper = bare.upper()
    if any(
        upper.startswith(tag) and upper[len(tag) : len(tag) + 1] in (b" ", b">") for tag in _TAGS
    ):
        return "text/html; charset=utf-8"
    if bare.startswith(b"<?xml"):
        return "text/xml; charset=utf-8"
    for start, kind in _STARTS:
        if seen.startswith(start):
            return kind
    return (
        "application/octet-stream" if not _BINARY.isdisjoint(seen) else "text/plain; charset=utf-8"
    )


def written(content: str, status: int = 200) -> ProgramHttpResponse:
    """A response without a declared content type."""
    return ProgramHttpResponse(status, content.encode("utf-8", "surrogateescape"))


def mux_redirect(location: str, code: int = 302) -> ProgramHttpResponse:
    message = {
        301: "Moved Permanently",
        302: "Found",
        303: "See Other",
        307: "Temporary Redirect",
        308: "Permanent Redirect",
    }
    body = f'<a href="{location}">{message.get(code, "")}</a>.\n\n'
    return ProgramHttpResponse(
        code, body.encode(), (("Content-Type", "text/html; charset=utf-8"), ("Location", location))
    )


def tidy(path: str) -> str:
    """The path without `//`, `.` and `..`; a trailing slash stays."""
    clean = "/" + posixpath.normpath("/" + path).lstrip("/")
    return clean + "/" if path.endswith("/") and clean != "/" else clean


def served_file(handler: Handler) -> Handler:
    """A handler behind Go's ServeMux: a path that is not clean is redirected."""

    async def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        route, question, query = request.target.partition("?")
        clean = tidy(route)
        if clean != route and route.startswith("/") and request.method != "CONNECT":
            return mux_redirect(clean + question + query, 301)
        answer = handler(request)
        response = await answer if inspect.isawaitable(answer) else answer
        if response.body and not any(
            name.lower() == "content-type" for name, _ in response.headers
        ):
            return response._replace(
                headers=(*response.headers, ("Content-Type", content_type_of(response.body)))
            )
        return response

    return handle
