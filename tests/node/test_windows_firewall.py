"""The firewall of a Windows node in a cluster: what users change with commands on the node."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.node.programs.simulated_node import NodeTestCluster, simulated_cluster
from tests.node.test_login import ADDRESS, Shell, is_ready, ready
from tests.simulation.loop import VIRTUAL_LOOP

from transom.client.resources import SERVICES
from transom.node.network_settings import NetworkSettings
from transom.node.network_windows import WindowsNodeNetwork


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_LOOP


@pytest.fixture(autouse=True)
def data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def blocked(cluster: NodeTestCluster) -> str:
    """Why the API server cannot reach the kubelet, as doctor sees it."""
    [network] = [
        node.network
        for node in cluster.pool.nodes()
        if isinstance(node.network, WindowsNodeNetwork)
    ]
    return network.blocks_inbound(10250, "172.20.0.2")


async def answers(cluster: NodeTestCluster, port: int) -> bool:
    try:
        connection = await cluster.pool.cluster.dataplane.connect(ADDRESS, port)
    except (TimeoutError, ConnectionRefusedError):
        return False
    connection.close()
    return True


@pytest.mark.parametrize(
    ("block", "allow"),
    [
        (
            "New-NetFirewallRule -Name x -DisplayName x -Protocol TCP -LocalPort 10250 "
            "-Action Block | Out-Null",
            "Remove-NetFirewallRule -Name x",
        ),
        ("Disable-NetFirewallRule KubeletAllow10250", "Enable-NetFirewallRule KubeletAllow10250"),
        (
            "Set-NetFirewallRule KubeletAllow10250 -RemoteAddress 10.0.0.1",
            "Set-NetFirewallRule KubeletAllow10250 -RemoteAddress Any",
        ),
        (
            "netsh advfirewall firewall add rule name=x dir=in action=block protocol=TCP "
            "localport=10250",
            "netsh advfirewall firewall delete rule name=x",
        ),
        (
            "netsh advfirewall set currentprofile firewallpolicy 'blockinboundalways,allowoutbound'",
            "netsh advfirewall set currentprofile firewallpolicy 'blockinbound,allowoutbound'",
        ),
        (
            "netsh advfirewall firewall set rule name=KubeletAllow10250 new enable=no",
            "netsh advfirewall set allprofiles state off",
        ),
        ("netsh advfirewall reset", "Set-NetFirewallProfile -DefaultInboundAction Allow"),
    ],
)
async def test_commands_open_and_close_the_port_of_the_kubelet(block: str, allow: str) -> None:
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        assert await answers(cluster, 10250)
        await shell(block)
        assert not await answers(cluster, 10250) and blocked(cluster).startswith("its firewall ")
        await shell(allow)
        assert await answers(cluster, 10250) and not blocked(cluster)


async def test_programs_that_listen_need_a_rule() -> None:
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        assert await answers(cluster, 10256)
        await shell(
            "New-NetFirewallRule -DisplayName x -Program C:\\k\\kube-proxy.exe -Action Block "
            "| Out-Null"
        )
        assert not await answers(cluster, 10256)


async def test_a_node_whose_firewall_blocks_the_api_server_is_not_ready() -> None:
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        await shell(
            "New-NetFirewallRule -Name api -DisplayName api -Direction Outbound -Protocol TCP "
            "-RemotePort 6443 -Action Block | Out-Null"
        )
        await cluster.clock.sleep(60)
        assert await ready(cluster) == "Unknown"
        await shell("Remove-NetFirewallRule -Name api")
        await cluster.until(lambda: is_ready(cluster))


async def test_a_blocked_node_port_of_the_userspace_proxy_times_out() -> None:
    """kube-proxy itself listens there. In kernel mode the switch forwards node ports before the
    firewall sees them.
    """
    async with simulated_cluster(NetworkSettings(proxy_mode="userspace")) as cluster:
        await cluster.runs("web")
        spec = {"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80}]}
        made = await cluster.client.create(
            SERVICES, "default", {"metadata": {"name": "web"}, "spec": spec}
        )
        port = made["spec"]["ports"][0]["nodePort"]
        await cluster.until(lambda: answers(cluster, port))
        await Shell(cluster)(
            "netsh advfirewall firewall add rule name=x dir=in action=block protocol=TCP "
            f"localport={port}"
        )
        assert not await answers(cluster, port)
