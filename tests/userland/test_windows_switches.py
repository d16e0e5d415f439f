"""Tools perform every switch that their /? names, and refuse the others that Windows' tools have."""

from __future__ import annotations

import re

import pytest
from tests.userland.conftest import Box, Context

from transom.userland.api import OpenSocket
from transom.userland.windows.help_texts import HELP
from transom.userland.windows.switches import SWITCHES

# The switches of the tools of Windows Server 2019.
_OF_WINDOWS = {
    "find": "V C N I OFF OFFLINE",
    "findstr": "B E L R S I X V N M O P OFF OFFLINE F A C G D",
    "robocopy": "S E LEV Z B ZB J EFSRAW COPY DCOPY SEC COPYALL NOCOPY SECFIX TIMFIX PURGE MIR MOV "
    "MOVE A+ A- CREATE FAT 256 MON MOT RH PF IPG SL MT A M IA XA XF XD XC XN XO XX XL IS IT MAX "
    "MIN MAXAGE MINAGE MAXLAD MINLAD XJ FFT DST XJD XJF R W REG TBD L X V TS FP BYTES NS NC NFL "
    "NDL NP ETA LOG LOG+ UNILOG UNILOG+ TEE NJH NJS UNICODE JOB SAVE QUIT NOSD NODD IF",
    "taskkill": "S U P FI PID IM T F",
    "tasklist": "S U P M SVC APPS V FI FO NH",
    "tree": "F A",
    "where": "R Q F T",
    "xcopy": "A M D EXCLUDE P S E V W C I Q F L G H R T U K N O X Y -Y Z B J",
}
# Switches that need no code, by the reason.
_NO_EFFECT = {
    "no tool asks questions, and no copy fails only for a moment": "robocopy/r robocopy/w xcopy/y",
    "it changes only how data is transferred": "robocopy/mt robocopy/z xcopy/v xcopy/z xcopy/j",
    "it is what the tool does anyway": "robocopy/ndl robocopy/np tree/a",
    "user and password for /S, which reaches no other machine": "taskkill/u taskkill/p tasklist/u "
    "tasklist/p",
}

_SETUP = r"""md C:\a\sub\none & md C:\b & echo one> C:\a\one.txt & echo two> C:\a\two.log & \
echo three> C:\a\sub\three.txt & echo secret> C:\a\hidden.txt & attrib +h C:\a\hidden.txt"""
_LIST = r"& dir /b /s /a C:\b"
_NEWER = r"timeout /t 5 /nobreak > nul & echo newer> C:\b\one.txt"
_ROBO, _XCOPY = r"robocopy C:\a C:\b /njh /njs", r"xcopy C:\a C:\b /q"

