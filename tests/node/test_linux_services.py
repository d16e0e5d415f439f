"""systemctl and journalctl of a Linux node: they show its programs as they are, and change them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.node.login_session import run_login
from tests.node.programs.simulated_node import NodeTestCluster, simulated_cluster
from tests.node.test_login import is_ready
from tests.simulation.loop import VIRTUAL_LOOP


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_LOOP


@pytest.fixture(autouse=True)
def data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


class LinuxShell:
    def __init__(self, cluster: NodeTestCluster) -> None:
        self.node = cluster.pool.node("l")

    async def __call__(self, command: str, code: int = 0) -> str:
        output = bytearray()
        session = run_login(self.node, [command], lambda _stream, data: output.extend(data))
        assert await session.wait() == code, output.decode()
        return output.decode()


async def test_services_show_what_runs() -> None:
    async with simulated_cluster() as cluster:
        shell = LinuxShell(cluster)
        for unit in ("kubelet", "kube-proxy.service", "flanneld", "containerd"):
            assert await shell(f"systemctl is-active {unit}") == "active\n"
        status = await shell("systemctl status kubelet")
        assert "Active: active (running) since " in status and "--hostname-override=l" in status
        pid = (await shell("systemctl show -p MainPID --value kubelet")).strip()
        assert f" {pid} root" in await shell("ps")
        assert "Version: v1.20" in await shell("journalctl -u kube-proxy --no-pager")
        assert len((await shell("journalctl -u kubelet -n 2")).splitlines()) == 2
        assert await shell("systemctl status nope", 4) == "Unit nope.service could not be found.\n"
        assert "No entries" in await shell("journalctl -u nope")
        assert "kubelet.service" in await shell("journalctl --field _SYSTEMD_UNIT")
        found = await shell("journalctl --utc --output=short-precise -u kube-proxy --grep=version")
        assert found and all("ersion" in line for line in found.splitlines())
        assert "No entries" in await shell("journalctl -u kubelet --since='2040-1-2 3:4:5'")
        assert "No entries" in await shell("journalctl -u kubelet --until='2001-1-2 3:4:5'")
        assert "kubelet" in await shell("journalctl -u kubelet --boot 0")


async def test_a_stopped_kubelet_makes_the_node_not_ready_and_a_started_one_ready() -> None:
    async with simulated_cluster() as cluster:
        shell = LinuxShell(cluster)
        await shell("systemctl stop kubelet")
        assert shell.node.kubelet is None
        assert "inactive (dead)" in await shell("systemctl status kubelet", 3)

        async def not_ready() -> bool:
            return not await is_ready(cluster, "l")

        await cluster.until(not_ready, 120)
        await shell("service kubelet start")
        await cluster.until(lambda: is_ready(cluster, "l"))


async def test_a_drop_in_decides_what_starts_also_at_boot() -> None:
    async with simulated_cluster() as cluster:
        shell = LinuxShell(cluster)
        files = shell.node.machine.files
        usual = " ".join(shell.node.programs.usual("kubelet")[1])
        folder = "/etc/systemd/system/kubelet.service.d"
        files.mkdir(folder)
        text = f"[Service]\nExecStart=\nExecStart=/usr/bin/kubelet {usual} --max-pods=7\n"
        files.write(f"{folder}/more.conf", text.encode())
        await shell("systemctl daemon-reload && systemctl restart kubelet")

        async def seven() -> bool:
            return bool((await cluster.node("l"))["status"]["capacity"]["pods"] == "7")

        await cluster.until(seven)
        await cluster.pool.reboot("l")
        await cluster.until(lambda: is_ready(cluster, "l"))
        assert "--max-pods=7" in await shell("systemctl status kubelet")
        await shell("systemctl disable kube-proxy")
        await cluster.pool.reboot("l")
        assert await shell("systemctl is-active kube-proxy", 3) == "inactive\n"


async def test_a_program_that_cannot_start_is_a_failed_unit_with_its_reason() -> None:
    async with simulated_cluster() as cluster:
        shell = LinuxShell(cluster)
        await shell("systemctl stop kube-proxy && mv /etc/kubernetes/kubelet.conf /root/kept")
        assert "Job for kube-proxy.service failed" in await shell("systemctl start kube-proxy", 1)
        assert await shell("systemctl is-failed kube-proxy") == "failed\n"
        status = await shell("systemctl status kube-proxy", 3)
        assert "failed (Result: exit-code)" in status and "status=1/FAILURE" in status
        assert "kubelet.conf: no such file or directory" in await shell(
            "journalctl -xeu kube-proxy"
        )
        await shell("cp /root/kept /etc/kubernetes/kubelet.conf && systemctl start kube-proxy")
        assert shell.node.network.proxier is not None


async def test_containerd_that_was_stopped_makes_the_node_not_ready() -> None:
    async with simulated_cluster() as cluster:
        shell = LinuxShell(cluster)
        await shell("systemctl stop containerd")
        assert "/run/containerd/containerd.sock" in await shell("crictl ps", 1)

        async def down() -> bool:
            conditions = (await cluster.node("l"))["status"]["conditions"]
            return any("container runtime is down" in c["message"] for c in conditions)

        await cluster.until(down, 120)
        await shell("systemctl start containerd && crictl ps")
        await cluster.until(lambda: is_ready(cluster, "l"))


async def test_the_network_of_a_node_is_shown_and_changed_with_effect() -> None:
    async with simulated_cluster() as cluster:
        shell = LinuxShell(cluster)
        assert "inet 172.20." in await shell("ip addr show eth0")
        assert (await shell("ip route get 172.20.0.1")).split()[1:3] == ["dev", "eth0"]
        listed = await shell("ss -tlnp")
        for port in ("10248", "10249", "10250", "10256"):
            assert f":{port} " in listed
        assert '("kubelet",pid=' in listed
        assert ":6443 " in await shell("netstat -tn")
        await shell("ip link set eth0 down")
        assert "state DOWN" in await shell("ip link show eth0")
        assert await shell("ip route") == ""
        assert "100% packet loss" in await shell("ping -c 1 -W 1 172.20.0.3", 1)
        await shell("ip link set eth0 up")
        assert "scope link src 172.20." in await shell("ip route")
        # flanneld checks its routes
        assert " via 172.20.0.3 dev eth0" in await shell("ip route")
        assert "No such device" in await shell("ip route add 10.9.0.0/16", 2)
        assert "invalid gateway" in await shell("ip route add 10.9.0.0/16 via 192.0.2.1", 2)
        await shell("ip route add default via 172.20.0.1")
        assert "File exists" in await shell("ip route add default via 172.20.0.1", 2)
        assert 'Cannot find device "eth9"' in await shell("ip link set eth9 up", 1)
        assert "0% packet loss" in await shell("ping -c 1 -W 1 172.20.0.3")


async def test_memory_disks_and_load_are_those_of_the_machine() -> None:
    async with simulated_cluster() as cluster:
        shell = LinuxShell(cluster)
        machine = shell.node.machine
        memory = (await shell("free -b")).splitlines()[1].split()
        assert int(memory[1]) == machine.hardware.memory
        assert int(memory[2]) == machine.memory().working_set
        await shell("mkdir /mnt/t; mount -t tmpfs -o size=1m tmpfs /mnt/t; echo x > /mnt/t/f")
        assert "tmpfs on /mnt/t type tmpfs" in await shell("mount")
        assert (await shell("df -k /mnt/t")).splitlines()[1].split()[1] == "1024"
        await shell("shutdown -r +5")
        assert machine.power.pending is not None
        await shell("shutdown -c")
        assert machine.power.pending is None
