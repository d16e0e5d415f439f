"""Traces: how things are named, what is reported, and which limit explains a failure."""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from tests.network.dual import OUTSIDE6, DualCluster
from tests.network.fabrics import OUTSIDE, Cluster, Mode, make_cluster
from tests.network.trace.inventories import inventory, traced

from transom.network.trace import matrix, picture
from transom.network.trace.inventory import TraceError
from transom.network.trace.places import split_target
from transom.network.trace.report import TraceReport, report_lines, verdict_lines
from transom.windows.registry import RECORDS
from transom.windows.wording import record_remedy

VIP = "10.96.0.20"


def peopled(mode: Mode = "l2bridge", **more: Any) -> Cluster:
    cluster = make_cluster(mode, **more)
    for name, node in (
        ("l1", "linux-1"),
        ("w1", "windows-1"),
        ("w2", "windows-1"),
        ("w3", "windows-2"),
    ):
        cluster.pod(name, node, port=8080)
    cluster.service("web", VIP, ["l1", "w2", "w3"], target=8080, kind="NodePort", node_port=30080)
    return cluster


def check(found: TraceReport, verdict: str, limit: str = "") -> None:
    assert (found.verdict, found.limit) == (verdict, limit), found.document()
    assert bool(found.remedy) is (verdict != "delivered"), found.document()
    if limit:
        assert record_remedy(RECORDS[limit]) in found.remedy and found.title == RECORDS[limit].title


# ---- names of things ----


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("web", ("web", "")),
        ("web:80", ("web", "80")),
        ("svc/web:http", ("svc/web", "http")),
        ("10.1.1.1:53", ("10.1.1.1", "53")),
        ("fd00::1", ("fd00::1", "")),
        ("[fd00::1]:53", ("fd00::1", "53")),
        ("[fd00::1]", ("fd00::1", "")),
    ],
)
def test_places_and_ports(text: str, parts: tuple[str, str]) -> None:
    assert split_target(text) == parts


@pytest.mark.parametrize(
    ("origin", "target", "address", "port"),
    [
        ("w1", "w3", "10.244.3.13", 8080),
        ("pod/w1", "default/w3", "10.244.3.13", 8080),
        ("default/w1", "pod/default/w3:99", "10.244.3.13", 99),
        ("w1", "svc/web", VIP, 80),
        ("w1", "default/web", VIP, 80),
        ("w1", "web", VIP, 80),
        ("w1", "windows-2", "172.20.0.4", 10250),
        ("node/windows-1", "pod/w1", "10.244.2.11", 8080),
        ("w1", "8.8.8.8", "8.8.8.8", 80),
        ("w1", "external:443", OUTSIDE, 443),
        ("external", "windows-1:30080", "172.20.0.3", 30080),
        ("external", "svc/web", "172.20.0.2", 30080),
        ("10.244.2.11", "w3", "10.244.3.13", 8080),
        ("linux-1", "web", VIP, 80),
    ],
)
def test_what_texts_mean(origin: str, target: str, address: str, port: int) -> None:
    found = traced(peopled(), origin, target)
    assert (found.address, found.port) == (address, port)
    check(found, "delivered")


@pytest.mark.parametrize(
    ("origin", "target"),
    [
        ("nobody", "w1"),
        ("w1", "default/nobody"),
        ("w1", "svc/nobody"),
        ("9.9.9.9", "w1"),
        ("w1", "!"),
        ("w1", "node/nobody"),
        ("w1", "w3:http"),
        ("w1", "w3:70000"),
        ("other/w1", "w3"),
    ],
)
def test_what_cannot_be_traced(origin: str, target: str) -> None:
    with pytest.raises(TraceError):
        traced(peopled(), origin, target)


def test_a_pod_that_has_ended_has_no_way() -> None:
    cluster = peopled()
    cluster.objects["pods"][1]["status"] = {"phase": "Succeeded", "podIPs": [{"ip": "10.244.2.11"}]}
    with pytest.raises(TraceError, match="Succeeded"):
        traced(cluster, "w1", "w3")


# ---- names in DNS ----


