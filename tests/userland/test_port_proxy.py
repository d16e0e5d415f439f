"""netsh interface portproxy: tables, arguments and errors."""

from __future__ import annotations

import pytest
from tests.userland.conftest import Box

_TABLE = """
Listen on ipv4:             Connect to ipv4:

Address         Port        Address         Port
--------------- ----------  --------------- ----------
"""


def _netsh(windows: Box, command: str) -> str:
    return windows.run("netsh", *command.split()).out.replace("\r\n", "\n")


def test_entries_are_shown_replaced_and_deleted(windows: Box) -> None:
    proxy = "interface portproxy"
    assert _netsh(windows, f"{proxy} show all") == "\n"
    added = _netsh(windows, f"{proxy} add v4tov4 listenport=80 connectaddress=10.0.0.9")
    assert added == "\n"
    _netsh(windows, "int portp add v4tov4 8080 10.0.0.9 81 0.0.0.0 tcp")
    assert _netsh(windows, f"{proxy} show v4tov4") == (
        f"{_TABLE}*               80          10.0.0.9        80\n"
        "0.0.0.0         8080        10.0.0.9        81\n\n"
    )
    key = r"HKLM\SYSTEM\CurrentControlSet\Services\PortProxy\v4tov4\tcp"
    assert windows.system.registry.values(key) == {
        "*/80": "10.0.0.9/80",
        "0.0.0.0/8080": "10.0.0.9/81",
    }
    _netsh(windows, f"{proxy} set v4tov4 listenport=80 connectaddress=web connectport=8000-9000")
    _netsh(windows, f"{proxy} delete v4tov4 listenport=8080 listenaddress=0.0.0.0")
    assert _netsh(windows, f"{proxy} show all") == (
        f"{_TABLE}*               80          web             8000-9000\n\n"
    )
    assert "add v4tov4 listenport=80 connectaddress=web" in _netsh(windows, f"{proxy} dump")
    _netsh(windows, f"{proxy} add v6tov4 listenport=80")
    shown = _netsh(windows, f"{proxy} show v6tov4")
    assert "Listen on ipv6:             Connect to ipv4:" in shown
    assert _netsh(windows, f"{proxy} reset") == "\n"
    assert _netsh(windows, f"{proxy} show all") == "\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("add v4tov4", "One or more essential parameters were not entered.\nVerify the required"),
        ("add v4tov4 listenport=80", "Usage: add v4tov4 [listenport=]<integer>|<servicename>"),
        ("add v6tov6 listenport=80", "[connectaddress=]<IPv6 address>|<hostname>\n"),
        ("delete v4tov4", "One or more essential parameters were not entered."),
        ("delete v4tov4 listenport=80", "The system cannot find the file specified."),
        ("delete v4tov4 listenport=80 connectport=1", "'connectport' is not a valid argument for"),
        ("add v4tov4 80 a 80 b tcp more", "'more' is not a valid argument for this command."),
        ("add v4tov4 80 a listenport=80", "'listenport' is not a valid argument for"),
        ("add v4tov4 80 10.0.0.9 protocol=udp", "udp is not an acceptable value for protocol."),
        ("add v5tov4 80 a", "The following command was not found: interface portproxy add v5tov4"),
        ("frob", "The following command was not found: interface portproxy frob."),
    ],
)
def test_wrong_commands_fail(windows: Box, arguments: str, text: str) -> None:
    result = windows.run("netsh", "interface", "portproxy", *arguments.split())
    assert text in result.out.replace("\r\n", "\n")
    assert result.code == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", "reset          - Resets portproxy configuration state."),
        ("add", "add v6tov4"),
        ("show ?", "show all"),
        ("delete v4tov6 help", "Usage: delete v4tov6 [listenport="),
    ],
)
def test_help_names_the_commands(windows: Box, arguments: str, text: str) -> None:
    result = windows.run("netsh", "interface", "portproxy", *arguments.split())
    assert text in result.out
    assert result.code == 0


def test_changes_need_an_administrator(windows: Box) -> None:
    windows.user = "ContainerUser"
    result = windows.run("netsh", *["interface", "portproxy", "reset"])
    assert "requires elevation" in result.out
    assert result.code == 1


@pytest.mark.parametrize(
    ("control", "text", "code"),
    [
        ("paramchange", "[SC] ControlService FAILED 1062", 1062),
        ("netbindadd", "[SC] ControlService FAILED 1062", 1062),
        ("200", "[SC] ControlService FAILED 1062", 1062),
        ("100", "Sends a CONTROL code to a service.", 1639),
        ("nothing", "paramchange|netbindadd", 1639),
    ],
)
def test_sc_control_sends_known_controls(windows: Box, control: str, text: str, code: int) -> None:
    windows.run("sc", "create", "svc", "binPath=", "svc.exe")
    result = windows.run("sc", "control", "svc", control)
    assert text in result.out
    assert result.code == code
