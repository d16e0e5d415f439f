"""The ports that Windows itself listens on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.node.programs.simulated_node import play
from tests.node.test_login import ADDRESS, Shell
from tests.simulation.loop import VIRTUAL_LOOP

from transom.http.messages import HttpRequest
from transom.runtime.sim.system_ports import answer_winrm


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_LOOP


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


async def test_windows_listens_from_boot_until_a_service_stops() -> None:
    async with play() as world:
        connect = world.pool.cluster.dataplane.connect
        (await connect(ADDRESS, 445)).close()
        (await connect(ADDRESS, 5985)).close()
        with pytest.raises(TimeoutError):
            await connect(ADDRESS, 135)  # the firewall
        shell = Shell(world)
        shown = (await shell("netstat -ano")).splitlines()
        rows = [line.split() for line in shown if "LISTENING" in line]
        pids = {row[1].rpartition(":")[2]: row[4] for row in rows}
        assert pids["445"] == pids["5985"] == "4"
        assert pids["135"] not in ("0", "4")
        await shell("Stop-Service WinRM")
        with pytest.raises(ConnectionRefusedError):
            await connect(ADDRESS, 5985)
        await shell("Start-Service WinRM")
        (await connect(ADDRESS, 5985)).close()
        await shell("Set-Service WinRM -StartupType Disabled")
        await world.pool.stop("w")
        await world.pool.start("w")
        with pytest.raises(ConnectionRefusedError):
            await connect(ADDRESS, 5985)
        (await connect(ADDRESS, 445)).close()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/wsman", 405), ("POST", "/wsman", 401)],
)
def test_winrm_answers_as_on_windows(method: str, path: str, status: int) -> None:
    response = answer_winrm(HttpRequest(method, path.encode(), path, {}))
    assert response.status == status
    assert (b"Server", b"Microsoft-HTTPAPI/2.0") in response.headers
