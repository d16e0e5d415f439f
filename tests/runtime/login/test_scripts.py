r"""The scripts in C:\k: what they start, with which defaults, and what happens where the adapter
has another name.
"""

from __future__ import annotations

import pytest
from tests.runtime.login.harness import Login

PATTERN = 'Get-NetAdapter | ? Name -Like "vEthernet (Ethernet*"'
NETWORK = 'Get-HnsNetwork | ? Name -ieq "cbr0"'


def _options(argv: list[str]) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in argv)


@pytest.mark.windows("TRB-03", "TRB-04", "TRB-05", "SUP-TRB-002")
async def test_start_leaves_three_processes_each_with_its_log() -> None:
    login = Login()
    printed = await login(".\\start.ps1 -ManagementIP 10.0.0.1")
    assert (printed.code, printed.err) == (0, "")
    assert [one.binary for one in login.binaries.started] == [
        "kubelet",
        "flanneld",
        "kubelet",
        "kube-proxy",
    ]
    found = (await login("(Get-Process kubelet, kube-proxy, flanneld).ProcessName")).out.split()
    assert sorted(found) == ["flanneld", "kube-proxy", "kubelet"]
    for name in ("flanneld", "kubelet", "kube-proxy"):
        assert (await login(f"Get-Content C:\\k\\{name}.log")).out == f"{name} begins\r\n"
    flanneld = login.binaries.started[1]  # after a kubelet that registers the node
    assert _options(flanneld.argv)["--iface"] == "10.0.0.1"
    assert flanneld.environment["NODE_NAME"] == "win-1"


@pytest.mark.windows("TRB-17", "TRB-19", "TRB-20", "TRB-21", "SUP-TRB-004")
async def test_register_svc_has_the_defaults_of_the_document() -> None:
    login = Login()
    assert (await login(".\\register-svc.ps1 -ManagementIP 10.0.0.1")).code == 0
    _, _, kubelet, proxy = login.binaries.started
    assert _options(kubelet.argv)["--cluster-dns"] == "10.96.0.10"
    assert (_options(kubelet.argv)["--log-dir"], _options(proxy.argv)["--log-dir"]) == (
        "C:\\k",
        "C:\\k",
    )
    assert _options(proxy.argv)["--cluster-cidr"] == "10.244.0.0/16"
    assert proxy.environment["KUBE_NETWORK"] == "cbr0"
    assert (await login(f"({NETWORK}).Type")).out == "L2Bridge\r\n"


@pytest.mark.windows("TRB-16", "SUP-TRB-004")
async def test_register_svc_makes_three_services_of_what_it_is_given() -> None:
    login = Login()
    login.binaries.network = "vxlan0"
    login.host.files.write(r"C:\k\SourceVip.json", b'{"ip4": {"ip": "10.245.3.7/24"}}')
    printed = await login(
        ".\\register-svc.ps1 -NetworkMode overlay -ManagementIP 10.0.0.1 -ClusterCIDR "
        "10.245.0.0/16 "
        "-KubeDnsServiceIP 10.97.0.10 -LogDir C:\\logs"
    )
    assert (printed.code, printed.err) == (0, "")
    assert [await login.status(name) for name in ("flanneld", "kubelet", "kube-proxy")] == [
        "Running"
    ] * 3
    assert (await login("nssm list")).out.split() == ["flanneld", "kube-proxy", "kubelet"]
    _, flanneld, kubelet, proxy = login.binaries.started
    assert _options(flanneld.argv)["--iface"] == "10.0.0.1"
    assert (_options(kubelet.argv)["--cluster-dns"], _options(kubelet.argv)["--log-dir"]) == (
        "10.97.0.10",
        "C:\\logs",
    )
    assert _options(proxy.argv) == {
        "--v": "4",
        "--proxy-mode": "kernelspace",
        "--feature-gates": "WinOverlay=true",
        "--hostname-override": "win-1",
        "--kubeconfig": "c:\\k\\config",
        "--network-name": "vxlan0",
        "--source-vip": "10.245.3.7",
        "--enable-dsr": "false",
        "--cluster-cidr": "10.245.0.0/16",
        "--log-dir": "C:\\logs",
        "--logtostderr": "false",
    }


@pytest.mark.parametrize("script", ["start.ps1", "register-svc.ps1"])
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("", "-ManagementIP is missing"),
        ("-ManagementIP 10.0.0.1 -NetworkMode nat", "-NetworkMode is l2bridge or overlay"),
    ],
)
async def test_missing_files_are_reported_and_nothing_is_stopped(
    script: str, options: str, text: str
) -> None:
    login = Login()
    printed = await login(f".\\{script} {options}")
    assert (printed.code, text in printed.err) == (1, True)
    assert [await login.status(name) for name in ("flanneld", "kubelet", "kube-proxy")] == [
        "Running"
    ] * 3


