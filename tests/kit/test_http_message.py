from __future__ import annotations

import pytest

from transom.kit.http_message import encode_headers, encode_request


def test_a_get_request_has_no_length() -> None:
    assert encode_request("GET", "/a?b=c", [("Host", "h"), (b"Accept", b"*/*")]) == (
        b"GET /a?b=c HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n"
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_a_request_that_can_have_a_body_has_a_length(method: str) -> None:
    assert b"\r\nContent-Length: 0\r\n\r\n" in encode_request(method, "/", [("Host", "h")])


def test_a_body_follows_the_empty_line() -> None:
    raw = encode_request("DELETE", b"/", [("Host", "h")], b"{}")
    assert raw == b"DELETE / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize("framing", [("content-length", "7"), (b"Transfer-Encoding", b"chunked")])
def test_framing_of_the_caller_is_kept(framing: tuple[str | bytes, str | bytes]) -> None:
    raw = encode_request("POST", "/", [framing])
    assert raw.count(b"\r\n") == 3


def test_a_line_break_in_a_value_does_not_start_another_header() -> None:
    assert encode_headers([(b"Warning", b"a\r\nSet-Cookie: b")]) == b"Warning: a  Set-Cookie: b\r\n"
