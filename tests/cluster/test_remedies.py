"""Every remedy of the Troubleshooting section, in any order, ends with a Ready node and working
traffic.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.node.programs.simulated_node import NodeTestCluster, simulated_cluster
from tests.node.test_login import ADDRESS, Shell, is_ready
from tests.simulation.loop import VIRTUAL_LOOP

from transom.client.resources import NODES, PODS
from transom.node.network_settings import NetworkSettings


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_LOOP


MODES = {"l2bridge": NetworkSettings(), "overlay": NetworkSettings(mode="overlay")}


@pytest.fixture(autouse=True)
def data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


class Remedies:
    def __init__(self, cluster: NodeTestCluster, mode: str) -> None:
        self.cluster = cluster
        self.mode = mode
        self.shell = Shell(cluster)

    async def start(self) -> None:
        await self.shell(f".\\start.ps1 -ManagementIP {ADDRESS} -NetworkMode {self.mode}")

    async def stop_and_start(self) -> None:
        await self.shell(".\\stop.ps1")
        await self.cluster.clock.sleep(50)
        await self.start()

    async def register_services(self) -> None:
        await self.shell(f".\\register-svc.ps1 -ManagementIP {ADDRESS} -NetworkMode {self.mode}")

    async def restart_flanneld(self) -> None:
        """For a missing subnet.env."""
        await self.shell(
            "Get-Process flanneld | Stop-Process; Remove-Item C:\\run\\flannel\\subnet.env"
        )
        await self.cluster.clock.sleep(2)
        await self.shell(
            '[Environment]::SetEnvironmentVariable("NODE_NAME", "w"); Start-Process '
            "C:\\flannel\\flanneld.exe -ArgumentList "
            f'"--kubeconfig-file=c:\\k\\config --iface={ADDRESS} --ip-masq=1 --kube-subnet-mgr=1"'
        )

    async def remove_network(self) -> None:
        """flanneld is stuck in "Waiting for the Network to be created"."""
        await self.shell("Get-HnsNetwork | Remove-HnsNetwork")
        await self.start()

    async def rejoin(self) -> None:
        await self.shell(
            ".\\stop.ps1; Remove-Item C:\\k\\SourceVip.json, C:\\k\\SourceVipRequest.json "
            "-ErrorAction SilentlyContinue; exit 0"
        )
        await self.cluster.client.delete(NODES, "", "w")
        await self.start()

    async def restart_services(self) -> None:
        await self.shell(
            "Get-Service kubelet, kube-proxy | ? Status -eq Running | Restart-Service -Force"
        )
        if (
            self.cluster.binaries.running("kubelet") is None
            or self.cluster.binaries.running("kube-proxy") is None
        ):
            await self.start()  # what start.ps1 has started is not a service

    async def reboot(self) -> None:
        await self.cluster.pool.reboot("w")
        await self.cluster.clock.sleep(5)
        if self.cluster.binaries.running("kubelet") is None:
            await self.start()

    ALL = (
        start,
        stop_and_start,
        register_services,
        restart_flanneld,
        remove_network,
        rejoin,
        restart_services,
        reboot,
    )


async def _works(cluster: NodeTestCluster, number: int, address: str) -> None:
    """A new pod on the node is reached from the other node, and a service by it."""
    await cluster.until(lambda: is_ready(cluster), 120)
    name = f"new-{number}"
    await cluster.pod(name)
    await cluster.until(lambda: _has_address(cluster, name), 120)
    pod = await cluster.client.get(PODS, "default", name)
    await cluster.until(lambda: cluster.balancers(address), 60)
    cluster.pool.cluster.network.fabric.refresh_node("l")
    (await cluster.pool.cluster.dataplane.connect(address, 80, pod["status"]["podIP"])).close()
    old = await cluster.client.get(PODS, "default", "old")
    assert cluster.net.hns.endpoints and old["status"]["podIP"] in str(
        list(cluster.net.hns.endpoints.values())
    )
    await cluster.client.delete(PODS, "default", name)


async def _has_address(cluster: NodeTestCluster, name: str) -> bool:
    for each in (name, "old"):
        pod = await cluster.client.get(PODS, "default", each)
        ready = [c["status"] for c in pod["status"].get("conditions") or () if c["type"] == "Ready"]
        if ready != ["True"] or pod["status"].get("podIP", "-") not in str(
            list(cluster.net.hns.endpoints.values())
        ):
            return False
    return True


@pytest.mark.windows("TRB-03", "TRB-06", "TRB-86", "TRB-87", "TRB-88", "TRB-90", "TRB-92", "TRB-94")
@pytest.mark.parametrize(("mode", "seed"), [("l2bridge", 1), ("overlay", 3)])
async def test_remedies_in_any_order(mode: str, seed: int) -> None:
    order = random.Random(seed).sample(Remedies.ALL, len(Remedies.ALL))

    async with simulated_cluster(MODES[mode]) as cluster:
        remedies = Remedies(cluster, mode)
        await cluster.runs("server", "l")
        address = await cluster.service("server")
        await cluster.runs("old")
        for number, remedy in enumerate(order):
            await remedy(remedies)
            try:
                await _works(cluster, number, address)
            except (AssertionError, OSError) as problem:
                done = ", ".join(each.__name__ for each in order[: number + 1])
                raise AssertionError(f"after {done}: {problem!r}") from problem
