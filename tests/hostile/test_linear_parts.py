"""Work of the API server, controllers and nodes that grows with one object, but not with its square:
the cases of `test_linear` for allocation, proxies, kubelets and tables.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from tests.conftest import ROOT
from tests.hostile.test_linear import MAX_LINES_RATIO, Work, kind_of, lines, validating
from tests.kubelet.test_status import AROUND, UP
from tests.kubelet.test_status import container as runtime_container
from tests.proxy.objects import endpoint_slice, port, service

from transom.apiserver.core.allocators import ServiceAllocators
from transom.apiserver.core.strategies import services
from transom.apiserver.core.watch import _with_version
from transom.controllers.deployment.sets import (
    HASH_LABEL,
    TemplateComparison,
    find_new,
    find_old,
)
from transom.kubelet.podstate import PodState
from transom.kubelet.status import generate_pod_status
from transom.machinery import rbac, selectors
from transom.machinery.tables import network
from transom.machinery.validation import cron
from transom.node.relay import MOST_RELAYS, wanted_relays
from transom.proxy.policy.rules import MOST_PEERS, compile_policy
from transom.proxy.tracker import MOST_ENDPOINTS, MOST_PORTS, ServiceTracker
from transom.store.api import StoreRecord
from transom.web.apply_changes import configuration_to_apply

STORAGE_CLASS, CSI_NODE = map(kind_of, ("StorageClass", "CSINode"))


def storage_class(n: int, *, many_terms: bool) -> dict[str, Any]:
    values = [f"v{i}" for i in range(n)]
    terms = (
        [{"matchLabelExpressions": [{"key": "k", "values": [v]}]} for v in values]
        if many_terms
        else [{"matchLabelExpressions": [{"key": "k", "values": values}]}]
    )
    return {
        "metadata": {"name": "a"},
        "provisioner": "p",
        "volumeBindingMode": "Immediate",
        "allowedTopologies": terms,
    }


def csi_node(n: int) -> dict[str, Any]:
    drivers = [{"name": f"d{i}", "nodeID": "n"} for i in range(n)]
    return {"metadata": {"name": "a"}, "spec": {"drivers": drivers}}


def allocating(n: int, *, dry_run: bool) -> Work:
    spec = {"type": "NodePort", "ports": [{"port": i + 1} for i in range(n)]}

    def work() -> None:
        allocators = ServiceAllocators("10.0.0.0/16", (20_000, 40_000), random.Random(1))
        storage: Any = SimpleNamespace(services=allocators, feature=lambda _gate: False)
        taken = services._Reservation(storage, {"metadata": {"name": "a"}}, dry_run)
        services._reserve_node_ports(taken, orjson.loads(orjson.dumps({"spec": spec})), None)

    return work


def pod_status(n: int) -> Work:
    specs = [{"name": f"c{i}", "image": "i"} for i in range(n)]
    pod = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"containers": specs},
        "status": {"qosClass": "BestEffort"},
    }
    containers = [runtime_container(f"c{i}") for i in range(n)]
    return lambda: generate_pod_status(pod, PodState(UP, containers), {}, {}, AROUND)


def matching(n: int) -> Work:
    labels = {f"k{i}": "v" for i in range(n)}
    return lambda: selectors.from_map(labels).matches(labels)


def applied_fields(n: int) -> Work:
    managers = [{"manager": f"m{i}", "fieldsV1": {"f:data": {f"f:k{i}": {}}}} for i in range(n)]
    before: dict[str, Any] = {
        "metadata": {"name": "a", "managedFields": managers},
        "data": {f"k{i}": "v" for i in range(n)},
    }
    return lambda: configuration_to_apply(before, {**before, "data": {**before["data"], "k": "v"}})


class _Counted:
    """A value whose comparison runs lines, unlike that of a number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Counted) and self.number == other.number

    __hash__ = object.__hash__