@pytest.mark.windows(
    "TRB-101", "TRB-102", "TRB-103", "TRB-104", "TRB-105", "TRB-106", "SUP-TRB-015"
)
async def test_an_adapter_of_another_name_has_to_be_named() -> None:
    login = Login("Ethernet 2")
    printed = await login(".\\start.ps1 -ManagementIP 10.0.0.1")
    assert printed.code == 1
    assert (
        "No network adapter is found: the virtual network on Ethernet could not be created."
        in printed.err
    )
    assert not login.binaries.started
    assert (await login(NETWORK)).out == (await login(PATTERN)).out == ""
    alone = await login("powershell", "-File", "C:\\k\\start-kubelet.ps1")
    assert (alone.code, "No network adapter is found" in alone.err) == (1, True)
    assert not login.binaries.started
    assert (
        await login('.\\start.ps1 -ManagementIP 10.0.0.1 -InterfaceName "Ethernet 2"')
    ).code == 0
    assert [one.binary for one in login.binaries.started] == [
        "kubelet",
        "flanneld",
        "kubelet",
        "kube-proxy",
    ]
    assert "Name                   : cbr0\r\n" in (await login(NETWORK)).out
    assert (await login(f"({PATTERN}).Name")).out == "vEthernet (Ethernet 2)\r\n"


async def test_stop_undoes_it() -> None:
    login = Login()
    await login(".\\start.ps1 -ManagementIP 10.0.0.1")
    assert (await login(".\\stop.ps1")).err == ""
    assert [login.binaries.running(name) for name in ("flanneld", "kubelet", "kube-proxy")] == [
        None
    ] * 3
    # as upstream: containers and networks stay
    assert "cbr0" in (await login("Get-HnsNetwork")).out
    assert (await login(".\\stop.ps1 -RemoveNetwork")).err == ""
    assert (await login("Get-HnsNetwork")).out == ""


@pytest.mark.windows("TRB-66", "TRB-69")
async def test_start_asks_for_the_source_vip_of_an_overlay_network_once() -> None:
    login = Login()
    login.binaries.network = "vxlan0"
    login.host.files.mkdir(r"C:\k\cni")
    login.host.files.write(r"C:\k\cni\host-local.exe", b"MZ")
    for _ in range(2):
        printed = await login(".\\start.ps1 -ManagementIP 10.0.0.1 -NetworkMode overlay")
        assert (printed.code, printed.err) == (0, "")
    calls = [(name, command) for name, command, _ in login.binaries.plugins]
    assert calls == [("host-local", "DEL"), ("host-local", "ADD")]
    for _, _, request in login.binaries.plugins:
        assert b'"subnet": "10.244.1.0/24"' in request.replace(b"\x00", b"")
    assert _options(login.binaries.started[-1].argv)["--source-vip"] == "10.244.1.9"
    await login("Remove-Item C:\\k\\SourceVip.json, C:\\k\\SourceVipRequest.json")
    await login(".\\start.ps1 -ManagementIP 10.0.0.1 -NetworkMode overlay")
    assert len(login.binaries.plugins) == 4


@pytest.mark.parametrize("registered", ["nssm", "native"])
async def test_services_of_kube_proxy_get_the_source_vip_that_a_join_has_requested(
    registered: str,
) -> None:
    login = Login()
    login.binaries.network = "vxlan0"
    login.host.files.mkdir(r"C:\k\cni")
    login.host.files.write(r"C:\k\cni\host-local.exe", b"MZ")
    login.host.files.write(r"C:\k\SourceVip.json", b'{"ip4": {"ip": "10.244.9.7/24"}}')
    if registered == "nssm":
        await login(".\\register-svc.ps1 -NetworkMode overlay -ManagementIP 10.0.0.1")
    else:
        await login(
            "Stop-Service kube-proxy; sc.exe config kube-proxy binPath= "
            '"C:\\k\\kube-proxy.exe --windows-service --source-vip=10.244.9.7 --v=4"'
        )
    await login("Remove-Item C:\\k\\SourceVip.json")
    printed = await login(".\\start.ps1 -ManagementIP 10.0.0.1 -NetworkMode overlay")
    assert (printed.code, printed.err) == (0, "")
    assert (await login(".\\stop.ps1; Start-Service kube-proxy")).err == ""
    options = _options(login.binaries.started[-1].argv)
    assert (options["--source-vip"], options["--v"]) == ("10.244.1.9", "4")


async def test_start_replaces_the_network_of_before() -> None:
    login = Login()
    await login(".\\start.ps1 -ManagementIP 10.0.0.1")
    first = (await login(f"({NETWORK}).ID")).out
    printed = await login(".\\start.ps1 -ManagementIP 10.0.0.1")
    assert "Cleaning up old HNS network found" in printed.out and (
        await login(f"({NETWORK}).ID")
    ).out not in ("", first)
