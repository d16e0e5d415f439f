"""Commands that show or change the state of a Windows system: what one writes, others read."""

from __future__ import annotations

import pytest
from tests.userland.conftest import Box


def _cmd(box: Box, line: str) -> str:
    result = box.run("cmd", "/c", line)
    return (result.out + result.err).replace("\r", "")


def _ps(box: Box, line: str) -> str:
    result = box.powershell(line)
    return (result.out + result.err).replace("\r", "")


@pytest.mark.parametrize("options", ["-r", "-rn", "-nr", "-r -n", "/r"])
def test_netstat_prints_the_routes(windows: Box, options: str) -> None:
    assert _cmd(windows, f"netstat {options}") == _cmd(windows, "route print")


def test_netstat_and_powershell_show_the_same_sockets(windows: Box) -> None:
    windows.listening[8080] = lambda _socket: None
    windows.answering[53] = lambda _data, _sender: None
    shown = _cmd(windows, "netstat -ano")
    tcp = "  TCP    0.0.0.0:8080           0.0.0.0:0              LISTENING       0\n"
    assert tcp in shown and "  UDP    0.0.0.0:53             *:*" in shown
    assert "UDP" not in _cmd(windows, "netstat -an -p tcp")
    assert "8080" not in _cmd(windows, "netstat")  # there is no connection
    ports = "(Get-NetTCPConnection -State Listen).LocalPort; (Get-NetUDPEndpoint).LocalPort"
    assert _ps(windows, ports) == "8080\n53\n"
    assert "'LocalPort' equal to '81'" in _ps(windows, "Get-NetTCPConnection -LocalPort 81")


@pytest.mark.parametrize(
    "line, expected",
    [
        ("whoami /user /fo csv /nh", '"user manager\\containeradministrator","S-1-5-93-2-1"\n'),
        ("whoami /user /nh", "user manager\\containeradministrator S-1-5-93-2-1\n"),
        (
            "whoami /fo xml",
            "ERROR: Invalid syntax. 'xml' value is not allowed for '/fo' option.\n"
            'Type "WHOAMI /?" for usage.\n',
        ),
        (
            "whoami /nope",
            "ERROR: Invalid argument/option - '/nope'.\nType \"WHOAMI /?\" for usage.\n",
        ),
    ],
)
def test_whoami_formats(windows: Box, line: str, expected: str) -> None:
    assert _cmd(windows, line) == expected


def test_variables_of_machine_and_user_are_in_the_registry(windows: Box) -> None:
    machine = r"HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Environment"
    assert _ps(windows, "[Environment]::GetEnvironmentVariable('PATH','Machine')").startswith(
        r"C:\Windows\system32;C:\Windows;"
    )
    _ps(windows, "[Environment]::SetEnvironmentVariable('A','1','Machine')")
    _ps(windows, "[Environment]::SetEnvironmentVariable('B','2','User')")
    assert "A    REG_SZ    1" in _cmd(windows, f'reg query "{machine}" /v A')
    assert "B    REG_SZ    2" in _cmd(windows, r"reg query HKCU\Environment")
    _cmd(windows, "setx B 3")
    assert _ps(windows, "[Environment]::GetEnvironmentVariable('b','User')") == "3\n"
    _ps(windows, "[Environment]::SetEnvironmentVariable('B',$null,'User')")
    assert "B " not in _cmd(windows, r"reg query HKCU\Environment")
    windows.user = "ContainerUser"
    refused = _ps(windows, "[Environment]::SetEnvironmentVariable('A','2','Machine')")
    assert "Requested registry access is not allowed." in refused


def test_the_search_path_of_a_new_process_is_the_machines_and_the_users(windows: Box) -> None:
    system, sid = windows.system, "S-1-5-93-2-1"
    usual = system.variables()["Path"] + r"C:\Own"
    assert "Path" not in system.changed_variables(sid, usual)
    add = "[Environment]::SetEnvironmentVariable('Path', $p + 'C:\\Tools', 'Machine')"
    _ps(windows, f"$p = [Environment]::GetEnvironmentVariable('Path','Machine'); {add}")
    assert system.changed_variables(sid, usual)["Path"].endswith(r"\v1.0\;C:\Tools;C:\Own")
    _cmd(windows, r"setx PATH C:\Mine")
    assert system.changed_variables(sid, usual)["Path"].endswith(r"\v1.0\;C:\Tools;C:\Mine")


@pytest.mark.parametrize(
    "change", ["tzutil /s 'Tokyo Standard Time'", "Set-TimeZone -Id 'Tokyo Standard Time'"]
)
def test_the_time_zone_is_one_for_all_commands(windows: Box, change: str) -> None:
    before = _ps(windows, "(Get-Date).ToString('HH')")
    assert _ps(windows, change) == ""
    assert _cmd(windows, "tzutil /g") == "Tokyo Standard Time"
    assert _ps(windows, "(Get-TimeZone).Id") == "Tokyo Standard Time\n"
    assert "-540min" in _cmd(windows, "w32tm /tz")
    assert int(_ps(windows, "(Get-Date).ToString('HH')")) == (int(before) + 9) % 24
    assert _ps(windows, "(Get-Date).ToUniversalTime().ToString('HH')") == before
    assert _ps(windows, "(Get-Date -Format 'zzz')") == "+09:00\n"
    assert "was not found on the local computer" in _ps(windows, "Set-TimeZone -Id Nowhere")
    assert _cmd(windows, "tzutil /s Nowhere") == "The specified time zone ID is invalid.\n"


