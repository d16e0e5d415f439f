"""ipconfig, route, netsh, arp and the network cmdlets show the same state, and each sees changes of
the others.
"""

from __future__ import annotations

import re

import pytest
from tests.userland.conftest import Box

_ADDED = "10.50.0.0"
_PREFIX = "10.50.0.0/16"
_INTERFACES = r"HKLM:\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters\Interfaces"


@pytest.mark.parametrize(
    "add",
    [
        "route add 10.50.0.0 mask 255.255.0.0 10.244.1.9",
        'netsh interface ipv4 add route 10.50.0.0/16 "vEthernet (Ethernet)" 10.244.1.9',
        (
            "New-NetRoute -DestinationPrefix 10.50.0.0/16 -InterfaceAlias 'vEthernet (Ethernet)' "
            "-NextHop 10.244.1.9 | Out-Null"
        ),
    ],
)
@pytest.mark.parametrize(
    "remove",
    [
        "route delete 10.50.0.0",
        'netsh interface ipv4 delete route 10.50.0.0/16 "vEthernet (Ethernet)"',
        "Remove-NetRoute -DestinationPrefix 10.50.0.0/16 -Confirm:$false",
    ],
)
def test_a_route_that_one_command_adds_is_shown_and_removed_by_all_others(
    windows: Box, add: str, remove: str
) -> None:
    shows = {
        "route print": _ADDED,
        "netsh interface ipv4 show route": _PREFIX,
        "(Get-NetRoute).DestinationPrefix": _PREFIX,
        "(Get-NetRoute -DestinationPrefix 10.50.0.0/16).NextHop": "10.244.1.9",
    }
    added = windows.powershell(add)
    assert (added.code, added.err) == (0, "")
    for command, text in shows.items():
        assert text in windows.powershell(command).out, command
    assert windows.powershell(remove).code == 0
    for command, text in shows.items():
        assert text not in windows.powershell(command).out, command


def test_the_route_table_has_windows_own_routes_and_metrics(windows: Box) -> None:
    out = windows.run("route", "print").out
    assert re.search(r"^ +0\.0\.0\.0 +0\.0\.0\.0 +10\.244\.1\.1 +10\.244\.1\.2 +271\r$", out, re.M)
    assert re.search(r"^ +127\.0\.0\.0 +255\.0\.0\.0 +On-link +127\.0\.0\.1 +331\r$", out, re.M)
    assert re.search(
        r"^ +10\.244\.1\.0 +255\.255\.255\.0 +On-link +10\.244\.1\.2 +271\r$", out, re.M
    )
    assert re.search(
        r"^ +10\.244\.1\.255 +255\.255\.255\.255 +On-link +10\.244\.1\.2 +271\r$", out, re.M
    )


@pytest.mark.parametrize(
    "command, printed",
    [
        (
            "route add 10.50.0.0 mask 255.255.0.0 192.0.2.1",
            "the gateway does not lie on the same network as the interface",
        ),
        ("route add 0.0.0.0 mask 0.0.0.0 10.244.1.1", "The object already exists."),
        ("route delete 10.99.0.0", "Element not found."),
        ("netsh interface ipv4 show config nothing", "syntax is incorrect"),
        (
            "Get-NetAdapter nothing",
            "No MSFT_NetAdapter objects found with property 'Name' equal to 'nothing'.",
        ),
        ("Get-NetRoute -DestinationPrefix 10.98.0.0/16", "No MSFT_NetRoute objects found"),
        ("netsh frobnicate", "The following command was not found: frobnicate."),
    ],
)
def test_what_is_not_there_is_refused(windows: Box, command: str, printed: str) -> None:
    done = windows.powershell(command)
    assert printed in done.out + done.err
    assert done.code != 0 or windows.powershell(
        f"{command} 2>$null; $LASTEXITCODE"
    ).out.strip().endswith("1")


