from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from transom.cli.hns import TABLES
from transom.kit.clock import RealClock
from transom.kit.user_errors import UserError
from transom.machines.realhost import RealWindowsHost
from transom.machines.windows import WindowsHost
from transom.machines.windows.hns import Adapter
from transom.node.inspect_hns import VIEWS, answer_hns


@pytest.fixture
def host() -> WindowsHost:
    host = WindowsHost("windows-1", RealClock())
    hns = host.hns
    hns.set_adapters([Adapter("Ethernet", "00-15-5D-00-00-01", "172.18.0.4/16", "172.18.0.1")])
    subnet = {
        "IpAddressPrefix": "10.244.1.0/24",
        "Routes": [{"NextHop": "10.244.1.1", "DestinationPrefix": "0.0.0.0/0"}],
    }
    net = hns.create(
        "network", {"Name": "cbr0", "Type": "L2Bridge", "Ipams": [{"Subnets": [subnet]}]}
    )["ID"]
    policy = {"Type": "OutBoundNAT", "Settings": {"Exceptions": ["10.244.0.0/16"]}}
    local = hns.create(
        "endpoint", {"Name": "web", "HostComputeNetwork": net, "Policies": [policy]}
    )["ID"]
    addresses = [{"IpAddress": "10.244.2.5"}]
    far = hns.create(
        "endpoint", {"HostComputeNetwork": net, "Flags": 1, "IpConfigurations": addresses}
    )["ID"]
    hns.add_to_namespace(hns.create("namespace", {"Type": "Host"})["ID"], local)
    mapping = {"Protocol": 6, "InternalPort": 8080, "ExternalPort": 30080, "Flags": 2}
    hns.create(
        "loadbalancer",
        {"HostComputeEndpoints": [local, far], "PortMappings": [mapping], "Flags": 1},
    )
    setting = {"DestinationPrefix": "10.96.0.0/12", "NeedEncap": True}
    hns.create("route", {"HostComputeEndpoints": [local], "Setting": [setting]})
    return host


def shown(host: WindowsHost | RealWindowsHost, what: str) -> list[dict[str, str]]:
    """The table that the command line prints, as rows by column."""
    head, *rows = TABLES[what](answer_hns("windows-1", host.hns, "GET", [what])["items"])
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_every_view_has_a_table(host: WindowsHost) -> None:
    assert set(VIEWS) == set(TABLES)
    for what in VIEWS:
        assert shown(host, what), what


@pytest.mark.parametrize(
    "what, row, columns",
    [
        (
            "networks",
            0,
            {
                "NAME": "cbr0",
                "TYPE": "L2Bridge",
                "SUBNET": "10.244.1.0/24",
                "MANAGEMENT IP": "172.18.0.4",
                "ENDPOINTS": "2",
            },
        ),
        (
            "endpoints",
            0,
            {"NAME": "web", "ADDRESS": "10.244.1.3", "STATE": "attached", "NETWORK": "cbr0"},
        ),
        ("endpoints", 1, {"ADDRESS": "10.244.2.5", "STATE": "remote", "ATTACHED TO": "-"}),
        (
            "loadbalancers",
            0,
            {
                "VIP": "*",
                "PROTOCOL": "TCP",
                "PORT": "30080",
                "TARGET": "8080",
                "ENDPOINTS": "2",
                "FLAGS": "DSR,LocalRoutedVIP",
            },
        ),
        ("namespaces", 0, {"COMPARTMENT": "2", "TYPE": "Host", "CONTAINERS": "-"}),
        ("routes", 0, {"DESTINATION": "10.96.0.0/12", "ENCAP": "yes", "NEXT HOP": "-"}),
        (
            "policies",
            1,
            {
                "OWNER": "endpoint",
                "NAME": "web",
                "TYPE": "OutBoundNAT",
                "SETTINGS": '{"Exceptions":["10.244.0.0/16"]}',
            },
        ),
        ("adapters", 0, {"NAME": "Ethernet", "KIND": "bound to a switch", "ADDRESS": "-"}),
        ("adapters", 1, {"NAME": "vEthernet (Ethernet)", "ADDRESS": "172.18.0.4/16"}),
        ("faults", 1, {"FAULT": "late-management-address", "STATE": "off"}),
    ],
)
def test_tables(host: WindowsHost, what: str, row: int, columns: dict[str, Any]) -> None:
    assert shown(host, what)[row].items() >= columns.items()


def test_faults_and_restarts(host: WindowsHost) -> None:
    assert answer_hns("windows-1", host.hns, "POST", ["faults", "lose-networks-on-restart", "on"])[
        "lose-networks-on-restart"
    ]
    assert answer_hns("windows-1", host.hns, "POST", ["restart"]) == {
        "node": "windows-1",
        "networks": 0,
    }
    assert not answer_hns(
        "windows-1", host.hns, "POST", ["faults", "lose-networks-on-restart", "off"]
    )["lose-networks-on-restart"]


@pytest.mark.parametrize(
    "method, parts, message",
    [
        ("POST", ["faults", "rain", "on"], "there is no fault 'rain'"),
        ("GET", ["moons"], "a host networking service cannot do 'moons'"),
        ("DELETE", ["networks"], "a host networking service cannot do 'networks'"),
    ],
)
def test_what_it_cannot_do(host: WindowsHost, method: str, parts: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        answer_hns("windows-1", host.hns, method, parts)
    assert caught.value.message == message


def test_other_nodes_have_none() -> None:
    with pytest.raises(UserError) as caught:
        answer_hns("linux-1", None, "GET", ["networks"])
    assert (
        caught.value.message
        == "node linux-1 has no host networking service: it is not a Windows node"
    )


def test_a_node_with_real_containers_has_one_too(tmp_path: Path) -> None:
    host = RealWindowsHost("windows-1", RealClock(), tmp_path / "machine")
    host.hns.set_adapters([Adapter("Ethernet", "00-15-5D-00-00-01", "172.18.0.4/16", "172.18.0.1")])
    assert [row["NAME"] for row in shown(host, "adapters")] == ["Ethernet"]
