"""Firewall tables, evaluated rule by rule."""

from __future__ import annotations

import random
from typing import Any

import pytest

from transom.network import nft
from transom.network.model.conntrack import Conntrack
from transom.network.model.nft_eval import DynamicSets, Firewall, HookTraversal, Point
from transom.network.nft import (
    ACCEPT,
    DROP,
    Goto,
    Jump,
    NftChain,
    NftHook,
    NftMatch,
    NftRule,
    NftTable,
)
from transom.network.packets import Packet
from transom.network.stacks import Fabric

PACKET = Packet("10.244.1.5", "10.96.0.10", "tcp", 40000, 80)


class Harness:
    """One stack with tables, and packets that pass a hook of it."""

    def __init__(self, *tables: NftTable) -> None:
        self.now = 0.0
        self.stack = Fabric().add("node", "node", "linux")
        for table in tables:
            self.stack.set_table(table)
        self.dynamic = DynamicSets(lambda: self.now)
        self.tracked = Conntrack()
        self.rng = random.Random(3)

    def run(
        self,
        point: Point = "prerouting",
        packet: Packet = PACKET,
        *,
        iif: str = "cni0",
        oif: str = "",
    ) -> HookTraversal:
        found = self.tracked.find(packet)
        entry, reply = found if found is not None else (self.tracked.start(packet), False)
        passage = HookTraversal(
            self.stack,
            packet,
            iif,
            oif,
            self.tracked,
            entry,
            reply,
            lambda a: a == "172.20.0.2",
            lambda _link, _to: "172.20.0.2",
            self.dynamic,
            self.rng,
        )
        self.decision = Firewall(self.stack.tables).run(passage, point)
        return passage


def filtering(*rules: NftRule, policy: Any = "accept", **chains: NftChain) -> NftTable:
    return NftTable(
        "ip",
        "t",
        {"base": NftChain(list(rules), NftHook("filter", "prerouting", 0, policy)), **chains},
    )


@pytest.mark.parametrize(
    ("match", "hit"),
    [
        (NftMatch("saddr", ("10.244.0.0/16",)), True),
        (NftMatch("saddr", ("10.245.0.0/16", "10.244.1.1-10.244.1.9")), True),
        (NftMatch("saddr", ("10.244.0.0/16",), negate=True), False),
        (NftMatch("daddr", ("10.96.0.10",)), True),
        (NftMatch("l4proto", ("udp",)), False),
        (NftMatch("dport", ("70-90",)), True),
        (NftMatch("dport", ("443", "8080")), False),
        (NftMatch("sport", ("32768-60999",)), True),
        (NftMatch("iifname", ("cni*",)), True),
        (NftMatch("iifname", ("eth0",)), False),
        (NftMatch("ct state", ("new",)), True),
        (NftMatch("ct state", ("established", "related")), False),
        (NftMatch("mark", ("0x4000/0x4000",)), False),
        (NftMatch("daddr type", ("local",)), False),
        (NftMatch("saddr type", ("local",), negate=True), True),
    ],
)
def test_matches(match: NftMatch, hit: bool) -> None:
    harness = Harness(filtering(NftRule((DROP,), (match,))))
    harness.run()
    assert harness.decision == ("drop" if hit else "accept")


def test_ports_of_ping_match_nothing() -> None:
    harness = Harness(filtering(NftRule((DROP,), (NftMatch("dport", ("0-65535",)),))))
    harness.run(packet=Packet("10.244.1.5", "10.96.0.10", "icmp"))
    assert harness.decision == "accept"


def test_jump_returns_goto_does_not() -> None:
    sub = NftChain([NftRule((nft.RETURN,))])
    jumped = Harness(filtering(NftRule((Jump("sub"),)), NftRule((DROP,)), sub=sub))
    jumped.run()
    gone = Harness(filtering(NftRule((Goto("sub"),)), NftRule((DROP,)), sub=sub))
    gone.run()
    assert (jumped.decision, gone.decision) == ("drop", "accept")
    nested = Harness(
        filtering(
            NftRule((Jump("a"),)),
            NftRule((DROP,)),
            a=NftChain([NftRule((Goto("sub"),)), NftRule((ACCEPT,))]),
            sub=sub,
        )
    )
    nested.run()
    assert nested.decision == "drop", "a goto comes back to who jumped"


def test_policy_of_a_chain_and_order_of_priorities() -> None:
    harness = Harness(filtering(policy="drop"))
    harness.run()
    assert harness.decision == "drop"
    first = NftTable(
        "ip", "a", {"c": NftChain([NftRule((nft.SetMark(1),))], NftHook("filter", "prerouting", 5))}
    )
    second = NftTable(
        "ip",
        "b",
        {
            "c": NftChain(
                [NftRule((DROP,), (NftMatch("mark", ("1",)),))], NftHook("filter", "prerouting", 4)
            )
        },
    )
    harness = Harness(first, second)
    harness.run()
    assert harness.decision == "accept", "the lower number runs first, and sees no mark yet"


def test_accept_ends_one_base_chain_only() -> None:
    first = NftTable(
        "ip", "a", {"c": NftChain([NftRule((ACCEPT,))], NftHook("filter", "prerouting", 0))}
    )
    second = NftTable(
        "ip", "b", {"c": NftChain([NftRule((DROP,))], NftHook("filter", "prerouting", 1))}
    )
    harness = Harness(first, second)
    harness.run()
    assert harness.decision == "drop"


