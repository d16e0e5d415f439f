"""The ports that Windows itself listens on."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.node.programs.simulated_node import NodeTestCluster, simulated_cluster
from tests.node.test_login import ADDRESS, Shell
from tests.simulation.loop import VIRTUAL_LOOP

from transom.http.messages import HttpRequest
from transom.runtime.sim.engine import SimRuntime
from transom.runtime.sim.system_ports import answer_winrm


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_LOOP


@pytest.fixture(autouse=True)
def data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


async def test_windows_listens_from_boot_until_a_service_stops() -> None:
    async with simulated_cluster() as cluster:
        connect = cluster.pool.cluster.dataplane.connect
        (await connect(ADDRESS, 445)).close()
        (await connect(ADDRESS, 5985)).close()
        with pytest.raises(TimeoutError):
            await connect(ADDRESS, 135)  # the firewall
        shell = Shell(cluster)
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
        await cluster.pool.stop("w")
        await cluster.pool.start("w")
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


class Server:
    """A program on port 9000 of the node. On virtual time sockets transfer no data; for that see
    tests/runtime/sim/test_port_proxy.py.
    """

    def __init__(self, cluster: NodeTestCluster) -> None:
        self._world = cluster
        self.accepted: list[socket.socket] = []
        runtime = cluster.pool.node("w").runtime
        assert isinstance(runtime, SimRuntime)
        self.namespace = runtime.core.node_namespace
        self.namespace.listen(9000, self.accepted.append)

    async def gets_connection(self, port: int) -> bool:
        before = len(self.accepted)
        with await self._world.pool.cluster.dataplane.connect(ADDRESS, port):
            await self._world.until(lambda: len(self.accepted) > before)
        return True


ADD_PROXY = (
    "netsh interface portproxy add v4tov4 listenport=8080 connectaddress={} connectport=9000"
)
ALLOW_PORT = (
    "netsh advfirewall firewall add rule name=p dir=in action=allow protocol=TCP localport=8080"
)


@pytest.mark.parametrize("target", [ADDRESS, "127.0.0.1", "localhost", "w"])
async def test_a_port_proxy_forwards_connections(target: str) -> None:
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        server = Server(cluster)
        await shell(ADD_PROXY.format(target))
        with pytest.raises(TimeoutError):
            await cluster.pool.cluster.dataplane.connect(ADDRESS, 8080)  # the firewall
        await shell(ALLOW_PORT)
        assert await server.gets_connection(8080)
        row = next(r for r in (await shell("netstat -ano")).splitlines() if ":8080 " in r).split()
        assert row[1] == "0.0.0.0:8080"
        assert row[4] in await shell("tasklist /svc /fi 'services eq iphlpsvc'")
        await shell("netsh interface portproxy delete v4tov4 listenport=8080")
        with pytest.raises(ConnectionRefusedError):
            await cluster.pool.cluster.dataplane.connect(ADDRESS, 8080)


async def test_a_port_proxy_needs_its_service_and_survives_a_reboot() -> None:
    async with simulated_cluster() as cluster:
        connect = cluster.pool.cluster.dataplane.connect
        shell = Shell(cluster)
        server = Server(cluster)
        await shell(ADD_PROXY.format("127.0.0.1"))
        await shell(ALLOW_PORT)
        await shell("Stop-Service iphlpsvc")
        with pytest.raises(ConnectionRefusedError):
            await connect(ADDRESS, 8080)
        await shell("Start-Service iphlpsvc")
        assert await server.gets_connection(8080)
        await cluster.pool.stop("w")
        await cluster.pool.start("w")
        server = Server(cluster)
        assert await server.gets_connection(8080)
        assert "127.0.0.1/9000" in await shell(
            r"reg query HKLM\SYSTEM\CurrentControlSet\Services\PortProxy\v4tov4\tcp"
        )


async def test_the_service_reads_the_registry_when_it_is_notified() -> None:
    async with simulated_cluster() as cluster:
        connect = cluster.pool.cluster.dataplane.connect
        shell = Shell(cluster)
        server = Server(cluster)
        await shell(ALLOW_PORT)
        await shell(
            r"reg add HKLM\SYSTEM\CurrentControlSet\Services\PortProxy\v4tov4\tcp "
            "/v 0.0.0.0/8080 /d 127.0.0.1/9000"
        )
        with pytest.raises(ConnectionRefusedError):
            await connect(ADDRESS, 8080)
        await shell("sc.exe control iphlpsvc paramchange")
        assert await server.gets_connection(8080)


async def test_a_port_proxy_listens_on_one_address_or_ip_version() -> None:
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        server = Server(cluster)
        await shell(ALLOW_PORT)
        for kind, address in (("v4tov4", "127.0.0.1"), ("v6tov4", "::"), ("v4tov4", "10.9.9.9")):
            await shell(
                f"netsh interface portproxy add {kind} listenport=8080 listenaddress={address} "
                "connectaddress=127.0.0.1 connectport=9000"
            )
        with pytest.raises(ConnectionRefusedError):
            await cluster.pool.cluster.dataplane.connect(ADDRESS, 8080)
        rows = [
            row.split()[1] for row in (await shell("netstat -an")).splitlines() if "8080" in row
        ]
        assert rows == ["127.0.0.1:8080", "[::]:8080"]
        for address in ("127.0.0.1", "::1"):
            before = len(server.accepted)
            with await server.namespace.connect(address, 8080):
                await cluster.until(lambda: len(server.accepted) > before)  # noqa: B023
