"""Addresses and pages from behind a proxy, as they look from outside."""

from __future__ import annotations

import pytest

from transom.apiserver.core.subresources.connect import proxied_path
from transom.apiserver.kubelets import html
from transom.apiserver.kubelets.addresses import ExternalLocation, clean_path
from transom.http.relay import escape_path

OUTSIDE = ExternalLocation(
    "/api/v1/namespaces/d/services/s/proxy", "10.244.0.3:80", "localhost:8001"
)
P = OUTSIDE.prefix


@pytest.mark.parametrize(
    ("whole", "rest", "path"),
    [
        ("/x/proxy", "", ""),
        ("/x/proxy/", "", "/"),
        ("/x/proxy/a/b", "a/b", "/a/b"),
        ("/x/proxy/a/", "a", "/a/"),
    ],
)
def test_what_follows_the_proxy(whole: str, rest: str, path: str) -> None:
    assert proxied_path(whole, rest) == path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", ""),
        ("/", "/"),
        ("/a//b/", "/a/b/"),
        ("/a/../b", "/b"),
        ("/../../etc", "/etc"),
        ("/a/./", "/a/"),
    ],
)
def test_paths_take_no_detours(path: str, expected: str) -> None:
    assert clean_path(path) == expected


def test_paths_are_escaped_as_go_does() -> None:
    assert (
        escape_path("/a b/ü?#$&+,/:;=@-_.~!*'()")
        == "/a%20b/%C3%BC%3F%23$&+,/:;=@-_.~%21%2A%27%28%29"
    )


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("/login?x=1#top", f"{P}/login?x=1#top"),
        ("/dir/", f"{P}/dir/"),
        ("http://10.244.0.3:80/login", f"{P}/login"),
        ("http://localhost:8001/login", f"http://localhost:8001{P}/login"),
        ("//localhost:8001/login", f"//localhost:8001{P}/login"),
        (f"{P}/already", f"{P}/already"),
        (f"http://10.244.0.3:80{P}/already/", f"{P}/already/"),
        ("https://example.com/login", "https://example.com/login"),
        ("login", "login"),
        ("../login", "../login"),
        ("#top", "#top"),
        ("?a=b", "?a=b"),
        ("", ""),
        ("mailto:me@example.com", "mailto:me@example.com"),
        ("javascript:void(0)", "javascript:void(0)"),
    ],
)
def test_addresses_lead_back_through_the_proxy(address: str, expected: str) -> None:
    assert OUTSIDE.rewrite(address) == expected


def test_the_forwarded_uri() -> None:
    assert OUTSIDE.forwarded_uri("/a/") == f"{P}/a/"
    assert OUTSIDE.forwarded_uri("/a") == f"{P}/a"


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<!DOCTYPE html><p>a &amp; b</p>", "<!DOCTYPE html><p>a &amp; b</p>"),
        ('<A HREF="/x">x</A>', '<a href="//x">x</A>'),
        ("<a href='/x' title=\"it's\">", '<a href="//x" title="it&#39;s">'),
        ("<img src=/x alt>", '<img src="//x" alt="">'),
        ("<br/><hr />", "<br/><hr/>"),
        ('<a title="/x">', '<a title="/x">'),
        ('<a href="/x?a=1&amp;b=2&copy=3">', '<a href="//x?a=1&amp;b=2&amp;copy=3">'),
        ("<!-- <a href='/x'> --><a href='/x'>", "<!-- <a href='/x'> --><a href=\"//x\">"),
        ("<!--><a href='/x'>", '<!--><a href="//x">'),
        (
            "<script src='/s'>if (a<b) x='<a href=\"/x\">'</script><a href='/x'>",
            '<script src="//s">if (a<b) x=\'<a href="/x">\'</script><a href="//x">',
        ),
        ("1 < 2 <a href='/x'", "1 < 2 "),  # a tag without an end is lost
        (
            "<form action=/go><input src='/i'><object data=/d></form>",
            '<form action="//go"><input src="//i"><object data="//d"></form>',
        ),
        ("<plaintext><a href='/x'>", "<plaintext><a href='/x'>"),
    ],
)
def test_links_of_pages(page: str, expected: str) -> None:
    assert html.rewrite_html(page, lambda address: "/" + address) == expected
