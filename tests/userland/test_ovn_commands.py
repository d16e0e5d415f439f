"""ovs-vsctl, ovn-nbctl and ovn-sbctl show the state of OVN."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from transom.machines.windows.hns import Adapter, HostNetworkService
from transom.network.cni.windows import setup
from transom.network.ovn.database import OvnDatabase, OvnVip
from transom.network.stacks import Fabric
from transom.userland.windows import ovn
from transom.windows.builds import BUILDS


def node() -> tuple[HostNetworkService, Any]:
    fabric = Fabric()
    database = OvnDatabase(fabric)
    for number in (1, 2):
        database.put_switch(
            f"w{number}", f"10.244.{number}.0/24", f"172.20.0.{number}", windows=True
        )
    database.cluster_vips["tcp", "10.96.0.7", 80] = OvnVip("default/a", (("10.244.2.3", 8080),))
    database.node_ports["tcp", 30080] = OvnVip("default/a", (("10.244.2.3", 8080),))
    stack = fabric.add("w1", "node", "windows")
    stack.ovn = database
    hns = HostNetworkService(
        BUILDS[17763], [Adapter("Ethernet", "00-15-5D-00-00-01", "172.20.0.1/16")]
    )
    return hns, stack


class FakeProcess:
    def __init__(self, stack: Any, line: str) -> None:
        self.argv = line.split()
        self.context = SimpleNamespace(
            windows=SimpleNamespace(network=SimpleNamespace(stack=stack))
        )
        self.printed = ""

    def write(self, text: str) -> None:
        self.printed += text

    def fail(self, text: str, code: int = 1) -> int:
        self.printed += f"{self.argv[0]}: {text}\r\n"
        return code


def run(line: str) -> tuple[int, str]:
    hns, stack = node()
    setup.make_transparent_network(hns, "external", "10.244.1.0/24")
    process = FakeProcess(stack, line)
    command: Any = ovn.commands_of(hns)[process.argv[0]]
    return command(process), process.printed


def test_a_machine_without_open_vswitch_does_not_have_them() -> None:
    hns, _ = node()
    setup.make_l2bridge_network(hns, "cbr0", ["10.244.1.0/24"])
    assert ovn.commands_of(hns) == {}


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("ovs-vsctl show", ['remote_ip="172.20.0.2"', "type: geneve", "Port k8s-w1"]),
        ("ovs-vsctl list-ports br-int", ["k8s-w1"]),
        ("ovs-vsctl get Open_vSwitch . external_ids:ovn-encap-type", ['"geneve"']),
        ("ovn-nbctl show", ["(w1)", "(w2)", "(ovn_cluster_router)", "(GR_w1)", "10.244.1.1/24"]),
        ("ovn-nbctl lsp-list w1", ["(k8s-w1)", "(stor-w1)"]),
        ("ovn-nbctl lb-list", ["10.96.0.7:80", "10.244.2.3:8080", "172.20.0.2:30080"]),
        ("ovn-nbctl lr-lb-list GR_w2", ["172.20.0.2:30080"]),
        ("ovn-sbctl show", ["hostname: w2", "Encap geneve", 'ip: "172.20.0.2"']),
        ("ovn-sbctl list datapath_binding", ["tunnel_key          : 2", "name=w2"]),
    ],
)
def test_what_they_show(line: str, parts: list[str]) -> None:
    code, printed = run(line)
    assert code == 0
    assert [part for part in parts if part not in printed] == []


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("ovs-vsctl", "missing command name"),
        ("ovn-nbctl nope", "unknown command 'nope'"),
        ("ovn-nbctl lsp-list w9", "w9: switch name not found"),
        ("ovs-vsctl list-ports br-ex", "no bridge named br-ex"),
        ("ovs-vsctl get Open_vSwitch . external_ids:nope", 'no key "nope"'),
    ],
)
def test_what_they_refuse(line: str, text: str) -> None:
    code, printed = run(line)
    assert code == 1 and text in printed
