"""Answers by the specification, and those of CoreDNS' kubernetes plugin where the specification
leaves a choice.
"""

from __future__ import annotations

import pytest
from tests.dns.zones import ask, endpoint, server, service, shown, slice_of, zone

from transom.dns.server import DnsServer
from transom.dns.zone import DnsZone
from transom.kit import dnswire as wire

SOA = (
    "cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 1499347823 7200 "
    "1800 86400 5"
)
NXDOMAIN = ("NXDOMAIN", [], [SOA], [])
NODATA = ("NOERROR", [], [SOA], [])
C = "testns.svc.cluster.local."


def found(*answers: str, more: tuple[str, ...] = ()) -> tuple[str, list[str], list[str], list[str]]:
    return "NOERROR", sorted(answers), [], sorted(more)


CASES = [
    # services
    (f"svc1.{C}", "A", found(f"svc1.{C} 5 IN A 10.0.0.1")),
    (
        "SVC1.TestNS.svc.CLUSTER.local.",
        "A",
        found("SVC1.TestNS.svc.CLUSTER.local. 5 IN A 10.0.0.1"),
    ),
    (f"svc6.{C}", "AAAA", found(f"svc6.{C} 5 IN AAAA 1234:abcd::1")),
    (f"dual.{C}", "A", found(f"dual.{C} 5 IN A 10.0.0.3")),
    (f"dual.{C}", "AAAA", found(f"dual.{C} 5 IN AAAA 1234:abcd::3")),
    (f"svc1.{C}", "AAAA", NODATA),
    (f"svc6.{C}", "A", NODATA),
    (f"svc0.{C}", "A", NXDOMAIN),
    (f"svc0.{C}", "AAAA", NXDOMAIN),
    ("svc1.nowhere.svc.cluster.local.", "A", NXDOMAIN),
    (f"*.{C}", "A", NXDOMAIN),
    ("svc1.*.svc.cluster.local.", "A", NXDOMAIN),
    # headless
    (f"hdls1.{C}", "A", found(*(f"hdls1.{C} 5 IN A 172.0.0.{i}" for i in (2, 3, 4, 5)))),
    (f"hdls1.{C}", "AAAA", found(*(f"hdls1.{C} 5 IN AAAA 5678:abcd::{i}" for i in (1, 2)))),
    (f"172-0-0-2.hdls1.{C}", "A", found(f"172-0-0-2.hdls1.{C} 5 IN A 172.0.0.2")),
    (f"5678-abcd--2.hdls1.{C}", "AAAA", found(f"5678-abcd--2.hdls1.{C} 5 IN AAAA 5678:abcd::2")),
    (
        f"dup-name.hdls1.{C}",
        "A",
        found(*(f"dup-name.hdls1.{C} 5 IN A 172.0.0.{i}" for i in (4, 5))),
    ),
    (f"172-0-0-4.hdls1.{C}", "A", NXDOMAIN),  # it has a name
    (f"late.hdls1.{C}", "A", NXDOMAIN),  # it is not ready
    (f"bogus.hdls1.{C}", "A", NXDOMAIN),
    (f"bogus.svc0.{C}", "A", NXDOMAIN),
    (f"hdlsprtls.{C}", "A", found(f"hdlsprtls.{C} 5 IN A 172.0.0.20")),
    (f"hdlsprtls.{C}", "SRV", NODATA),
    (f"nobody.{C}", "A", NXDOMAIN),
    (
        f"ep1a.svc1.{C}",
        "A",
        found(f"ep1a.svc1.{C} 5 IN A 172.0.0.7"),
    ),  # also of services with an address
    # SRV
    (
        f"_http._tcp.svc1.{C}",
        "SRV",
        found(
            f"_http._tcp.svc1.{C} 5 IN SRV 0 100 80 svc1.{C}", more=(f"svc1.{C} 5 IN A 10.0.0.1",)
        ),
    ),
    (
        f"_HTTP._TCP.svc1.{C}",
        "SRV",
        found(
            f"_HTTP._TCP.svc1.{C} 5 IN SRV 0 100 80 svc1.{C}", more=(f"svc1.{C} 5 IN A 10.0.0.1",)
        ),
    ),
    (
        f"svc1.{C}",
        "SRV",
        found(f"svc1.{C} 5 IN SRV 0 100 80 svc1.{C}", more=(f"svc1.{C} 5 IN A 10.0.0.1",)),
    ),
    (
        f"two.{C}",
        "SRV",
        found(
            *(f"two.{C} 5 IN SRV 0 33 {port} two.{C}" for port in (80, 443, 53)),
            more=(f"two.{C} 5 IN A 10.0.0.2",),
        ),
    ),
    (
        f"_dns._udp.two.{C}",
        "SRV",
        found(f"_dns._udp.two.{C} 5 IN SRV 0 100 53 two.{C}", more=(f"two.{C} 5 IN A 10.0.0.2",)),
    ),
    (f"_dns._tcp.two.{C}", "SRV", NXDOMAIN),
    (f"_https._tcp.two.{C}", "SRV", NXDOMAIN),  # the port has no name
    (f"_http._tcp.svc1.{C}", "A", found(f"_http._tcp.svc1.{C} 5 IN A 10.0.0.1")),
    (
        f"_http._tcp.svc6.{C}",
        "SRV",
        found(
            f"_http._tcp.svc6.{C} 5 IN SRV 0 100 80 svc6.{C}",
            more=(f"svc6.{C} 5 IN AAAA 1234:abcd::1",),
        ),
    ),
    (
        f"_http._tcp.dual.{C}",
        "SRV",
        found(
            f"_http._tcp.dual.{C} 5 IN SRV 0 50 80 dual.{C}",
            more=(f"dual.{C} 5 IN A 10.0.0.3", f"dual.{C} 5 IN AAAA 1234:abcd::3"),
        ),
    ),
    (
        f"_http._tcp.hdls1.{C}",
        "SRV",
        found(
            *(
                f"_http._tcp.hdls1.{C} 5 IN SRV 0 16 80 {host}.hdls1.{C}"
                for host in ("172-0-0-2", "172-0-0-3", "dup-name", "5678-abcd--1", "5678-abcd--2")
            ),
            more=(
                f"172-0-0-2.hdls1.{C} 5 IN A 172.0.0.2",
                f"172-0-0-3.hdls1.{C} 5 IN A 172.0.0.3",
                f"dup-name.hdls1.{C} 5 IN A 172.0.0.4",
                f"dup-name.hdls1.{C} 5 IN A 172.0.0.5",
                f"5678-abcd--1.hdls1.{C} 5 IN AAAA 5678:abcd::1",
                f"5678-abcd--2.hdls1.{C} 5 IN AAAA 5678:abcd::2",
            ),
        ),
    ),
    # external names
    (f"external.{C}", "CNAME", found(f"external.{C} 5 IN CNAME ext.interwebs.test.")),
    (f"external.{C}", "A", found(f"external.{C} 5 IN CNAME ext.interwebs.test.")),
    (f"external.{C}", "AAAA", found(f"external.{C} 5 IN CNAME ext.interwebs.test.")),
    (f"external.{C}", "SRV", NODATA),
    (f"x.external.{C}", "A", NXDOMAIN),
    (f"_http._tcp.external.{C}", "SRV", NXDOMAIN),
    (f"svc1.{C}", "CNAME", NODATA),
    (
        f"to-service.{C}",
        "A",
        found(f"to-service.{C} 5 IN CNAME svc1.{C}", f"svc1.{C} 5 IN A 10.0.0.1"),
    ),
    (f"to-service.{C}", "AAAA", NODATA),
    (f"to-nothing.{C}", "A", NODATA),
    (f"itself.{C}", "A", NODATA),
    (f"ping.{C}", "A", NODATA),
    # addresses
    ("1.0.0.10.in-addr.arpa.", "PTR", found(f"1.0.0.10.in-addr.arpa. 5 IN PTR svc1.{C}")),
    (
        "2.0.0.172.in-addr.arpa.",
        "PTR",
        found(f"2.0.0.172.in-addr.arpa. 5 IN PTR 172-0-0-2.hdls1.{C}"),
    ),
    (
        "4.0.0.172.in-addr.arpa.",
        "PTR",
        found(f"4.0.0.172.in-addr.arpa. 5 IN PTR dup-name.hdls1.{C}"),
    ),
    (
        "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.c.b.a.4.3.2.1.ip6.arpa.",
        "PTR",
        found(
            "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.c.b.a.4.3.2.1.ip6.arpa. 5 IN "
            f"PTR svc6.{C}"
        ),
    ),
    (
        "2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.c.b.a.8.7.6.5.ip6.arpa.",
        "PTR",
        found(
            "2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.c.b.a.8.7.6.5.ip6.arpa. 5 IN "
            f"PTR 5678-abcd--2.hdls1.{C}"
        ),
    ),
    # pods
    (
        "172-0-1-2.testns.pod.cluster.local.",
        "A",
        found("172-0-1-2.testns.pod.cluster.local. 5 IN A 172.0.1.2"),
    ),
    (
        "fd00--12.testns.pod.cluster.local.",
        "AAAA",
        found("fd00--12.testns.pod.cluster.local. 5 IN AAAA fd00::12"),
    ),
    ("172-0-1-2.testns.pod.cluster.local.", "AAAA", NODATA),
    ("172-0-1-2.nowhere.pod.cluster.local.", "A", NXDOMAIN),
    ("172-0-1-256.testns.pod.cluster.local.", "A", NXDOMAIN),
    ("web-0.testns.pod.cluster.local.", "A", NXDOMAIN),
    # the zone itself
    ("dns-version.cluster.local.", "TXT", found('dns-version.cluster.local. 28800 IN TXT "1.1.0"')),
    (f"svc1.{C}", "TXT", NODATA),
    ("cluster.local.", "SOA", found(SOA)),
    ("cluster.local.", "A", NODATA),
    ("svc.cluster.local.", "A", NODATA),
    ("pod.cluster.local.", "A", NODATA),
    ("testns.svc.cluster.local.", "A", NODATA),
    ("empty.svc.cluster.local.", "A", NODATA),
    ("nowhere.svc.cluster.local.", "A", NXDOMAIN),
    ("foo.cluster.local.", "A", NXDOMAIN),
    (f"a.b.c.svc1.{C}", "A", NXDOMAIN),
    (
        "cluster.local.",
        "NS",
        found(
            "cluster.local. 5 IN NS kube-dns.kube-system.svc.cluster.local.",
            more=("kube-dns.kube-system.svc.cluster.local. 5 IN A 10.96.0.10",),
        ),
    ),
    ("ns.dns.cluster.local.", "A", found("ns.dns.cluster.local. 5 IN A 10.96.0.10")),
    ("svc.cluster.local.", "NS", NODATA),
    ("foo.svc.cluster.local.", "NS", NXDOMAIN),
    (f"svc1.{C}", "MX", NODATA),
    (f"svc0.{C}", "MX", NXDOMAIN),
    (f"svc1.{C}", "HTTPS", NODATA),
    (f"svc1.{C}", "ANY", NODATA),
    (f"svc1.{C}", "PTR", NODATA),
]


