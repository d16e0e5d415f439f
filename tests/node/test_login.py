"""What people do on a Windows node by logging in, and what the cluster sees of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.node.login_session import run_login
from tests.node.programs.simulated_node import NodeTestCluster, simulated_cluster
from tests.simulation.loop import VIRTUAL_LOOP

from transom.client.api import is_not_found
from transom.http.messages import HttpRequest
from transom.kit import pki
from transom.kit.user_errors import UserError
from transom.machinery.errors import ApiError
from transom.machines.windows.host import CONTROL, WindowsHost
from transom.node.login import serve_login
from transom.runtime.sim.engine import SimRuntime


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_LOOP


ADDRESS = "172.20.0.3"
CREATE = (
    'sc.exe create kubelet binPath= "C:\\k\\kubelet.exe --service --hostname-override '
    "'minion' --kubeconfig=c:\\k\\config "
    "--resolv-conf= --cgroups-per-qos=false --enforce-node-allocatable= --network-plugin=cni "
    "--cni-bin-dir=c:\\k\\cni "
    '--cni-conf-dir=c:\\k\\cni\\config"'
)


@pytest.fixture(autouse=True)
def data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


class Shell:
    def __init__(self, cluster: NodeTestCluster) -> None:
        self.node = cluster.pool.node("w")

    async def __call__(self, *command: str) -> str:
        printed = bytearray()
        session = run_login(self.node, command, lambda stream, data: printed.extend(data))
        assert await session.wait() == 0, printed.decode()
        return printed.decode().replace("\r\n", "\n")


async def ready(cluster: NodeTestCluster, name: str = "w") -> str:
    try:
        conditions = (await cluster.node(name))["status"].get("conditions") or ()
    except ApiError as problem:
        if not is_not_found(problem):
            raise
        return ""
    return next((str(c["status"]) for c in conditions if c["type"] == "Ready"), "")


async def is_ready(cluster: NodeTestCluster, name: str = "w") -> bool:
    return await ready(cluster, name) == "True"


@pytest.mark.windows("TRB-12", "TRB-13", "SUP-TRB-003")
async def test_a_node_whose_kubelet_is_stopped_is_not_ready_after_a_while() -> None:
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        await shell("Stop-Service kubelet")
        await cluster.clock.sleep(35)
        assert await ready(cluster) == "True"
        await cluster.clock.sleep(20)
        assert await ready(cluster) == "Unknown"
        await shell("Start-Service kubelet")
        await cluster.until(lambda: is_ready(cluster))


@pytest.mark.windows("TRB-08", "SUP-TRB-003")
async def test_a_node_whose_kubelet_crashes_stays_ready() -> None:
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        await cluster.runs("before")
        await shell("Stop-Process -Name kubelet")
        await cluster.until(lambda: cluster.binaries.running("kubelet") is None, 1)
        for _ in range(12):
            await cluster.clock.sleep(5)
            assert await ready(cluster) == "True"
        await cluster.runs("after")


@pytest.mark.windows("TRB-11", "SUP-TRB-003")
async def test_a_kubelet_that_is_registered_with_another_name_is_another_node() -> None:
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        await shell("Stop-Service kubelet; sc.exe delete kubelet")
        assert await ready(cluster, "minion") == ""
        await shell(CREATE)
        await shell("Start-Service kubelet")
        await cluster.until(lambda: is_ready(cluster, "minion"))


@pytest.mark.windows(
    "TRB-03",
    "TRB-04",
    "TRB-06",
    "TRB-07",
    "TRB-15",
    "TRB-16",
    "TRB-53",
    "SUP-TRB-002",
    "SUP-TRB-004",
)
@pytest.mark.parametrize("script", ["start", "register-svc"])
async def test_the_scripts_make_the_machine_a_node(script: str) -> None:
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        await shell(".\\stop.ps1")
        await cluster.clock.sleep(60)
        assert await ready(cluster) == "Unknown"
        await shell(f".\\{script}.ps1 -ManagementIP {ADDRESS}")
        await cluster.until(lambda: is_ready(cluster))
        await cluster.runs("after")
        found = (await shell("(Get-Process kubelet, kube-proxy, flanneld).ProcessName")).split()
        assert sorted(found) == ["flanneld", "kube-proxy", "kubelet"]


@pytest.mark.windows("TRB-101", "TRB-102", "TRB-103", "TRB-104", "TRB-105", "SUP-TRB-015")
async def test_a_node_with_an_adapter_of_another_name() -> None:
    async with simulated_cluster(adapter="Ethernet 2") as cluster:
        shell = Shell(cluster)
        assert (
            await shell('(Get-NetAdapter | ? Name -Like "vEthernet (Ethernet*").Name')
        ) == "vEthernet (Ethernet 2)\n"
        await cluster.client.delete_pod("before") if hasattr(cluster.client, "delete_pod") else None
        await shell(".\\stop.ps1")
        with pytest.raises(AssertionError, match="No network adapter is found"):
            await shell(f".\\start.ps1 -ManagementIP {ADDRESS}")
        assert await shell('Get-HnsNetwork | ? Name -ieq "cbr0"') == ""
        await shell(f'.\\start.ps1 -ManagementIP {ADDRESS} -InterfaceName "Ethernet 2"')
        await cluster.until(lambda: is_ready(cluster))
        assert "cbr0" in await shell('Get-HnsNetwork | ? Name -ieq "cbr0"')


async def test_services_are_found_again_after_a_reboot() -> None:
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        await shell("Stop-Service kube-proxy")
        await cluster.pool.reboot("w")
        await cluster.until(lambda: is_ready(cluster))
        assert (await shell("(Get-Service kubelet, kube-proxy, flanneld).Status")).split() == [
            "Running"
        ] * 3
        await shell("Restart-Service kube-proxy")
        assert cluster.binaries.running("kube-proxy") is not None


async def test_shutdown_restarts_the_machine_and_switches_it_off() -> None:
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        before = await shell("(gcim Win32_OperatingSystem).LastBootUpTime.Ticks")
        await shell("subst X: C:\\k")
        await shell("shutdown /r /t 60")
        assert "already been scheduled.(1190)" in await shell("shutdown /s; $true")
        await shell("shutdown /a")
        assert "no shutdown was in progress.(1116)" in await shell("shutdown /a; $true")
        await shell("shutdown /r /t 30")
        await cluster.clock.sleep(40)
        await cluster.until(lambda: is_ready(cluster))
        after = await shell("(gcim Win32_OperatingSystem).LastBootUpTime.Ticks")
        assert int(after) > int(before)
        assert (await shell("Test-Path X:\\\\")).strip() == "False"
        assert "1074" in await shell("(Get-EventLog System -Source User32).EventID")
        await shell("Stop-Computer; $true")
        await cluster.clock.sleep(30)
        assert cluster.pool.node("w").spec.stopped


async def test_the_registry_has_each_adapter_and_name_servers_are_those_of_one() -> None:
    key = r"HKLM\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters\Interfaces"

    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        await cluster.runs("pod")  # the network is there, with its adapters
        listed = await shell(f"reg query {key} /s")
        assert listed.count("EnableDHCP") > 1 and listed.count(ADDRESS) == 1
        alias = f"(Get-NetIPAddress -IPAddress {ADDRESS}).InterfaceAlias"
        change = f"Set-DnsClientServerAddress -InterfaceAlias ({alias}) -ServerAddresses 10.9.9.9"
        await shell(change)
        assert (await shell(f"reg query {key} /s")).count("10.9.9.9") == 1
        assert (await shell("ipconfig /all")).count("10.9.9.9") == 1


@pytest.mark.parametrize("login", [True, False])
async def test_a_reboot_gives_services_the_time_of_the_nodes_registry(
    login: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docker is a service: it stops its containers in that time. Here it never ends."""
    given: list[float] = []

    async def never_ends(_runtime: SimRuntime, seconds: float) -> None:
        given.append(seconds)
        await asyncio.sleep(seconds if not login else 3600)

    monkeypatch.setattr(SimRuntime, "shut_down", never_ends)

    async with simulated_cluster(runtime="docker") as cluster:
        node = cluster.pool.node("w")
        machine = node.machine
        assert isinstance(machine, WindowsHost)
        if login:
            path = r"HKLM:\SYSTEM\CurrentControlSet\Control"
            await Shell(cluster)(f"Set-ItemProperty {path} WaitToKillServiceTimeout 3000")
        else:
            machine.registry.set(CONTROL, "WaitToKillServiceTimeout", "3000")
        began = cluster.clock.monotonic()
        await cluster.pool.reboot("w")
        assert given == [3.0]
        assert cluster.clock.monotonic() - began == pytest.approx(3.0, abs=0.5)
        await cluster.until(lambda: is_ready(cluster))


