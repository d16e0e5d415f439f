"""What policies allow, on both systems: one table of policies and connections for both translations
of the rules.
"""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from tests.proxy.nftables.evaluate import Firewall, Packet
from tests.proxy.policy.objects import labels, pod, policy

from transom.network.nft import NftTable
from transom.proxy.policy.hns import PROTOCOLS, Acl, policy_acls
from transom.proxy.policy.nft import policy_table
from transom.proxy.policy.rules import (
    OPEN,
    PodIsolation,
    PolicyPod,
    compile_policy,
    pod_isolation,
    policy_pod_of,
)

WEB, DB, OTHER, FAR = "10.244.1.5", "10.244.1.6", "10.244.2.7", "10.244.2.8"
NODE, CLIENT = "172.18.0.2", "203.0.113.10"
PODS = [
    pod("web", WEB, {"app": "web"}, ports=(("http", 8080, "TCP"), ("dns", 53, "UDP"))),
    pod("db", DB, {"app": "db"}, ports=(("http", 9090, "TCP"),)),
    pod("other", OTHER, {"app": "other"}, node="linux-2", ports=(("http", 8080, "TCP"),)),
    pod("far", FAR, {"app": "db"}, namespace="b", node="linux-2", ports=(("http", 9090, "TCP"),)),
    pod("host", NODE, {"app": "db"}, spec={"hostNetwork": True}),
    pod("ended", "10.244.1.99", {"app": "db"}, phase="Succeeded"),
    pod("starting", "", {"app": "db"}),
]
NAMESPACES = {"a": {"team": "blue"}, "b": {"team": "red"}}
SEEN = [found for found in map(policy_pod_of, PODS) if found is not None]
BY_IP = {p.addresses[0]: p for p in SEEN}


def to(source: str, destination: str, port: int = 80, protocol: str = "tcp", **more: Any) -> Packet:
    return Packet(source, destination, port, protocol, **more)


def isolations(policies: list[dict[str, Any]]) -> dict[str, PodIsolation]:
    compiled = [compile_policy(p) for p in policies]
    return {ip: pod_isolation(p, compiled, SEEN, NAMESPACES) for ip, p in BY_IP.items()}


def by_nft(found: dict[str, PodIsolation], packet: Packet) -> bool:
    local = [(BY_IP[ip], isolated) for ip, isolated in found.items()]
    table = policy_table("ip", local)
    return (
        Firewall([table] if isinstance(table, NftTable) else [], {NODE}).send(packet).verdict
        == "accept"
    )


def by_acls(found: dict[str, PodIsolation], packet: Packet) -> bool:
    """Both ends' switch ports let the first packet pass; answers are let through by either's
    memory.
    """
    if packet.state == "established":
        return True
    for ip, way in ((packet.saddr, "Out"), (packet.daddr, "In")):
        if ip in BY_IP and not _passes(policy_acls(BY_IP[ip], found[ip], [NODE]), way, packet):
            return False
    return True


def _passes(acls: list[Acl], way: str, packet: Packet) -> bool:
    if not acls:
        return True
    remote = packet.daddr if way == "Out" else packet.saddr
    mine = [a["Settings"] for a in acls if a["Settings"]["Direction"] == way]
    for acl in sorted(mine, key=lambda a: a["Priority"]):
        addresses = acl.get("RemoteAddresses", "").split(",")
        numbers = acl.get("RemotePorts" if way == "Out" else "LocalPorts", "").split(",")
        protocols = acl.get("Protocols", "").split(",")
        if (
            (
                addresses == [""]
                or any(ipaddress.ip_address(remote) in ipaddress.ip_network(a) for a in addresses)
            )
            and (protocols == [""] or PROTOCOLS.get(packet.protocol.upper(), "1") in protocols)
            and (
                numbers == [""]
                or any(
                    int(n.split("-")[0]) <= packet.dport <= int(n.split("-")[-1]) for n in numbers
                )
            )
        ):
            return bool(acl["Action"] == "Allow")
    raise AssertionError("no last word")


def app(name: str, **more: Any) -> dict[str, Any]:
    return {"podSelector": labels(app=name), **more}


def block(cidr: str, *holes: str) -> dict[str, Any]:
    return {"ipBlock": {"cidr": cidr, "except": list(holes)}}


def ports(*numbers: int | str, protocol: str = "TCP") -> list[dict[str, Any]]:
    return [{"port": number, "protocol": protocol} for number in numbers]


def into_web(
    *peers: dict[str, Any], at: list[dict[str, Any]] | None = None, name: str = "in"
) -> dict[str, Any]:
    return policy(name, labels(app="web"), ingress=[{"from": list(peers), "ports": at or []}])