@pytest.fixture(scope="module")
def on() -> object:
    return server()


@pytest.mark.parametrize(
    ("name", "type", "expected"), CASES, ids=[f"{name} {type}" for name, type, _ in CASES]
)
def test_answers(on: DnsServer, name: str, type: str, expected: object) -> None:
    for _ in range(2):  # also when it has been asked before
        assert shown(ask(on, name, type, payload=4096, use_edns=0)) == expected
        assert ask(on, name, type, transport="tcp").flags & 0x0580 == 0x0500, (
            "authoritative, no recursion"
        )


def test_an_unused_address() -> None:
    soa = SOA.replace("cluster.local", "in-addr.arpa")
    assert shown(ask(server(), "9.9.9.9.in-addr.arpa.", "PTR")) == ("NXDOMAIN", [], [soa], [])
    assert shown(ask(server(), "9.0.0.172.in-addr.arpa.", "PTR"))[0] == "NXDOMAIN", "not ready"


def test_a_pod_of_several_services_has_several_names() -> None:
    made = zone()
    made.put_slice(slice_of("two", "172.0.0.2"))
    assert [
        line.split()[-1] for line in shown(ask(server(made), "2.0.0.172.in-addr.arpa.", "PTR"))[1]
    ] == [
        f"172-0-0-2.hdls1.{C}",
        f"172-0-0-2.two.{C}",
    ]