def test_summer_time(windows: Box) -> None:
    windows.clock.advance(180 * 86400)
    for zone, expected in (("GMT Standard Time", "+01:00"), ("Eastern Standard Time", "-04:00")):
        _ps(windows, f"Set-TimeZone '{zone}'")
        assert _ps(windows, "Get-Date -Format zzz") == expected + "\n"
    _cmd(windows, 'tzutil /s "Eastern Standard Time_dstoff"')
    assert _ps(windows, "Get-Date -Format zzz") == "-05:00\n"


@pytest.mark.parametrize(
    "line, expected",
    [
        ("('abc' | Get-Member -Name Length).Definition", "int Length {get;}"),
        ("('abc' | Get-Member ToUpper).MemberType", "Method"),
        ("(Get-Date | Get-Member -Name AddDays).TypeName", "System.DateTime"),
        ("([pscustomobject]@{a=1} | gm -MemberType NoteProperty).Definition", "int a=1"),
        ("(@{} | gm -Name Keys).MemberType", "Property"),
        ("(1 | Get-Member).Count", "4"),
        ("(Get-Member -InputObject @(1,2) -Name Length).TypeName", "System.Object[]"),
        ("(1,'a',2 | gm | select -ExpandProperty TypeName -Unique).Count", "2"),
    ],
)
def test_members(windows: Box, line: str, expected: str) -> None:
    assert _ps(windows, line) == expected + "\n"


def test_members_are_shown_by_type(windows: Box) -> None:
    shown = _ps(windows, "'abc' | Get-Member -Name Trim*")
    assert shown.startswith("\n\n   TypeName: System.String\n\nName      MemberType Definition\n")
    assert "You must specify an object" in _ps(windows, "Get-Member")


@pytest.mark.parametrize(
    "line, expected",
    [
        (
            "Invoke-Command -ComputerName web -ScriptBlock { 1 }",
            "[web] Connecting to remote server web failed with the following error message : "
            "The WinRM client cannot process the request.",
        ),
        (
            "Invoke-Command -ComputerName localhost { 1 }",
            "[localhost] Connecting to remote server localhost failed with the following error "
            "message : The client cannot connect to the destination",
        ),
        ("Enter-PSSession web", "CreateRemoteRunspaceFailed"),
        ("New-PSSession -ComputerName web", "ServerNotTrusted,PSSessionOpenFailed"),
        ("Invoke-Command { param($a) $a + 1 } -ArgumentList 2", "3"),
    ],
)
def test_remoting(windows: Box, line: str, expected: str) -> None:
    assert expected in _ps(windows, line)


@pytest.mark.parametrize(
    "line, pressed, output, code",
    [
        ("choice", b"y", "[Y,N]?Y\r\n", 1),
        ("choice /c abc /m Which", b"xC", "Which [A,B,C]?C\r\n", 3),
        ("choice /n /m Sure?", b"n", "Sure?N\r\n", 2),
        ("choice /t 5 /d n", b"", "[Y,N]?N\r\n", 2),
        ("choice /cs /c aA", b"A", "[a,A]?A\r\n", 2),
    ],
)
def test_choice(windows: Box, line: str, pressed: bytes, output: str, code: int) -> None:
    result = windows.run(*line.split(), stdin=pressed)
    assert (result.out, result.code) == (output, code)


def test_choice_refuses_wrong_arguments(windows: Box) -> None:
    for line in ("choice /q", "choice /t 5", "choice /c aa", "choice /t 5 /d x"):
        result = windows.run(*line.split())
        assert result.code == 255 and 'Type "CHOICE /?" for usage.' in result.err


def test_file_types_are_in_the_registry(windows: Box) -> None:
    assert _cmd(windows, "assoc .txt") == ".txt=txtfile\n"
    assert _cmd(windows, "ftype txtfile") == "txtfile=%SystemRoot%\\system32\\NOTEPAD.EXE %1\n"
    assert _cmd(windows, "assoc .log=txtfile") == ".log=txtfile\n"
    assert "REG_SZ    txtfile" in _cmd(windows, r"reg query HKCR\.log")
    _cmd(windows, r"reg add HKCR\.foo /ve /d foofile /f")
    assert ".foo=foofile\n" in _cmd(windows, "assoc")
    _cmd(windows, "ftype foofile=foo.exe %1")
    assert "foofile=foo.exe %1\n" in _cmd(windows, "ftype")
    _cmd(windows, "assoc .foo=")
    assert "File association not found for extension .foo" in _cmd(windows, "assoc .foo")
    assert "not found or no open command" in _cmd(windows, "ftype nothing")
    windows.user = "ContainerUser"
    assert _cmd(windows, "assoc .log=x") == "Access is denied.\n"