# Each switch, a command, and what is printed with it and not printed without it (or, after a `!`,
# the other way round). `{}` is where the switch goes.
_CASES = [
    ("find", "/v", r'find {} "one" C:\a\two.log', "two\n"),
    ("find", "/c", r'find {} "one" C:\a\one.txt', "ONE.TXT: 1"),
    ("find", "/n", r'find {} "one" C:\a\one.txt', "[1]one"),
    ("find", "/i", r'find {} "ONE" C:\a\one.txt', "one\n"),
    ("findstr", "/b", r"findstr {} ne C:\a\one.txt", "!one"),
    ("findstr", "/e", r"findstr {} on C:\a\one.txt", "!one"),
    ("findstr", "/l", r"findstr {} o.e C:\a\one.txt", "!one"),
    ("findstr", "/r", r'findstr {} /c:"o.e" C:\a\one.txt', "one"),
    ("findstr", "/s", r"findstr {} three C:\a\*.txt", "three.txt:three"),
    ("findstr", "/i", r"findstr {} ONE C:\a\one.txt", "one"),
    ("findstr", "/x", r"findstr {} on C:\a\one.txt", "!one"),
    ("findstr", "/v", r"findstr {} zzz C:\a\one.txt", "one"),
    ("findstr", "/n", r"findstr {} one C:\a\one.txt", "1:one"),
    ("findstr", "/m", r"findstr {} one C:\a\one.txt", "C:\\a\\one.txt\n"),
    ("findstr", "/p", r"copy C:\a\one.txt+C:\bin.dat C:\c.dat & findstr {} one C:\c.dat", "!one\n"),
    ("findstr", "/c:one", r"findstr {} C:\a\one.txt", "one"),
    ("findstr", "/g:C:\\a\\one.txt", r"findstr {} C:\a\one.txt", "one"),
    ("findstr", "/d:C:\\a", r"findstr {} one one.txt", "one\n"),
    ("robocopy", "/s", f"{_ROBO} {{}} {_LIST}", "b\\sub\\three.txt"),
    ("robocopy", "/e", f"{_ROBO} {{}} {_LIST}", "b\\sub\\none"),
    ("robocopy", "/mir", rf"echo x> C:\b\x & {_ROBO} {{}} & if exist C:\b\x echo kept", "!kept"),
    ("robocopy", "/purge", rf"echo x> C:\b\x & {_ROBO} {{}} & if exist C:\b\x echo kept", "!kept"),
    ("robocopy", "/mov", rf"{_ROBO} {{}} & dir /b /s C:\a", "!a\\one.txt"),
    ("robocopy", "/move", rf"{_ROBO} /e {{}} & if exist C:\a echo there", "!there"),
    ("robocopy", "/l", f"{_ROBO} {{}} {_LIST}", "!b\\one.txt"),
    ("robocopy", "/xf *.log", f"{_ROBO} {{}} {_LIST}", "!two.log"),
    ("robocopy", "/xd sub", f"{_ROBO} /e {{}} {_LIST}", "!three.txt"),
    ("robocopy", "/xo", rf"{_ROBO} & {_NEWER} & {_ROBO} {{}} & type C:\b\one.txt", "newer\n"),
    ("robocopy", "/log:C:\\l.txt", rf"{_ROBO} {{}} & if exist C:\l.txt echo logged", "logged"),
    ("robocopy", "/njh", r"robocopy C:\a C:\b {}", "!Started"),
    ("robocopy", "/njs", r"robocopy C:\a C:\b {}", "!FAILED"),
    ("robocopy", "/nfl", f"{_ROBO} {{}}", "!one.txt"),
    ("robocopy", "/nc", f"{_ROBO} {{}}", "!New File"),
    ("robocopy", "/ns", f"{_ROBO} {{}}", "!       5"),
    ("taskkill", "/s other", "taskkill {} /im x.exe", "The RPC server is unavailable."),
    ("taskkill", '/fi "pid eq 4444"', "taskkill {}", "No tasks running with the specified"),
    ("taskkill", "/pid 9999", "taskkill {}", 'The process "9999" not found.'),
    ("taskkill", "/im x.exe", "taskkill {}", 'The process "x.exe" not found.'),
    ("taskkill", "/f", 'taskkill {} /fi "imagename eq cmd.exe"', "has been terminated."),
    ("tasklist", "/s other", "tasklist {}", "The RPC server is unavailable."),
    ("tasklist", "/m", "tasklist {}", "PID Modules\n"),
    ("tasklist", "/svc", "tasklist {}", "Services\n"),
    ("tasklist", "/v", "tasklist {}", "User Name"),
    ("tasklist", '/fi "pid gt 4"', "tasklist {}", "!System Idle"),
    ("tasklist", "/fo csv", "tasklist {}", '"Image Name","PID"'),
    ("tasklist", "/fo list", "tasklist /svc {}", "Services:     N/A"),
    ("tasklist", "/nh", "tasklist {}", "!Image Name"),
    ("tree", "/f", r"tree C:\a {}", "one.txt"),
    ("where", "/r C:\\a", "where {} three.txt", "three.txt"),
    ("where", "/q", "where {} cmd", "!cmd"),
    ("where", "/f", "where {} cmd", '"C:\\'),
    ("where", "/t", r"where {} /r C:\a one.txt", "         5   "),
    ("xcopy", "/s", f"{_XCOPY} {{}} {_LIST}", "sub\\three.txt"),
    ("xcopy", "/e", f"{_XCOPY} {{}} {_LIST}", "sub\\none"),
    ("xcopy", "/t", f"{_XCOPY} {{}} /e {_LIST}", "!one.txt"),
    (
        "xcopy",
        "/d",
        rf"{_XCOPY} & echo newer> C:\b\one.txt & {_XCOPY} {{}} & type C:\b\one.txt",
        "newer\n",
    ),
    ("xcopy", "/d:1-1-2099", f"{_XCOPY} {{}} {_LIST}", "!one.txt"),
    ("xcopy", "/u", f"{_XCOPY} {{}} {_LIST}", "!one.txt"),
    ("xcopy", "/exclude:C:\\x.txt", rf"echo .log> C:\x.txt & {_XCOPY} {{}} {_LIST}", "!two.log"),
    ("xcopy", "/i", r"xcopy C:\a\one.txt C:\new /q {} & dir /b C:\new\one.txt", "one.txt"),
    ("xcopy", "/l", f"{_XCOPY} {{}} {_LIST}", "!b\\one.txt"),
    ("xcopy", "/f", r"xcopy C:\a C:\b {}", "C:\\a\\one.txt -> C:\\b\\one.txt"),
    ("xcopy", "/q", r"xcopy C:\a C:\b {}", "!one.txt"),
    ("xcopy", "/h", f"{_XCOPY} {{}} {_LIST}", "hidden.txt"),
    ("xcopy", "/r", rf"{_XCOPY} & attrib +r C:\b\one.txt & {_XCOPY} {{}}", "!denied"),
    (
        "xcopy",
        "/c",
        rf"{_XCOPY} & attrib +r C:\b\one.txt & del C:\b\two.log & {_XCOPY} {{}} {_LIST}",
        "two.log",
    ),
    ("xcopy", "/k", rf"attrib +r C:\a\one.txt & {_XCOPY} {{}} & attrib C:\b\one.txt", "R "),
]


