from __future__ import annotations

from typing import Any

import pytest
from tests.proxy.objects import endpoint_slice, endpoints, port, service

from transom.proxy.tracker import PortName, ProxyEndpoint, ServiceTracker

WEB = PortName("default", "web")


@pytest.mark.parametrize(
    "skipped",
    [
        service(ip="None"),
        service(ip=""),
        service(kind="ExternalName"),
        service(labels={"service.kubernetes.io/service-proxy-name": "other"}),
        service(labels={"service.kubernetes.io/headless": ""}),
    ],
    ids=["headless", "without address", "ExternalName", "other proxy", "headless label"],
)
def test_services_that_are_not_proxied(skipped: dict[str, Any]) -> None:
    tracker = ServiceTracker()
    assert not tracker.put_service(skipped)
    tracker.put_service(service())
    assert tracker.put_service(skipped)  # one that was proxied is no longer
    assert not tracker.service_ports


def test_what_a_port_says() -> None:
    tracker = ServiceTracker()
    shape = service(
        kind="LoadBalancer",
        ports=[port(80, "http", "web", node=30080), port(53, 53, "dns", "UDP")],
        ingress=["203.0.113.5"],
        externalIPs=["198.51.100.1"],
        externalTrafficPolicy="Local",
        healthCheckNodePort=32000,
        sessionAffinity="ClientIP",
        sessionAffinityConfig={"clientIP": {"timeoutSeconds": 60}},
        loadBalancerSourceRanges=[" 192.0.2.0/24"],
        annotations={"preserve-destination": "true", "other": "x"},
    )
    tracker.put_service(shape)
    found = tracker.service_ports[PortName("default", "web", "web")]
    assert (found.cluster_ip(), found.cluster_ip(ipv6=True)) == ("10.96.0.10", "")
    assert (found.port, found.target_port, found.node_port, found.protocol) == (
        80,
        "http",
        30080,
        "TCP",
    )
    assert (found.external_ips, found.ingress_ips, found.source_ranges) == (
        ("198.51.100.1",),
        ("203.0.113.5",),
        ("192.0.2.0/24",),
    )
    assert (found.external_local, found.affinity, found.affinity_seconds) == (True, "ClientIP", 60)
    assert found.annotations == {"preserve-destination": "true"}
    assert tracker.health_checks == {("default", "web"): 32000}
    assert tracker.service_ports[PortName("default", "web", "dns", "UDP")].port == 53
    shape["metadata"]["annotations"]["other"] = "y"
    assert not tracker.put_service(shape)  # nothing that a proxier reads


def test_only_ready_endpoints_of_supported_kinds() -> None:
    tracker = ServiceTracker()
    tracker.put_slice(endpoint_slice(pods=[("10.244.2.5", "b")], unready=[("10.244.2.6", "b")]))
    tracker.put_slice(endpoint_slice(pods=[("web.example.com", "")], kind="FQDN", suffix="2"))
    assert tracker.endpoints == {WEB: (ProxyEndpoint("10.244.2.5", 8080, "b"),)}
    unknown = endpoint_slice(pods=[("10.244.2.7", "b")], suffix="3")
    unknown["endpoints"][0]["conditions"] = {}
    tracker.put_slice(unknown)
    assert [e.address for e in tracker.endpoints[WEB]] == ["10.244.2.5", "10.244.2.7"]


def test_terminating_endpoints_are_returned_on_request() -> None:
    going = endpoint_slice(pods=[("10.244.2.5", "b")])
    going["endpoints"][0]["conditions"] = {"ready": False, "serving": True, "terminating": True}
    for wanted, expected in ((False, []), (True, [(False, True)])):
        tracker = ServiceTracker(terminating=wanted)
        tracker.put_slice(going)
        assert [(e.ready, e.terminating) for e in tracker.endpoints.get(WEB, ())] == expected


@pytest.mark.parametrize(
    "printed",
    [
        {"nodeName": "a"},
        {"topology": {"kubernetes.io/hostname": "a"}},
        {"deprecatedTopology": {"kubernetes.io/hostname": "a"}},
    ],
)
def test_where_an_endpoint_is(printed: dict[str, Any]) -> None:
    """By a slice of either version, and as they are stored: 1.20 has no field for it."""
    tracker = ServiceTracker()
    found = endpoint_slice(pods=[("10.0.0.1", "a")])
    del found["endpoints"][0]["topology"]
    found["endpoints"][0].update(printed)
    tracker.put_slice(found)
    assert [e.node for ends in tracker.endpoints.values() for e in ends] == ["a"]


