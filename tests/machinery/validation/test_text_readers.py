"""Texts inside fields that Go's own libraries read: URLs, string formats."""

from __future__ import annotations

import pytest

from transom.machinery.validation.formats import format_check
from transom.machinery.validation.urls import URLError, parse_url


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("https://u:p@host:8/x?q=1#f", ("https", "host:8", "u:p", "q=1", "f")),
        ("HTTP://host", ("http", "host", None, "", "")),
        ("host/path", ("", "", None, "", "")),
        ("mailto:a@b", ("mailto", "", None, "", "")),
        ("///x", ("", "", None, "", "")),
        ("https://[::1]:5/", ("https", "[::1]:5", None, "", "")),
    ],
)
def test_urls(text: str, parts: tuple[str | None, ...]) -> None:
    assert tuple(parse_url(text)) == parts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (":x", 'parse ":x": missing protocol scheme'),
        ("1:x", 'parse "1:x": first path segment in URL cannot contain colon'),
        ("https://a b/", 'parse "https://a b/": invalid character " " in host name'),
        ("https://a:x/", 'parse "https://a:x/": invalid port ":x" after host'),
        ("https://[::1/", "parse \"https://[::1/\": missing ']' in host"),
        ("https://h/%zz", 'parse "https://h/%zz": invalid URL escape "%zz"'),
        ("https://h/\x01", 'parse "https://h/\\x01": net/url: invalid control character in URL'),
    ],
)
def test_bad_urls(text: str, words: str) -> None:
    with pytest.raises(URLError) as raised:
        parse_url(text)
    assert str(raised.value) == words


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date-time", "2020-01-02T03:04:05.5+01:00", "2020-01-02T24:00:00Z"),
        ("date", "2020-02-29", "2021-02-29"),
        ("uuid", "123E4567-e89b12d3a456-426614174000", "123e4567"),
        ("uuid4", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
        ("ipv4", "1.2.3.4", "fd00::1"),
        ("ipv6", "::ffff:1.2.3.4", "1.2.3.4"),
        ("cidr", "10.0.0.0/8", "10.0.0.0"),
        ("mac", "01:23:45:67:89:ab", "01:23:45"),
        ("email", "Jane <jane@example.com>", "jane"),
        ("hostname", "example.com", "-a"),
        ("uri", "/x", "x"),
        ("byte", "YQ==", "YQ="),
        ("duration", "2 days", "soon"),
        ("duration", "1h30m", "h"),
        ("isbn10", "0-321-75104-3", "0321751044"),
        ("isbn13", "978-0321751041", "9780321751042"),
        ("creditcard", "4012 8888 8888 1881", "4012888888881882"),
        ("hexcolor", "#abc", "#abcd"),
        ("rgbcolor", "rgb(1, 2,255)", "rgb(1,2,256)"),
        ("ssn", "111-22-3333", "111"),
    ],
)
def test_formats(name: str, good: str, bad: str) -> None:
    check = format_check(name)
    assert check is not None
    assert check(good) and not check(bad)


def test_an_unknown_format_is_not_checked() -> None:
    assert format_check("int32") is None
