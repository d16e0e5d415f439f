"""What the host networking service of a Windows node holds, as firewall tables: which rules, and
which not.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.network.fabrics import Cluster, make_cluster

from transom.network import nft
from transom.network.kernel import names, vfp
from transom.network.kernel.plan import StackPlan
from transom.network.kernel.windows import SwitchCompiler

NODE = "windows-1"
TABLE = f"ip {vfp.TABLE}"


def compiler(cluster: Cluster) -> SwitchCompiler:
    sandboxes = {
        name: stack
        for name, stack in cluster.fabric.stacks.items()
        if stack.role == "sandbox" and stack.node == NODE
    }
    cluster.fabric.refresh_node(NODE)
    return SwitchCompiler(cluster.nodes[NODE], sandboxes, cluster.fabric.underlay, lambda: None)


def compiled(cluster: Cluster) -> tuple[StackPlan, nft.NftTable]:
    plan = compiler(cluster).plan()
    return plan, plan.tables[TABLE]


def device(cluster: Cluster, pod: str) -> str:
    return names.switch_port_name(
        next(link.endpoint for link in cluster.stack(pod).links.values() if link.endpoint)
    )


def rules(table: nft.NftTable, chain: str) -> list[nft.NftRule]:
    return table.chains[chain].rules


def backends(
    table: nft.NftTable, key: tuple[str, ...], where: str = "places0"
) -> dict[str, list[nft.NftRule]]:
    """The rules for each backend that a place leads to, by its address."""
    chain = table.maps[where].elements[key]
    assert isinstance(chain, nft.Goto)
    found = rules(table, chain.chain)
    if isinstance(found[-1].statements[0], nft.Goto):  # marked for what comes from outside
        found = rules(table, found[-1].statements[0].chain)
    spread = found[-1].statements[0]
    assert isinstance(spread, nft.Spread)
    return {
        choice.chain.rpartition("-")[2]: rules(table, choice.chain) for choice in spread.choices
    }


def statements(found: list[nft.NftRule]) -> list[Any]:
    return [statement for rule in found for statement in rule.statements]


def two_pods(mode: Any = "l2bridge", **more: Any) -> Cluster:
    cluster = make_cluster(mode, 1, 2, **more)
    cluster.pod("near", NODE)
    cluster.pod("far", "windows-2")
    cluster.service(
        "web", "10.96.0.10", ["near", "far"], target=8080, kind="NodePort", node_port=30080
    )
    return cluster


def test_rules_are_for_what_comes_in_by_pods_ports_and_the_card_never_for_the_nodes_own() -> None:
    cluster = two_pods()
    _, table = compiled(cluster)
    hooks = {
        (chain.hook.type, chain.hook.point)
        for chain in table.chains.values()
        if chain.hook is not None
    }
    assert ("nat", "output") not in hooks
    entrances = {match for rule in rules(table, "prerouting") for match in rule.matches}
    assert entrances == {
        nft.NftMatch("iifname", named="from0"),
        nft.NftMatch("iifname", ("Ethernet",)),
    }
    assert table.sets["from0"].elements == {(device(cluster, "near"),)}


@pytest.mark.parametrize("dsr", [False, True])
def test_without_dsr_a_backend_on_another_node_sees_the_node(dsr: bool) -> None:
    cluster = two_pods(dsr=dsr)
    _, table = compiled(cluster)
    found = backends(table, ("10.96.0.10", "tcp", "80"))
    far, near = cluster.address("far"), cluster.address("near")
    marked = [s for s in statements(found[far]) if isinstance(s, nft.SetMark)]
    assert bool(marked) is not dsr
    assert nft.Dnat(far, 8080) in statements(found[far])
    # The pod itself: another source without DSR, and no way with it.
    itself = found[near][0]
    assert itself.matches[0] == nft.NftMatch("iifname", (device(cluster, "near"),))
    assert (nft.DROP in itself.statements) is dsr
    assert found[near][-1].statements == (nft.Dnat(near, 8080),)
    if not dsr:
        source = next(
            rule for rule in rules(table, "postrouting") if rule.matches[0].field == "mark"
        )
        assert source.statements == (nft.ClearMark(marked[0].bits), nft.Snat(cluster.ip(NODE)))


def test_on_an_overlay_the_source_is_the_source_vip() -> None:
    _, table = compiled(two_pods("overlay"))
    sources = {
        s.address for s in statements(rules(table, "postrouting")) if isinstance(s, nft.Snat)
    }
    assert "10.244.2.254" in sources


def test_node_ports_are_for_the_nodes_own_addresses() -> None:
    _, table = compiled(two_pods())
    assert ("tcp", "30080") in table.maps["own0"].elements
    assert ("tcp", "30080") in table.maps["own-outside"].elements
    last = rules(table, "from-outside")[-1]
    assert last.matches == (nft.NftMatch("daddr type", ("local",)),)
    # From outside every backend sees the node, without DSR.
    chain = table.maps["own-outside"].elements["tcp", "30080"]
    assert isinstance(chain, nft.Goto)
    assert isinstance(rules(table, chain.chain)[0].statements[0], nft.SetMark)


def test_with_external_policy_local_the_client_stays() -> None:
    cluster = two_pods()
    cluster.service(
        "local",
        "10.96.0.11",
        ["near"],
        kind="NodePort",
        node_port=30081,
        externalTrafficPolicy="Local",
    )
    _, table = compiled(cluster)
    found = backends(table, ("tcp", "30081"), "own-outside")
    chain = table.maps["own-outside"].elements["tcp", "30081"]
    assert isinstance(chain, nft.Goto)
    assert not any(isinstance(s, nft.SetMark) for s in statements(rules(table, chain.chain)))
    assert list(found) == [cluster.address("near")]


def test_a_service_with_more_backends_than_a_rule_takes_has_no_rule() -> None:
    cluster = make_cluster("l2bridge", 1, 1)
    names_ = [f"pod-{number}" for number in range(65)]
    for name in names_:
        cluster.pod(name, "linux-1")
    cluster.pod("client", NODE)
    cluster.service("web", "10.96.0.10", names_)
    assert compiled(cluster)[1].maps["places0"].elements == {}
    cluster.endpoints("web", names_[:64])
    _, table = compiled(cluster)
    assert len(backends(table, ("10.96.0.10", "tcp", "80"))) == 64


def test_outbound_nat_has_exceptions_and_leaves_icmp_alone() -> None:
    _, table = compiled(two_pods())
    (chain,) = (found.rules for name, found in table.chains.items() if name.startswith("nat-"))
    exceptions = nft.NftMatch("daddr", ("10.96.0.0/16", "10.244.0.0/16", "172.20.0.0/16"))
    assert chain[1] == nft.NftRule((nft.RETURN,), (exceptions,), "exceptions")
    assert chain[2].statements == (nft.Snat("172.20.0.3"),)
    assert chain[2].matches == (nft.NftMatch("l4proto", ("tcp", "udp", "sctp")),)


def test_access_rules_by_priority_and_direction() -> None:
    cluster = make_cluster("l2bridge", 0, 1)
    acl = {"Action": "Block", "Direction": "In", "RuleType": "Switch"}
    cluster.pod(
        "pod",
        NODE,
        policies=[
            {"Type": "ACL", "Settings": {**acl, "Priority": 1000}},
            {
                "Type": "ACL",
                "Settings": {
                    **acl,
                    "Action": "Allow",
                    "Priority": 100,
                    "Protocols": "6",
                    "LocalPorts": "80,90-99",
                    "RemoteAddresses": "10.244.9.0/24,10.244.9.7",
                },
            },
            {
                "Type": "ACL",
                "Settings": {**acl, "Direction": "Out", "Protocols": "1", "Priority": 200},
            },
        ],
    )
    _, table = compiled(cluster)
    port = device(cluster, "pod")
    assert rules(table, f"in-{port}") == [
        nft.NftRule(
            (nft.RETURN,),
            (
                nft.NftMatch("l4proto", ("tcp",)),
                nft.NftMatch("saddr", ("10.244.9.0/24",)),
                nft.NftMatch("dport", ("80", "90-99")),
            ),
        ),
        nft.NftRule((nft.DROP,)),
    ]
    assert rules(table, f"out-{port}") == [
        nft.NftRule((nft.DROP,), (nft.NftMatch("l4proto", ("icmp",)),))
    ]
    # Answers pass: what is decided is the first packet.
    for chain in ("forward", "input", "output"):
        assert any(
            rule.matches and rule.matches[0].field == "ct state" for rule in rules(table, chain)
        )


def test_an_overlay_is_a_tunnel_that_only_pods_use() -> None:
    plan, table = compiled(two_pods("overlay"))
    (tunnel,) = [name for name, made in plan.devices.items() if made.kind == "vxlan"]
    made = plan.devices[tunnel]
    assert (made.vni, made.port, made.local) == (4096, 4789, "172.20.0.3")
    assert plan.routes["10.244.3.0/24"].device == tunnel
    mac = plan.neighbours[tunnel, "10.244.3.0"]
    assert plan.forwarding[tunnel, mac] == ("172.20.0.4", 0)
    assert (tunnel,) in table.sets["closed"].elements
    assert rules(table, "output")[0].statements == (nft.DROP,)


@pytest.mark.parametrize("host_route", [False, True])
def test_a_node_reaches_its_overlay_pods_by_host_route_alone(host_route: bool) -> None:
    cluster = two_pods("overlay", host_route=host_route)
    plan, table = compiled(cluster)
    port = device(cluster, "near")
    assert ((port,) in table.sets["closed"].elements) is not host_route
    assert plan.routes[f"{cluster.address('near')}/32"].source == (
        cluster.ip(NODE) if host_route else ""
    )


def test_an_endpoint_that_is_gone_has_no_port() -> None:
    cluster = two_pods()
    hns = cluster.nodes[NODE].hns
    assert hns is not None
    port = device(cluster, "near")
    assert port in compiled(cluster)[0].devices
    hns.delete(
        "endpoint",
        next(link.endpoint for link in cluster.stack("near").links.values() if link.endpoint),
    )
    assert port not in compiled(cluster)[0].devices


def test_chains_of_unchanged_balancers_are_not_rebuilt() -> None:
    cluster = two_pods()
    cluster.service("other", "10.96.0.20", ["far"])
    made = compiler(cluster)
    before = made.plan().tables[TABLE]
    assert made.plan().tables[TABLE] is before
    cluster.endpoints("other", ["near"])
    cluster.fabric.refresh_node(NODE)
    after = made.plan().tables[TABLE]
    assert after is not before
    web = before.maps["places0"].elements["10.96.0.10", "tcp", "80"]
    assert isinstance(web, nft.Goto)
    assert after.chains[web.chain] is before.chains[web.chain]
