"""Services of a Windows machine for users who have logged in: sc, net, PowerShell's cmdlets."""

from __future__ import annotations

import pytest
from tests.runtime.login.harness import Login

from transom.machines.windows.services import KEY

CREATE = """sc.exe create proxy2 binPath= "C:\\k\\kube-proxy.exe {flag} --hostname-override 'min ion' --v=4" """


@pytest.mark.windows("TRB-03", "TRB-04", "TRB-14", "SUP-TRB-003")
async def test_what_runs_since_boot_is_there_as_services_and_processes() -> None:
    login = Login()
    shown = (await login("Get-Service kubelet, kube-proxy, flanneld")).out.split()
    assert shown[:3] == ["Status", "Name", "DisplayName"]
    assert shown[6:] == [
        "Running",
        "kubelet",
        "kubelet",
        "Running",
        "kube-proxy",
        "kube-proxy",
        "Running",
        "flanneld",
        "flanneld",
    ]
    found = (await login("(Get-Process kubelet, kube-proxy, flanneld).ProcessName")).out.split()
    assert sorted(found) == ["flanneld", "kube-proxy", "kubelet"]
    assert (
        "C:\\k\\kubelet.exe --windows-service --v=2" in (await login("sc.exe", "qc", "kubelet")).out
    )
    assert "AUTO_START" in (await login("sc.exe", "qc", "kubelet")).out


@pytest.mark.windows("TRB-12", "TRB-13", "SUP-TRB-003")
@pytest.mark.parametrize("force", ["", " -Force"])
async def test_services_are_stopped_and_started(force: str) -> None:
    login = Login()
    for name in ("kubelet", "kube-proxy"):
        assert (await login(f"Stop-Service {name}{force}")).code == 0
        assert (await login.status(name), login.binaries.running(name)) == ("Stopped", None)
        assert (await login(f"Start-Service {name}")).code == 0
        assert await login.status(name) == "Running"
    proxy = login.binaries.started[-1]
    assert (proxy.argv, proxy.environment["KUBE_NETWORK"]) == (
        ["--windows-service", "--v=2"],
        "cbr0",
    )


@pytest.mark.windows("TRB-08", "SUP-TRB-003")
@pytest.mark.parametrize(
    "kill",
    [
        "taskkill /F /IM kubelet.exe",
        "Stop-Process -Name kubelet",
        "Get-Process kubelet | Stop-Process -Force",
    ],
)
async def test_a_kubelet_that_is_killed_comes_back(kill: str) -> None:
    login = Login()
    assert (await login(kill)).code == 0
    assert await login.status("kubelet") == "Stopped"
    await login.clock.run_for(10)
    assert await login.status("kubelet") == "Running"
    assert [one.binary for one in login.binaries.started] == ["kubelet"]


@pytest.mark.windows("TRB-09", "TRB-10", "TRB-11", "SUP-TRB-003")
@pytest.mark.parametrize("flag", ["--service", "--windows-service"])
async def test_a_service_that_is_made_runs_its_command_line(flag: str) -> None:
    login = Login()
    await login("Stop-Service kube-proxy")
    assert (await login(CREATE.format(flag=flag))).out == "[SC] CreateService SUCCESS\r\n"
    assert await login.status("proxy2") == "Stopped"
    line = f"C:\\k\\kube-proxy.exe {flag} --hostname-override 'min ion' --v=4"
    assert line in (await login("sc.exe", "qc", "proxy2")).out
    assert login.host.registry.get(rf"{KEY}\proxy2", "ImagePath") == line
    await login("Start-Service proxy2")
    assert await login.status("proxy2") == "Running"
    assert login.binaries.started[-1].argv == [flag, "--hostname-override", "min ion", "--v=4"]


@pytest.mark.windows("TRB-10")
async def test_a_service_without_the_flag_never_answers() -> None:
    login = Login()
    await login("Stop-Service kube-proxy")
    await login(CREATE.format(flag=""))
    begun = login.clock.monotonic()
    printed = await login("sc.exe", "start", "proxy2")
    assert printed.code == 1053
    assert printed.out.startswith(
        "[SC] StartService FAILED 1053:\r\n\r\nThe service did not respond to the start or control"
    )
    assert 30 <= login.clock.monotonic() - begun < 31
    refused = await login("Start-Service proxy2")
    assert "Service 'proxy2 (proxy2)' cannot be started due to the following error" in refused.err
    assert (refused.code, login.binaries.running("kube-proxy")) == (1, None)


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("sc.exe query nothing", 1060, "[SC] EnumQueryServicesStatus:OpenService FAILED 1060:"),
        ("sc.exe start kubelet", 1056, "[SC] StartService FAILED 1056:"),
        ("sc.exe stop nothing", 1060, "[SC] OpenService FAILED 1060:"),
        ("sc.exe delete nothing", 1060, "[SC] OpenService FAILED 1060:"),
        ('sc.exe create kubelet binPath= "x"', 1073, "[SC] CreateService FAILED 1073:"),
        ("sc.exe create x", 1639, "DESCRIPTION:"),
        ("sc.exe create x binPath=C:\\x.exe", 1639, "DESCRIPTION:"),
        ("sc.exe create x binPath= C:\\x.exe start= sometimes", 1639, "DESCRIPTION:"),
        ("sc.exe dance kubelet", 1639, "ERROR:  Unrecognized command"),
        ("net start nothing", 2, "The service name is invalid."),
        ("net start kubelet", 2, "The requested service has already been started."),
        (
            "Get-Service nothing",
            1,
            "Get-Service : Cannot find any service with service name 'nothing'.",
        ),
        (
            "New-Service kubelet C:\\x.exe",
            1,
            "New-Service : Service 'kubelet (kubelet)' cannot be created due to",
        ),
        ("Get-Process nothing", 1, 'Get-Process : Cannot find a process with the name "nothing".'),
    ],
)
async def test_impossible_requests_get_the_errors_of_windows(
    line: str, code: int, text: str
) -> None:
    login = Login()
    printed = await login(line)
    assert printed.code == code
    assert (printed.out + printed.err).lstrip("\r\n").startswith(text)
    assert [await login.status(name) for name in ("kubelet", "kube-proxy", "flanneld")] == [
        "Running"
    ] * 3