def test_addresses_follow_the_stack(windows: Box) -> None:
    windows.stack.delete_address("Ethernet", "10.244.1.2/24")
    windows.stack.add_address("Ethernet", "10.244.7.8/20")
    windows.stack.replace_route("0.0.0.0/0", "Ethernet", "10.244.0.1")
    out = windows.run("ipconfig", "/all").out
    for name, value in (
        ("IPv4 Address", "10.244.7.8(Preferred) "),
        ("Subnet Mask", "255.255.240.0"),
        ("Default Gateway", "10.244.0.1"),
        ("Physical Address", windows.stack.links["Ethernet"].mac.replace(":", "-").upper()),
    ):
        assert re.search(rf"^   {name}[ .]+: {re.escape(value)}\r$", out, re.M), out
    assert (
        windows.powershell(
            "(Get-NetIPAddress -AddressFamily IPv4 -InterfaceAlias vEth*).IPAddress"
        ).out
        == "10.244.7.8\r\n"
    )
    assert "10.244.7.8" in windows.run("netsh", "interface", "ip", "show", "config").out


def test_neighbours_are_next_hops_and_what_is_set_by_hand(windows: Box) -> None:
    mac = windows.router.links["Ethernet"].mac.replace(":", "-")
    assert re.search(rf"^  10\.244\.1\.1 +{mac} +dynamic", windows.run("arp", "-a").out, re.M)
    assert windows.run("arp", "-s", "10.244.1.77", "00-15-5d-01-02-03").code == 0
    assert re.search(
        r"^  10\.244\.1\.77 +00-15-5d-01-02-03 +static", windows.run("arp", "-a").out, re.M
    )
    assert windows.powershell("(Get-NetNeighbor 10.244.1.77).State").out == "Permanent\r\n"
    windows.run("arp", "-d", "10.244.1.77")
    assert "10.244.1.77" not in windows.run("arp", "-a").out


def test_tracert_shows_no_names_of_hops_with_d(windows: Box) -> None:
    named = windows.run("tracert", "localhost").out
    assert "localhost [127.0.0.1]" in named.splitlines()[-3]
    out = windows.run("tracert", "-d", "localhost").out
    assert out.splitlines()[-3].split()[-1] == "127.0.0.1"


def test_tracert_goes_by_the_routes(windows: Box) -> None:
    out = windows.run("tracert", "-d", "10.244.1.77").out
    assert "Tracing route to 10.244.1.77\r\nover a maximum of 30 hops:" in out
    assert "10.244.1.1" not in out  # on the link


def test_a_neighbour_that_one_command_adds_is_shown_and_removed_by_others(windows: Box) -> None:
    alias = "-InterfaceAlias 'vEthernet (Ethernet)'"
    add = f"New-NetNeighbor {alias} -IPAddress 10.244.1.77 -LinkLayerAddress 00-11-22-33-44-55"
    assert "00-11-22-33-44-55" in windows.powershell(add).out
    assert "already exists" in windows.powershell(add).err
    assert "10.244.1.77           00-11-22-33-44-55     static" in windows.run("arp", "-a").out
    change = f"Set-NetNeighbor {alias} -IPAddress 10.244.1.77 -LinkLayerAddress 00-11-22-33-44-66"
    assert windows.powershell(change).err == ""
    assert "00-11-22-33-44-66" in windows.powershell("netsh interface ipv4 show neighbors").out
    windows.powershell("Remove-NetNeighbor -IPAddress 10.244.1.77 -Confirm:$false")
    assert "10.244.1.77" not in windows.run("arp", "-a").out


def test_an_address_that_is_added_is_one_for_all_commands(windows: Box) -> None:
    alias = "-InterfaceAlias 'vEthernet (Ethernet)'"
    add = f"New-NetIPAddress {alias} -IPAddress 10.60.0.5 -PrefixLength 24"
    assert windows.powershell(add).err == ""
    assert "10.60.0.5" in windows.run("ipconfig").out
    change = f"Set-NetIPAddress {alias} -IPAddress 10.60.0.5 -PrefixLength 16"
    assert windows.powershell(change).err == ""
    assert "10.60.0.0/16" in windows.powershell("netsh interface ipv4 show addresses").out
    windows.powershell("Remove-NetIPAddress -IPAddress 10.60.0.5 -Confirm:$false")
    assert "10.60.0.5" not in windows.run("ipconfig").out


