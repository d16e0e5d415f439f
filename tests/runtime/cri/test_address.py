from __future__ import annotations

import asyncio
from typing import Any

import pytest

from transom.runtime.cri import address
from transom.runtime.cri.address import Address, AddressError, parse

UNIX, PIPE = "unix:///run/containerd/containerd.sock", "npipe:////./pipe/containerd-containerd"


@pytest.mark.parametrize(
    ("endpoint", "platform", "found"),
    [
        (UNIX, "linux", Address("unix", "/run/containerd/containerd.sock")),
        ("/run/containerd/containerd.sock", "linux", Address("unix", "/run/containerd/containerd.sock")),
        (PIPE, "win32", Address("npipe", r"\\.\pipe\containerd-containerd")),
        ("npipe://./pipe/containerd-containerd", "win32", Address("npipe", r"\\.\pipe\containerd-containerd")),
    ],
)
def test_endpoints(endpoint: str, platform: str, found: Address) -> None:
    assert parse(endpoint, platform) == found


@pytest.mark.parametrize(
    ("endpoint", "platform", "why"),
    [
        (PIPE, "linux", f'the endpoint "{PIPE}" is a named pipe, which only Windows has; here it is "{UNIX}"'),
        (UNIX, "win32", f'the endpoint "{UNIX}" is a Unix socket; on Windows it is "{PIPE}"'),
        ("unix://run/x.sock", "linux", f'the endpoint "unix://run/x.sock" names no absolute path: "{UNIX}" does'),
        ("npipe:////./x", "win32", f'the endpoint "npipe:////./x" names no pipe: "{PIPE}" does'),
        ("tcp://1.2.3.4:1", "linux", f'the endpoint "tcp://1.2.3.4:1" is not supported: only unix endpoints as "{UNIX}" are'),
        ("x.sock", "linux", f'the endpoint "x.sock" is not supported: only unix endpoints as "{UNIX}" are'),
    ],
)
def test_what_is_no_endpoint(endpoint: str, platform: str, why: str) -> None:
    with pytest.raises(AddressError) as problem:
        parse(endpoint, platform)
    assert str(problem.value) == why


def test_an_address_is_written_as_an_endpoint() -> None:
    assert [str(parse(UNIX, "linux")), str(parse(PIPE, "win32"))] == [UNIX, PIPE]


def test_a_pipe_is_opened_by_the_loop_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loop:
        async def create_pipe_connection(self, protocol: Any, path: str) -> tuple[None, Any]:
            return None, (protocol, path)

    async def main() -> None:
        monkeypatch.setattr(address.asyncio, "get_running_loop", Loop)
        made = await address.connect(parse(PIPE, "win32"), asyncio.Protocol)
        monkeypatch.undo()
        assert made == (asyncio.Protocol, r"\\.\pipe\containerd-containerd")

    asyncio.run(main())