async def test_a_service_is_described_step_by_step() -> None:
    login = Login()
    for line in (
        (
            'New-Service mine "C:\\k\\kube-proxy.exe --service" -DisplayName "My proxy" '
            "-StartupType Manual"
        ),
        "sc.exe config mine depend= kubelet/flanneld start= auto",
        "sc.exe failure mine reset= 86400 actions= restart/1000/restart/2000",
        'sc.exe description mine "what it does"',
    ):
        assert (await login(line)).code == 0
    assert (await login("(Get-Service 'My proxy').Name")).out == "mine\r\n"
    shown = (await login("sc.exe qc mine; sc.exe qfailure mine")).out
    for text in (
        "AUTO_START",
        "DISPLAY_NAME       : My proxy",
        "DEPENDENCIES       : kubelet\r\n",
        ": flanneld",
        "RESET_PERIOD (in seconds)    : 86400",
        "RESTART -- Delay = 2000 milliseconds.",
    ):
        assert text in shown
    assert (
        await login("Set-Service mine -StartupType Disabled; (Get-Service mine).StartType")
    ).out == "Disabled\r\n"
    assert (await login("sc.exe start mine")).code == 1058


@pytest.mark.windows("TRB-13")
async def test_dependent_services_are_stopped_first() -> None:
    login = Login()
    await login("sc.exe config kube-proxy depend= kubelet")
    refused = await login("Stop-Service kubelet")
    assert (
        "because it has dependent services. It can only be stopped if the Force flag is set."
        in refused.err
    )
    await login("Stop-Service kubelet -Force")
    assert (await login.status("kubelet"), await login.status("kube-proxy")) == (
        "Stopped",
        "Stopped",
    )
    await login("net start kube-proxy")
    assert (await login.status("kubelet"), await login.status("kube-proxy")) == (
        "Running",
        "Running",
    )
    await login("Restart-Service kubelet -Force")
    assert (await login.status("kubelet"), await login.status("kube-proxy")) == (
        "Running",
        "Running",
    )


async def test_of_windows_own_services_only_the_networking_one_can_be_restarted() -> None:
    login = Login()
    await login("nssm restart flanneld")
    login.host.hns.faults.switch("lose-networks-on-restart", True)
    assert (await login("sc.exe stop Dnscache")).code == 1052
    refused = await login("Restart-Service EventLog")
    assert (
        "Service 'Windows Event Log (EventLog)' cannot be stopped due to the following error"
        in refused.err
    )
    assert login.host.hns.networks
    assert (await login("Restart-Service hns")).code == 0
    assert not login.host.hns.networks
    assert [await login.status(name) for name in ("hns", "EventLog", "Dnscache")] == ["Running"] * 3


async def test_services_of_a_machine_that_was_switched_off_are_those_that_run_then() -> None:
    login = Login()
    await login("Stop-Service kubelet")
    login.binaries.off()
    login.host.reboot()
    await login.clock.run_for(30)
    assert not login.binaries.started
    login.binaries.boot()
    login.machine.refresh()
    assert [await login.status(name) for name in ("kubelet", "kube-proxy", "flanneld")] == [
        "Running"
    ] * 3


async def test_changed_services_are_started_at_boot_with_their_new_configuration() -> None:
    login = Login()
    await login(
        "Stop-Service kubelet; sc.exe delete kubelet; nssm install kubelet C:\\k\\kubelet.exe --v=9"
    )
    await login("nssm start kubelet; Set-Service kube-proxy -StartupType Manual")
    login.binaries.started.clear()
    await login('sc.exe create mine binPath= "C:\\k\\kube-proxy.exe --service" start= auto')
    login.binaries.off()
    login.host.reboot()
    await login.clock.run_for(30)
    assert not login.binaries.started
    login.binaries.boot()
    await login.machine.boot()
    await login.clock.run_for(5)
    assert [await login.status(name) for name in ("kubelet", "kube-proxy", "flanneld", "mine")] == [
        "Running",
        "Stopped",
        "Running",
        "Running",
    ]
    assert [one.argv for one in login.binaries.started] == [["--v=9"], ["--service"]]
    await login(
        "Stop-Service mine; sc.exe delete mine; Stop-Service flanneld; sc.exe delete flanneld"
    )
    login.binaries.off()
    login.host.reboot()
    login.binaries.boot()
    await login.machine.boot()
    await login.clock.run_for(5)
    assert (login.binaries.running("flanneld"), login.binaries.running("kube-proxy")) == (
        None,
        None,
    )
    assert (await login("Get-Service flanneld")).code == 1
