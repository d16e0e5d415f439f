"""What holds a sandbox's network without runc: only root can start it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from transom.runtime.native import pause
from transom.runtime.native.client import Monitor, MonitorFailure

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make namespaces here")

_NOBODY = 65535


def _order(folder: Path, **changed: Any) -> dict[str, Any]:
    pause.install_pause_program(folder / "pause")
    order = {
        "program": "/pause",
        "root": str(folder / "pause"),
        "user": _NOBODY,
        "group": _NOBODY,
        "oom_score_adj": 500,
        "network": "",
        "processes": "",
    }
    return order | changed


def _read(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def _status(pid: int) -> dict[str, list[str]]:
    lines = _read(pid, "status").splitlines()
    return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}


async def test_it_holds_a_network_without_privileges(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path / "native")
    await monitor.open()
    ended: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    monitor.listen("one", ended.set_result)
    try:
        one = (await monitor.ask("launch", id="one", hold=_order(tmp_path), folder=str(tmp_path)))[
            "pid"
        ]
        held = f"/proc/{one}/ns/net"
        order = _order(tmp_path, network=held)
        other = (await monitor.ask("launch", id="other", hold=order, folder=str(tmp_path)))["pid"]
        order = _order(tmp_path, network=None)
        ours = (await monitor.ask("launch", id="ours", hold=order, folder=str(tmp_path)))["pid"]
        assert (
            os.readlink(held)
            == os.readlink(f"/proc/{other}/ns/net")
            != os.readlink("/proc/self/ns/net")
        )
        assert os.readlink(f"/proc/{ours}/ns/net") == os.readlink("/proc/self/ns/net")
        assert "127.0.0.1" in _read(one, "net/fib_trie"), "its loopback is up"
        status = _status(one)
        assert set(status["Uid"] + status["Gid"]) == {str(_NOBODY)}
        assert not status["Groups"]
        assert int(status["CapEff"][0], 16) == 0
        assert status["NoNewPrivs"] == ["1"]
        assert os.readlink(f"/proc/{one}/root") == str(tmp_path / "pause")
        assert {os.readlink(f"/proc/{one}/fd/{fd}") for fd in os.listdir(f"/proc/{one}/fd")} == {
            os.devnull
        }
        assert _read(one, "oom_score_adj") == "500\n"
        monitor.notify("kill", id="one", number=signal.SIGTERM)
        assert (await asyncio.wait_for(ended, 10))["status"] == 128 + signal.SIGTERM
    finally:
        await monitor.shutdown()


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"network": "/nowhere/net"}, "/nowhere/net: No such file or directory"),
        ({"program": "/other"}, "/other: No such file or directory"),
        ({"network": "/proc/self/ns/uts"}, "/proc/self/ns/uts: Invalid argument"),
    ],
)
async def test_it_says_what_was_in_the_way(
    tmp_path: Path, changed: dict[str, Any], text: str
) -> None:
    monitor = Monitor(tmp_path / "native")
    await monitor.open()
    try:
        with pytest.raises(MonitorFailure) as failure:
            await monitor.ask(
                "launch", id="one", hold=_order(tmp_path, **changed), folder=str(tmp_path)
            )
        assert failure.value.text == text
    finally:
        await monitor.shutdown()