def test_persistent_routes_are_in_the_registry_until_they_are_deleted(windows: Box) -> None:
    key = r"HKLM\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters\PersistentRoutes"
    assert (
        windows.run("route", "-p", "add", "10.51.0.0", "mask", "255.255.0.0", "10.244.1.9").code
        == 0
    )
    assert "10.51.0.0,255.255.0.0,10.244.1.9,1" in windows.run("reg", "query", key).out
    kept = windows.run("route", "print").out.partition("Persistent Routes:")[2]
    assert re.search(r"^ +10\.51\.0\.0 +255\.255\.0\.0 +10\.244\.1\.9 +1\r$", kept, re.M)
    windows.run("route", "delete", "10.51.0.0")
    assert "10.51.0.0" not in windows.run("route", "print").out
    assert "10.51.0.0" not in windows.run("reg", "query", key).out


def test_the_way_to_this_machine_has_one_hop(windows: Box) -> None:
    assert "  2 " not in windows.run("tracert", "127.0.0.1").out


def _interface_key(windows: Box) -> str:
    names = windows.powershell(f"(Get-ChildItem {_INTERFACES}).PSChildName").out.split()
    assert len(names) == 1, names
    return f"{_INTERFACES}\\{names[0]}"


def test_name_servers_are_set_for_all_commands(windows: Box) -> None:
    change = (
        "Set-DnsClientServerAddress -InterfaceAlias 'vEthernet (Ethernet)' "
        "-ServerAddresses 10.9.9.9,10.9.9.8"
    )
    assert windows.powershell(change).err == ""
    query = rf"(Get-ItemProperty '{_interface_key(windows)}').NameServer"
    assert windows.powershell(query).out == "10.9.9.9,10.9.9.8\r\n"
    for command in (
        "ipconfig /all",
        "netsh interface ipv4 show dnsservers",
        "(Get-DnsClientServerAddress -AddressFamily IPv4).ServerAddresses",
        "(Get-NetIPConfiguration).DNSServer",
    ):
        assert "10.9.9.9" in windows.powershell(command).out, command
    reset = (
        "Set-DnsClientServerAddress -InterfaceAlias 'vEthernet (Ethernet)' -ResetServerAddresses"
    )
    assert windows.powershell(reset).err == ""
    assert "10.9.9.9" not in windows.powershell(query).out


def test_the_registry_shows_the_interface_as_it_is_now(windows: Box) -> None:
    def value(name: str) -> str:
        found = windows.powershell(f"(Get-ItemProperty '{_interface_key(windows)}').{name}")
        return found.out.strip()

    assert (value("IPAddress"), value("SubnetMask")) == ("10.244.1.2", "255.255.255.0")
    assert (value("DefaultGateway"), value("EnableDHCP")) == ("10.244.1.1", "0")
    assert value("NameServer") in windows.run("ipconfig", "/all").out and value("NameServer")
    assert value("Domain") == "default.svc.cluster.local"
    alias = "-InterfaceAlias 'vEthernet (Ethernet)'"
    windows.powershell(f"New-NetIPAddress {alias} -IPAddress 10.60.0.5 -PrefixLength 16")
    assert value("IPAddress").split() == ["10.244.1.2", "10.60.0.5"]
    assert value("SubnetMask").split() == ["255.255.255.0", "255.255.0.0"]
    listed = windows.run("reg", "query", _INTERFACES.replace(":", ""), "/s").out
    assert re.search(r"IPAddress +REG_MULTI_SZ +10\.244\.1\.2\\010\.60\.0\.5\r$", listed, re.M)
    assert re.search(r"EnableDHCP +REG_DWORD +0x0\r$", listed, re.M)
    guid = re.search(r"Interfaces\\(\{[0-9A-F-]{36}\})\r$", listed, re.M)
    assert guid is not None and guid[1] in windows.run("getmac").out
    key = _INTERFACES.replace(":", "") + "\\" + guid[1].lower()
    windows.run("reg", "add", key, "/v", "nameserver", "/d", "10.8.8.8", "/f")
    assert "10.8.8.8" in windows.run("ipconfig", "/all").out
    assert value("IPAddress").split() == ["10.244.1.2", "10.60.0.5"]  # still read, not copied
    windows.powershell("Remove-NetIPAddress -IPAddress 10.60.0.5 -Confirm:$false")
    assert value("IPAddress") == "10.244.1.2"
