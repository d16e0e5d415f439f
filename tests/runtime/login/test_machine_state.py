"""One state of a Windows machine, which every command shows and changes: processes, services,
their events, and what WMI says about them.
"""

from __future__ import annotations

from tests.runtime.login.harness import Login


async def _powershell(login: Login, line: str) -> list[str]:
    return (await login(line)).out.split()


async def test_processes_use_what_the_machine_uses() -> None:
    login = Login()
    await login.clock.run_for(600)
    total = await _powershell(
        login, "[int]((Get-Process | ? Id -gt 4 | Measure-Object WS -Sum).Sum / 1MB)"
    )
    assert abs(int(total[0]) - (login.host.system.working_set >> 20)) <= 1
    used = await _powershell(login, "[int](Get-Process | ? Id -gt 4 | Measure-Object CPU -Sum).Sum")
    assert abs(int(used[0]) - login.host.system.cpu_seconds()) <= 1
    threads = "(Get-Process kubelet).Threads.Count; (gwmi Win32_Process -Filter \"Name='kubelet.exe'\").ThreadCount"
    first, second = await _powershell(login, threads)
    assert first == second != "0"


async def test_processes_have_parents_and_owners() -> None:
    login = Login()
    parents = (
        "(gcim Win32_Process -Filter \"Name='services.exe'\").ParentProcessId -eq "
        "(Get-Process wininit).Id; "
        "(gcim Win32_Process -Filter \"Name='kubelet.exe'\").ParentProcessId -eq "
        "(Get-Process services).Id"
    )
    assert await _powershell(login, parents) == ["True", "True"]
    owners = (
        "(Get-Process kubelet -IncludeUserName).UserName; "
        "$id = (gcim Win32_Service -Filter \"Name='Dhcp'\").ProcessId; "
        '(gwmi Win32_Process -Filter "ProcessId=$id").GetOwner().User'
    )
    shown = (await login(owners)).out
    assert shown == "NT AUTHORITY\\SYSTEM\r\nLOCAL SERVICE\r\n"
    assert "NT AUTHORITY\\NETWORK SERVICE" in (await login("tasklist /v")).out


async def test_the_process_of_a_windows_service_can_be_ended_where_windows_allows_it() -> None:
    login = Login()
    pid = (await login("(gcim Win32_Service -Filter \"Name='W32Time'\").ProcessId")).out.strip()
    assert (await login(f"taskkill /f /pid {pid}")).code == 0
    await login.clock.run_for(1)
    assert await login.status("W32Time") == "Stopped"
    assert (await login("Start-Service W32Time")).code == 0
    protected = (await login("(Get-Process lsass).Id")).out.strip()
    assert (await login(f"taskkill /f /pid {protected}")).code == 1
    assert "lsass.exe" in (await login("tasklist")).out


async def test_services_depend_on_each_other_and_keep_their_configuration() -> None:
    login = Login()
    assert "MpsSvc" in (await login("(Get-Service BFE).DependentServices")).out
    assert (await login("(Get-Service MpsSvc -RequiredServices).Name")).out == "BFE\r\n"
    assert "SERVICE_NAME: MpsSvc" in (await login("sc.exe enumdepend BFE")).out
    await login("sc.exe config WinRM start= disabled; sc.exe delete BITS")
    login.host.reboot()
    await login.machine.boot()
    assert await login.status("WinRM") == "Stopped"
    assert (await login("Get-Service BITS")).code == 1
    assert await login.status("W32Time") == "Running"


async def test_wmi_methods_change_services_and_processes() -> None:
    login = Login()
    changed = (
        "(gwmi Win32_Service -Filter \"Name='W32Time'\").StopService().ReturnValue; "
        "(Get-Service W32Time).Status; "
        "(gwmi Win32_Service -Filter \"Name='W32Time'\").StopService().ReturnValue; "
        "(gwmi Win32_Service -Filter \"Name='W32Time'\").ChangeStartMode('Disabled').ReturnValue; "
        "(gwmi Win32_Service -Filter \"Name='W32Time'\").StartService().ReturnValue; "
        "(Get-Service W32Time).StartType"
    )
    assert await _powershell(login, changed) == ["0", "Stopped", "6", "0", "14", "Disabled"]
    started = (
        "$r = Invoke-CimMethod Win32_Process Create @{CommandLine='ping -t 127.0.0.1'}; "
        "(Get-Process -Id $r.ProcessId).ProcessName; "
        '(gcim Win32_Process -Filter "ProcessId=$($r.ProcessId)" | '
        "Invoke-CimMethod -MethodName Terminate).ReturnValue; @(Get-Process ping -EA Ignore).Count"
    )
    assert await _powershell(login, started) == ["ping", "0", "0"]
    wmic = await login("wmic service where name='W32Time' call changestartmode manual")
    assert "ReturnValue = 0;" in wmic.out
    assert "3   DEMAND_START" in (await login("sc.exe qc W32Time")).out


async def test_changes_of_services_are_in_the_event_log() -> None:
    login = Login()
    await login("Stop-Service W32Time; Start-Service W32Time")
    await login("sc.exe create mine binPath= C:\\k\\nssm.exe")
    shown = await login("Get-WinEvent -LogName System -MaxEvents 3 | % { $_.Id }")
    assert shown.out.split() == ["7045", "7036", "7036"]
    assert (
        "The Windows Time service entered the stopped state."
        in (await login("Get-EventLog System -Newest 3 | % Message")).out
    )


async def test_docker_shows_usage_networks_and_disk_space() -> None:
    login = Login()
    await login.harness.sandbox()
    stats = (await login("docker stats --no-stream")).out.splitlines()
    assert stats[0].split()[:3] == ["CONTAINER", "ID", "NAME"] and len(stats) == 2
    assert "Containers" in (await login("docker system df")).out
    assert (await login("docker network ls")).code == 0
    assert (await login("docker rmi nosuch")).code == 1
