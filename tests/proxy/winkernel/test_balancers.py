"""Which load balancers a service has, by its shape, the flags, the release and the build."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.proxy.objects import port, service
from tests.proxy.winkernel.nodes import NODE, OTHER, Node

from transom.kit.prometheus import render_metrics
from transom.proxy.winkernel.failures import balancer_failure_metrics

HERE, THERE = ("10.244.1.5", NODE), ("10.244.2.5", OTHER)
BOTH, OWN = ["10.244.1.5", "10.244.2.5"], ["10.244.1.5"]
LOCAL = {"externalTrafficPolicy": "Local"}
PRESERVE = {"preserve-destination": "true"}
DSR, ROUTED, MUX_DIP = 1, 2, 4 + 8


def rows(node: Node) -> dict[tuple[str, int], tuple[Any, ...]]:
    return {key: (b["to"], b["flags"], b["mapping"]) for key, b in node.balancers().items()}


def made(
    shape: dict[str, Any], *, build: int = 17763, **options: Any
) -> dict[tuple[str, int], tuple[Any, ...]]:
    node = Node(build=build, **options)
    node.pod(HERE[0])
    node.put(shape, HERE, THERE)
    node.sync()
    return rows(node)


CLUSTER = ("10.96.0.10", 80)
WITH_DSR = {"enable_dsr": True, "gates": {"WinDSR": True}}
NODE_PORT = service(kind="NodePort", ports=[port(node=30080)])
BALANCED = service(
    kind="LoadBalancer",
    ports=[port(node=30080)],
    ingress=["203.0.113.50"],
    externalIPs=["198.51.100.1"],
)
LOCAL_BALANCED = service(
    kind="LoadBalancer",
    ports=[port(node=30080)],
    ingress=["203.0.113.50"],
    externalIPs=["198.51.100.1"],
    externalTrafficPolicy="Local",
    healthCheckNodePort=32000,
)
PRESERVED = service(
    kind="LoadBalancer", ports=[port(node=30080)], ingress=["203.0.113.50"], annotations=PRESERVE
)
VIP, ANY, EXTERNAL = ("203.0.113.50", 80), ("", 30080), ("198.51.100.1", 80)

TABLE = [
    ("cluster", service(), {}, {CLUSTER: (BOTH, 0, 0)}),
    ("cluster, DSR", service(), WITH_DSR, {CLUSTER: (BOTH, DSR, 0)}),
    ("node port", NODE_PORT, {}, {CLUSTER: (BOTH, 0, 0), ANY: (BOTH, 0, ROUTED)}),
    ("node port, DSR", NODE_PORT, WITH_DSR, {CLUSTER: (BOTH, DSR, 0), ANY: (BOTH, 0, ROUTED)}),
    (
        "load balancer",
        BALANCED,
        {},
        {CLUSTER: (BOTH, 0, 0), ANY: (BOTH, 0, ROUTED), EXTERNAL: (BOTH, 0, 0), VIP: (BOTH, 0, 0)},
    ),
    (
        "local, without the flag",
        LOCAL_BALANCED,
        {},
        {
            CLUSTER: (BOTH, 0, 0),
            ANY: (OWN, DSR, ROUTED),
            EXTERNAL: (OWN, DSR, 0),
            VIP: (OWN, DSR, 0),
        },
    ),
    (
        "local, 1.19",
        LOCAL_BALANCED,
        {"release": (1, 19)},
        {CLUSTER: (BOTH, 0, 0), ANY: (BOTH, 0, ROUTED), EXTERNAL: (BOTH, 0, 0), VIP: (BOTH, 0, 0)},
    ),
    (
        "preserved",
        PRESERVED,
        {"build": 18362},
        {CLUSTER: (BOTH, 0, 0), ANY: (OWN, 0, ROUTED), VIP: (OWN, DSR, MUX_DIP)},
    ),
    (
        "preserved, 2019",
        PRESERVED,
        {},
        {CLUSTER: (BOTH, 0, 0), ANY: (OWN, 0, ROUTED), VIP: (OWN, DSR, 0)},
    ),
    (
        "preserved, 1.17",
        PRESERVED,
        {"release": (1, 17), "build": 18362},
        {CLUSTER: (BOTH, 0, 0), ANY: (BOTH, 0, ROUTED), VIP: (OWN, DSR, MUX_DIP)},
    ),
    (
        "preserved, 1.14",
        PRESERVED,
        {"release": (1, 14)},
        {CLUSTER: (BOTH, 0, 0), ANY: (BOTH, 0, 0), VIP: (BOTH, 0, 0)},
    ),
    (
        "ingress had DSR by the flag until 1.19",
        BALANCED,
        {**WITH_DSR, "release": (1, 19)},
        {
            CLUSTER: (BOTH, DSR, 0),
            ANY: (BOTH, 0, ROUTED),
            EXTERNAL: (BOTH, 0, 0),
            VIP: (BOTH, DSR, 0),
        },
    ),
    (
        "and not since",
        BALANCED,
        WITH_DSR,
        {
            CLUSTER: (BOTH, DSR, 0),
            ANY: (BOTH, 0, ROUTED),
            EXTERNAL: (BOTH, 0, 0),
            VIP: (BOTH, 0, 0),
        },
    ),
]


@pytest.mark.windows(
    "WIN-SVC-005", "WIN-SVC-006", "WIN-SVC-010", "WIN-SVC-011", "LB-07", "LB-08", "LB-13", "LB-14"
)
@pytest.mark.parametrize(
    ("shape", "options", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_load_balancers_by_shape(
    shape: dict[str, Any], options: dict[str, Any], expected: dict[Any, Any]
) -> None:
    assert made(shape, **options) == expected


@pytest.mark.windows("WIN-SVC-008")
def test_a_platform_without_dsr_ignores_what_needs_it() -> None:
    # 1803 has neither DSR nor the second version of the API.
    expected = {
        CLUSTER: (BOTH, 0, 0),
        ANY: (BOTH, 0, ROUTED),
        EXTERNAL: (BOTH, 0, 0),
        VIP: (BOTH, 0, 0),
    }
    assert made(LOCAL_BALANCED, build=17134) == expected
    assert made(PRESERVED, build=17134) == {
        CLUSTER: (BOTH, 0, 0),
        ANY: (BOTH, 0, ROUTED),
        VIP: (BOTH, 0, 0),
    }


def test_protocols_and_names() -> None:
    node = Node()
    node.pod(HERE[0])
    node.tracker.put_service(
        service(
            ports=[port(53, 53, "dns", "UDP"), port(53, 53, "dns-tcp"), port(90, 90, "s", "SCTP")]
        )
    )
    for name, protocol, number in (("dns", "UDP", 53), ("dns-tcp", "TCP", 54), ("s", "SCTP", 90)):
        node.put_pods("web", HERE, name=name, protocol=protocol, number=number, suffix=name)
    node.sync()
    found = {
        (b["PortMappings"][0]["Protocol"], b["PortMappings"][0]["InternalPort"])
        for b in node.hns.loadbalancers.values()
    }
    assert found == {
        (17, 53),
        (6, 53),
        (132, 90),
    }  # the target port is the service's, not the endpoints'


@pytest.mark.windows("WIN-SVC-015")
def test_a_named_target_port_is_the_first_endpoints() -> None:
    node = Node(source="endpoints")
    node.put(service(ports=[port(80, "http")]))
    made = {
        "metadata": {"namespace": "default", "name": "web"},
        "subsets": [
            {"addresses": [{"ip": "10.244.2.5"}], "ports": [{"port": 8080, "protocol": "TCP"}]},
            {"addresses": [{"ip": "10.244.2.6"}], "ports": [{"port": 9090, "protocol": "TCP"}]},
        ],
    }
    node.tracker.put_endpoints(made)
    node.sync()
    assert node.balancers()[CLUSTER]["port"] == 8080
    assert node.balancers()[CLUSTER]["to"] == ["10.244.2.5", "10.244.2.6"]


@pytest.mark.windows("WIN-SVC-015")
@pytest.mark.parametrize(
    ("release", "target", "used"),
    [
        ((1, 33), 80, 80),
        ((1, 33), "http", 8080),
        ((1, 34), 80, 9090),
        ((1, 34), "http", 9090),
    ],
)
def test_the_port_of_backends_with_different_ports(
    release: tuple[int, int], target: int | str, used: int
) -> None:
    """Since 1.34 also a service without a selector may have another port than its slices."""
    node = Node(release=release)
    node.put(service(ports=[port(80, target)]))
    for n, number in enumerate((8080, 9090)):
        node.put_pods("web", (f"10.244.2.{n + 5}", OTHER), number=number, suffix=str(n))
    node.sync()
    assert node.balancers()[CLUSTER]["port"] == used


@pytest.mark.windows("WIN-SVC-002", "WIN-SVC-003", "WIN-SVC-004", "LB-02")
@pytest.mark.parametrize(
    ("build", "release", "distribution", "warned"),
    [
        (17763, (1, 20), 0, True),
        (20348, (1, 20), 2, False),
        (20348, (1, 18), 0, False),
        (17763, (1, 18), 0, False),
    ],
)
def test_affinity(
    build: int,
    release: tuple[int, int],
    distribution: int,
    warned: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node(build=build, release=release)
    shape = service(
        sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 5}}
    )
    node.put(shape, THERE)
    with caplog.at_level(logging.WARNING, "transom.proxy"):
        node.sync()
    assert node.balancers()[CLUSTER]["distribution"] == distribution
    assert (
        "Session Affinity is not supported on this version of Windows." in caplog.messages
    ) is warned


@pytest.mark.windows("WIN-SVC-013", "WIN-SVC-014")
def test_source_ranges_and_topology_change_nothing() -> None:
    plain = made(service(kind="LoadBalancer", ingress=["203.0.113.50"]))
    assert (
        made(
            service(
                kind="LoadBalancer",
                ingress=["203.0.113.50"],
                loadBalancerSourceRanges=["192.0.2.0/24"],
                topologyKeys=["kubernetes.io/hostname"],
            )
        )
        == plain
    )


@pytest.mark.windows("WIN-SVC-016")
def test_each_family_has_a_proxier_of_its_own() -> None:
    shape = service(
        ip="10.96.0.10", clusterIPs=["10.96.0.10", "fd00:96::10"], ipFamilies=["IPv4", "IPv6"]
    )
    pods = (("10.244.2.5", OTHER), ("fd00:2::5", OTHER))
    for ipv6, key, to, flags in (
        (False, CLUSTER, pods[0][0], 0),
        (True, ("fd00:96::10", 80), pods[1][0], 2),
    ):
        node = Node(build=20348, ipv6=ipv6)
        node.tracker.put_service(shape)
        node.put_pods("web", pods[0])
        node.put_pods("web", pods[1], suffix="6", kind="IPv6")
        node.sync()
        assert rows(node) == {key: ([to], flags, 0)}
        assert node.remotes()[to]["MacAddress"] == (
            "02-11-05-00-00-00" if ipv6 else "02-11-0a-f4-02-05"
        )


@pytest.mark.windows("WIN-SVC-001", "LNET-08")
def test_65_backends_leave_the_service_without_a_load_balancer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node()
    pods = [(f"10.244.2.{n}", OTHER) for n in range(1, 66)]
    node.put(service(kind="NodePort", ports=[port(node=30080)]), *pods)
    with caplog.at_level(logging.ERROR, "transom.proxy"):
        node.sync()
    assert rows(node) == {}
    assert caplog.messages[-1] == (
        "Policy creation failed: hcnCreateLoadBalancer failed in Win32: The parameter is "
        "incorrect. (0x57) "
        '{"Success":false,"Error":"The parameter is incorrect. Unable to initialize VFP LB '
        "rule: invalid number of "
        'destinations.","ErrorCode":2147942487}'
    )
    node.put_pods("web", *pods[:64])
    node.sync()
    assert len(node.balancers()[CLUSTER]["to"]) == 64


@pytest.mark.windows("WIN-SVC-001")
@pytest.mark.parametrize("minor", [36, 37])
def test_metrics_count_load_balancers_that_could_not_be_created(minor: int) -> None:
    node = Node(release=(1, minor))
    assert balancer_failure_metrics(node.proxier.failures()) == []
    pods = [(f"10.244.2.{n}", OTHER) for n in range(1, 66)]
    node.put(service(kind="NodePort", ports=[port(node=30080)]), *pods)
    node.sync()
    found = render_metrics(balancer_failure_metrics(node.proxier.failures()))
    assert found == (
        ""
        if minor == 36
        else "# HELP kubeproxy_sync_proxy_rules_winkernel_lb_create_failures_total [ALPHA] "
        "Cumulative proxy winkernel lb create failures\n"
        "# TYPE kubeproxy_sync_proxy_rules_winkernel_lb_create_failures_total counter\n"
        "kubeproxy_sync_proxy_rules_winkernel_lb_create_failures_total"
        '{error="other",ip_family="IPv4",lb_type="clusterip"} 1\n'
    )


@pytest.mark.windows("W-SVC-14", "W-SVC-15")
@pytest.mark.parametrize(
    ("shape", "options", "there", "number"),
    [
        (LOCAL_BALANCED, {"forward_health_checks": True}, True, 32000),
        (BALANCED, {"forward_health_checks": True}, True, 10256),
        (BALANCED, {"forward_health_checks": True, "root_endpoint": "cbr0_ep"}, False, 10256),
        (BALANCED, {}, False, 10256),
    ],
)
def test_health_checks_of_load_balancers_are_forwarded_to_the_node(
    shape: dict[str, Any], options: dict[str, Any], there: bool, number: int
) -> None:
    node = Node(**options)
    network = next(iter(node.hns.networks))
    settings = {
        "Name": "cbr0",
        "HostComputeNetwork": network,
        "IpConfigurations": [{"IpAddress": "10.244.1.2"}],
    }
    node.hns.create("endpoint", settings)
    node.pod(HERE[0])
    node.put(shape, HERE, THERE)
    node.sync()
    key = ("203.0.113.50", number)
    assert (rows(node).get(key) == (["10.244.1.2"], 0, 0)) is there
    if there:
        assert node.balancers()[key]["port"] == number
        node.put_pods("web")  # without backends nothing answers
        node.sync()
    assert key not in rows(node)
