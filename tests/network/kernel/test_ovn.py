"""OVN's load balancers as rules of a node's namespace."""

from __future__ import annotations

from transom.network.kernel.ovn import add_load_balancers
from transom.network.nft import Dnat, Goto, NftChain, NftHook, NftTable, Reject, SetMark, Spread
from transom.network.ovn.database import OvnDatabase, OvnVip
from transom.network.stacks import Fabric

VIP = "10.96.0.7"
MARK = 1 << 16


def compiled(database: OvnDatabase) -> NftTable:
    table = NftTable("ip", "transom-vfp")
    for name in ("forward", "output"):
        table.chains[name] = NftChain(hook=NftHook("filter", name, 0))
    add_load_balancers(table, database, "from0", "eth0", MARK)
    return table


def backends(table: NftTable, to: object) -> list[NftChain]:
    assert isinstance(to, Goto)
    [rule] = table.chains[to.chain].rules
    [spread] = rule.statements
    assert isinstance(spread, Spread)
    return [table.chains[choice.chain] for choice in spread.choices]


def test_pods_and_the_node_itself_use_the_load_balancers_of_the_logical_switch() -> None:
    database = OvnDatabase(Fabric())
    both = (("10.244.2.3", 8080), ("10.244.3.3", 8080))
    database.cluster_vips["tcp", VIP, 80] = OvnVip("default/a", both)
    table = compiled(database)
    chains = backends(table, table.maps["ovn-switch"].elements[VIP, "tcp", "80"])
    assert [chain.rules[-1].statements for chain in chains] == [
        (Dnat("10.244.2.3", 8080),),
        (Dnat("10.244.3.3", 8080),),
    ]
    # A pod that asks itself gets another source.
    assert chains[0].rules[0].statements == (SetMark(MARK), Dnat("10.244.2.3", 8080))
    assert table.chains["ovn-output"].hook == NftHook("nat", "output", -100)
    assert table.chains["ovn-output"].rules == table.chains["ovn-from-pods"].rules[:1]


def test_the_gateway_router_replaces_the_source() -> None:
    database = OvnDatabase(Fabric())
    one = OvnVip("default/a", (("10.244.2.3", 8080),))
    database.node_ports["tcp", 30080] = one
    database.external_vips["tcp", "192.0.2.1", 80] = one
    table = compiled(database)
    for to in (
        table.maps["ovn-node-ports"].elements["tcp", "30080"],
        table.maps["ovn-gateway"].elements["192.0.2.1", "tcp", "80"],
    ):
        [chain] = backends(table, to)
        assert [rule.statements for rule in chain.rules] == [
            (SetMark(MARK), Dnat("10.244.2.3", 8080))
        ]


def test_entries_without_backends_reject() -> None:
    database = OvnDatabase(Fabric())
    database.cluster_vips["tcp", VIP, 80] = OvnVip("default/a", ())
    table = compiled(database)
    assert not table.maps["ovn-switch"].elements
    to = table.maps["ovn-empty"].elements[VIP, "tcp", "80"]
    assert isinstance(to, Goto)
    assert [rule.statements for rule in table.chains[to.chain].rules] == [(Reject(),)]
    for name in ("forward", "output"):
        assert table.chains[name].rules[0] == table.chains["forward"].rules[0]