async def test_a_node_boots_with_the_services_that_users_created() -> None:
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        await shell(f".\\register-svc.ps1 -ManagementIP {ADDRESS}")
        await shell("nssm set kubelet AppStderr C:\\k\\mysvc.log")
        await cluster.pool.reboot("w")
        await cluster.clock.sleep(5)
        await cluster.until(lambda: is_ready(cluster))
        assert (await shell("(Get-Service kubelet, kube-proxy, flanneld).Status")).split() == [
            "Running"
        ] * 3
        assert "--allow-privileged has been deprecated" in await shell("type C:\\k\\mysvc.log")
        await cluster.runs("after")


async def test_a_node_without_login_is_reported() -> None:
    async with simulated_cluster() as cluster:
        plain = HttpRequest(
            "GET", b"/transom/nodes/w/exec?output=1&command=hostname", "/transom/nodes/w/exec", {}
        )
        with pytest.raises(UserError, match="Upgrade request required"):
            serve_login(cluster.pool.node("w"), plain)
        with pytest.raises(UserError, match="there is no node 'x'"):
            serve_login(cluster.pool.node("x"), plain)
        await cluster.pool.stop("w")
        with pytest.raises(UserError, match="node w is switched off"):
            serve_login(cluster.pool.node("w"), plain)
        node = cluster.pool.node("l")
        simulated, node.runtime = node.runtime, cast(Any, SimpleNamespace())
        try:
            with pytest.raises(
                UserError, match="no machine of its own to log in to: its containers are real"
            ):
                serve_login(cluster.pool.node("l"), plain)
        finally:
            node.runtime = simulated


