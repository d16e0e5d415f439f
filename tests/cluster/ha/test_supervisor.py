"""Commands to the supervisor of several API servers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import cast

import pytest

from transom.cluster.config import ClusterConfig
from transom.cluster.ha import supervisor
from transom.cluster.ha.sockets import connect_unix
from transom.cluster.ha.supervisor import ServerGroup


class GroupWithStatus:
    def status(self) -> dict[str, object]:
        return {"servers": []}


@pytest.mark.parametrize(
    "command",
    [b"null\n", b"5\n", b'["restart"]\n', b"\xff\n", b"[" * 60_000 + b"\n", b"a" * 70_000 + b"\n"],
    ids=["null", "number", "list", "bytes", "nesting", "length"],
)
async def test_a_malformed_command_is_answered_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: bytes
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    config = ClusterConfig(name="group")
    config.state.mkdir(parents=True)
    serving = asyncio.create_task(
        supervisor._serve_control(config, cast(ServerGroup, GroupWithStatus()))
    )
    await asyncio.sleep(0)  # it listens at once

    async def ask(line: bytes) -> dict[str, object]:
        sock = connect_unix(config.state / supervisor.CONTROL)
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        writer.write(line)
        answer: dict[str, object] = json.loads(await reader.readline())
        writer.close()
        return answer

    try:
        assert set(await ask(command)) == {"error"}
        assert await ask(b'{"command": "status"}\n') == {"servers": []}
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