def out_of(
    who: str, *peers: dict[str, Any], at: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    rule = {"to": list(peers), "ports": at or []}
    return policy("out", labels(app=who) if who else {}, policyTypes=["Egress"], egress=[rule])


DENY_ALL = policy(policyTypes=["Ingress", "Egress"])
RED = {"namespaceSelector": labels(team="red")}
NOT_DB = {
    "podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}
}


@pytest.mark.parametrize(
    ("policies", "allowed", "refused"),
    [
        ([], [to(DB, WEB), to(CLIENT, WEB), to(WEB, CLIENT)], []),
        # An empty selector is every pod of the policy's namespace, and no other.
        ([policy()], [to(DB, FAR), to(DB, CLIENT)], [to(OTHER, DB), to(WEB, DB), to(CLIENT, WEB)]),
        (
            [DENY_ALL],
            [to(NODE, WEB), to(CLIENT, FAR)],
            [to(WEB, DB), to(WEB, CLIENT), to(WEB, FAR)],
        ),
        ([DENY_ALL], [to(WEB, WEB)], []),  # a pod is never kept from itself
        ([DENY_ALL], [to(DB, WEB, state="established")], []),
        # Types: by default ingress, and egress where there are rules for it.
        ([policy(egress=[])], [to(WEB, CLIENT)], [to(CLIENT, WEB)]),
        (
            [policy(egress=[{"ports": ports(80)}])],
            [to(WEB, CLIENT)],
            [to(CLIENT, WEB), to(WEB, CLIENT, 81)],
        ),
        ([policy(policyTypes=["Egress"])], [to(CLIENT, WEB)], [to(WEB, CLIENT)]),
        # A rule without peers allows all peers, one without ports all ports.
        ([into_web()], [to(CLIENT, WEB), to(CLIENT, WEB, 0, "icmp")], []),
        (
            [into_web(at=ports(80))],
            [to(CLIENT, WEB)],
            [to(CLIENT, WEB, 80, "udp"), to(CLIENT, WEB, 0, "icmp")],
        ),
        (
            [into_web(app("db"))],
            [to(DB, WEB), to(DB, WEB, 7, "udp"), to(DB, WEB, 0, "icmp")],
            [to(OTHER, WEB), to(FAR, WEB), to(CLIENT, WEB)],
        ),
        ([into_web({"podSelector": {}})], [to(DB, WEB), to(OTHER, WEB)], [to(FAR, WEB)]),
        ([into_web(RED)], [to(FAR, WEB)], [to(DB, WEB)]),
        ([into_web({"namespaceSelector": {}})], [to(FAR, WEB), to(DB, WEB)], [to(CLIENT, WEB)]),
        # Two peers are either, two selectors in one peer are both.
        (
            [into_web(app("db", namespaceSelector={}))],
            [to(FAR, WEB), to(DB, WEB)],
            [to(OTHER, WEB)],
        ),
        ([into_web(app("other", **RED))], [], [to(FAR, WEB), to(OTHER, WEB)]),
        ([into_web(RED, app("other"))], [to(FAR, WEB), to(OTHER, WEB)], [to(DB, WEB)]),
        ([into_web(NOT_DB)], [to(OTHER, WEB)], [to(DB, WEB)]),
        # Blocks of addresses, with holes.
        (
            [into_web(block("203.0.113.0/24", "203.0.113.128/25"))],
            [to(CLIENT, WEB)],
            [to("203.0.113.200", WEB), to(DB, WEB)],
        ),
        (
            [into_web(block("0.0.0.0/0", "10.0.0.0/8", "203.0.113.10/32"))],
            [to("203.0.113.11", WEB)],
            [to(CLIENT, WEB), to(DB, WEB)],
        ),
        # What one policy excludes, another policy can allow.
        (
            [into_web(block("0.0.0.0/0", "10.0.0.0/8")), into_web(app("db"), name="two")],
            [to(DB, WEB), to(CLIENT, WEB)],
            [to(OTHER, WEB)],
        ),
        # Ports: of a protocol, ranges, names of the pod that is asked.
        (
            [into_web(at=[{"protocol": "UDP"}, {"port": 1000, "endPort": 1005}])],
            [to(DB, WEB, 9, "udp"), to(DB, WEB, 1003)],
            [to(DB, WEB, 1006), to(DB, WEB, 999), to(DB, WEB, 1003, "sctp")],
        ),
        ([into_web(at=ports(7, protocol="SCTP"))], [to(DB, WEB, 7, "sctp")], [to(DB, WEB, 7)]),
        (
            [policy(ingress=[{"ports": ports("http")}])],
            [to(OTHER, WEB, 8080), to(OTHER, DB, 9090)],
            [to(OTHER, WEB, 9090), to(OTHER, DB, 8080)],
        ),
        (
            [policy(ingress=[{"ports": ports("dns", protocol="UDP")}])],
            [to(OTHER, WEB, 53, "udp")],
            [to(OTHER, WEB, 53), to(OTHER, DB, 53, "udp")],
        ),
        (
            [out_of("", at=ports("http"))],
            [to(WEB, DB, 9090), to(WEB, OTHER, 8080), to(WEB, FAR, 9090)],
            [to(WEB, DB, 8080), to(WEB, CLIENT, 8080)],
        ),
        (
            [out_of("web", app("db"), at=[*ports("http"), *ports(53, protocol="UDP")])],
            [to(WEB, DB, 9090), to(WEB, DB, 53, "udp")],
            [to(WEB, OTHER, 8080), to(WEB, FAR, 9090), to(WEB, OTHER, 53, "udp")],
        ),
        # Both ends must agree.
        (
            [out_of("db", app("web")), into_web(app("other"))],
            [to(OTHER, WEB)],
            [to(DB, WEB), to(DB, OTHER)],
        ),
        # Pods on the host's network and ended ones are not peers.
        ([into_web(app("db"))], [], [to("10.244.1.99", WEB)]),
    ],
)
def test_what_is_allowed(
    policies: list[dict[str, Any]], allowed: list[Packet], refused: list[Packet]
) -> None:
    found = isolations(policies)
    for packet in allowed:
        assert by_nft(found, packet), packet
        assert by_acls(found, packet), packet
    for packet in refused:
        assert not by_nft(found, packet), packet
        assert not by_acls(found, packet), packet


def test_access_lists_in_hns_own_words() -> None:
    found = isolations([into_web(app("db"), at=[*ports(80), {"port": 90, "endPort": 99}])])
    acls = [acl["Settings"] for acl in policy_acls(BY_IP[WEB], found[WEB], [NODE])]
    assert acls == [
        {
            "Action": "Allow",
            "Direction": "In",
            "RemoteAddresses": f"{WEB},{NODE}",
            "RuleType": "Switch",
            "Priority": 900,
        },
        {
            "Action": "Allow",
            "Direction": "In",
            "RemoteAddresses": DB,
            "Protocols": "6",
            "LocalPorts": "80,90-99",
            "RuleType": "Switch",
            "Priority": 1000,
        },
        {"Action": "Block", "Direction": "In", "RuleType": "Switch", "Priority": 65000},
        {"Action": "Allow", "Direction": "Out", "RuleType": "Switch", "Priority": 65000},
    ]
    assert policy_acls(BY_IP[DB], found[DB], [NODE]) == []


def test_families_do_not_mix() -> None:
    both = pod("both", WEB, {"app": "web"})
    both["status"]["podIPs"] = [{"ip": WEB}, {"ip": "fd00::5"}]
    peer = pod("peer", DB, {"app": "db"})
    peer["status"]["podIPs"] = [{"ip": DB}, {"ip": "fd00::6"}]
    seen = [p for p in map(policy_pod_of, (both, peer)) if p is not None]
    rules = compile_policy(into_web(app("db"), block("fd01::/64")))
    found = [(p, pod_isolation(p, [rules], seen, {})) for p in seen]
    six = policy_table("ip6", found)
    assert six is not None
    wall = Firewall([six], set())
    assert wall.send(Packet("fd00::6", "fd00::5")).verdict == "accept"
    assert wall.send(Packet("fd01::1", "fd00::5")).verdict == "accept"
    assert wall.send(Packet("fd02::1", "fd00::5")).verdict == "drop"
    four = policy_table("ip", found)
    assert four is not None
    assert "fd0" not in str(four)
    remote = {a["Settings"].get("RemoteAddresses", "") for a in policy_acls(*found[0], [NODE])}
    assert remote == {"", f"{WEB},{NODE}", "fd00::5", DB, "fd00::6,fd01::/64"}


def test_pods_with_the_same_rules_share_a_chain_and_peers_are_elements() -> None:
    rules = compile_policy(policy(ingress=[{"from": [app("db")]}]))
    many = [PolicyPod("a", f"w-{n}", {}, (f"10.244.3.{n}",), "linux-1") for n in range(50)]
    table = policy_table(
        "ip", [(p, pod_isolation(p, [rules], [*SEEN, *many], NAMESPACES)) for p in many]
    )
    assert table is not None
    assert set(table.chains) == {
        "forward",
        next(c for c in table.chains if c.startswith("ingress-")),
    }
    more = PolicyPod("a", "new", {"app": "db"}, ("10.244.9.9",), "linux-2")
    after = policy_table(
        "ip", [(p, pod_isolation(p, [rules], [*SEEN, *many, more], NAMESPACES)) for p in many]
    )
    assert after is not None
    assert after.chains == table.chains
    assert after.maps == table.maps


def test_without_isolated_pods_there_is_no_table() -> None:
    assert policy_table("ip", [(p, OPEN) for p in SEEN]) is None