@pytest.mark.windows("TRB-75", "TRB-76", "TRB-79", "TRB-80", "TRB-81", "SUP-TRB-010")
async def test_cni_conf_is_a_file_that_can_be_edited_for_pods_to_come() -> None:
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        file = "C:\\k\\cni\\config\\cni.conf"
        exceptions = (
            f"(Get-Content {file} -Raw | ConvertFrom-Json).delegate.policies[0].Value.ExceptionList"
        )
        assert (await shell(exceptions)).split() == [
            "10.244.0.0/16",
            "10.96.0.0/16",
            "172.20.0.0/16",
        ]
        await cluster.runs("old")
        await shell(
            f'(Get-Content {file} -Raw).Replace("172.20.0.0/16", "172.30.0.0/16") | '
            f"Set-Content {file}"
        )
        await cluster.runs("new")
        found = [
            {"172.20.0.0/16", "172.30.0.0/16"}.intersection(policy["Settings"]["Exceptions"])
            for endpoint in cluster.net.hns.endpoints.values()
            for policy in endpoint.get("Policies", ())
            if policy["Type"] == "OutBoundNAT"
        ]
        assert found == [{"172.20.0.0/16"}, {"172.30.0.0/16"}]


async def test_netstat_and_powershell_show_what_answers() -> None:
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        rows = "Get-NetTCPConnection -State Listen | % { $_.LocalPort }"
        assert (await shell(rows)).split() == [
            *("135", "445", "5985"),
            *("10250", "10256", "10248", "10249"),
        ]
        listed = await shell("netstat -an")
        assert [line.split()[1] for line in listed.splitlines() if "LISTENING" in line] == [
            "0.0.0.0:135",
            "0.0.0.0:445",
            "0.0.0.0:5985",
            "0.0.0.0:10250",
            "0.0.0.0:10256",
            "127.0.0.1:10248",
            "127.0.0.1:10249",
        ]
        owners = "(Get-Process -Id (Get-NetTCPConnection -RemotePort 6443).OwningProcess).Name"
        assert {"kubelet", "kube-proxy"} <= set((await shell(owners)).split())
        assert "ESTABLISHED" in await shell("netstat -ano")
        reach = "Test-NetConnection localhost -Port 10256 -InformationLevel Quiet"
        assert "True" in await shell(reach)
        await shell("Stop-Service kube-proxy")
        assert (await shell(rows)).split() == ["135", "445", "5985", "10250", "10248"]
        assert "False" in await shell(reach)
        await shell("Start-Service kube-proxy")
        assert "True" in await shell(reach)
        assert "Active Routes" in await shell("netstat -rn")


async def test_a_share_has_a_drive_letter_on_the_whole_node() -> None:
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        mapping = r"New-SmbGlobalMapping -RemotePath \\files\data -LocalPath G:"
        assert "G:" in await shell(mapping)
        await shell(r"Set-Content G:\f.txt hello")
        assert "hello" in await shell(r"Get-Content \\files\data\f.txt")
        assert await shell("(Get-SmbGlobalMapping).LocalPath") == "G:\n"
        assert r"G:        \\files\data" in await shell("net use")
        kind = "(gcim Win32_LogicalDisk -Filter \"DeviceID = 'G:'\").ProviderName"
        assert await shell(kind) == "\\\\files\\data\n"
        other = r"net use G: \\files\other 2>&1; $LASTEXITCODE"
        assert "System error 85 has occurred." in await shell(other)
        await shell("Remove-SmbGlobalMapping -LocalPath G: -Force")
        assert await shell(r"Test-Path G:\; Test-Path \\files\data\f.txt") == "False\nFalse\n"


