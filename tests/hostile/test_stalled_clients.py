"""Clients that ask and do not read: they cost little, are closed in time, and leave nothing
behind.
"""

from __future__ import annotations

import select
import ssl
import time
from collections.abc import Callable

import pytest
from tests.hostile.conftest import MIB, PODS, ROUNDS, Attack, Victim

CROWD = "/api/v1/namespaces/crowd/pods"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
FORMS = ("application/json", TABLE, "application/vnd.kubernetes.protobuf")
WATCHERS = 2000 if ROUNDS else 200
LISTS = 40
CLOSED_AFTER = 60.0


def ask(victim: Victim, path: str, accept: str = FORMS[0], *more: str) -> ssl.SSLSocket:
    """Sends a request on a connection of its own; the answer is not read."""
    sock = victim.endpoint.connect()
    lines = [f"GET {path} HTTP/1.1", "Host: kubernetes", f"Accept: {accept}", *more, "", ""]
    sock.sendall("\r\n".join(lines).encode())
    return sock


def still_open(sockets: list[ssl.SSLSocket]) -> int:
    poll = select.poll()
    for sock in sockets:
        poll.register(sock, select.POLLRDHUP)
    return len(sockets) - len(poll.poll(0))


def wait(condition: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.5)
    return True


def test_watchers_that_never_read(victim: Victim, attack: Attack) -> None:
    """A window each and the form's code, whatever the size of the list."""
    before = victim.rss()
    with attack(rss=200 * MIB if ROUNDS else 90 * MIB):
        query = "?watch=1", "?watch=1&resourceVersion=0", "?watch=1&labelSelector=number"
        sockets = [ask(victim, CROWD + query[n // 3 % 3], FORMS[n % 3]) for n in range(WATCHERS)]
        assert wait(lambda: still_open(sockets) == 0, CLOSED_AFTER), (
            f"{still_open(sockets)} watches are still open"
        )
    for sock in sockets:
        sock.close()
    assert wait(lambda: victim.rss() - before < 60 * MIB, 10), (
        f"{(victim.rss() - before) / MIB:.0f} MiB are still in use"
    )


@pytest.mark.parametrize(
    ("accept", "more"),
    [
        (FORMS[0], ()),
        (FORMS[0], ("Accept-Encoding: gzip",)),
        (TABLE, ()),
        (FORMS[2], ()),
        ("application/yaml", ()),
    ],
    ids=["json", "gzip", "table", "protobuf", "yaml"],
)
def test_unread_lists(victim: Victim, attack: Attack, accept: str, more: tuple[str, ...]) -> None:
    before = victim.rss()
    # Which objects are decoded for a list is remembered, for all lists together.
    with attack(rss=60 * MIB + PODS * 1000):
        sockets = [ask(victim, CROWD, accept, *more) for _ in range(LISTS)]
        time.sleep(3)
        for sock in sockets:
            sock.close()
    assert wait(lambda: victim.rss() - before < 40 * MIB + PODS * 1000, 10)
