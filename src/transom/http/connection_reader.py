"""A client connection, third layer: reads requests, and rejects invalid ones before the handler."""

from __future__ import annotations

from abc import abstractmethod
from enum import IntEnum
from functools import lru_cache
from typing import Any

import httptools

from transom.http.body import BodyStream
from transom.http.connection_writer import AnswerWriter
from transom.http.encode import CONTINUE
from transom.http.interfaces import ConnectionHost
from transom.http.messages import HttpRequest, HttpResponse, decode_path
from transom.kit.lazy import lazy_pattern
from transom.machinery import errors
from transom.machinery.errors import ApiError

_STREAMED = 64 * 1024  # smaller bodies are always collected
_HOST = lazy_pattern(rb"[0-9A-Za-z!$%&()*+,\-.:;=\[\]'_~]*")  # like Go's ValidHostHeader
_TOKENS = lazy_pattern(rb"[ ,\t]")
_UNCHECKED = 16 * 1024  # bodies up to this size are read before authentication
_TOO_MANY_BODIES = "the server is receiving too many large request bodies, please try again later"
_METHODS = {m.encode(): m for m in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")}


class ReadState(IntEnum):
    """What is being read. From DISCARD on, the request was rejected."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    DISCARD = 3  # the rest of a rejected body
    IGNORE = 4  # anything at all


# Reading enum attributes is slow, and these are read several times for each request.
IDLE, HEAD, BODY, DISCARD, IGNORE = ReadState


class RequestReader(AnswerWriter):
    __slots__ = (
        "_answered_close",
        "_body",
        "_body_size",
        "_charged",
        "_continue_due",
        "_head_size",
        "_headers",
        "_linger",
        "_parser",
        "_peer",
        "_received",
        "_seen",
        "_seen_at",
        "_sink",
        "_state",
        "_target",
        "_uploader",
    )

    def __init__(self, server: ConnectionHost) -> None:
        super().__init__(server)
        self._parser: Any = httptools.HttpRequestParser(self)
        self._state: ReadState = IDLE
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._head_size = 0
        self._body: list[bytes] = []
        self._body_size = 0
        self._continue_due = False
        self._received = 0.0
        self._seen = b""  # what was received since the request line, if that is being parsed
        self._seen_at = 0  # the end of the last request line in it
        self._charged = 0  # bytes of bodies that count against the upload budget
        self._uploader = ""
        self._sink: BodyStream | None = None  # where the incoming body goes
        self._linger = False
        self._answered_close = False
        self._peer: Any = None

    @abstractmethod
    def _submit(self, item: HttpRequest | ApiError | HttpResponse) -> None:
        """Serves a request, or sends an error, in its turn."""

    def on_message_begin(self) -> None:
        if self._state < DISCARD:
            self._state = HEAD
            self._target = b""
            self._headers = {}

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._state != HEAD:  # a trailer after a chunked body must not become a header
            return
        name = name.lower()
        headers = self._headers
        if name in headers:
            # Group names may contain commas, so those headers stay separate; so do hosts, of which
            # there must be exactly one.
            headers[name] += (
                b"\n" if name.startswith(b"impersonate-") or name == b"host" else b", "
            ) + value
        else:
            headers[name] = value

    def on_headers_complete(self) -> None:
        if self._state >= DISCARD:
            return
        self._state = BODY
        headers, limits = self._headers, self.server.limits
        # The parser also accepts several spaces and other protocols (RTSP, ICE).
        line = b"%b %b HTTP/" % (self._parser.get_method(), self._target)
        at = self._seen.find(line, self._seen_at)
        if at < 0:
            self._refuse(bad_request_response())
            return
        self._seen_at = at + len(line)
        if self._head_size > limits.head and limits.head < len(self._target) + sum(
            len(k) + len(v) + 4 for k, v in headers.items()
        ):
            self._refuse(head_too_large(), DISCARD)
            return
        length = headers.get(b"content-length")
        chunked = b"transfer-encoding" in headers
        if chunked and self._bad_encoding(headers[b"transfer-encoding"]):
            return
        if chunked or (length is not None and int(length) > _STREAMED):
            self._sink = self._stream_for_body()
            if self._sink is None and length is not None and int(length) > limits.body:
                self._refuse(errors.too_large(limits.body), DISCARD)
                return
        if b"expect" in headers and not self._continues(headers[b"expect"], length):
            return
        if self._sink is not None:
            self._complete(self._sink)

    def _stream_for_body(self) -> BodyStream | None:
        """Where a large body goes if the handler reads it incrementally."""
        bodies = self.server.bodies
        path = None if bodies is None else decode_path(self._target)
        if (
            bodies is None
            or path is None
            or not bodies.streams_body(path)
            or self._parser.should_upgrade()
        ):
            return None
        return BodyStream(self)

    def _continues(self, expected: bytes, length: bytes | None) -> bool:
        """Sends 100 Continue to a client that waits for it; like Go, rejects other expectations
        and ignores those of HTTP/1.0 and of requests without a body.
        """
        if b"100-continue" not in _TOKENS.split(expected.lower()):
            self._refuse(HttpResponse(417, [], b""))
            return False
        has_body = int(length) > 0 if length is not None else b"transfer-encoding" in self._headers
        if has_body and self._parser.get_http_version() != "1.0":
            if self._busy or self._queue:
                self._continue_due = True
            else:
                self._write(CONTINUE)
        return True

    def _bad_encoding(self, coding: bytes) -> bool:
        """Checks that proxies in front of this server agree on where the body ends."""
        if coding.strip().lower() != b"chunked":
            self._refuse(_text_error(501, "Unsupported transfer encoding"))
        elif self._parser.get_http_version() == "1.0":
            self._refuse(bad_request_response())
        return self._state == IGNORE

    def on_body(self, data: bytes) -> None:
        if self._state >= DISCARD:
            self._body_size += len(data)
            if self._body_size > self.server.limits.discard:
                self.abort()
            return
        if self._sink is not None:
            self._head_size = 0
            if not self._sink.feed(data, self.server.limits.discard):
                self.abort()
            return
        self._body.append(data)
        self._body_size += len(data)
        if self._body_size > self.server.limits.body:
            self._refuse(errors.too_large(self.server.limits.body), DISCARD)
        elif self._body_size > _UNCHECKED:
            self._charge_body(len(data))

    def _charge_body(self, size: int) -> None:
        """A large body: rejects a client that is not allowed to send it early, and charges the
        upload budget.
        """
        if not self._charged:
            head = self._head_of_request()
            bodies = self.server.bodies
            owner = bodies.body_owner(head) if head is not None and bodies is not None else ""
            if owner is None:
                self._answer_without_body(head)
                return
            self._uploader = owner
            size = self._body_size
        self._charged += size
        uploads = self.server.uploads
        uploads.hold(self, self._uploader, self._charged, self._received)
        limits = uploads.limits
        if uploads.total > limits.server or uploads.used_by(self._uploader) > limits.user:
            self._refuse(errors.too_many_requests(_TOO_MANY_BODIES, 1), DISCARD)
            self._release_body()

    def _release_body(self) -> None:
        if self._charged:
            self._charged = 0
            self.server.uploads.release(self)

    def _head_of_request(self) -> HttpRequest | None:
        path = decode_path(self._target)
        if path is None:
            return None
        method = self._parser.get_method()
        return HttpRequest(
            _METHODS.get(method) or method.decode(),
            self._target,
            path,
            self._headers,
            b"",
            self._peer,
            self._remote,
            self._received,
            False,
        )

    def _answer_without_body(self, request: HttpRequest | None) -> None:
        """The handler rejects the request, whatever its body is."""
        assert request is not None
        self._state = DISCARD
        self._linger = True
        self._body = []
        self._body_size = 0
        self._submit(request)

    def on_message_complete(self) -> None:
        if self._state >= DISCARD:
            self._input_ended()
        elif self._sink is not None:
            sink, self._sink = self._sink, None
            self._state = IDLE
            self._head_size = 0
            sink.end()
        elif (
            not self._parser.should_upgrade()
        ):  # the parser stops there and reports where the early bytes begin
            self._complete()

    def _complete(self, stream: BodyStream | None = None) -> None:
        """A request is complete, possibly except for its body: passes it to the handler unless it
        is malformed.
        """
        if stream is None:
            self._state = IDLE
            self._continue_due = False
        self._head_size = 0
        headers, parser, target = self._headers, self._parser, self._target
        body = b"".join(self._body) if self._body else b""
        if body:
            self._body = []
            self._body_size = 0
        method = parser.get_method()
        keep_alive = parser.should_keep_alive()
        # Versions other than 1.1 close the connection by default.
        version = parser.get_http_version() if not keep_alive or b"connection" in headers else "1.1"
        path, host = decode_path(target), headers.get(b"host")
        if path is None or version != "1.1" or host is None or not _is_host(host):
            fault = _head_fault(path, version, host)
            if fault is not None:
                self._refuse(fault)
                return
        self._submit(
            HttpRequest(
                _METHODS.get(method) or method.decode(),
                target,
                path or "",
                headers,
                body,
                self._peer,
                self._remote,
                self._received,
                keep_alive,
                version == "1.0",
                stream,
            )
        )

    def _refuse(self, error: ApiError | HttpResponse, rest: ReadState = IDLE) -> None:
        """Reads no further requests; sends the error in its turn and closes the connection.

        `rest` is what may still arrive and must be read first: the rest of the body (DISCARD),
        arbitrary data (IGNORE), or nothing that matters. Closing a socket with unread input resets
        the connection, and the client might never see the response.
        """
        self._state = IGNORE if rest is IDLE else rest
        self._linger = rest != IDLE
        self._body = []
        self._body_size = 0
        self._early = None
        self._abort_body()
        self._submit(error)

    def _input_ended(self) -> None:
        """All of a rejected request has arrived."""
        self._state = IGNORE
        self._linger = False
        if self._answered_close:
            self.close()

    def _abort_body(self) -> None:
        """The rest of the current body will not arrive."""
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.end(broken=True)


def _head_fault(path: str | None, version: str, host: bytes | None) -> HttpResponse | None:
    """The answer to a malformed request."""
    if path is None or version == "0.9":
        return bad_request_response()
    if version not in ("1.0", "1.1"):
        return bad_request_response("unsupported protocol version")
    if host is None:
        return None if version == "1.0" else bad_request_response("missing required Host header")
    if _is_host(host):
        return None
    return bad_request_response(
        "too many Host headers" if b"\n" in host else "malformed Host header"
    )


@lru_cache(256)
def _is_host(value: bytes) -> bool:
    return _HOST.fullmatch(value) is not None


def _text_error(code: int, text: str) -> HttpResponse:
    return HttpResponse(code, [(b"Content-Type", b"text/plain; charset=utf-8")], text.encode())


def bad_request_response(reason: str = "") -> HttpResponse:
    """The response to invalid HTTP, which comes from Go's server and not from Kubernetes."""
    return _text_error(400, f"400 Bad Request: {reason}" if reason else "400 Bad Request")


def head_too_large() -> ApiError:
    return ApiError(431, "RequestHeaderFieldsTooLarge", "the header of the request is too large")
