"""Programs that a node starts when it boots: the same ones, from the same command lines, as those
that users start.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.node.programs.simulated_node import ProgramOutput, simulated_cluster
from tests.simulation.loop import VIRTUAL_LOOP

from transom.machinery.objects import Object
from transom.node.network_settings import NetworkSettings
from transom.node.programs.command_lines import BINARIES
from transom.windows.records import ALL_NETWORKS


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_LOOP


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def is_ready(node: Object) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])


async def test_nodes_boot_with_what_their_command_lines_say() -> None:
    async with simulated_cluster() as cluster:
        for node in cluster.pool.nodes():
            assert node.kubelet is not None
            assert node.kubelet.env.config == node.kubelet_settings()
            for binary in BINARIES:
                process = node.programs.running(binary)
                assert process is not None and process.started is not None
                assert process.argv == node.programs.usual(binary)[1]
            assert node.network.agent is not None and node.network.proxier is not None
        files = cluster.pool.node("w").machine.files
        assert not files.exists(r"C:\k\kubelet.exe.INFO")  # the log has not been read yet
        assert b"FLAG: --hostname-override" in await cluster.binaries.log("kubelet")
        assert files.exists(r"C:\k\kubelet.exe.INFO")


@pytest.mark.parametrize(
    "network",
    [
        *(NetworkSettings(mode=mode) for mode in ALL_NETWORKS),
        NetworkSettings(dual_stack=True),
        NetworkSettings(proxy_mode="userspace"),
        NetworkSettings(dsr=True),
    ],
)
@pytest.mark.parametrize("build", [17763, 19041])
async def test_every_program_runs_since_boot(network: NetworkSettings, build: int) -> None:
    """A command line that its own program rejects leaves a Ready node without services."""

    async with simulated_cluster(network, build=build) as cluster:
        for node in cluster.pool.nodes():
            for binary in node.network.programs:
                process = node.programs.running(binary)
                assert process is not None and process.started is not None, (node, binary)


async def test_programs_of_a_linux_node_stop_and_start() -> None:
    async with simulated_cluster() as cluster:
        node = cluster.pool.node("l")
        kubelet = node.programs.running("kubelet")
        assert kubelet is not None
        await kubelet.stop()
        assert node.kubelet is None and node.programs.running("kubelet") is None

        async def not_ready() -> bool:
            return not is_ready(await cluster.node("l"))

        async def ready() -> bool:
            return is_ready(await cluster.node("l"))

        await cluster.until(not_ready, 120)
        output = ProgramOutput()
        argv = [*node.programs.usual("kubelet")[1], "--max-pods=7"]
        await node.programs.launch("kubelet", argv, {}, "/", output)
        await cluster.until(ready)
        assert (await cluster.node("l"))["status"]["capacity"]["pods"] == "7"
        output = ProgramOutput()
        argv = ["--kubeconfig=/nope"]
        failed = await node.programs.launch("kube-proxy", argv, {}, "/", output)
        assert await failed.wait() == 1 and "/nope: no such file or directory" in output.text


async def test_a_node_boots_with_the_kubeconfig_on_its_disk() -> None:
    async with simulated_cluster() as cluster:
        path = r"c:\k\config"
        content = cluster.files.read(path)
        server = cluster.pool.cluster.api_servers()[0].encode()
        cluster.files.write(path, content.replace(server, b"https://192.0.2.1:6443"))
        await cluster.pool.reboot("w")

        async def not_ready() -> bool:
            return not is_ready(await cluster.node())

        async def ready() -> bool:
            return is_ready(await cluster.node())

        await cluster.until(not_ready, 120)
        log = (await cluster.binaries.log("kubelet")).decode()
        assert "dial tcp 192.0.2.1:6443: connectex: No connection could be made" in log
        cluster.files.write(path, content)
        await cluster.pool.reboot("w")
        await cluster.until(ready)
