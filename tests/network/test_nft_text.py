"""Scripts for `nft`: real nft must take every construct, and a difference must lead where loading
anew leads.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from typing import Any

import pytest

from transom.network.nft import (
    ACCEPT,
    DROP,
    RETURN,
    ClearMark,
    Dnat,
    Goto,
    Jump,
    Masquerade,
    NftChain,
    NftHook,
    NftLookup,
    NftMatch,
    NftRule,
    NftSet,
    NftTable,
    Reject,
    Remember,
    SetMark,
    Snat,
    Spread,
    Statement,
    VerdictMap,
)
from transom.network.nft_text import nft_difference, nft_snapshot, render_nft_table

NFT = shutil.which("nft") or shutil.which("nft", path="/usr/sbin:/sbin")
real = pytest.mark.skipif(
    os.geteuid() != 0 or NFT is None, reason="asks the kernel: needs root and nft"
)

SERVICE = ("daddr", "l4proto", "dport")


class Nft:
    """`nft` in a network namespace of its own, which ends with this process."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", "echo; exec cat"], stdin=-1, stdout=-1
        )
        assert self._holder.stdout is not None
        self._holder.stdout.readline()

    def __call__(self, script: str) -> None:
        command = ["nsenter", "-t", str(self._holder.pid), "-n", NFT or "nft", "-f", "-"]
        done = subprocess.run(command, input=script, text=True, capture_output=True, check=False)
        assert done.returncode == 0, f"{done.stderr}\n{script}"

    def tables(self) -> list[Any]:
        command = [
            "nsenter",
            "-t",
            str(self._holder.pid),
            "-n",
            NFT or "nft",
            "-j",
            "list",
            "ruleset",
        ]
        listed = json.loads(
            subprocess.run(command, text=True, capture_output=True, check=True).stdout
        )["nftables"]
        plain = [_plain(item) for item in listed if "metainfo" not in item]
        # The order of rules matters, that of everything else does not.
        rules = [item for item in plain if "rule" in item]
        others = sorted(
            (item for item in plain if "rule" not in item),
            key=lambda item: json.dumps(item, sort_keys=True),
        )
        return [*others, *sorted(rules, key=lambda item: str(item["rule"]["chain"]))]

    def close(self) -> None:
        assert self._holder.stdin is not None
        self._holder.stdin.close()
        self._holder.wait(10)


def _plain(item: Any) -> Any:
    if isinstance(item, dict):
        plain = {key: _plain(value) for key, value in item.items() if key != "handle"}
        if isinstance(plain.get("elem"), list):
            plain["elem"] = sorted(plain["elem"], key=str)
        return plain
    return [_plain(part) for part in item] if isinstance(item, list) else item


@pytest.fixture
def nft() -> Any:
    made = Nft()
    yield made
    made.close()


