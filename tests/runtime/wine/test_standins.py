"""PowerShell and other stand-ins in real containers: both halves, with Wine between them."""

from __future__ import annotations

import subprocess
import time
from urllib.request import urlopen

import pytest
from tests.runtime.wine.conftest import Box, Make

from transom.runtime.api import WindowsContainer

_SLEEP = ("powershell", "-Command", "Start-Sleep 600")


def powershell(box: Box, script: str, name: str = "exec") -> tuple[int, str]:
    return box.exec("powershell", "-NoProfile", "-NonInteractive", "-Command", script, name=name)


@pytest.fixture
def running(box: Make) -> Box:
    return box(*_SLEEP).create().start()


def test_scripts_and_exit_codes(running: Box) -> None:
    assert powershell(running, "echo hi; exit 42", "a") == (42, "hi\r\n")
    assert powershell(running, "exit -1", "b") == (-1, "")
    assert powershell(running, "(Get-Process -Id $PID).Name; $PSVersionTable.Note", "c") == (
        0,
        "powershell\r\na stand-in of Transom's, not Microsoft's PowerShell\r\n",
    )
    assert running.exec("pwsh", "-c", "$PSVersionTable.PSEdition", name="d") == (0, "Core\r\n")


def test_programs_of_the_container_are_its_children(running: Box) -> None:
    script = (
        r"$env:A = 'b'; cmd /c 'echo %A%& exit 7'; $LASTEXITCODE; $p = hostname; 'on ' + $p; "
        r"'x', 'y' | findstr y"
    )
    assert powershell(running, script) == (0, "b\r\n7\r\non WEB-0\r\ny\r\n")


def test_processes_are_started_seen_and_ended(running: Box) -> None:
    script = (
        "Start-Process ping -ArgumentList '-n', '600', '127.0.0.1'; "
        "while (!(Get-Process | ? Name -eq ping)) { Start-Sleep 0.1 }; "
        "Stop-Process -Name ping; while (Get-Process | ? Name -eq ping) { Start-Sleep 0.1 }; 'gone'"
    )
    assert powershell(running, script)[1].splitlines()[-1] == "gone"


def test_services_are_those_of_wine(running: Box) -> None:
    script = (
        "(Get-Service Spooler).Status; Start-Service Spooler; (Get-Service Spooler).Status; "
        "Stop-Service nobody"
    )
    assert powershell(running, script) == (1, "Stopped\r\nRunning\r\n")


def test_one_drive_for_all_programs(running: Box) -> None:
    assert powershell(running, r"Set-Content C:\x.txt hello; cmd /c type C:\X.TXT") == (
        0,
        "hello\r\n",
    )
    assert (running.snapshot / "x.txt").read_bytes() == b"hello\r\n"


def test_a_user_may_do_what_windows_lets_a_user_do(box: Make) -> None:
    made = box(*_SLEEP, windows=WindowsContainer(run_as_user_name="ContainerUser")).create().start()
    assert powershell(made, r"Set-Content C:\mine.txt x; $env:USERNAME", "a") == (
        0,
        "ContainerUser\r\n",
    )
    assert (made.snapshot / "mine.txt").stat().st_uid != 0
    assert powershell(made, r"Set-Content C:\Windows\System32\evil.txt x", "b") == (1, "")
    assert not (made.snapshot / "windows/system32/evil.txt").exists()


def test_standard_input_is_a_script_or_a_childs(box: Make) -> None:
    made = box("powershell", "-Command", "-", stdin=True).create().start(subprocess.PIPE)
    assert made.result(b"echo one\r\ncmd /c echo two\r\nexit 3\r\n")[:2] == (3, "one\r\ntwo\r\n")
    made = box("powershell", "-Command", "sort.exe /R", stdin=True).create().start(subprocess.PIPE)
    assert made.result(b"a\r\nb\r\n")[:2] == (0, "b\r\na\r\n")


def test_other_programs(running: Box) -> None:
    assert running.exec("cmd", "/c", "echo needle| findstr /i NEEDLE", name="a") == (
        0,
        "needle\r\n",
    )
    assert "powershell.exe" in running.exec("tasklist", name="b")[1]
    assert "OS Version:                10.0.17763" in running.exec("systeminfo", name="c")[1]
    begin = time.monotonic()
    assert running.exec("timeout", "/t", "1", "/nobreak", name="d")[0] == 0
    assert time.monotonic() - begin >= 1


def test_ping_runs_until_it_is_stopped(box: Make) -> None:
    made = box("ping", "-t", "localhost").create().start()
    printed = [made.line() for _ in range(4)]
    assert printed[:2] == ["", "Pinging localhost [127.0.0.1] with 32 bytes of data:"]
    assert all(line.startswith("Reply from 127.0.0.1: bytes=32 time") for line in printed[2:])
    made.signal(2)
    code, out, _ = made.result()
    assert code == -1073741510 and "Lost = 0 (0% loss)" in out and out.endswith("Control-C\r\n")


def test_both_halves_end_with_the_container(box: Make) -> None:
    made = box("powershell", "-Command", "echo up; Start-Sleep 600").create().start()
    assert made.line() == "up"
    made.signal(15)
    assert made.result()[0] == -1073741510  # of a program that has no handler for the shutdown


def test_a_half_without_the_other_one_ends(box: Make) -> None:
    made = box("powershell", "-Command", "echo up; Start-Sleep 600").create().start()
    assert made.line() == "up"
    find = ["pgrep", "-f", "-P", str(made.inside), "/standin/start"]
    subprocess.run(["kill", "-9", *subprocess.check_output(find, text=True).split()], check=True)
    code, _, error = made.result()
    assert (code, error) == (1, "What stands in for this program has ended without a word.\r\n")


def test_a_server_in_a_script(box: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "$l = New-Object System.Net.HttpListener; $l.Prefixes.Add('http://*:80/'); "
        "$l.Start(); 'up'; while ($l.IsListening) "
        "{ $c = $l.GetContext(); $b = [Text.Encoding]::UTF8.GetBytes('you asked for ' + "
        "$c.Request.Url.AbsolutePath); "
        "$c.Response.OutputStream.Write($b, 0, $b.Length); $c.Response.Close() }"
    )
    made = box("powershell", "-Command", script).create().start()
    assert made.line() == "up"

    def dial(*_: object, **__: object) -> object:
        connection = made.socket()
        connection.connect(("127.0.0.1", 80))
        return connection

    monkeypatch.setattr("socket.create_connection", dial)
    for path in ("/a", "/b"):
        with urlopen(f"http://127.0.0.1{path}", timeout=10) as answer:
            assert answer.read().decode() == f"you asked for {path}"