def test_intervals_overlap() -> None:
    elements = {("10.0.0.0/8",), ("10.1.0.0/16",), ("192.168.0.1",)}
    table = filtering(NftRule((DROP,), (NftMatch("saddr", named="s"),)))
    table.sets["s"] = nft.NftSet(("saddr",), elements, intervals=True)
    harness = Harness(table)
    hits = {
        "10.200.0.1": True,
        "10.1.2.3": True,
        "11.0.0.1": False,
        "192.168.0.1": True,
        "9.9.9.9": False,
    }
    for source, hit in hits.items():
        harness.run(packet=Packet(source, "1.1.1.1", "tcp", 1, 2))
        assert harness.decision == ("drop" if hit else "accept"), source


def test_intervals_of_several_fields() -> None:
    table = filtering(
        NftRule((DROP,), (NftMatch("saddr", named="s", key=("saddr", "l4proto", "dport")),))
    )
    table.sets["s"] = nft.NftSet(
        ("saddr", "l4proto", "dport"), {("10.0.0.0/8", "tcp", "80-90")}, intervals=True
    )
    harness = Harness(table)
    for packet, hit in (
        (PACKET, True),
        (Packet("10.1.1.1", "1.1.1.1", "udp", 1, 80), False),
        (Packet("10.1.1.1", "1.1.1.1", "tcp", 1, 91), False),
    ):
        harness.run(packet=packet)
        assert harness.decision == ("drop" if hit else "accept"), packet


def service_table(*backends: str, seconds: int = 0) -> NftTable:
    chains = {
        "prerouting": NftChain(
            [NftRule((nft.NftLookup(("daddr", "l4proto", "dport"), "services"),))],
            NftHook("nat", "prerouting", -100),
        ),
        "service": NftChain(
            [
                *(
                    NftRule((Goto(f"to-{b}"),), (NftMatch("saddr", named=f"of-{b}"),))
                    for b in backends
                    if seconds
                ),
                NftRule((nft.Spread(tuple(Goto(f"to-{b}") for b in backends)),)),
            ]
        ),
    }
    sets = {}
    for backend in backends:
        remember = (nft.Remember(f"of-{backend}", ("saddr",), seconds),) if seconds else ()
        chains[f"to-{backend}"] = NftChain([NftRule((*remember, nft.Dnat(backend, 8080)))])
        sets[f"of-{backend}"] = nft.NftSet(("saddr",), dynamic=True)
    elements: dict[tuple[str, ...], Any] = {("10.96.0.10", "tcp", "80"): Goto("service")}
    return NftTable(
        "ip",
        "proxy",
        chains,
        sets,
        {"services": nft.VerdictMap(("daddr", "l4proto", "dport"), elements)},
    )


def test_destination_is_chosen_once_for_a_connection() -> None:
    harness = Harness(service_table("10.244.1.1", "10.244.1.2", "10.244.1.3"))
    first = harness.run().packet
    assert first.destination_port == 8080
    assert {harness.run().packet.destination for _ in range(20)} == {first.destination}
    others = {
        harness.run(packet=Packet("10.244.1.5", "10.96.0.10", "tcp", port, 80)).packet.destination
        for port in range(50)
    }
    assert others == {"10.244.1.1", "10.244.1.2", "10.244.1.3"}


def test_answer_gets_the_address_that_was_asked() -> None:
    harness = Harness(service_table("10.244.1.1"))
    there = harness.run().packet
    back = Packet(there.destination, there.source, "tcp", there.destination_port, there.source_port)
    passage = harness.run("postrouting", back)
    assert (passage.packet.source, passage.packet.source_port) == ("10.96.0.10", 80)
    assert passage.reply


def test_remembered_client_comes_back_until_its_time_is_over() -> None:
    backends = [f"10.244.1.{n}" for n in range(1, 9)]
    harness = Harness(service_table(*backends, seconds=10))

    def requested(port: int) -> str:
        return harness.run(
            packet=Packet("10.244.1.50", "10.96.0.10", "tcp", port, 80)
        ).packet.destination

    first = requested(1)
    for port in range(2, 20):
        harness.now += 5
        assert requested(port) == first, "each connection lets it last again"
    harness.stack.set_table(service_table(*backends, seconds=10))
    assert requested(30) == first, "what was remembered outlives a new table"
    seen = set()
    for port in range(31, 80):
        harness.now += 11
        seen.add(requested(port))
    assert len(seen) > 1


def test_first_table_that_translates_wins_and_masquerade_to_the_same_is_a_decision() -> None:
    def table(name: str, priority: int, *statements: nft.Statement) -> NftTable:
        return NftTable(
            "ip",
            name,
            {"c": NftChain([NftRule(statements)], NftHook("nat", "postrouting", priority))},
        )

    harness = Harness(table("b", 100, nft.Snat("1.2.3.4")), table("a", 99, nft.Masquerade()))
    assert harness.run("postrouting", oif="eth0").packet.source == "172.20.0.2"
    harness = Harness(table("b", 100, nft.Snat("1.2.3.4")), table("a", 99, nft.Masquerade()))
    mine = Packet("172.20.0.2", "9.9.9.9", "tcp", 1, 2)
    assert harness.run("postrouting", mine, oif="eth0").packet.source == "172.20.0.2"


def test_marks_are_set_and_cleared() -> None:
    harness = Harness(filtering(NftRule((nft.SetMark(0x4001),)), NftRule((nft.ClearMark(0x1),))))
    assert harness.run().packet.mark == 0x4000


def test_reject_and_its_comment() -> None:
    harness = Harness(filtering(NftRule((nft.Reject(),), comment="no endpoints")))
    passage = harness.run()
    assert (harness.decision, passage.notes[-1], passage.table) == ("reject", "no endpoints", "t")


def test_tables_of_the_other_family_are_not_asked() -> None:
    table = filtering(NftRule((DROP,)))
    table.family = "ip6"
    harness = Harness(table)
    harness.run()
    assert harness.decision == "accept"
    harness.run(packet=Packet("fd00::1", "fd00::2", "tcp", 1, 2))
    assert harness.decision == "drop"