def everything(family: str) -> NftTable:
    """Each word of the vocabulary at least once."""
    four = family == "ip"
    a, b, net = (
        ("10.0.0.1", "10.0.0.2", "10.0.0.0/8") if four else ("fd00::1", "fd00::2", "fd00::/64")
    )
    rules: list[tuple[tuple[Statement, ...], tuple[NftMatch, ...]]] = [
        ((RETURN,), (NftMatch("iifname", ("eth0",)),)),
        ((RETURN,), (NftMatch("iifname", ("eth0", "veth*"), negate=True),)),
        ((RETURN,), (NftMatch("saddr", (net, a)),)),
        ((RETURN,), (NftMatch("saddr", (net,), negate=True), NftMatch("daddr", (b,)))),
        ((RETURN,), (NftMatch("l4proto", ("icmp",)),)),
        (
            (RETURN,),
            (NftMatch("l4proto", ("tcp", "udp", "sctp")), NftMatch("dport", ("80", "1000-2000"))),
        ),
        ((RETURN,), (NftMatch("sport", ("53",)),)),
        ((RETURN,), (NftMatch("ct state", ("established", "related")),)),
        ((RETURN,), (NftMatch("ct state", ("new",), negate=True),)),
        (
            (RETURN,),
            (
                NftMatch("ct status", ("dnat",)),
                NftMatch("ct status", ("dnat", "snat"), negate=True),
            ),
        ),
        (
            (RETURN,),
            (
                NftMatch("mark", ("0x4000/0x4000",)),
                NftMatch("mark", ("0x1/0x1",), negate=True),
                NftMatch("mark", ("0x5",)),
            ),
        ),
        (
            (RETURN,),
            (NftMatch("saddr type", ("local",)), NftMatch("daddr type", ("local",), negate=True)),
        ),
        (
            (RETURN,),
            (NftMatch("saddr", named="peers"), NftMatch("saddr", named="blocks", negate=True)),
        ),
        ((RETURN,), (NftMatch("saddr", named="pairs", key=("saddr", "daddr")),)),
        ((RETURN,), (NftMatch("iifname", named="ports"),)),
        ((SetMark(0x4000), ClearMark(0x1)), ()),
        ((NftLookup(SERVICE, "services"),), ()),
        ((Jump("other"),), ()),
        ((Remember("sticky", ("saddr",), 10), Dnat(a, 80)), (NftMatch("l4proto", ("tcp",)),)),
        ((Dnat(a, 80),), ()),
        ((Dnat(a),), ()),
        ((Spread((Goto("one"), Goto("two"))),), ()),
    ]
    return NftTable(
        family,  # type: ignore[arg-type]
        "all-words",
        {
            "pre": NftChain(
                [NftRule(s, m, 'a "comment" ' * 20) for s, m in rules],
                NftHook("nat", "prerouting", -100),
            ),
            "forward": NftChain(
                [NftRule((Jump("refuse"),))], NftHook("filter", "forward", 0, "drop")
            ),
            "post": NftChain(
                [NftRule((Masquerade(),), (NftMatch("oifname", ("eth0",)),)), NftRule((Snat(a),))],
                NftHook("nat", "postrouting", 100),
            ),
            "refuse": NftChain([NftRule((Reject(),), (NftMatch("daddr", (a,)),))]),
            "other": NftChain([NftRule((Spread((Goto("one"),)),))]),
            "one": NftChain([NftRule((DROP,))]),
            "two": NftChain([NftRule((ACCEPT,))]),
            "service-AB/ns/na.me/tcp/p-1": NftChain(),
        },
        {
            "peers": NftSet(("saddr",), {(a,), (b,)}),
            "blocks": NftSet(("saddr",), {(net,)}, intervals=True),
            "pairs": NftSet(("saddr", "daddr"), {(a, b)}),
            "ports": NftSet(("iifname",), {("eth0",)}),
            "sticky": NftSet(("saddr",), dynamic=True),
        },
        {
            "services": VerdictMap(
                SERVICE,
                {
                    (a, "tcp", "80"): Goto("service-AB/ns/na.me/tcp/p-1"),
                    (b, "udp", "53"): DROP,
                    (b, "tcp", "1"): Jump("one"),
                },
            )
        },
    )


@real
@pytest.mark.parametrize("family", ["ip", "ip6"])
def test_nft_takes_every_word_and_loading_twice_changes_nothing(nft: Nft, family: str) -> None:
    table = everything(family)
    nft(render_nft_table(table))
    once = nft.tables()
    assert len([item for item in once if "chain" in item]) == len(table.chains)
    nft(render_nft_table(table))
    assert nft.tables() == once
    assert nft_difference(table, table) == ""
    nft(nft_difference(table, None))
    assert nft.tables() == []


def test_a_rejection_resets_tcp_and_answers_others() -> None:
    text = render_nft_table(
        NftTable(
            "ip", "t", {"c": NftChain([NftRule((Reject(),), (NftMatch("daddr", ("10.0.0.1",)),))])}
        )
    )
    assert (
        "ip daddr 10.0.0.1 meta l4proto tcp reject with tcp reset\nip daddr 10.0.0.1 reject\n"
        in text
    )


def _random_table(rng: random.Random) -> NftTable:
    """Small, so that two of them have names in common with other contents."""
    leaves = [f"leaf-{n}" for n in range(6) if rng.random() < 0.7] or ["leaf-0"]
    goto = lambda: Goto(rng.choice(leaves))  # noqa: E731
    addresses = [f"10.0.0.{n}" for n in range(1, 6)]
    table = NftTable("ip", "t")
    for leaf in leaves:
        table.chains[leaf] = NftChain(
            [NftRule((Dnat(rng.choice(addresses), 80),), (NftMatch("l4proto", ("tcp",)),))]
        )
    for n in range(3):
        if rng.random() < 0.7:
            table.maps[f"map-{n}"] = VerdictMap(
                SERVICE,
                {
                    (a, "tcp", "80"): rng.choice((goto(), DROP))
                    for a in addresses
                    if rng.random() < 0.5
                },
            )
        if rng.random() < 0.7:
            table.sets[f"set-{n}"] = NftSet(
                ("saddr",), {(a,) for a in addresses if rng.random() < 0.5}, dynamic=False
            )
        if rng.random() < 0.5:
            table.sets[f"block-{n}"] = NftSet(
                ("daddr",),
                {(f"10.{i}.0.0/{rng.choice((16, 20))}",) for i in range(4) if rng.random() < 0.5},
                intervals=True,
            )
    rules = [NftRule((NftLookup(SERVICE, name),)) for name in table.maps]
    rules += [
        NftRule(
            (Spread(tuple(goto() for _ in range(rng.randint(1, 4)))),),
            (NftMatch("saddr", named=s),),
        )
        for s in table.sets
        if s.startswith("set")
    ]
    rng.shuffle(rules)
    table.chains["pre"] = NftChain(rules, NftHook("nat", "prerouting", rng.choice((-100, -90))))
    return table


