from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.kubelet.server_harness import ADMIN, LOG, ServerHarness

from transom.http.messages import HttpRequest, StreamResponse
from transom.kubelet.server.container_logs import choose_log_container

LINE = "2020-01-02T03:04:0{}Z stdout F {}"
TERMINATED = {"terminated": {"exitCode": 0, "containerID": "docker://old"}}


def status(
    state: dict[str, Any], last: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "c", "state": state, "lastState": last or {}, **more}]}


@pytest.mark.parametrize(
    ("found", "previous", "wanted"),
    [
        (status({"running": {}}, containerID="docker://x"), False, "docker://x"),
        (status({"running": {}}, TERMINATED, containerID="docker://x"), True, "docker://old"),
        (status({"waiting": {"reason": "CrashLoopBackOff"}}, TERMINATED), False, "docker://old"),
        (status(TERMINATED), False, "docker://old"),
        (status({"terminated": {"exitCode": 1}}, TERMINATED), False, "docker://old"),
    ],
)
def test_whose_log_it_is(found: dict[str, Any], previous: bool, wanted: str) -> None:
    assert choose_log_container("p", found, "c", previous) == wanted


@pytest.mark.parametrize(
    ("found", "previous", "why"),
    [
        ({}, False, 'container "c" in pod "p" is not available'),
        (status({"running": {}}), True, 'previous terminated container "c" in pod "p" not found'),
        (status({"terminated": {}}), False, 'container "c" in pod "p" is terminated'),
        (
            status({"waiting": {"reason": "ContainerCreating"}}),
            False,
            'container "c" in pod "p" is waiting to start: ContainerCreating',
        ),
        (
            status({"waiting": {"reason": "ErrImagePull"}}),
            False,
            'container "c" in pod "p" is waiting to start: image can\'t be pulled',
        ),
        (
            status({"waiting": {"reason": "ImagePullBackOff"}}),
            False,
            'container "c" in pod "p" is waiting to start: trying and failing to pull image',
        ),
        (status({}), False, 'container "c" in pod "p" is waiting to start - no logs yet'),
    ],
)
def test_why_there_is_none(found: dict[str, Any], previous: bool, why: str) -> None:
    with pytest.raises(LookupError) as raised:
        choose_log_container("p", found, "c", previous)
    assert raised.value.args[0] == why


def test_over_http() -> None:
    harness = ServerHarness()
    harness.write_log(LINE.format(1, "one"), LINE.format(2, "two"))
    at = "/containerLogs/ns/p/c"
    assert harness.text(at) == (200, "one\ntwo\n")
    assert harness.text(f"{at}?tailLines=1&timestamps=true") == (
        200,
        "2020-01-02T03:04:02.000000000Z two\n",
    )
    assert harness.text(f"{at}?sinceTime=2020-01-02T03:04:02Z") == (200, "two\n")
    assert harness.text(f"{at}?sinceSeconds=4") == (200, "one\ntwo\n")
    assert harness.text(f"{at}?sinceSeconds=3") == (200, "two\n")
    assert harness.text(f"{at}?tail=all&limitBytes=2") == (200, "on")
    assert harness.text(f"{at}?tailLines=x") == (400, '{"message": "Unable to decode query."}')
    assert harness.text(f"{at}?tailLines=-1") == (422, '{"message": "Invalid request."}')
    assert harness.text(f"{at}?previous=true") == (
        400,
        'previous terminated container "c" in pod "p" not found',
    )
    assert harness.text("/containerLogs/ns/x/c") == (404, 'pod "x" does not exist')
    assert harness.text("/containerLogs/ns/p/x") == (404, 'container "x" not found in pod "p"')
    assert harness.text(at, method="POST") == (405, "405: Method Not Allowed")
    harness.files.remove(LOG)
    gone = (
        f'failed to try resolving symlinks in path "{LOG}": lstat {LOG}: no such file or directory'
    )
    assert harness.text(at) == (400, gone)


class Sink:
    def __init__(self) -> None:
        self.data = b""
        self.alive = True
        self.on_close: Any = None
        self.closed = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.data += data

    async def drained(self) -> None:
        await asyncio.sleep(0)

    def close(self) -> None:
        self.closed.set()


async def follow(harness: ServerHarness, query: str = "") -> Sink:
    target = f"/containerLogs/ns/p/c?follow=true{query}"
    request = HttpRequest("GET", target.encode(), "/containerLogs/ns/p/c", {}, peer=ADMIN)
    answer = await harness.server.handler(request)
    assert isinstance(answer, StreamResponse)
    sink = Sink()
    answer.start(sink)  # type: ignore[arg-type]
    await turn()
    return sink


async def turn() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_following_to_the_end_of_the_container() -> None:
    harness = ServerHarness()
    harness.write_log(LINE.format(1, "one"))
    sink = await follow(harness)
    assert sink.data == b"one\n"
    harness.write_log(LINE.format(2, "two"))
    await turn()
    assert sink.data == b"one\ntwo\n" and not sink.closed.is_set()
    harness.files.rename(LOG, LOG + ".1")
    harness.files.write(LOG, b"")
    harness.write_log(LINE.format(3, "three"))
    await turn()
    harness.write_log(LINE.format(4, "four"))
    harness.runtime.exit()
    await asyncio.wait_for(sink.closed.wait(), 5)
    assert sink.data == b"one\ntwo\nthree\nfour\n"
    assert not harness.runtime.listeners and not harness.runtime.log_listeners


async def test_following_ends_with_the_limit_and_with_the_client() -> None:
    harness = ServerHarness()
    limited = await follow(harness, "&limitBytes=6")
    gone = await follow(harness)
    harness.write_log(LINE.format(1, "one"), LINE.format(2, "two"))
    await asyncio.wait_for(limited.closed.wait(), 5)
    assert limited.data == b"one\ntw"
    gone.alive = False
    gone.on_close()
    await turn()
    assert not harness.runtime.listeners and not harness.runtime.log_listeners
