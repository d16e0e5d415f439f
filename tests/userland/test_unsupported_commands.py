"""A name that Windows knows and the simulation does not is refused in other words than one that
Windows does not know, and only where Windows has it.
"""

from __future__ import annotations

import pytest
from tests.userland.conftest import Box

from transom.userland.launch.windows_table import COMMANDS
from transom.userland.powershell.cmdlet_table import node_cmdlets
from transom.userland.powershell.unsupported_cmdlets import is_unsupported_cmdlet
from transom.userland.windows import unsupported_programs
from transom.userland.windows.unsupported_classes import is_unsupported_class
from transom.userland.windows.unsupported_programs import is_unsupported_netsh
from transom.userland.windows.wmi_query import CLASSES

NOT_RECOGNIZED = "is not recognized"
NOT_SUPPORTED = "is not supported on simulated machines."


@pytest.fixture
def windows() -> Box:
    return Box("windows")


@pytest.mark.parametrize(
    ("command", "text", "code"),
    [
        ("vssadmin list shadows", NOT_SUPPORTED, 50),
        (r"C:\Windows\System32\bcdedit.exe /enum", NOT_SUPPORTED, 50),
        ("nosuchtool", NOT_RECOGNIZED, 1),
        ("telnet 10.0.0.1", NOT_RECOGNIZED, 1),  # a feature that is not installed
        ("sc qprivs spooler", NOT_SUPPORTED, 50),
        ("sc nosuchverb spooler", "Unrecognized command", 1639),
        ("fsutil file queryfileid C:\\hello.txt", NOT_SUPPORTED, 50),
        ("wevtutil epl System C:\\s.evtx", NOT_SUPPORTED, 50),
        ("dism -online -get-drivers", NOT_SUPPORTED, 50),
    ],
)
def test_programs_and_subcommands(windows: Box, command: str, text: str, code: int) -> None:
    result = windows.run("cmd", "/c", command)
    assert text in result.out + result.err
    assert result.code == code


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("Get-SmbMapping", NOT_SUPPORTED),
        ("get-netadapterrss -Name x", NOT_SUPPORTED),
        ("Get-VM", NOT_RECOGNIZED),  # containers have no Hyper-V
        ("Get-SmbMappings", NOT_RECOGNIZED),
        ("Get-CimInstance Win32_BaseBoard", NOT_SUPPORTED),
        ("Get-CimInstance Win32_BaseBoards", "Invalid class"),
        ("Get-CimInstance -Namespace root/wmi -ClassName x", NOT_SUPPORTED),
        ("Get-CimInstance -Namespace root/wmix -ClassName x", "Invalid namespace"),
    ],
)
def test_cmdlets_and_classes(windows: Box, command: str, text: str) -> None:
    result = windows.run("powershell", "-Command", command)
    assert text in result.err
    assert result.code == 1


def test_a_script_can_catch_the_error_and_finds_no_such_command(windows: Box) -> None:
    result = windows.run(
        "powershell",
        "-Command",
        "try { Get-SmbMapping } catch { 'caught' }; "
        "if (Get-Command Get-SmbMapping -ErrorAction SilentlyContinue) { 'there' }",
    )
    assert result.out == "caught\r\n"


def test_cmdlets_of_hyper_v_are_those_of_machines() -> None:
    assert is_unsupported_cmdlet("Get-VMHost", node=True)
    assert not is_unsupported_cmdlet("Get-VMHost", node=False)


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("int tcp show global", True),
        ("interface ipv4 show dynamicport tcp", True),
        ("http show urlacl", True),
        ("winhttp import proxy source=ie", True),
        ("http nosuch", False),
        ("interface ipv4 show nosuch", False),
        ("interface", False),
        ("nosuch show x", False),
    ],
)
def test_contexts_of_netsh(words: str, known: bool) -> None:
    assert is_unsupported_netsh(words.split()) == known


def test_what_is_simulated_is_in_no_list() -> None:
    assert not [name for name in COMMANDS if unsupported_programs.find_unsupported_program(name)]
    rows = [row.name for row in node_cmdlets().all()]
    assert not [name for name in rows if is_unsupported_cmdlet(name, node=True)]
    counters = "win32_perf"
    assert not [
        name for name in CLASSES if is_unsupported_class(name) and not name.startswith(counters)
    ]