def _name(switch: str) -> str:
    return re.split("[: ]", switch[1:])[0].lower()


def _run(windows: Box, command: str) -> str:
    windows.files.write("C:\\bin.dat", b"\x00\x01")
    windows.run("cmd", "/c", _SETUP.replace("\\\n", ""))
    result = windows.run("cmd", "/c", command)
    return (result.out + result.err).replace("\r\n", "\n")


@pytest.mark.parametrize(("tool", "switch", "command", "text"), _CASES)
@pytest.mark.parametrize("given", [True, False])
def test_a_switch_changes_what_the_tool_does(
    windows: Box, tool: str, switch: str, command: str, text: str, given: bool
) -> None:
    shown = _run(windows, command.replace("{}", switch if given else ""))
    assert (text.lstrip("!") in shown) == (given != text.startswith("!")), shown


@pytest.mark.parametrize("tool", _OF_WINDOWS)
def test_every_switch_of_the_help_is_performed_and_all_others_are_refused(
    windows: Box, tool: str
) -> None:
    tested = {_name(switch) for name, switch, *_ in _CASES if name == tool}
    tested |= {"t"} if tool == "taskkill" else set()  # below
    free = " ".join(_NO_EFFECT.values()).split()
    performed = tested | {one.partition("/")[2] for one in free if one.startswith(f"{tool}/")}
    named = {one.lower() for one in re.findall(r"/(-?[A-Z]+)", HELP[tool].syntax)}
    assert named <= performed
    if tool in SWITCHES:
        assert SWITCHES[tool].performed == performed
    for switch in _OF_WINDOWS[tool].lower().split():
        if switch in performed:
            continue
        value = ":1" if tool == "findstr" and switch in "fa" else ""
        result = windows.run(tool, f"/{switch}{value}", "x", "y")
        assert result.code != 0, switch
        assert re.search("(?i)invalid|bad command line", result.out + result.err), switch


@pytest.mark.parametrize("switches", [("/t",), ()])
def test_taskkill_ends_a_tree_of_processes(windows: Box, switches: tuple[str, ...]) -> None:
    ended: list[str] = []
    parent = windows.processes.add(("x.exe",), 0, lambda _name: ended.append("x"))
    windows.processes.add(("y.exe",), parent, lambda _name: ended.append("y"))
    windows.run("taskkill", "/f", *switches, "/im", "x.exe")
    assert ended == (["y", "x"] if switches else ["x"])


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("imagename eq x*", True),
        ("imagename ne x.exe", False),
        ("username eq containeradministrator", True),
        (r"username ne user manager\containeradministrator", False),
        ("services eq nosuch", False),
        ("status eq unknown", True),
        ("status eq running", False),
        ("sessionname eq services", True),
        ("session eq 99", False),
        ("memusage ge 1", True),
        ("cputime gt 01:00:00", False),
        ("cputime le 01:00:00", True),
        ("modules eq nosuch.dll", False),
        ("windowtitle eq n/a", True),
    ],
)
def test_tasklist_filters(windows: Box, condition: str, found: bool) -> None:
    pid = windows.processes.add(("x.exe",), 0, lambda _name: None)
    entry, signal = windows.processes.entries[pid]
    owned = entry._replace(user="ContainerAdministrator")
    windows.processes.entries[pid] = (owned, signal)
    shown = windows.run("tasklist", "/fi", condition, "/fi", "imagename eq x.exe").out
    assert ("x.exe" in shown) == found


@pytest.mark.parametrize(
    "condition",
    ["", "pid", "pid eq x", "pid xx 1", "color eq red", "imagename gt a", "cputime gt 1"],
)
@pytest.mark.parametrize("tool", ["tasklist", "taskkill"])
def test_wrong_filters_are_refused(windows: Box, tool: str, condition: str) -> None:
    result = windows.run(tool, "/fi", condition)
    assert "ERROR: The search filter cannot be recognized." in result.err
    assert result.code == 1