def applied_levels(n: int) -> Work:
    """The values of all levels are compared once, not once for each level above them."""

    def obj(number: int) -> dict[str, Any]:
        spec: dict[str, Any] = {}
        for level in range(n // 10):  # recursion has a limit
            spec = {"value": _Counted(level or number), "below": spec}
        return {"metadata": {"name": "a"}, "spec": spec}

    return lambda: configuration_to_apply(obj(-1), obj(-2))


CASES: dict[str, Callable[[int], Work]] = {
    "validation: values of a topology": lambda n: validating(
        STORAGE_CLASS, storage_class(n, many_terms=False)
    ),
    "validation: terms of a topology": lambda n: validating(
        STORAGE_CLASS, storage_class(n, many_terms=True)
    ),
    "validation: drivers of a node": lambda n: validating(CSI_NODE, csi_node(n)),
    "validation: schedule": lambda n: (
        lambda: cron.check_schedule(",".join(str(i % 60) for i in range(n)) + " * * * *")
    ),
    "allocation: node ports": lambda n: allocating(n, dry_run=False),
    "allocation: node ports of a dry run": lambda n: allocating(n, dry_run=True),
    "kubelet: status": pod_status,
    "selector: from a map": matching,
    "console: fields of many managers": applied_fields,
    "console: an object of many levels": applied_levels,
    "RBAC: aggregation": lambda n: (
        lambda: rbac.aggregated_rules(
            {
                "metadata": {"name": "a"},
                "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"l": "v"}}]},
            },
            [
                {
                    "metadata": {"name": "b", "labels": {"l": "v"}},
                    "rules": [{"verbs": [f"v{i}"], "resources": ["r"]} for i in range(n)],
                }
            ],
        )
    ),
}


def count_lines(name: str) -> tuple[int, int]:
    """The lines that run for a number of items, and for four times as many."""
    make = CASES[name]
    make(100)()  # fills caches
    return lines(make(300)), lines(make(1200))


@pytest.fixture(scope="module")
def counted_lines() -> dict[str, tuple[int, int]]:
    """Counted in a process of its own: tracing is slow in one that has run thousands of tests."""
    command = [sys.executable, "-m", "tests.hostile.test_linear_parts"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    counted: dict[str, tuple[int, int]] = orjson.loads(done.stdout)
    return counted


@pytest.mark.parametrize("name", CASES)
def test_lines_of_other_parts_grow_with_size(
    name: str, counted_lines: dict[str, tuple[int, int]]
) -> None:
    small, large = counted_lines[name]
    assert large <= MAX_LINES_RATIO * small, (small, large)


# ---- bounds ----


def test_a_proxy_uses_a_bounded_number_of_ports_and_addresses() -> None:
    tracker = ServiceTracker()
    ips = [f"10.{i >> 8}.{i & 255}.1" for i in range(3000)]
    many = service(ports=[port(i + 1, name=f"p{i}") for i in range(20_000)], externalIPs=ips)
    tracker.put_service(many)
    assert len(tracker.service_ports) == MOST_PORTS
    programmed = sum(len(each.external_ips) for each in tracker.service_ports.values())
    assert programmed <= MOST_ENDPOINTS
    assert not tracker.put_service(many)


def test_a_proxy_uses_a_bounded_number_of_endpoints() -> None:
    tracker = ServiceTracker()
    found = endpoint_slice()
    found["endpoints"] = [{"addresses": [f"10.0.{i >> 8}.{i & 255}"]} for i in range(1000)]
    found["ports"] = [{"port": i + 1, "name": f"p{i}"} for i in range(20_000)]
    tracker.put_slice(found)
    assert 0 < sum(map(len, tracker.endpoints.values())) <= MOST_ENDPOINTS


def test_a_service_has_a_bounded_number_of_relays() -> None:
    node_ports = [port(i + 1, name=f"p{i}", node=30_000 + i) for i in range(2_700)]
    many = service(kind="LoadBalancer", ports=node_ports, ingress=["203.0.113.5"])
    assert len(wanted_relays(many)) <= MOST_RELAYS + 1


def test_a_policy_has_a_bounded_number_of_peers() -> None:
    peers = [{"podSelector": {"matchLabels": {"a": f"b{i}"}}} for i in range(5)]
    policy = {
        "metadata": {"namespace": "n", "name": "p"},
        "spec": {"podSelector": {}, "ingress": [{"from": peers} for _ in range(8_000)]},
    }
    compiled = compile_policy(policy)
    assert compiled.ingress is not None
    assert len(compiled.ingress) == MOST_PEERS // 5


def test_the_column_of_endpoints_counts_pairs_without_making_them() -> None:
    subset = {
        "addresses": [{"ip": f"10.0.{i >> 8}.{i & 255}"} for i in range(10_000)],
        "ports": [{"port": i + 1} for i in range(10_000)],
    }
    obj = {"metadata": {"name": "a"}, "subsets": [subset]}
    cell = network.print_endpoints(obj, 0.0)[1]
    assert cell == "10.0.0.0:1,10.0.0.1:1,10.0.0.2:1 + 99999997 more..."


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"involvedObject": {"resourceVersion": "7"}},
        {"data": {"k": '"resourceVersion":"7"'}},
    ],
    ids=["plain", "twice", "in a string"],
)
def test_the_last_state_of_a_deleted_object_has_the_version_of_its_deletion(
    more: dict[str, Any],
) -> None:
    body = {"metadata": {"name": "a", "resourceVersion": "7"}, **more}
    made = orjson.loads(_with_version(StoreRecord("k", orjson.dumps(body), 1, 7), 9))
    assert made == {**body, "metadata": {"name": "a", "resourceVersion": "9"}}