@pytest.mark.windows(
    "FLOW-04",
    "FLOW-05",
    "DNS-02",
    "DNS-08",
    "WIN-DNS-002",
    "SUP-NET-022",
    "SUP-NET-023",
    "SUP-NET-034",
)
def test_names_with_and_without_dots() -> None:
    cluster = peopled()
    for name in ("web", "web.default.svc.cluster.local", "web.default.svc.cluster.local."):
        check(traced(cluster, "w1", name), "delivered")
    for name in ("web.default", "web.default.svc"):
        found = traced(cluster, "w1", name)
        check(found, "unresolved", "WIN-DNS-002")
        assert "web.default.svc.cluster.local" in found.remedy
        check(traced(cluster, "l1", name), "delivered")
    found = traced(cluster, "w1", "nothing")
    check(found, "unresolved")
    assert [h.device for h in found.hops] == ["resolver"]


@pytest.mark.windows("FLOW-02", "FLOW-07", "SUP-NET-020", "SUP-NET-025")
def test_names_of_pods_and_outside() -> None:
    cluster = peopled()
    found = traced(cluster, "w1", "10-244-3-13.default.pod.cluster.local:8080")
    check(found, "delivered")
    assert found.at == "pod default/w3"
    check(traced(cluster, "w1", "www.example.com"), "delivered")


def test_nodes_resolve_names_with_their_own_resolver() -> None:
    cluster = peopled()
    for node in ("linux-1", "windows-1"):
        found = traced(cluster, node, "www.example.com:443")
        check(found, "delivered")
        assert (found.address, found.hops[0].device) == (OUTSIDE, "resolver")
        found = traced(cluster, node, "localhost:10250")
        check(found, "delivered")
        assert (found.address, found.at) == ("127.0.0.1", f"node {node}")
        check(traced(cluster, node, "localhost:81"), "refused")
        found = traced(cluster, node, "web.default.svc.cluster.local")
        check(found, "unresolved")
        assert "does not ask the cluster's DNS" in found.explanation


def test_a_resolver_that_reaches_no_server_resolves_nothing() -> None:
    cluster = peopled()
    cluster.service("kube-dns", "10.96.0.10", [], port=53, target=53, protocol="UDP")
    found = traced(cluster, "w1", "web")
    assert found.verdict == "unresolved" and "10.96.0.10" in found.explanation
    check(traced(cluster, "windows-1", "web.default.svc.cluster.local"), "unresolved")


@pytest.mark.windows("SVC-07", "SUP-SVC-007")
def test_headless_services_are_their_pods() -> None:
    cluster = peopled()
    cluster.service("db", "None", ["w3"], port=5432, target=8080)
    found = traced(cluster, "w1", "svc/db:8080")
    check(found, "delivered")
    assert found.at == "pod default/w3"


# ---- limits ----


@pytest.mark.windows("WIN-NET-001", "LNET-18")
@pytest.mark.parametrize("mode", ["l2bridge", "overlay"])
def test_ping_outside(mode: Mode) -> None:
    check(traced(peopled(mode), "w1", "external", "icmp"), "dropped", "WIN-NET-001")
    check(traced(peopled(mode), "w1", "w3", "icmp"), "delivered")
    check(traced(peopled(mode), "w1", "svc/web", "icmp"), "dropped")


@pytest.mark.windows("SUP-TRB-009")
@pytest.mark.parametrize("mode", ["l2bridge", "overlay", "l2tunnel", "transparent"])
def test_a_virtual_machine_whose_adapter_may_not_spoof(mode: Mode) -> None:
    cluster = peopled(mode)
    hns = cluster.nodes["windows-1"].hns
    assert hns is not None
    hns.allow_mac_spoofing(False)
    for target in ("w3", "l1", "external"):
        check(traced(cluster, "w1", target), "dropped", "SUP-TRB-009")
    lost = traced(cluster, "w3", "w1")
    check(lost, "dropped", "SUP-TRB-009")
    assert lost.reason == "reply-lost"
    for origin, target in (
        ("w1", "w2"),
        ("windows-1", "linux-1"),
    ):  # inside the machine, and what it sends itself
        check(traced(cluster, origin, target), "delivered")
    hns.allow_mac_spoofing(True)
    check(traced(cluster, "w1", "w3"), "delivered")


@pytest.mark.windows("WIN-NET-002", "WIN-NET-003")
def test_a_node_and_services() -> None:
    cluster = peopled()
    check(traced(cluster, "windows-1", "svc/web"), "dropped", "WIN-NET-002")
    check(traced(cluster, "windows-1", "windows-1:30080"), "refused", "WIN-NET-003")
    for origin in ("windows-2", "linux-1", "external", "w1"):
        check(traced(cluster, origin, "windows-1:30080"), "delivered")