def test_an_address_in_two_slices_counts_once() -> None:
    tracker = ServiceTracker()
    tracker.put_slice(endpoint_slice(pods=[("10.244.2.5", "b"), ("10.244.1.5", "a")]))
    tracker.put_slice(endpoint_slice(pods=[("10.244.2.5", "a")], suffix="2"))
    found = tracker.endpoints[WEB]
    assert [e.address for e in found] == ["10.244.1.5", "10.244.2.5"]
    assert found[1].is_local("a") and found[1].is_local("b") and not found[1].is_local("")
    tracker.remove_slice(endpoint_slice(suffix="1"))
    assert tracker.endpoints[WEB] == (ProxyEndpoint("10.244.2.5", 8080, "a"),)
    tracker.remove_slice(endpoint_slice(suffix="2"))
    assert not tracker.endpoints


def test_both_sources_give_the_same() -> None:
    slices, whole = ServiceTracker("slices"), ServiceTracker("endpoints")
    pods = [("10.244.1.5", "a"), ("10.244.2.5", "b")]
    for tracker in (slices, whole):
        tracker.put_slice(endpoint_slice(pods=pods, name="web", unready=[("10.244.3.1", "c")]))
        tracker.put_endpoints(endpoints(pods=pods, name="web", unready=[("10.244.3.1", "c")]))
    assert slices.endpoints == whole.endpoints
    for tracker in (slices, whole):
        tracker.remove_slice(endpoint_slice())
        tracker.remove_endpoints(endpoints())
        assert not tracker.endpoints


def test_a_slice_that_changes_service() -> None:
    tracker = ServiceTracker()
    tracker.put_slice(endpoint_slice("web", [("10.244.1.5", "a")]))
    moved = endpoint_slice("web", [("10.244.1.5", "a")])
    moved["metadata"]["labels"]["kubernetes.io/service-name"] = "api"
    tracker.put_slice(moved)
    assert list(tracker.endpoints) == [PortName("default", "api")]


def test_listeners_and_cursors_get_all_ports_of_what_changed() -> None:
    tracker = ServiceTracker()
    recorded: list[tuple[PortName, ...]] = []
    tracker.listeners.append(recorded.append)
    two = [port(80, name="a"), port(90, name="b")]
    a, b = PortName("default", "web", "a"), PortName("default", "web", "b")
    tracker.put_service(service(ports=two))
    assert recorded == [(a, b)]
    everything, cursor = tracker.changed_since(0)
    assert everything == (a, b)
    assert tracker.changed_since(cursor) == ((), cursor)
    tracker.put_service(service(ports=two))
    assert len(recorded) == 1
    tracker.put_service(service("other", ip="10.96.0.11"))
    tracker.put_service(service(ports=two[:1]))
    changed, cursor = tracker.changed_since(cursor)
    assert changed == (PortName("default", "other"), a, b)
    tracker.remove_service(service("other"))
    assert tracker.changed_since(cursor)[0] == (PortName("default", "other"),)


def test_a_reader_that_was_away_too_long_starts_over() -> None:
    tracker = ServiceTracker()
    tracker.put_service(service("first", ip="10.96.0.1"))
    _, early = tracker.changed_since(0)
    for n in range(10_100):
        gone = service(f"s{n}", ip="10.96.1.1")
        tracker.put_service(gone)
        tracker.remove_service(gone)
    assert tracker.changed_since(early)[0] is None
    assert len(tracker._journal) < 10_100


def test_nothing_is_initialized_before_both_lists() -> None:
    tracker = ServiceTracker()
    tracker.mark_synced("services")
    assert not tracker.initialized
    tracker.mark_synced("endpoints")
    assert tracker.initialized


def test_one_change_among_many_costs_one_service() -> None:
    tracker = ServiceTracker()
    for n in range(1000):
        tracker.put_service(service(f"s{n}", ip=f"10.96.{n // 250}.{n % 250 + 1}"))
        tracker.put_slice(
            endpoint_slice(f"s{n}", [(f"10.244.{n % 200}.{i}", f"node{i}") for i in range(1, 6)])
        )
    cursor = tracker.sequence
    for i in range(100):
        tracker.put_slice(endpoint_slice("s7", [(f"10.244.7.{i + 1}", "node1")]))
        changed, cursor = tracker.changed_since(cursor)
        assert changed == (PortName("default", "s7"),)
