"""An agent writes to its node what concerns its pods, and nothing when nothing does."""

from __future__ import annotations

from typing import Any

from tests.proxy.policy.objects import labels, pod, policy

from transom.machines.windows.hns import Adapter, HostNetworkService
from transom.network.stacks import Fabric, NetworkLink, NetworkStack
from transom.proxy.policy.agent import PolicyAgent
from transom.proxy.policy.index import PolicyIndex
from transom.windows.builds import DEFAULT

NODE_IP = "172.18.0.2"
FROM_DB = policy(
    selector=labels(app="web"), ingress=[{"from": [{"podSelector": labels(app="db")}]}]
)


def linux() -> NetworkStack:
    stack = Fabric().add("linux-1", "node", "linux")
    stack.add_link(NetworkLink("eth0", "ethernet"))
    stack.add_address("eth0", f"{NODE_IP}/16")
    return stack


def test_a_linux_node_has_a_table_only_while_it_has_isolated_pods() -> None:
    index = PolicyIndex()
    stack = linux()
    agent = PolicyAgent(index, "linux-1", stack)
    index.put_pod(pod("web", "10.244.1.5", {"app": "web"}))
    index.put_pod(pod("db", "10.244.2.5", {"app": "db"}, node="linux-2"))
    assert not agent.dirty
    index.put_policy(FROM_DB)
    assert agent.dirty
    assert agent.sync()
    assert not agent.dirty
    first = stack.tables["ip transom-policy"]
    assert ("10.244.1.5",) in first.maps["ingress-isolated"].elements
    index.put_pod(pod("db-2", "10.244.2.6", {"app": "db"}, node="linux-2"))
    assert agent.sync()
    (peers,) = [
        s for name, s in stack.tables["ip transom-policy"].sets.items() if name.startswith("peers-")
    ]
    assert peers.elements == {("10.244.2.5",), ("10.244.2.6",)}
    index.put_policy(policy("elsewhere", labels(app="db")))
    assert not agent.dirty, "pods of other nodes are other agents' business"
    index.remove_policy(FROM_DB)
    assert agent.sync()
    assert stack.tables == {}


class Windows:
    def __init__(self) -> None:
        self.hns = HostNetworkService(
            DEFAULT,
            [Adapter("Ethernet", "00-15-5D-00-00-02", f"{NODE_IP}/16", "172.18.0.1")],
            seed="test",
        )
        self.stack = Fabric().add("windows-1", "node", "windows", hns=self.hns)
        self.stack.add_link(NetworkLink("vEthernet (Ethernet)", "ethernet"))
        self.stack.add_address("vEthernet (Ethernet)", f"{NODE_IP}/16")
        subnet = {
            "IpAddressPrefix": "10.244.3.0/24",
            "Routes": [{"NextHop": "10.244.3.1", "DestinationPrefix": "0.0.0.0/0"}],
        }
        self.network = self.hns.create(
            "network",
            {
                "Name": "cbr0",
                "Type": "L2Bridge",
                "Ipams": [{"Type": "Static", "Subnets": [subnet]}],
                "SchemaVersion": {"Major": 2, "Minor": 0},
            },
        )

    def endpoint(self, address: str, **more: Any) -> str:
        settings = {
            "HostComputeNetwork": self.network["ID"],
            "IpConfigurations": [{"IpAddress": address, "PrefixLength": 24}],
            "SchemaVersion": {"Major": 2, "Minor": 0},
            **more,
        }
        return str(self.hns.create("endpoint", settings)["ID"]).upper()

    def policies(self, endpoint: str) -> list[dict[str, Any]]:
        return list(self.hns.endpoints[endpoint].get("Policies", ()))


def test_a_windows_node_writes_access_lists_beside_what_is_there() -> None:
    node, index = Windows(), PolicyIndex()
    nat = {"Type": "OutBoundNAT", "Settings": {"Exceptions": ["10.244.0.0/16"]}}
    endpoint = node.endpoint("10.244.3.5", Policies=[nat])
    agent = PolicyAgent(index, "windows-1", node.stack)
    index.put_pod(pod("web", "10.244.3.5", {"app": "web"}, node="windows-1"))
    index.put_pod(pod("db", "10.244.2.5", {"app": "db"}, node="linux-2"))
    index.put_policy(FROM_DB)
    assert agent.sync()
    assert node.policies(endpoint)[0] == nat
    acls = [p["Settings"] for p in node.policies(endpoint)[1:]]
    assert [(a["Direction"], a["Action"], a.get("RemoteAddresses", "")) for a in acls] == [
        ("In", "Allow", f"10.244.3.5,{NODE_IP}"),
        ("In", "Allow", "10.244.2.5"),
        ("In", "Block", ""),
        ("Out", "Allow", ""),
    ]
    index.put_pod(pod("db", "10.244.2.6", {"app": "db"}, node="linux-2"))
    assert agent.sync()
    assert any(
        p["Settings"].get("RemoteAddresses") == "10.244.2.6" for p in node.policies(endpoint)
    )
    index.remove_policy(FROM_DB)
    assert agent.sync()
    assert node.policies(endpoint) == [nat]


def test_an_endpoint_that_comes_later_gets_its_lists() -> None:
    node, index = Windows(), PolicyIndex()
    agent = PolicyAgent(index, "windows-1", node.stack)
    index.put_pod(pod("web", "10.244.3.5", {"app": "web"}, node="windows-1"))
    index.put_policy(FROM_DB)
    assert not agent.sync()
    assert not agent.dirty
    endpoint = node.endpoint("10.244.3.5")
    assert agent.dirty
    assert agent.sync()
    assert len(node.policies(endpoint)) == 3
    node.hns.delete("endpoint", endpoint)
    index.remove_policy(FROM_DB)
    assert not agent.sync(), "what is gone needs no cleaning"
