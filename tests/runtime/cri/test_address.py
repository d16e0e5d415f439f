from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from transom.runtime.api import RuntimeFailure
from transom.runtime.cri import address, client
from transom.runtime.cri.address import (
    RuntimeEndpoint,
    RuntimeEndpointError,
    parse_runtime_endpoint,
)

UNIX, PIPE = "unix:///run/containerd/containerd.sock", "npipe:////./pipe/containerd-containerd"


@pytest.mark.parametrize(
    ("endpoint", "platform", "found"),
    [
        (UNIX, "linux", RuntimeEndpoint("unix", "/run/containerd/containerd.sock")),
        (
            "/run/containerd/containerd.sock",
            "linux",
            RuntimeEndpoint("unix", "/run/containerd/containerd.sock"),
        ),
        (PIPE, "win32", RuntimeEndpoint("npipe", r"\\.\pipe\containerd-containerd")),
        (
            "npipe://./pipe/containerd-containerd",
            "win32",
            RuntimeEndpoint("npipe", r"\\.\pipe\containerd-containerd"),
        ),
        (
            "npipe:///pipe/containerd-containerd",
            "win32",
            RuntimeEndpoint("npipe", r"\\.\pipe\containerd-containerd"),
        ),
        (
            r"npipe:////.\pipe\containerd-containerd",
            "win32",
            RuntimeEndpoint("npipe", r"\\.\pipe\containerd-containerd"),
        ),
        (
            r"npipe:\\.\pipe\containerd-containerd",
            "win32",
            RuntimeEndpoint("npipe", r"\\.\pipe\containerd-containerd"),
        ),
        (r"unix:///run/a\b.sock", "linux", RuntimeEndpoint("unix", r"/run/a\b.sock")),
    ],
)
def test_endpoints(endpoint: str, platform: str, found: RuntimeEndpoint) -> None:
    assert parse_runtime_endpoint(endpoint, platform) == found


@pytest.mark.parametrize(
    ("endpoint", "platform", "why"),
    [
        (
            PIPE,
            "linux",
            f'the endpoint "{PIPE}" is a named pipe, which only Windows has; here it is "{UNIX}"',
        ),
        (UNIX, "win32", f'the endpoint "{UNIX}" is a Unix socket; on Windows it is "{PIPE}"'),
        (
            "unix://run/x.sock",
            "linux",
            f'the endpoint "unix://run/x.sock" names no absolute path: "{UNIX}" does',
        ),
        (
            "npipe://server/pipe/x",
            "win32",
            f'the endpoint "npipe://server/pipe/x" names no pipe: "{PIPE}" does',
        ),
        ("npipe:////./x", "win32", f'the endpoint "npipe:////./x" names no pipe: "{PIPE}" does'),
        (
            "tcp://1.2.3.4:1",
            "linux",
            f'the endpoint "tcp://1.2.3.4:1" is not supported: only unix endpoints as "{UNIX}" are',
        ),
        (
            "x.sock",
            "linux",
            f'the endpoint "x.sock" is not supported: only unix endpoints as "{UNIX}" are',
        ),
    ],
)
def test_invalid_endpoints(endpoint: str, platform: str, why: str) -> None:
    with pytest.raises(RuntimeEndpointError) as problem:
        parse_runtime_endpoint(endpoint, platform)
    assert str(problem.value) == why


def test_an_address_is_written_as_an_endpoint() -> None:
    assert [
        str(parse_runtime_endpoint(UNIX, "linux")),
        str(parse_runtime_endpoint(PIPE, "win32")),
    ] == [UNIX, PIPE]


class PipeLoop:
    """What asyncio's loop for Windows is to a client of pipes."""

    def __init__(self, problem: OSError | None = None) -> None:
        self.problem = problem
        self.requested: list[str] = []
        self._real = asyncio.get_running_loop()

    async def create_pipe_connection(
        self, protocol: Callable[[], asyncio.Protocol], path: str
    ) -> tuple[Any, Any]:
        self.requested.append(path)
        if self.problem is not None:
            raise self.problem
        made, transport = protocol(), asyncio.Transport()
        self._real.call_soon(made.connection_made, transport)  # as Windows' does: later
        return transport, made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


async def _over(loop: PipeLoop, work: Callable[[], Awaitable[Any]]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "get_running_loop", lambda: loop)
        return await work()


async def test_a_pipe_is_opened_by_the_loop_of_windows() -> None:
    class Protocol(asyncio.Protocol):
        transport: asyncio.BaseTransport | None = None

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

    loop = PipeLoop()
    made = await _over(
        loop, lambda: address.connect_runtime(parse_runtime_endpoint(PIPE, "win32"), Protocol)
    )
    assert loop.requested == [r"\\.\pipe\containerd-containerd"]
    assert made.transport is not None  # a call may be made at once


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        (
            FileNotFoundError(2, "The system cannot find the file specified"),
            "open //./pipe/containerd-containerd: The system cannot find the file specified.",
        ),
        (
            PermissionError(13, "Access is denied"),
            "open //./pipe/containerd-containerd: Access is denied.",
        ),
        (TimeoutError(), "context deadline exceeded"),  # all instances were busy
    ],
)
async def test_a_pipe_that_cannot_be_opened(
    problem: OSError, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        address,
        "parse_runtime_endpoint",
        lambda endpoint: parse_runtime_endpoint(endpoint, "win32"),
    )

    with pytest.raises(RuntimeFailure) as failure:
        await _over(PipeLoop(problem), lambda: client.CriClient(PIPE).call("Version"))
    assert str(failure.value) == (
        'rpc error: code = Unavailable desc = connection error: desc = "transport: '
        f'Error while dialing {why}"'
    )
