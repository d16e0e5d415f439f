"""Firewall rules, event logs and XML: what one command writes all others read."""

from __future__ import annotations

import pytest
from tests.userland.conftest import Box

_RULE = "-Direction Inbound -Protocol TCP -LocalPort 8080 -Action Allow"


@pytest.mark.parametrize(
    "add",
    [
        f"New-NetFirewallRule -DisplayName web {_RULE} | Out-Null",
        "netsh advfirewall firewall add rule name=web dir=in action=allow protocol=TCP localport=8080",
    ],
)
@pytest.mark.parametrize(
    "remove",
    [
        "Remove-NetFirewallRule -DisplayName web",
        "netsh advfirewall firewall delete rule name=web",
        "Get-NetFirewallRule -DisplayName web | Remove-NetFirewallRule",
    ],
)
def test_a_firewall_rule_is_one_for_all_commands(windows: Box, add: str, remove: str) -> None:
    assert windows.powershell(add).err == ""
    shown = windows.powershell("netsh advfirewall firewall show rule name=web").out
    assert "LocalPort:                            8080" in shown
    assert windows.powershell("(Get-NetFirewallRule -DisplayName web).Action").out == "Allow\r\n"
    ports = "(Get-NetFirewallRule -DisplayName web | Get-NetFirewallPortFilter).LocalPort"
    assert windows.powershell(ports).out == "8080\r\n"
    windows.powershell("Disable-NetFirewallRule -DisplayName web")
    shown = windows.powershell("netsh advfirewall firewall show rule name=web").out
    assert "Enabled:                              No" in shown
    assert windows.powershell(remove).err == ""
    missing = windows.powershell("netsh advfirewall firewall show rule name=web").out
    assert "No rules match the specified criteria." in missing
    assert (
        "No MSFT_NetFirewallRule objects found"
        in windows.powershell("Get-NetFirewallRule -DisplayName web").err
    )


def test_profiles_of_the_firewall(windows: Box) -> None:
    windows.powershell("Set-NetFirewallProfile -Name Public -Enabled False")
    shown = windows.powershell("netsh advfirewall show publicprofile").out
    assert "State                                 OFF" in shown
    windows.powershell("netsh advfirewall set allprofiles state on")
    assert windows.powershell("(Get-NetFirewallProfile Public).Enabled").out == "True\r\n"


def test_events_are_in_one_log(windows: Box) -> None:
    line = (
        "eventcreate",
        "/t",
        "WARNING",
        "/id",
        "77",
        "/l",
        "Application",
        "/so",
        "me",
        "/d",
        "hello",
    )
    assert windows.run(*line).code == 0
    assert "Event ID: 77" in windows.run("wevtutil", "qe", "Application", "/c:1", "/f:text").out
    event = "(Get-EventLog -LogName Application -Newest 1).Message"
    assert windows.powershell(event).out == "hello\r\n"
    assert windows.run("wevtutil", "cl", "Application").code == 0
    assert windows.run("wevtutil", "qe", "Application").out == ""
    assert windows.run("wevtutil", "qe", "Nothing").code == 15007
    assert "mandatory" in windows.run("eventcreate", "/t", "ERROR").err.lower()


@pytest.mark.parametrize(
    "script, expected",
    [
        ("$x.a.b[1].c", "2"),
        ("$x.a.b[0].'#text'", "hi"),
        ("$x.a.d", "plain"),
        ("$x.SelectNodes('//b').Count", "2"),
        ("$x.SelectSingleNode(\"/a/b[@c='2']\").InnerText", "yo"),
        ("$x.a.b | Where-Object { $_.c -eq '2' } | ForEach-Object { $_.InnerText }", "yo"),
        ("$x.a.d = 'new'; $x.a.d", "new"),
        ("$x.GetType().FullName", "System.Xml.XmlDocument"),
        ("$x.DocumentElement.Name", "a"),
        ("$x.OuterXml", '<a><b c="1">hi</b><b c="2">yo</b><d>plain</d><e /></a>'),
        (
            "$n = $x.CreateElement('f'); [void]$x.a.AppendChild($n); $x.SelectNodes('/a/*').Count",
            "5",
        ),
    ],
)
def test_xml(windows: Box, script: str, expected: str) -> None:
    document = '$x = [xml]\'<a><b c="1">hi</b><b c="2">yo</b><d>plain</d><e/></a>\'; '
    result = windows.powershell(document + script)
    assert (result.out, result.err) == (expected + "\r\n", "")


@pytest.mark.parametrize("source", ["<a>", "text", "<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>"])
def test_text_that_is_not_xml(windows: Box, source: str) -> None:
    result = windows.powershell(f'$x = [xml]"{source}"')
    assert 'to type "System.Xml.XmlDocument"' in result.err
