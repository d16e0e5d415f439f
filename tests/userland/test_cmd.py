"""cmd.exe: its output, duration and exit codes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.kit.argv import quote_argument
from transom.userland.cmd.interpreter import split_arguments
from transom.userland.cmd.main import line_of

LINES = [
    ("echo hello", "hello\r\n"),
    ("echo hello & echo world", "hello \r\nworld\r\n"),
    ("echo hi&&echo there", "hi\r\nthere\r\n"),
    ("type nope || echo failed", "failed\r\n"),
    ("echo %COMPUTERNAME% %computername%", "BOX BOX\r\n"),
    ("echo %NOPE%", "%NOPE%\r\n"),
    ("echo %username%", "ContainerAdministrator\r\n"),
    ("set X=5& call echo %^X%", "5\r\n"),
    ("echo.", "\r\n"),
    ("echo a^&b", "a&b\r\n"),
    ('echo "a & b"', '"a & b"\r\n'),
    ("type C:\\hello.txt", "Hello from a file\r\n"),
    ("if exist C:\\hello.txt (echo yes) else (echo no)", "yes\r\n"),
    ("if not exist C:\\nope echo missing", "missing\r\n"),
    ('if "%OS%"=="Windows_NT" echo nt', "nt\r\n"),
    ("if 5 GTR 3 (if 2 LSS 1 (echo a) else echo b)", "b\r\n"),
    ("if /i ABC==abc echo same", "same\r\n"),
    ("if defined OS echo defined", "defined\r\n"),
    ("for /L %i in (1,1,3) do @echo %i", "1\r\n2\r\n3\r\n"),
    ("for /L %i in (3,-1,1) do @echo %i", "3\r\n2\r\n1\r\n"),
    ("for %i in (a b c) do @echo [%i]", "[a]\r\n[b]\r\n[c]\r\n"),
    ('for /F "tokens=2 delims=," %i in ("a,b,c") do @echo %i', "b\r\n"),
    ("for /F %i in ('echo one') do @echo got %i", "got one\r\n"),
    (
        "mkdir C:\\a\\b && echo hi> C:\\a\\b\\f.txt && type C:\\a\\b\\f.txt && del "
        "C:\\a\\b\\f.txt && "
        "rmdir /s /q C:\\a && echo gone",
        "hi\r\ngone\r\n",
    ),
    ("echo one> C:\\f & echo two>> C:\\f & type C:\\f", "one\r\ntwo\r\n"),
    ("cd Users & cd", "C:\\Users\r\n"),
    ("echo b&echo a", "b\r\na\r\n"),
    ("(echo b&echo a)|sort", "a\r\nb\r\n"),
    ("type C:\\hello.txt | findstr /i hello", "Hello from a file\r\n"),
    ("ver", "\r\nMicrosoft Windows [Version 10.0.17763.1697]\r\n"),
    ("hostname", "box\r\n"),
    ("whoami", "user manager\\containeradministrator\r\n"),
    ("copy C:\\hello.txt C:\\copy.txt", "        1 file(s) copied.\r\n"),
    ("set /a 7*6", "42"),
    ("dir /b C:\\", "hello.txt\r\nUsers\r\nWindows\r\n"),
    ("set FOO=bar&cmd /c echo %^FOO%", "bar\r\n"),
    ('cmd /v:on /c "set A=1&echo !A!"', "1\r\n"),
    ("set P=C:\\x\\y.txt&call echo %^P:~0,2% %^P:x=z%", "C: C:\\z\\y.tzt\r\n"),
]


@pytest.mark.parametrize(("line", "expected"), LINES, ids=[line[:40] for line, _ in LINES])
def test_output(windows, line: str, expected: str) -> None:
    assert windows.cmd(line).out == expected


@pytest.mark.parametrize(
    ("line", "code", "err"),
    [
        ("exit 3", 3, ""),
        ("exit /b 5", 5, ""),
        ("exit -1", 0xFFFFFFFF, ""),
        (
            "nope",
            1,
            (
                "'nope' is not recognized as an internal or external command,\r\noperable "
                "program or batch file.\r\n"
            ),
        ),
        ("type C:\\nope", 1, "The system cannot find the file specified.\r\n"),
        ("type C:\\no\\pe", 1, "The system cannot find the path specified.\r\n"),
        ("cd C:\\nope", 1, "The system cannot find the path specified.\r\n"),
        ("echo x> C:\\no\\pe", 1, "The system cannot find the path specified.\r\n"),
        ("mkdir C:\\Users", 1, "A subdirectory or file C:\\Users already exists.\r\n"),
        ("if (", 255, "The syntax of the command is incorrect.\r\n"),
        ("taskkill /pid 99999", 128, 'ERROR: The process "99999" not found.\r\n'),
        ("echo ok", 0, ""),
    ],
)
def test_failures(windows, line: str, code: int, err: str) -> None:
    result = windows.cmd(line)
    assert (result.code, result.err) == (code, err)


def test_not_recognized_is_9009_inside(windows) -> None:
    assert windows.cmd("nope 2>nul & call echo %^ERRORLEVEL%").out == "9009\r\n"


def test_read_only_volume(windows) -> None:
    windows.files.mkdir("C:\\vol")
    windows.files._top.read_only = True
    result = windows.cmd("echo windows-volume-test > C:\\vol\\file")
    assert (result.err.strip(), result.code) == ("Access is denied.", 1)


def test_ping_takes_its_time(windows) -> None:
    result = windows.run("ping", "-n", "3", "127.0.0.1")
    assert result.seconds == 2
    assert result.code == 0
    assert result.out.splitlines()[1] == "Pinging 127.0.0.1 with 32 bytes of data:"
    assert result.out.count("Reply from 127.0.0.1: bytes=32 time<1ms TTL=128\r\n") == 3
    assert "Packets: Sent = 3, Received = 3, Lost = 0 (0% loss)," in result.out
    unknown = windows.run("ping", "-n", "1", "nowhere")
    assert (
        unknown.out
        == "Ping request could not find host nowhere. Please check the name and try again.\r\n"
    )
    assert unknown.code == 1


def test_timeout_takes_its_time(windows) -> None:
    result = windows.cmd("timeout /t 5 /nobreak & echo done")
    assert (result.seconds, result.code) == (5, 0)
    assert result.out.endswith("done\r\n")


def test_ipconfig_says_what_the_e2e_suite_looks_for(windows) -> None:
    out = windows.run("ipconfig", "/all").out
    match = re.search(
        r"DNS Servers[\s*.]*:(\s*[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3})+", out
    )
    assert match is not None
    assert "10.96.0.10" in match[0]
    assert "   IPv4 Address. . . . . . . . . . . : 10.244.1.2(Preferred) \r\n" in out
    assert "   DNS Suffix Search List. . . . . . : default.svc.cluster.local\r\n" in out


@pytest.mark.windows("W-SEC-42")
def test_nltest_resets_the_secure_channel(windows) -> None:
    reset = ("nltest", "/sc_reset:acme.com")
    assert windows.run(*reset).code == 1
    windows.credential_spec = '{"DomainJoinConfig": {"DnsName": "acme.com", "NetBiosName": "ACME"}}'
    lines = windows.run(*reset).out.splitlines()
    assert lines[:3] == [
        "Flags: b0 HAS_IP  HAS_TIMESERV",
        "Trusted DC Name \\\\dc1.acme.com",
        "Trusted DC Connection Status Status = 0 0x0 NERR_Success",
    ]
    assert windows.run("nltest", "/sc_reset:other.com").code == 1
    assert "NERR_Success" in windows.run("nltest", "/query").out


def test_nltest_knows_the_credential_spec(windows) -> None:
    windows.credential_spec = '{"DomainJoinConfig": {"DnsName": "acme.com", "NetBiosName": "ACME"}}'
    out = windows.run("nltest", "/PARENTDOMAIN").out
    assert out.startswith("acme.com")
    assert "The command completed successfully" in out
    assert "The command completed successfully" in windows.run("nltest.exe", "/QUERY").out
    windows.credential_spec = ""
    assert windows.run("nltest", "/QUERY").code == 1


def test_registry_has_the_build(windows) -> None:
    out = windows.cmd(
        r'reg query "HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion" /v CurrentBuild'
    ).out
    assert "    CurrentBuild    REG_SZ    17763\r\n" in out


def test_batch_file(windows) -> None:
    windows.files.write(
        "C:\\run.cmd",
        b"@echo off\r\nsetlocal\r\nset N=0\r\n:again\r\nset /a N+=1\r\necho turn %N% of "
        b"%1\r\nif %N% LSS 2 goto again\r\n"
        b"call :sub x\r\nfor %%i in (1 2) do (\r\n  echo in %%i\r\n)\r\nexit /b "
        b"7\r\n:sub\r\necho sub %1\r\ngoto :eof\r\n",
    )
    result = windows.cmd("C:\\run.cmd arg")
    assert result.out == "turn 1 of arg\r\nturn 2 of arg\r\nsub x\r\nin 1\r\nin 2\r\n"
    assert result.code == 7


def test_console(windows) -> None:
    result = windows.run("cmd", stdin=b"echo hi\r\nexit 4\r\n", tty=True)
    assert result.code == 4
    assert result.out.startswith(
        "Microsoft Windows [Version 10.0.17763.1697]\r\n(c) 2018 Microsoft Corporation. All "
        "rights reserved.\r\n"
    )
    assert "\r\nC:\\>hi\r\n\r\nC:\\>" in result.out


def test_dir_looks_like_windows(windows) -> None:
    out = windows.cmd("dir C:\\").out
    assert out.startswith(
        " Volume in drive C has no label.\r\n Volume Serial Number is F10B-2FEF\r\n\r\n "
        "Directory of C:\\\r\n\r\n"
    )
    assert re.search(
        r"^\d\d/\d\d/\d{4}  \d\d:\d\d [AP]M    <DIR>          Users\r$", out, re.MULTILINE
    )
    assert re.search(
        r"^\d\d/\d\d/\d{4}  \d\d:\d\d [AP]M                19 hello.txt\r$", out, re.MULTILINE
    )
    assert "               1 File(s)             19 bytes\r\n               2 Dir(s) " in out
    missing = windows.cmd("dir C:\\nope")
    assert (missing.err, missing.code) == ("File Not Found\r\n", 1)


def test_arguments_become_one_line(windows) -> None:
    assert line_of(["echo hi > f"], False) == "echo hi > f"
    assert line_of(["echo", "hi there"], False) == 'echo "hi there"'
    assert windows.run("cmd", "/S", "/C", "type", "C:\\hello.txt").out == "Hello from a file\r\n"
    assert windows.run("cmd", "/c", "echo hello world").out == "hello world\r\n"


@given(st.lists(st.text(alphabet='ab "\\', max_size=6), max_size=4))
def test_quoting_survives(arguments: list[str]) -> None:
    assert (
        split_arguments(" ".join(quote_argument(argument) for argument in arguments)) == arguments
    )


async def test_windows_ends_on_any_console_event(windows) -> None:

    context = windows.start("cmd", "/c", "ping -t localhost")
    await windows.clock.run_for(3.5)
    assert context.output.count(b"Reply from ::1: time<1ms \r\n") == 4
    context.signal("CTRL_SHUTDOWN_EVENT")
    assert (context.code) == 0xC000013A


def test_start_reports_programs_that_are_not_there(windows) -> None:
    result = windows.cmd("start nosuch /x")
    assert (result.code, result.err) == (9059, "The system cannot find the file nosuch.\r\n")
    assert windows.cmd("start /wait cmd /c exit 3").code == 3
    assert windows.cmd("start C:\\hello.txt").err == ""


def test_robocopy_shows_its_options(windows) -> None:
    windows.cmd("mkdir C:\\a & echo x> C:\\a\\one.txt")
    out = windows.cmd("robocopy C:\\a C:\\b *.txt /MIR /R:2 /W:1 /XF two.txt").out
    header = out.split("-" * 79)[2].split("-" * 78)[0]
    assert "    Files : *.txt\r\n" in header and "Exc Files : two.txt\r\n" in header
    assert "  Options : /S /E /DCOPY:DA /COPY:DAT /PURGE /MIR /R:2 /W:1 \r\n" in header
    plain = windows.cmd("robocopy C:\\a C:\\c").out
    assert "  Options : *.* /DCOPY:DA /COPY:DAT /R:1000000 /W:30 \r\n" in plain


def test_wmic_lists_its_aliases(windows) -> None:
    result = windows.cmd("wmic /?")
    assert result.code == 0 and "LOGICALDISK          - Win32_LogicalDisk" in result.out


def test_tar_is_bsdtar_and_reads_zip_archives(windows) -> None:
    def failed(line: str) -> tuple[int, str]:
        result = windows.cmd(line)
        return result.code, result.err

    start = "tar: Error opening archive: "
    assert failed("tar -tf no.zip") == (1, f"{start}Failed to open 'no.zip'\r\n")
    assert failed("tar -tf C:\\hello.txt") == (1, f"{start}Unrecognized archive format\r\n")
    assert failed("tar -f x.tar") == (1, "tar: Must specify one of -c, -r, -t, -u, -x\r\n")
    windows.cmd("mkdir C:\\z & echo inside> C:\\z\\f.txt")
    windows.cmd("powershell Compress-Archive -Path C:\\z -DestinationPath C:\\z.zip")
    assert "z/f.txt" in windows.cmd("tar -tf C:\\z.zip").out.split()
    windows.cmd("mkdir C:\\o & tar -xf C:\\z.zip -C C:\\o")
    assert windows.cmd("type C:\\o\\z\\f.txt").out == "inside\r\n"


def test_shutdown_is_for_administrators_and_can_be_aborted(windows) -> None:
    assert windows.cmd("shutdown /a").err.endswith("(1116)\r\n")
    assert windows.cmd("shutdown /s /t 60").code == 0
    assert windows.power.pending is not None and windows.power.pending.action == "off"
    assert windows.cmd("shutdown /r").code == 1190
    assert windows.cmd("shutdown /a").code == 0 and windows.power.pending is None