def test_a_service_that_publishes_addresses_that_are_not_ready() -> None:
    made = zone()
    made.put_service(service("early", "None", publishNotReadyAddresses=True))
    # so the controller says of all of them
    made.put_slice(slice_of("early", endpoint("172.0.0.30", "early-0", ready=True)))
    assert shown(ask(server(made), f"early-0.early.{C}")) == found(
        f"early-0.early.{C} 5 IN A 172.0.0.30"
    )


def test_what_is_not_known_yet_is_not_denied() -> None:
    made = zone()
    made.synced = False
    on = server(made)
    assert shown(ask(on, f"svc0.{C}"))[0] == "SERVFAIL"
    assert shown(ask(on, f"svc1.{C}"))[0] == "NOERROR"
    made.synced = True
    assert shown(ask(on, f"svc0.{C}")) == NXDOMAIN


def test_changes_are_seen_at_once() -> None:
    made = zone()
    on = server(made)

    def addresses(name: str, type: str = "A") -> list[str]:
        return [line.split()[-1] for line in shown(ask(on, name, type))[1]]

    assert addresses(f"svc0.{C}") == []
    made.put_service(service("svc0", "10.0.0.50"))
    assert addresses(f"svc0.{C}") == ["10.0.0.50"]
    assert addresses("50.0.0.10.in-addr.arpa.", "PTR") == [f"svc0.{C}"]
    made.put_service(service("svc0", "10.0.0.51"))
    assert addresses(f"svc0.{C}") == ["10.0.0.51"]
    assert addresses("50.0.0.10.in-addr.arpa.", "PTR") == []
    assert addresses("51.0.0.10.in-addr.arpa.", "PTR") == [f"svc0.{C}"]
    made.remove_service(service("svc0"))
    assert addresses(f"svc0.{C}") == addresses("51.0.0.10.in-addr.arpa.", "PTR") == []

    assert addresses(f"hdls1.{C}")[0] == "172.0.0.2"
    assert addresses("2.0.0.172.in-addr.arpa.", "PTR") == [f"172-0-0-2.hdls1.{C}"]
    made.put_slice(slice_of("hdls1", "172.0.0.99"))
    assert addresses(f"hdls1.{C}") == ["172.0.0.99"]
    assert addresses("2.0.0.172.in-addr.arpa.", "PTR") == []
    assert addresses(f"_http._tcp.hdls1.{C}", "SRV")[0] == f"172-0-0-99.hdls1.{C}"
    made.remove_slice(slice_of("hdls1"))
    assert addresses(f"hdls1.{C}") == []

    assert addresses(f"to-service.{C}") == ["10.0.0.1", f"svc1.{C}"]
    made.put_service(service("svc1", "10.0.0.60"))
    assert addresses(f"to-service.{C}") == ["10.0.0.60", f"svc1.{C}"]

    assert shown(ask(on, "later.svc.cluster.local."))[0] == "NXDOMAIN"
    made.put_namespace({"metadata": {"name": "later"}})
    assert shown(ask(on, "later.svc.cluster.local."))[0] == "NOERROR"
    assert addresses("10-0-0-1.later.pod.cluster.local.") == ["10.0.0.1"]
    made.remove_namespace({"metadata": {"name": "later"}})
    assert shown(ask(on, "10-0-0-1.later.pod.cluster.local."))[0] == "NXDOMAIN"


