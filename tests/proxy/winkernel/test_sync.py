"""What changes do to a node: rebuilding, references to remote endpoints, faults, and what they
cost.
"""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.proxy.objects import endpoint_slice, endpoints, port, service
from tests.proxy.winkernel.nodes import NODE, OTHER, Node, add_network

from transom.machines.windows.hns.errors import BAD_PARAMETER

HERE, THERE = ("10.244.1.5", NODE), ("10.244.2.5", OTHER)
CLUSTER = ("10.96.0.10", 80)


def test_only_what_changed_is_touched() -> None:
    node = Node()
    node.put(service("a", ip="10.96.0.1"), THERE)
    node.put(service("b", ip="10.96.0.2"), ("10.244.2.6", OTHER))
    node.sync()
    before = {b["FrontendVIPs"][0]: key for key, b in node.hns.loadbalancers.items()}
    changes: list[tuple[str, str, str]] = []
    node.hns.listeners.append(lambda *change: changes.append(change))
    node.put_pods("b", ("10.244.2.6", OTHER), ("10.244.2.7", OTHER))
    assert node.proxier.dirty
    node.sync()
    after = {b["FrontendVIPs"][0]: key for key, b in node.hns.loadbalancers.items()}
    assert after["10.96.0.1"] == before["10.96.0.1"] and after["10.96.0.2"] != before["10.96.0.2"]
    # First everything of the service goes, then it comes back: an outage, as short as it may be.
    kinds = [(kind, what) for kind, _, what in changes]
    assert kinds == [
        ("loadbalancer", "deleted"),
        ("endpoint", "deleted"),
        ("endpoint", "created"),
        ("endpoint", "created"),
        ("loadbalancer", "created"),
    ]
    changes.clear()
    node.sync()
    assert not changes


def test_changes_that_cancel_out_are_none() -> None:
    node = Node()
    node.put(service(), THERE)
    node.sync()
    before = list(node.hns.loadbalancers)
    node.tracker.put_service(service(kind="NodePort", ports=[port(node=30080)]))
    node.tracker.put_service(service())
    node.sync()
    assert list(node.hns.loadbalancers) == before