def test_findstr_ignores_unknown_letters_with_a_message(windows: Box) -> None:
    result = windows.run("findstr", "/z", "Hello", "C:\\hello.txt")
    assert result.err == "FINDSTR: /z ignored\r\n"
    assert "Hello" in result.out


@pytest.mark.parametrize(
    ("command", "text", "code"),
    [
        ("ipconfig /flushdns", "Successfully flushed the DNS Resolver Cache.", 0),
        ("ipconfig /registerdns", "Registration of the DNS resource records", 0),
        ("ipconfig /displaydns", "Could not display the DNS Resolver Cache.", 1),
        ("ipconfig /renew", "no adapter is in the state permissible", 1),
        ("ipconfig /release6", "no adapter is in the state permissible", 1),
        ("ipconfig /allcompartments /all", "Network Information for Compartment 1", 0),
        ("ipconfig /all", "Physical Address", 0),
        ("ipconfig /flushdns /more", "unrecognized or incomplete command line", 1),
        ("ipconfig /all /flushdns", "unrecognized or incomplete command line", 1),
        ("ipconfig /showclassid", "unrecognized or incomplete command line", 1),
        ("ipconfig /setclassid", "unrecognized or incomplete command line", 1),
        ("netstat -an", "Active Connections", 0),
        ("netstat -r", "IPv4 Route Table", 0),
        ("netstat -e", "Interface Statistics", 0),
        ("netstat -s", "TCP Statistics", 0),
        ("netstat -o", "PID", 0),
        ("netstat -p nosuch", "NETSTAT [-a]", 1),
        ("netstat -p", "NETSTAT [-a]", 1),
        ("netstat -t", "NETSTAT [-a]", 1),
        ("netstat -x", "NETSTAT [-a]", 1),
        ("netstat -y", "NETSTAT [-a]", 1),
        ("netstat 5", "NETSTAT [-a]", 1),
    ],
)
def test_network_tools_perform_or_refuse_a_switch(
    windows: Box, command: str, text: str, code: int
) -> None:
    result = windows.run(*command.split())
    assert text in result.out
    assert result.code == code


@pytest.mark.parametrize(
    ("protocol", "shown"),
    [("tcp", "0.0.0.0:80"), ("tcpv6", "[::]:80"), ("udp", "0.0.0.0:53"), ("udpv6", "[::]:53")],
)
def test_netstat_shows_one_protocol(
    windows: Box, monkeypatch: pytest.MonkeyPatch, protocol: str, shown: str
) -> None:
    rows = [
        OpenSocket(kind, address, port, 1)
        for kind, port in (("tcp", 80), ("udp", 53))
        for address in ("0.0.0.0", "::")
    ]
    monkeypatch.setattr(Context, "sockets", lambda _self: rows)
    lines = windows.run("netstat", "-an", "-p", protocol).out.splitlines()
    assert [line.split()[1] for line in lines if ":80 " in line or ":53 " in line] == [shown]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (r"sort C:\s.txt", "a2\nb1\n"),
        (r"sort /r C:\s.txt", "b1\na2\n"),
        (r"sort /+2 C:\s.txt", "b1\na2\n"),
        (r"sort C:\s.txt /o C:\o.txt & type C:\o.txt", "a2\nb1\n"),
        (r"sort /unique C:\s.txt", "Invalid switch.\n"),
        (r"sort /+x C:\s.txt", "Invalid switch.\n"),
        (r"dir /b /l C:\Users", "containeradministrator\n"),
        (r"dir C:\Big.txt", " 2,000 Big.txt"),
        (r"dir /-c C:\Big.txt", " 2000 Big.txt"),
        (r"dir /l C:\Big.txt", " big.txt"),
        (r"dir /t:w /b C:\Big.txt", "Big.txt"),
        (r"dir /t:c C:\Big.txt", " 2,000 Big.txt"),
        (r"dir /t:x C:\Big.txt", 'Parameter format not correct - "x".'),
        (r"dir /w C:\Big.txt", 'Invalid switch - "w".'),
        (r"dir /d C:\Big.txt", 'Invalid switch - "d".'),
    ],
)
def test_dir_and_sort_perform_or_refuse_a_switch(windows: Box, command: str, text: str) -> None:
    windows.files.write("C:\\s.txt", b"b1\r\na2\r\n")
    windows.files.write("C:\\Big.txt", b"x" * 2000)
    result = windows.run("cmd", "/c", command)
    assert text in (result.out + result.err).replace("\r\n", "\n")