@pytest.mark.windows("WIN-NET-006", "WIN-NET-007")
def test_a_node_and_overlay_pods() -> None:
    check(traced(peopled("overlay"), "windows-1", "w3"), "dropped", "WIN-NET-006")
    check(traced(peopled("overlay", host_route=False), "windows-1", "w1"), "dropped", "WIN-NET-007")
    check(traced(peopled("overlay"), "windows-1", "w1"), "delivered")


@pytest.mark.windows("WIN-NET-008", "WIN-NET-009", "CNI-05", "CNI-06", "CNI-07")
@pytest.mark.parametrize(
    ("field", "value", "limit"), [("vni", 1, "WIN-NET-008"), ("port", 8472, "WIN-NET-009")]
)
def test_vxlan_that_differs_by_system(field: str, value: int, limit: str) -> None:
    cluster = peopled("overlay")
    setattr(cluster.nodes["linux-1"].links["flannel.4096"], field, value)
    check(traced(cluster, "l1", "w1"), "dropped", limit)
    check(traced(cluster, "w1", "l1"), "dropped", limit)
    check(traced(cluster, "w1", "w3"), "delivered")


@pytest.mark.windows("WIN-NET-012", "WIN-NET-017", "WIN-NET-018")
def test_ways_that_are_missing() -> None:
    check(traced(peopled("nat"), "w1", "w3"), "dropped", "WIN-NET-012")
    check(traced(peopled(flannel_routes=False), "w1", "w3"), "dropped", "WIN-NET-017")
    listed = peopled(exceptions=("10.0.0.0/8", "172.20.0.0/16", "203.0.113.0/24"))
    check(traced(listed, "w1", "external"), "dropped", "WIN-NET-018")
    check(traced(peopled(), "external", "w1"), "dropped")
    check(traced(peopled(), "w1", "10.244.2.200"), "dropped")


@pytest.mark.windows("WIN-NET-013", "WIN-NET-015", "LNET-12")
@pytest.mark.parametrize(
    ("mode", "limit"), [("overlay", "WIN-NET-013"), ("l2bridge", "WIN-NET-015")]
)
def test_ipv6(mode: Mode, limit: str) -> None:
    check(traced(peopled(mode), "w1", "2001:db8::1"), "dropped", limit)


@pytest.mark.windows("IP6-02", "DS-01", "WIN-SVC-016", "WIN-NET-015", "SUP-SVC-012")
def test_both_families() -> None:
    cluster = DualCluster("l2bridge", build=19041)
    cluster.linux("linux-1")
    cluster.windows("windows-1")
    cluster.windows("windows-2")
    for name, node in (("l1", "linux-1"), ("w1", "windows-1"), ("w3", "windows-2")):
        cluster.pod(name, node)
    old = cluster.stack("w3")  # as an old build leaves it
    [link] = [link for link in old.links.values() if link.kind == "vnic"]
    old.delete_address(link.name, next(str(a) for a in link.addresses if a.version == 6))
    old.delete_route("::/0")
    six, two = "fd00:96::20", ["10.96.0.30", "fd00:96::30"]
    cluster.service("six", six, ["l1", "w1"], ipFamilies=["IPv6"], clusterIPs=[six])
    cluster.service("two", two[0], ["l1", "w1"], ipFamilies=["IPv4", "IPv6"], clusterIPs=two)
    for origin in ("w1", "l1"):
        for target in ("six", "svc/six", f"[{six}]:80", "two", f"[{two[1]}]:80"):
            check(traced(cluster, origin, target), "delivered")
    # What kube-proxy knows where it reads Endpoints.
    cluster.tracker.remove_slice(
        next(s for s in cluster.objects["slices"] if s["metadata"]["name"] == "two-6")
    )
    check(traced(cluster, "w1", f"[{two[1]}]:80"), "dropped", "WIN-SVC-016")
    assert traced(cluster, "external", "l1").document()["verdict"] == "dropped"
    cluster.build = 17763
    for target, verdict in (
        ("six", "unresolved"),
        ("svc/six", "dropped"),
        (cluster.source("l1", "::"), "dropped"),
    ):
        check(traced(cluster, "w3", target), verdict, "WIN-NET-015")
    known = inventory(cluster)
    rows = asyncio.run(
        matrix.run_matrix(cluster.world, known, matrix.find_matrix_places(known, OUTSIDE6))
    )
    assert {r.flow: r.works for r in rows if r.id in ("DS-01", "IP6-02")} == {
        "Windows pod to Linux pod, IPv6": True,
        "Linux pod to Windows pod, IPv6": True,
        "Pod to outside by address, IPv6": True,
        "Pod to service of IPv6": True,
    }