def test_local_pods_are_never_deleted_and_must_exist(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    pod = node.pod(HERE[0])
    node.put(service(), HERE, ("10.244.1.6", NODE))
    with caplog.at_level(logging.ERROR, "transom.proxy"):
        node.sync()
    assert node.balancers()[CLUSTER]["to"] == [HERE[0]]
    assert caplog.messages == [
        (
            "Local endpoint not found for 10.244.1.6: err: Endpoint 10.244.1.6 not found on "
            "network cbr0 on network cbr0"
        )
    ]
    node.tracker.remove_service(service())
    node.put_pods("web")
    node.sync()
    assert pod in node.hns.endpoints and not node.balancers()


def test_a_service_without_endpoints_has_nothing(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.put(service())
    with caplog.at_level(logging.ERROR, "transom.proxy"):
        node.sync()
    assert caplog.messages == [
        "Endpoint information not available for service default/web. Not applying any policy"
    ]
    node.put_pods("web", THERE)
    node.sync()
    assert node.balancers()
    node.put_pods("web")
    node.sync()
    assert not node.balancers() and not node.remotes()


def test_remote_endpoints_are_shared_until_the_last_service_goes() -> None:
    node = Node()
    node.put(service("a", ip="10.96.0.1"), THERE)
    node.put(service("b", ip="10.96.0.2"), THERE)
    node.sync()
    assert list(node.remotes()) == [THERE[0]]
    node.tracker.remove_service(service("a"))
    node.sync()
    assert list(node.remotes()) == [THERE[0]] and node.balancers()["10.96.0.2", 80]["to"] == [
        THERE[0]
    ]
    node.tracker.remove_service(service("b"))
    node.sync()
    assert not node.remotes()


def test_until_1_18_one_service_takes_the_endpoint_from_the_others() -> None:
    node = Node(release=(1, 18), source="endpoints")
    node.put(service("a", ip="10.96.0.1"), THERE)
    node.put(service("b", ip="10.96.0.2"), THERE)
    node.sync()
    node.tracker.remove_service(service("a"))
    node.sync()
    assert not node.remotes()


@pytest.mark.windows("TRB-59", "TRB-84", "TRB-85")
@pytest.mark.parametrize(
    ("release", "survives"), [((1, 14), False), ((1, 18), False), ((1, 19), True), ((1, 20), True)]
)
def test_with_another_host_name_old_proxies_delete_the_pods_own_endpoint(
    release: tuple[int, int], survives: bool
) -> None:
    node = Node(hostname="WIN-OTHERNAME", release=release, node_ip="", source="endpoints")
    pod = node.pod(HERE[0])
    node.put(service(), HERE)
    node.sync()
    # found by its address, and taken for a remote one
    assert node.balancers()[CLUSTER]["to"] == [HERE[0]]
    node.put_pods("web", HERE, ("10.244.2.9", OTHER))
    node.sync()
    assert (pod in node.hns.endpoints) is survives


def test_the_network_that_went_and_came_back(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.put(service(), THERE)
    node.sync()
    node.hns.delete("network", next(iter(node.hns.networks)))
    node.clock.advance(30)
    assert node.proxier.dirty
    with caplog.at_level(logging.INFO, "transom.proxy"):
        node.sync()
    text = (
        "The HNS network cbr0 is not present or has changed since the last sync. Please check "
        "the CNI deployment"
    )
    assert text in caplog.messages and not node.hns.loadbalancers
    add_network(node.hns)
    for _ in range(2):  # the first one only takes note of the new network
        node.clock.advance(30)
        node.sync()
    assert node.balancers()[CLUSTER]["to"] == [THERE[0]]


@pytest.mark.windows("WIN-SVC-012", "LB-07", "LB-13")
@pytest.mark.parametrize(("release", "ports"), [((1, 20), [80]), ((1, 21), [80])])
def test_local_policy_without_a_local_pod(
    release: tuple[int, int], ports: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(release=release)
    node.put(
        service(kind="NodePort", ports=[port(node=30080)], externalTrafficPolicy="Local"), THERE
    )
    with caplog.at_level(logging.WARNING, "transom.proxy"):
        node.sync()
        node.clock.advance(30)
        node.sync()
    assert [external for _, external in node.balancers()] == ports
    # Until 1.20 an empty load balancer is asked for at every sync, and refused.
    refused = [m for m in caplog.messages if m.startswith("Policy creation failed: ")]
    again = [m for m in caplog.messages if m.startswith("Load Balancer already exists ")]
    assert (len(refused), len(again)) == ((2, 1) if release == (1, 20) else (0, 0))


def test_a_refused_node_port_ends_the_service_and_is_tried_again() -> None:
    node = Node()
    shape = service(kind="LoadBalancer", ports=[port(node=30080)], ingress=["203.0.113.50"])
    node.put(shape, THERE)
    node.tracker.put_service(
        service("taker", ip="10.96.0.99", kind="NodePort", ports=[port(81, node=30080)])
    )
    node.put_pods("taker", THERE, ("10.244.2.6", OTHER))
    node.sync()
    # Both want the node port; the first has it, the second has neither that nor what comes after
    # it.
    assert set(node.balancers()) == {("10.96.0.99", 81), ("", 30080), CLUSTER}
    node.tracker.remove_service(service("taker"))
    node.sync()
    assert set(node.balancers()) == {CLUSTER, ("", 30080), ("203.0.113.50", 80)}


def test_a_refused_ingress_address_is_not_tried_again() -> None:
    node = Node()
    node.put(service(kind="LoadBalancer", ingress=["203.0.113.50"]), THERE)
    node.hns.faults.fail_next("CreateLoadBalancer", BAD_PARAMETER)
    node.sync()
    assert not node.balancers()  # the fault hit the cluster address: all of it is tried again
    node.clock.advance(30)
    node.sync()
    assert set(node.balancers()) == {CLUSTER, ("203.0.113.50", 80)}


def test_endpoints_that_cannot_be_deleted_stay_behind(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.put(service(), THERE)
    node.sync()
    node.hns.faults.refuse_deletes = "Access is denied."
    node.put_pods("web", ("10.244.2.6", OTHER))
    with caplog.at_level(logging.ERROR, "transom.proxy"):
        node.sync()
    assert caplog.messages[0].startswith("Endpoint deletion failed for 10.244.2.5: ")
    assert sorted(node.remotes()) == ["10.244.2.5", "10.244.2.6"]


def test_a_load_balancer_for_the_same_frontend_is_reused_with_other_endpoints() -> None:
    """The number of endpoints, not which, is compared."""
    node = Node()
    node.put(service("a", ip="10.96.0.1", externalIPs=["198.51.100.1"]), THERE)
    node.put(service("b", ip="10.96.0.2", externalIPs=["198.51.100.1"]), ("10.244.2.6", OTHER))
    node.sync()
    assert node.balancers()["198.51.100.1", 80]["to"] == [THERE[0]]


def test_the_port_of_a_name_stays_the_first_one_seen() -> None:
    node = Node()
    node.put(service(ports=[port(80, "http")]), THERE, number=8080)
    node.sync()
    node.put_pods("web", THERE, number=9090)
    node.sync()
    assert node.balancers()[CLUSTER]["port"] == 8080


# ---- the law ----

_PODS = [(f"10.244.{n // 4 + 1}.{n + 5}", NODE if n < 4 else OTHER) for n in range(8)]
_SHAPES = st.sampled_from(["gone", "cluster", "node port", "external", "local", "two ports"])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("service"), st.integers(0, 3), _SHAPES),
        st.tuples(st.just("pods"), st.integers(0, 3), st.sets(st.integers(0, 7), max_size=4)),
        st.tuples(st.just("sync"), st.just(0), st.just("")),
    ),
    max_size=30,
)


def _service(n: int, shape: str) -> dict[str, object]:
    name, ip = f"s{n}", f"10.96.0.{n + 1}"
    match shape:
        case "node port":
            return service(name, ip=ip, kind="NodePort", ports=[port(node=30000 + n)])
        case "external":
            return service(name, ip=ip, externalIPs=[f"198.51.100.{n + 1}"])
        case "local":
            return service(
                name,
                ip=ip,
                kind="NodePort",
                ports=[port(node=30000 + n)],
                externalTrafficPolicy="Local",
            )
        case "two ports":
            return service(name, ip=ip, ports=[port(80), port(81, name="other")])
    return service(name, ip=ip)


def _play(node: Node, steps: list[tuple[str, int, object]], *, sync: bool) -> None:
    for kind, n, what in steps:
        if kind == "service" and what == "gone":
            node.tracker.remove_service(_service(n, "cluster"))
        elif kind == "service":
            node.tracker.put_service(_service(n, str(what)))
        elif kind == "pods":
            assert isinstance(what, set)
            pods = [_PODS[i] for i in sorted(what)]
            node.tracker.put_slice(endpoint_slice(f"s{n}", pods))
            node.tracker.put_slice(
                endpoint_slice(f"s{n}", pods[:2], name="other", number=9090, suffix="other")
            )
            both = endpoints(f"s{n}", pods)
            both["subsets"] += endpoints(f"s{n}", pods[:2], name="other", number=9090)["subsets"]
            node.tracker.put_endpoints(both)
        elif sync:
            node.sync()
    node.sync()


@settings(max_examples=150, deadline=None)
@given(
    _STEPS, st.sampled_from(["slices", "endpoints"]), st.sampled_from([(1, 19), (1, 20), (1, 21)])
)
def test_what_is_there_depends_on_the_objects_only(
    steps: list[tuple[str, int, object]], source: str, release: tuple[int, int]
) -> None:
    nodes = []
    for sync in (True, False):
        node = Node(source=source, release=release)  # type: ignore[arg-type]
        for address, where in _PODS:
            if where == NODE:
                node.pod(address)
        _play(node, steps, sync=sync)
        nodes.append(node)
    changed, fresh = nodes
    assert changed.balancers() == fresh.balancers()
    if release != (
        1,
        20,
    ):  # there, services that are refused at every sync count their endpoints at every sync
        assert sorted(changed.remotes()) == sorted(fresh.remotes())
    assert not changed.proxier.dirty


# ---- how much it does ----


def test_a_thousand_services() -> None:
    node = Node()
    for n in range(1000):
        node.put(
            service(f"s{n}", ip=f"10.96.{n // 250}.{n % 250 + 1}"),
            *((f"10.{245 + i}.{n // 250}.{n % 250 + 1}", OTHER) for i in range(5)),
        )
    node.sync()
    assert len(node.hns.loadbalancers) == 1000 and len(node.remotes()) == 5000
    recorded: list[tuple[str, str, str]] = []
    node.hns.listeners.append(lambda *change: recorded.append(change))
    node.put_pods("s7", ("10.250.0.1", OTHER))
    node.sync()
    # Of one service: its load balancer and five endpoints go, a load balancer and an endpoint come.
    assert {kind for kind, _, _ in recorded} <= {"endpoint", "loadbalancer"} and len(recorded) < 20
