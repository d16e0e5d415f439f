"""Files of /var/log that a pod has made: of any size, and of any kind."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from transom.http.messages import Answer, HttpResponse, StreamResponse
from transom.kubelet import os_linux
from transom.kubelet.server.hostlogs import serve_host_logs
from transom.machines.realfiles import RealFiles

MUCH = 3 << 20


class SlowClient:
    """Reads one piece at a time."""

    def __init__(self) -> None:
        self.data = b""
        self.unread = 0
        self.most = 0
        self.alive = True
        self.on_close: object = None
        self.ended = asyncio.Event()
        self.whole = False

    def write(self, data: bytes) -> None:
        self.data += data
        self.unread += len(data)
        self.most = max(self.most, self.unread)

    async def drained(self) -> None:
        await asyncio.sleep(0)
        self.unread = 0

    def close(self) -> None:
        self.whole = True
        self.ended.set()

    def abort(self) -> None:
        self.ended.set()


@pytest.fixture
def files(tmp_path: Path) -> RealFiles:
    found = RealFiles(tmp_path)
    found.mkdir("/var/log")
    return found


def get(files: RealFiles, path: str) -> Answer:
    return serve_host_logs(files, os_linux.RULES, path)


async def read_slowly(answer: Answer) -> SlowClient:
    assert isinstance(answer, StreamResponse) and answer.status == 200
    client = SlowClient()
    answer.start(client)  # type: ignore[arg-type]
    await client.ended.wait()
    return client


async def test_a_long_log_is_sent_as_the_client_reads(files: RealFiles) -> None:
    text = os.urandom(MUCH)
    files.write("/var/log/long", text)
    client = await read_slowly(get(files, "long"))
    assert client.whole and client.data == text
    assert client.most <= 256 * 1024


async def test_a_log_that_grows_is_sent_as_it_was(files: RealFiles) -> None:
    files.write("/var/log/grows", b"x" * MUCH)
    answer = get(files, "grows")
    files.append("/var/log/grows", b"y" * MUCH)
    assert (await read_slowly(answer)).data == b"x" * MUCH


async def test_a_log_that_disappears_ends_the_response_early(files: RealFiles) -> None:
    files.write("/var/log/gone", b"x" * MUCH)
    answer = get(files, "gone")
    files.remove("/var/log/gone")
    client = await read_slowly(answer)
    assert not client.whole and len(client.data) < MUCH


async def test_a_terabyte_of_zeros_takes_no_memory(files: RealFiles, tmp_path: Path) -> None:
    with (tmp_path / "var/log/zeros").open("wb") as file:
        file.truncate(1 << 40)
    answer = get(files, "zeros")
    assert isinstance(answer, StreamResponse), "not read yet"


def test_pipes_and_devices_are_not_read(files: RealFiles, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "var/log/pipe")
    (tmp_path / "var/log/link").symlink_to("pipe")
    for name in ("pipe", "link"):
        answer = get(files, name)
        assert isinstance(answer, HttpResponse) and answer.status == 404
