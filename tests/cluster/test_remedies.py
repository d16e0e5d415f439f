"""Every remedy of the Troubleshooting section, in any order, ends with a Ready node and working
traffic.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.node.programs.simulated_node import World, play
from tests.node.test_login import ADDRESS, Shell, is_ready
from tests.simulation.loop import VIRTUAL_LOOP

from transom.client.resources import NODES, PODS
from transom.node.network_settings import NetworkSettings


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_LOOP


MODES = {"l2bridge": NetworkSettings(), "overlay": NetworkSettings(mode="overlay")}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


class Remedies:
    def __init__(self, world: World, mode: str) -> None:
        self.world = world
        self.mode = mode
        self.shell = Shell(world)

    async def start(self) -> None:
        await self.shell(f".\\start.ps1 -ManagementIP {ADDRESS} -NetworkMode {self.mode}")

    async def stop_and_start(self) -> None:
        await self.shell(".\\stop.ps1")
        await self.world.clock.sleep(50)
        await self.start()

    async def register_services(self) -> None:
        await self.shell(f".\\register-svc.ps1 -ManagementIP {ADDRESS} -NetworkMode {self.mode}")

    async def restart_flanneld(self) -> None:
        """For a missing subnet.env."""
        await self.shell(
            "Get-Process flanneld | Stop-Process; Remove-Item C:\\run\\flannel\\subnet.env"
        )
        await self.world.clock.sleep(2)
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
        await self.world.client.delete(NODES, "", "w")
        await self.start()

    async def restart_services(self) -> None:
        await self.shell(
            "Get-Service kubelet, kube-proxy | ? Status -eq Running | Restart-Service -Force"
        )
        if (
            self.world.binaries.running("kubelet") is None
            or self.world.binaries.running("kube-proxy") is None
        ):
            await self.start()  # what start.ps1 has started is not a service

    async def reboot(self) -> None:
        await self.world.pool.reboot("w")
        await self.world.clock.sleep(5)
        if self.world.binaries.running("kubelet") is None:
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


async def _works(world: World, number: int, address: str) -> None:
    """A new pod on the node is reached from the other node, and a service by it."""
    await world.until(lambda: is_ready(world), 120)
    name = f"new-{number}"
    await world.pod(name)
    await world.until(lambda: _has_address(world, name), 120)
    pod = await world.client.get(PODS, "default", name)
    await world.until(lambda: world.balancers(address), 60)
    world.pool.cluster.network.fabric.refresh_node("l")
    (await world.pool.cluster.dataplane.connect(address, 80, pod["status"]["podIP"])).close()
    old = await world.client.get(PODS, "default", "old")
    assert world.net.hns.endpoints and old["status"]["podIP"] in str(
        list(world.net.hns.endpoints.values())
    )
    await world.client.delete(PODS, "default", name)


async def _has_address(world: World, name: str) -> bool:
    for each in (name, "old"):
        pod = await world.client.get(PODS, "default", each)
        ready = [c["status"] for c in pod["status"].get("conditions") or () if c["type"] == "Ready"]
        if ready != ["True"] or pod["status"].get("podIP", "-") not in str(
            list(world.net.hns.endpoints.values())
        ):
            return False
    return True


@pytest.mark.windows("TRB-03", "TRB-06", "TRB-86", "TRB-87", "TRB-88", "TRB-90", "TRB-92", "TRB-94")
@pytest.mark.parametrize(("mode", "seed"), [("l2bridge", 1), ("overlay", 3)])
async def test_remedies_in_any_order(mode: str, seed: int) -> None:
    order = random.Random(seed).sample(Remedies.ALL, len(Remedies.ALL))

    async with play(MODES[mode]) as world:
        remedies = Remedies(world, mode)
        await world.runs("server", "l")
        address = await world.service("server")
        await world.runs("old")
        for number, remedy in enumerate(order):
            await remedy(remedies)
            try:
                await _works(world, number, address)
            except (AssertionError, OSError) as problem:
                done = ", ".join(each.__name__ for each in order[: number + 1])
                raise AssertionError(f"after {done}: {problem!r}") from problem
