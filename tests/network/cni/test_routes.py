"""Routes between nodes where no agent of a network solution sets them, and the configuration of a
bridge with both families.
"""

from __future__ import annotations

from transom.network.cni import defaults
from transom.network.cni.leases import SubnetLease, SubnetLeases
from transom.network.cni.routes import RouteAgent
from transom.network.stacks import Fabric, NetworkLink, NetworkStack


def node(name: str, *addresses: str) -> NetworkStack:
    stack = Fabric().add(name, "node", "linux")
    stack.add_link(NetworkLink("eth0", "ethernet"))
    for address in addresses:
        stack.add_address("eth0", address)
    return stack


def routes(stack: NetworkStack) -> dict[str, str]:
    return {str(route.destination): route.via for route in stack.routes() if route.via}


def test_other_nodes_come_change_and_go() -> None:
    leases = SubnetLeases()
    both, four = node("a", "172.20.0.2/16", "fd00:20::2/64"), node("b", "172.20.0.3/16")
    for stack in (both, four):
        RouteAgent(stack.name, stack, leases)
    leases.put(
        SubnetLease(
            "a", "10.1.0.0/24", "172.20.0.2", subnet6="fd00:1::/64", public_ip6="fd00:20::2"
        )
    )
    leases.put(
        SubnetLease(
            "c", "10.3.0.0/24", "172.20.0.4", subnet6="fd00:3::/64", public_ip6="fd00:20::4"
        )
    )
    for name in ("a", "b"):
        leases.look(name)
    assert routes(both) == {"10.3.0.0/24": "172.20.0.4", "fd00:3::/64": "fd00:20::4"}
    assert routes(four) == {"10.1.0.0/24": "172.20.0.2", "10.3.0.0/24": "172.20.0.4"}, (
        "it has no address of IPv6"
    )
    leases.put(SubnetLease("c", "10.4.0.0/24", "172.20.0.4"))
    leases.look("a")
    assert routes(both) == {"10.4.0.0/24": "172.20.0.4"}
    leases.remove("c")
    leases.look("a")
    assert routes(both) == {}


def test_pods_of_a_bridge_get_neither_its_address_nor_the_hosts() -> None:
    written = defaults.sdnbridge(["10.1.0.0/24", "fd00:1::/64"], [], {})
    assert written["optionalFlags"]["enableDualStack"]
    assert written["ipam"]["ranges"] == [
        [{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.3", "gateway": "10.1.0.2"}],
        [{"subnet": "fd00:1::/64", "rangeStart": "fd00:1::3", "gateway": "fd00:1::2"}],
    ]
    assert not defaults.sdnbridge(["10.1.0.0/24"], [], {})["optionalFlags"]["enableDualStack"]