@pytest.mark.windows("WIN-SVC-001", "WIN-SVC-012")
def test_services_without_a_load_balancer() -> None:
    cluster = peopled()
    names = [f"p{number}" for number in range(65)]
    for name in names:
        cluster.pod(name, "windows-2")
    cluster.service("many", "10.96.0.30", names, kind="NodePort", node_port=30090)
    check(traced(cluster, "w1", "svc/many"), "dropped", "WIN-SVC-001")
    check(traced(cluster, "external", "windows-1:30090"), "refused", "WIN-SVC-001")
    check(traced(cluster, "l1", "svc/many"), "delivered")
    cluster.service(
        "local",
        "10.96.0.31",
        ["w3"],
        kind="NodePort",
        node_port=30091,
        externalTrafficPolicy="Local",
    )
    check(traced(cluster, "external", "windows-1:30091"), "refused", "WIN-SVC-012")
    check(traced(cluster, "external", "windows-2:30091"), "delivered")
    found = traced(cluster, "external", "linux-1:30091")
    assert found.verdict == "dropped" and "Local" in found.explanation
    cluster.service("empty", "10.96.0.32", [])
    for origin, verdict in (("w1", "dropped"), ("l1", "refused")):
        found = traced(cluster, origin, "svc/empty")
        check(found, verdict)
        assert "no ready endpoints" in found.explanation


@pytest.mark.windows("WIN-NET-019", "LNET-09")
def test_a_proxy_that_does_not_work_says_why() -> None:
    cluster = peopled("overlay")
    cluster.proxies.pop("windows-1")
    found = traced(
        cluster,
        "w1",
        "svc/web",
        proxy_problem="unable to create proxier: WinOverlay feature gate not enabled",
    )
    check(found, "dropped", "WIN-NET-019")
    waiting = traced(cluster, "w1", "svc/web", proxy_problem="it waits for the HNS network vxlan0")
    check(waiting, "dropped")
    assert "vxlan0" in waiting.explanation


@pytest.mark.windows("WIN-SVC-002", "WIN-SVC-004", "WIN-SVC-013", "LNET-20")
def test_what_shows_although_it_arrives() -> None:
    cluster = peopled()
    cluster.service(
        "sticky",
        "10.96.0.33",
        ["w3"],
        target=8080,
        kind="LoadBalancer",
        node_port=30092,
        ingress="198.51.100.7",
        announced_by=cluster.ip("windows-1"),
        sessionAffinity="ClientIP",
        sessionAffinityConfig={"clientIP": {"timeoutSeconds": 60}},
        loadBalancerSourceRanges=["192.0.2.0/24"],
    )
    found = traced(cluster, "external", "svc/sticky")
    check(found, "delivered")
    assert [note["limit"] for note in found.notes] == ["WIN-SVC-002", "WIN-SVC-004", "WIN-SVC-013"]


@pytest.mark.windows("WIN-SVC-005", "LNET-11")
def test_local_policy_without_dsr_is_reported() -> None:
    cluster = peopled(build=17763)
    cluster.service(
        "local",
        "10.96.0.31",
        ["w1"],
        target=8080,
        kind="NodePort",
        node_port=30091,
        externalTrafficPolicy="Local",
    )
    found = traced(cluster, "external", "windows-1:30091")
    check(found, "delivered")
    seen = found.seen.source if found.seen is not None else ""
    assert (seen == OUTSIDE) is not any(note["limit"] == "WIN-SVC-005" for note in found.notes)


def test_network_policies_are_named() -> None:
    cluster = make_cluster()
    block = {"Type": "ACL", "Settings": {"Action": "Block", "Direction": "In", "Priority": 65000}}
    cluster.pod("w1", "windows-1")
    cluster.pod("shut", "windows-1", labels={"app": "shut"}, policies=[block])
    cluster.objects["policies"].append(
        {
            "metadata": {"namespace": "default", "name": "deny"},
            "spec": {"podSelector": {"matchLabels": {"app": "shut"}}, "policyTypes": ["Ingress"]},
        }
    )
    found = traced(cluster, "w1", "shut")
    check(found, "dropped")
    assert "default/deny" in found.explanation and "default/deny" in found.remedy