def test_a_slice_that_changes_hands() -> None:
    made = zone()
    made.put_slice(slice_of("two", "172.0.0.2", name="hdls1-1"))
    assert shown(ask(server(made), f"hdls1.{C}", "A"))[0] == "NOERROR"
    assert made.names_of("172.0.0.2") == [wire.encode_name(f"172-0-0-2.two.{C}")]
    made.remove_slice(slice_of("two", name="hdls1-1"))
    assert made.names_of("172.0.0.2") == []


def test_nothing_is_left_of_what_is_gone() -> None:
    made = DnsZone()
    for name in ("a", "b"):
        made.put_service(service(name, "10.0.0.9"))
        made.put_slice(slice_of(name, "172.0.0.1", "fd00::1"))
        assert shown(ask(server(made), f"{name}.{C}", "SRV"))[0] == "NOERROR"
    for name in ("a", "b"):
        made.remove_slice(slice_of(name))
        made.remove_service(service(name))
    left = [value for key, value in vars(made).items() if isinstance(value, dict) and value]
    assert left == []


@pytest.mark.windows("SVC-06", "SVC-07", "SVC-11")
def test_another_domain() -> None:
    made = DnsZone("Corp.Example.")
    made.put_service(service("svc1", "10.0.0.1"))
    on = server(made)
    assert shown(ask(on, "svc1.testns.svc.corp.example."))[1] == [
        "svc1.testns.svc.corp.example. 30 IN A 10.0.0.1"
    ]
    assert shown(ask(on, f"svc1.{C}"))[0] == "NXDOMAIN"
