"""Stand-ins over a folder that is a C: drive, with a Win32 half that is played: no Wine is
needed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.runtime.wine.standin.half import run

import transom
from transom.runtime.wine.standin.main import stand_in_command
from transom.runtime.wine.template import STAND_INS

SYSTEM = "drive_c/windows/system32"
PATH = {"Path": r"C:\Windows\System32;C:\Tools"}
PING = r"C:\Windows\System32\ping.exe"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    for folder in (SYSTEM, "drive_c/Tools", "drives/e"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / SYSTEM / "ping.exe").write_bytes(b"MZ")
    (tmp_path / "drive_c/Tools/build.cmd").write_text("rem\n")
    (tmp_path / "system.reg").write_text(
        '"CurrentBuild"="7601"\n"CurrentBuild"="20348"\n"UBR"=dword:000001ec\n'
    )
    return tmp_path


def command(script: str) -> str:
    return f'powershell -NoProfile -ExecutionPolicy Bypass -Command "{script}"'


@pytest.mark.parametrize(
    "script, code, printed",
    [
        ("echo hi", 0, "hi\r\n"),
        ("exit 42", 42, ""),
        ("exit -1", 0xFFFFFFFF, ""),
        ("$PSVersionTable.Note", 0, "a stand-in of Transom's, not Microsoft's PowerShell\r\n"),
        ("$env:a; $PID; $pwd.Path", 0, "x\r\n100\r\nC:\\\r\n"),
        ("[Environment]::OSVersion.VersionString", 0, "Microsoft Windows NT 10.0.20348.0\r\n"),
        ("$i = 0; while ($i -lt 2000) { $i++ }; $i", 0, "2000\r\n"),
        ("Get-Service | % { $_.Name + ' ' + $_.Status }", 0, "Spooler Stopped\r\nWeb Running\r\n"),
        (
            "Get-Process | % { $_.Name, $_.Id, $_.Handles, $_.CPU, $_.WS }",
            0,
            "powershell\r\n100\r\n5\r\n1.5\r\n9437184\r\n",
        ),
        ("(Get-Process).StartTime.Year", 0, "2020\r\n"),
    ],
)
def test_scripts(prefix: Path, script: str, code: int, printed: str) -> None:
    half = run(prefix, command(script), env={"A": "x"})
    assert (half.code, half.output.decode(), half.error.decode()) == (code, printed, "")


def test_a_service_manager_that_does_not_answer_is_not_a_missing_service(prefix: Path) -> None:
    half = run(prefix, command("Get-Service Spooler"), service_manager_error=1722)
    assert half.code == 1
    assert "Cannot open Service Control Manager on computer '.'." in half.error.decode()


def test_start_service_waits_until_the_service_runs(prefix: Path) -> None:
    (prefix / SYSTEM / "net.exe").write_bytes(b"MZ")
    script = "Start-Service Spooler; (Get-Service Spooler).Status"
    net = {r"C:\Windows\System32\net.exe start Spooler": (0, b"")}
    half = run(prefix, command(script), env=PATH, children=net, spooler=(1, 2, 2, 4))
    assert (half.code, half.output.decode(), half.error.decode()) == (0, "Running\r\n", "")


def test_files_are_those_of_the_drive_in_any_spelling(prefix: Path) -> None:
    script = (
        r"Set-Content c:\TOOLS\New.txt hi; Get-Content C:\tools\new.TXT; Test-Path D:\; 'x' > "
        r"E:\y.txt; (ls C:\).Name"
    )
    half = run(prefix, command(script))
    assert half.output.decode() == "hi\r\nFalse\r\nTools\r\nwindows\r\n"
    assert (prefix / "drive_c/Tools/New.txt").read_bytes() == b"hi\r\n"
    assert (prefix / "drives/e/y.txt").read_bytes() == "x\r\n".encode("utf-16")


def test_what_the_kernel_forbids_is_denied(prefix: Path) -> None:
    (prefix / "drive_c/file").write_text("no folder")
    half = run(prefix, command(r"Set-Content C:\file\x.txt hi; Remove-Item C:\nothing"))
    assert half.code == 1
    assert r"Access to the path 'C:\file\x.txt' is denied." in half.error.decode()
    assert r"Cannot find path 'C:\nothing' because it does not exist." in half.error.decode()


def test_a_program_gets_the_handles_the_folder_and_the_variables(prefix: Path) -> None:
    half = run(
        prefix,
        command(r"$env:B = '2'; cd C:\Tools; ping -n 1 'a b'; $LASTEXITCODE"),
        env=PATH,
        children={rf'{PING} -n 1 "a b"': (3221225786, b"pinged\r\n")},
    )
    assert half.output.decode() == "pinged\r\n-1073741510\r\n"
    [started] = half.started
    assert (started.flags, started.directory) == (0, r"C:\Tools")
    assert started.env == [rf"Path={PATH['Path']}", "B=2"]


def test_output_of_a_program_is_a_list_of_lines(prefix: Path) -> None:
    half = run(
        prefix,
        command("$p = 'in' | ping; $p.Count; $p[1]"),
        env=PATH,
        children={PING: (0, b"one\r\ntwo\r\n")},
    )
    assert half.output.decode() == "2\r\ntwo\r\n"
    assert (half.started[0].flags, bytes(half.fed)) == (5, b"in\r\n")


def test_errors_that_a_script_throws_away_are_not_for_the_console(prefix: Path) -> None:
    half = run(prefix, command("ping 2>$null"), env=PATH, children={PING: (0, b"out\r\n")})
    assert half.started[0].flags == 2


def test_batch_files_are_for_the_shell(prefix: Path) -> None:
    line = r"C:\Windows\System32\cmd.exe /c C:\Tools\build.cmd all"
    half = run(
        prefix, command("build all; exit $LASTEXITCODE"), env=PATH, children={line: (3, b"")}
    )
    assert half.code == 3


def test_programs_that_are_not_there_or_none(prefix: Path) -> None:
    half = run(prefix, command("nothing; ping"), env=PATH)
    assert "The term 'nothing' is not recognized" in half.error.decode()
    assert (
        "Program 'ping' failed to run: The specified executable is not a valid application"
        in half.error.decode()
    )


def test_ending_processes(prefix: Path) -> None:
    half = run(prefix, command("Stop-Process 100; Stop-Process 7"))
    assert half.killed == [100, 7]
    assert "Cannot find a process with the process identifier 7." in half.error.decode()


def test_a_script_on_standard_input(prefix: Path) -> None:
    half = run(prefix, "powershell -Command -", given=[b"echo o", b"ne\r\n", b"exit 5\r\n"])
    assert (half.code, half.output.decode()) == (5, "one\r\n")


def test_the_prompt(prefix: Path) -> None:
    half = run(
        prefix,
        "powershell",
        given=[b"cd C:\\Tools\r\n", b"if (1) {\r\n", b"2 }\r\n", b"exit 3\r\n"],
        console=True,
    )
    lines = half.output.decode().split("\r\n")
    assert lines[0].startswith("Windows PowerShell") and "stand-in" in lines[2]
    assert (half.code, lines[4:]) == (3, [r"PS C:\> PS C:\Tools> >> 2", r"PS C:\Tools> "])


def test_other_programs_by_their_names(prefix: Path) -> None:
    half = run(prefix, "sort /R", r"C:\Windows\System32\sort.exe", given=[b"a\r\nb\r\n"])
    assert (half.code, half.output.decode()) == (0, "b\r\na\r\n")
    half = run(prefix, "tasklist /fo csv /nh", r"C:\windows\system32\tasklist.exe")
    assert (
        half.output.decode().splitlines()[-1] == '"powershell.exe","100","Services","2","9,216 K"'
    )


@pytest.mark.parametrize("path", STAND_INS)
def test_every_installed_stand_in_is_known(path: str) -> None:
    command = stand_in_command(path.replace("/", "\\"))
    assert command.__module__ != stand_in_command.__module__


def test_nothing_but_the_standard_library_is_imported() -> None:
    """In a container there are no site-packages."""
    modules = (
        "transom.runtime.wine.standin.main",
        "transom.userland.powershell.main",
        "transom.userland.windows.accounts",
        "transom.userland.windows.system",
        "transom.userland.windows.task_tools",
        "transom.userland.windows.text",
        "transom.userland.windows.wmic",
    )
    code = (
        f"import sys; sys.path.insert(0, {str(Path(transom.__file__).parents[1])!r}); import "
        f"{', '.join(modules)}; "
        "from transom.userland.powershell import cmdlet_table; cmdlet_table.container_cmdlets()"
    )
    done = subprocess.run(
        [sys.executable, "-IS", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