def test_a_load_balancer_in_front_hands_on_to_node_ports() -> None:
    cluster = peopled()
    for name, policy, node in (("all", "Cluster", "172.20.0.2"), ("near", "Local", "172.20.0.4")):
        number = 30093 if name == "all" else 30094
        cluster.service(
            name,
            f"10.96.0.{number % 100}",
            ["w3"],
            target=8080,
            kind="LoadBalancer",
            node_port=number,
            ingress=f"127.100.0.{number % 100}",
            externalTrafficPolicy=policy,
        )
        cluster.stack("external").delete_route(f"127.100.0.{number % 100}/32")
        for target in (f"svc/{name}", f"127.100.0.{number % 100}:80"):
            found = traced(cluster, "external", target)
            check(found, "delivered")
            assert (found.address, found.port, found.at) == (node, number, "pod default/w3")
            assert found.hops[0].device == "load balancer"


def test_no_listener() -> None:
    found = traced(peopled(), "w1", "w3", listening=lambda *_: False)
    check(found, "refused")
    assert found.reason == "no-listener"


# ---- what is reported ----


def test_document_and_text() -> None:
    cluster = peopled("overlay")
    cluster.endpoints("web", ["w3"], target=8080)
    document = traced(cluster, "w1", "web").document()
    assert document["verdict"] == "delivered" and document["limit"] is None
    devices = [hop["device"] for hop in document["hops"]]
    assert (
        devices[0] == "resolver"
        and "load balancer" in devices
        and "VXLAN" in devices
        and devices[-1] == "socket"
    )
    outer = next(hop["packet"]["outer"] for hop in document["hops"] if "outer" in hop["packet"])
    assert (outer["vni"], outer["port"]) == (4096, 4789)
    assert document["seen"]["source"] == "10.244.2.254", "the source VIP"
    assert len(report_lines(document)) == len(document["hops"]) + 1
    assert verdict_lines(document)[0].startswith(
        "verdict: delivered to pod default/w3, which sees 10.244.2.254"
    )
    failed = traced(cluster, "w1", "external", "icmp").document()
    assert failed["limit"] == "WIN-NET-001"
    text = "\n".join(verdict_lines(failed))
    assert "limit:   WIN-NET-001" in text and "remedy:  Test with curl" in text


@pytest.mark.windows(
    "FLOW-01",
    "FLOW-02",
    "FLOW-03",
    "FLOW-04",
    "FLOW-05",
    "FLOW-06",
    "FLOW-07",
    "FLOW-08",
    "FLOW-09",
)
@pytest.mark.parametrize("mode", ["l2bridge", "overlay", "transparent"])
def test_the_matrix_says_what_the_document_says(mode: Mode) -> None:
    cluster = peopled(mode)
    cluster.service(
        "balanced",
        "10.96.0.40",
        ["w3"],
        target=8080,
        kind="LoadBalancer",
        node_port=30099,
        ingress="198.51.100.7",
        announced_by=cluster.ip("windows-1"),
    )
    known = inventory(cluster)
    results = asyncio.run(matrix.run_matrix(cluster.world, known, matrix.find_matrix_places(known)))
    assert all(result.works is not None for result in results), [
        r for r in results if r.works is None
    ]
    wrong = [result for result in results if result.works is not result.documented]
    if mode == "overlay":
        assert [(result.flow, result.limit) for result in wrong] == [
            ("Node to pod of another node", "WIN-NET-006")
        ]
    elif mode == "l2bridge":
        assert wrong == []
    else:
        assert [(result.flow, result.works) for result in wrong] == [
            ("Ping from pod to outside", True)
        ]
    limits = {
        "WIN-DNS-002",
        "WIN-NET-002",
        "WIN-NET-003",
        "" if mode == "transparent" else "WIN-NET-001",
    }
    assert {r.limit for r in results if not r.documented} == limits


def test_a_matrix_of_an_empty_cluster_tries_nothing() -> None:
    cluster = make_cluster()
    known = inventory(cluster)
    results = asyncio.run(matrix.run_matrix(cluster.world, known, matrix.find_matrix_places(known)))
    assert all(result.works is None and "Windows pod" in result.why for result in results)


def test_the_picture_is_a_picture() -> None:
    cluster = peopled()
    known = inventory(cluster)
    results = asyncio.run(matrix.run_matrix(cluster.world, known, matrix.find_matrix_places(known)))
    drawn = ET.fromstring(picture.trace_svg(results, "Flows <of> & all"))
    arrows = drawn.findall("{http://www.w3.org/2000/svg}line")
    assert len(arrows) == len(results)
    colours = {arrow.get("stroke") for arrow in arrows}
    assert {"#1a7f37", "#cf222e"} <= colours
