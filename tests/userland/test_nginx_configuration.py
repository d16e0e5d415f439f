"""Configurations from a pod are parsed in bounded time, whatever they contain."""

from __future__ import annotations

import time

import pytest

from transom.userland.servers import web


@pytest.mark.parametrize(
    "configuration",
    [
        "location / { " * 8000,
        'location / {return 200 "' * 5000,
        "listen 1" * 20_000,
        " " * 200_000,
        "root " * 50_000,
        "location / { return 1 x; }\n" * 8000,
    ],
    ids=["locations", "open quotes", "listens", "blanks", "roots", "returns"],
)
def test_hostile_configurations(configuration: str) -> None:
    began = time.thread_time()
    for pattern in (web._LISTEN, web._LISTEN_SSL, web._ROOT, web._RETURN):
        web.directives(pattern, configuration)
    assert time.thread_time() - began < 1.0  # minutes, with an engine that goes back


def test_directives() -> None:
    configuration = """server {
        listen 8080;
        listen [::]:8443 ssl http2;
        root /srv/www;
        location = /healthz { access_log off; return 200 "ok\n"; }
        location /old { return 301 /new; }
    }"""
    assert [found[1] for found in web.directives(web._LISTEN, configuration)] == ["8080", "8443"]
    assert [found[1] for found in web.directives(web._LISTEN_SSL, configuration)] == ["8443"]
    assert [found[1] for found in web.directives(web._ROOT, configuration)] == ["/srv/www"]
    assert [found.groups() for found in web.directives(web._RETURN, configuration)] == [
        ("=", "/healthz", "200", '"ok\n"'),
        ("", "/old", "301", "/new"),
    ]