def test_the_peers_of_a_rule_are_found_without_looking_at_all_labels() -> None:
    peers = [{"podSelector": {"matchLabels": {"a": f"b{i}"}}} for i in range(5)]
    peers.append({"podSelector": {"matchExpressions": [{"key": "k7", "operator": "Exists"}]}})
    policy = {
        "metadata": {"namespace": "n", "name": "p"},
        "spec": {"podSelector": {}, "ingress": [{"from": peers}]},
    }
    (clause,) = compile_policy(policy).ingress or ()
    labels = {f"k{i}": "v" for i in range(10_000)}
    found: list[Any] = []
    assert lines(lambda: found.extend(clause.index.candidates(labels))) < 100
    assert len(found) == 1
    few = {"a": "b3", "k7": ""}
    assert len([*clause.index.candidates(few)]) == 2
    assert len([*clause.index.candidates({**labels, **few})]) == 2


def test_a_sync_of_a_deployment_compares_each_template_once() -> None:
    env = [{"name": f"E{i}"} for i in range(100)]
    labels = {f"k{i}": "v" for i in range(1_000)}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"env": env}]}}
    deployment = {"spec": {"template": template}}
    owned = {
        "metadata": {"name": "r", "uid": "u", "creationTimestamp": "2020-01-01T00:00:00Z"},
        "spec": {"template": {**template, "metadata": {"labels": {**labels, HASH_LABEL: "h"}}}},
    }
    same = TemplateComparison()
    assert find_new(deployment, [owned], same) is owned
    assert lines(lambda: find_old(deployment, [owned], same)) < 100
    assert find_old(deployment, [owned], same) == []


def test_the_selector_of_a_workload_is_built_once() -> None:
    labels = {f"k{i}": "v" for i in range(1_000)}
    owner = {"metadata": {"uid": "u"}, "spec": {"selector": {"matchLabels": labels}}}
    built = selectors.owner_selector(owner)
    assert lines(lambda: selectors.owner_selector(owner)) < 50
    changed = {**owner, "spec": {"selector": {"matchLabels": {"a": "b"}}}}
    assert str(built) != str(selectors.owner_selector(changed)) == "a=b"


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps({name: count_lines(name) for name in CASES}))