@real
def test_applying_a_difference_is_loading_the_new_table(nft: Nft) -> None:
    rng = random.Random(7)
    state = _random_table(rng)
    other = Nft()
    try:
        nft(render_nft_table(state))
        for _ in range(40):
            following = _random_table(rng)
            nft(nft_difference(nft_snapshot(state), following))
            other(render_nft_table(following))
            assert nft.tables() == other.tables()
            state = following
    finally:
        other.close()


def _sticky(*endpoints: str) -> NftTable:
    chains = {
        f"endpoint-{e}": NftChain([NftRule((Remember("sticky", ("saddr",), 60), Dnat(e)))])
        for e in endpoints
    }
    chains["pre"] = NftChain(
        [NftRule((Spread(tuple(Goto(c) for c in chains)),))], NftHook("nat", "prerouting", -100)
    )
    return NftTable("ip", "t", chains, {"sticky": NftSet(("saddr",), dynamic=True)})


@real
def test_what_packets_left_in_a_dynamic_set_stays(nft: Nft) -> None:
    before, after = _sticky("10.0.0.1"), _sticky("10.0.0.1", "10.0.0.2")
    nft(render_nft_table(before))
    nft("add element ip t sticky { 192.0.2.1 timeout 60s }")
    script = nft_difference(before, after)
    assert "element" not in script
    assert "table" not in script
    nft(script)
    assert "192.0.2.1" in json.dumps(nft.tables())


def test_a_writer_that_changes_its_table_in_place_is_seen() -> None:
    table = _sticky("10.0.0.1")
    applied = nft_snapshot(table)
    table.chains["pre"].rules.append(NftRule((DROP,)))
    table.sets["more"] = NftSet(("saddr",), {("10.0.0.9",)})
    script = nft_difference(applied, table)
    assert "add rule ip t pre drop" in script
    assert "add element ip t more { 10.0.0.9 }" in script
    assert "endpoint-10.0.0.1 " not in script.replace("goto endpoint-10.0.0.1", ""), (
        "unchanged chains stay untouched"
    )


@real
def test_a_thousand_services_and_a_change_of_one(nft: Nft) -> None:
    table = NftTable("ip", "t", maps={"ips": VerdictMap(SERVICE)})
    for service in range(1000):
        ends = []
        for end in range(5):
            address = f"10.244.{service % 250}.{end + 1}"
            ends.append(Goto(f"endpoint-{service}-{address}"))
            table.chains[ends[-1].chain] = NftChain(
                [
                    NftRule((SetMark(0x4000),), (NftMatch("saddr", (address,)),)),
                    NftRule((Dnat(address, 80),), (NftMatch("l4proto", ("tcp",)),)),
                ]
            )
        table.chains[f"service-{service}"] = NftChain([NftRule((Spread(tuple(ends)),))])
        table.maps["ips"].elements[f"10.96.{service // 250}.{service % 250}", "tcp", "80"] = Goto(
            f"service-{service}"
        )
    table.chains["pre"] = NftChain(
        [NftRule((NftLookup(SERVICE, "ips"),))], NftHook("nat", "prerouting", -100)
    )
    nft(render_nft_table(table))

    def one_less(service: int) -> None:
        applied = nft_snapshot(table)
        chain = f"service-{service}"
        spread = table.chains[chain].rules[0].statements[0]
        assert isinstance(spread, Spread)
        del table.chains[spread.choices[0].chain]
        table.chains[chain] = NftChain([NftRule((Spread(spread.choices[1:]),))])
        nft(nft_difference(applied, table))

    one_less(7)
    listed = json.dumps(nft.tables())
    assert "endpoint-7-10.244.7.1" not in listed and "endpoint-7-10.244.7.2" in listed