async def test_a_node_without_its_adapter_is_not_ready() -> None:
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        assert "ESTABLISHED" in await shell("netstat -n")
        await shell("Disable-NetAdapter Ethernet -Confirm:$false")
        states = "(Get-NetAdapter Ethernet, 'vEthernet (Ethernet)').Status"
        assert (await shell(states)).split() == ["Disabled", "Disconnected"]
        assert "Media disconnected" in await shell("ipconfig")
        assert "ESTABLISHED" not in await shell("netstat -n")

        async def not_ready() -> bool:
            return not await is_ready(cluster)

        await cluster.until(not_ready, 120)
        await shell("netsh interface set interface Ethernet admin=enabled")
        assert (await shell(states)).split() == ["Up", "Up"]
        assert "0.0.0.0/0" in await shell("(Get-NetRoute).DestinationPrefix")
        await cluster.until(lambda: is_ready(cluster))


async def test_a_node_without_the_feature_containers_has_no_runtime() -> None:
    async with simulated_cluster(runtime="docker") as cluster:
        shell = Shell(cluster)
        await shell("Uninstall-WindowsFeature Containers; $true")
        assert "UninstallPending" in await shell("(Get-WindowsFeature Containers).InstallState")
        assert "Running" in await shell("(Get-Service docker).Status")
        await shell("shutdown /r /t 0")
        await cluster.clock.sleep(30)
        assert "Stopped" in await shell("(Get-Service docker).Status")
        assert "False" in await shell("[bool](Get-Service vmcompute -EA SilentlyContinue)")
        await shell("dism /online /enable-feature /featurename:Containers /quiet /norestart; $true")
        await shell("Restart-Computer")
        await cluster.clock.sleep(30)
        assert "Running" in await shell("(Get-Service docker).Status")
        await cluster.until(lambda: is_ready(cluster))


async def test_the_certificates_of_the_node_are_on_the_cert_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the cluster of this test keeps its certificate authority
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        authority = cluster.pool.cluster.authority.ca
        authority.write_bytes(pki.make_ca("kubernetes").certificate)
        found = (await shell(r"(Get-ChildItem Cert:\LocalMachine\Root).Thumbprint")).split()
        assert len(found) == 1 and len(found[0]) == 40
        made = r"(New-SelfSignedCertificate -DnsName x.local).Thumbprint"
        thumbprint = (await shell(made)).strip()
        listed = await shell(r"reg query HKLM\SOFTWARE\Microsoft\SystemCertificates\MY /s")
        assert thumbprint in listed
        assert "CN=x.local" in await shell("certutil -store my")


async def test_services_run_any_program_of_windows() -> None:
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        script = "while(1){Add-Content C:\\k\\loop.log x; Start-Sleep 1}"
        await shell(f"Set-Content C:\\k\\loop.ps1 '{script}'")
        path = r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe"
        await shell(f"nssm install looper {path} -File C:\\k\\loop.ps1; nssm start looper")
        await cluster.clock.sleep(5)
        assert "Running" in await shell("(Get-Service looper).Status")
        assert int(await shell("(Get-Content C:\\k\\loop.log).Count")) > 1
        await shell("nssm stop looper; nssm remove looper confirm")
        created = 'sc.exe create s1 binPath= "cmd /c ping -t 127.0.0.1"; sc.exe start s1; $true'
        assert "FAILED 1053" in await shell(created)
        missing = "sc.exe create s2 binPath= C:\\nope.exe; sc.exe start s2; $true"
        assert "FAILED 2:" in await shell(missing)


async def test_killed_processes_have_the_code_of_their_killer() -> None:
    async with simulated_cluster() as cluster:
        shell = Shell(cluster)
        begin = "$p = Start-Process ping -ArgumentList '-t 127.0.0.1' -PassThru; "
        ended = "; $p.WaitForExit(); $p.ExitCode"
        for kill, code in (("Stop-Process $p", "-1"), ("taskkill /f /pid $p.Id | Out-Null", "1")):
            assert (await shell(begin + kill + ended)).split()[-1] == code
