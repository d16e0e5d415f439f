from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.machinery import quota
from transom.machinery.quantity import ZERO, Quantity
from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet

NOW = 1_600_000_000.0


def usage(plural: str, obj: dict[str, Any], group: str = "") -> dict[str, str]:
    evaluator = quota.evaluator_for(group, plural)
    assert evaluator is not None
    return quota.format_amounts(evaluator.usage({"metadata": {"name": "x"}, **obj}, NOW))


def container(**resources: dict[str, str]) -> dict[str, Any]:
    return {"name": "c", "resources": resources}


def test_a_pod_costs_the_sum_of_its_containers_or_its_largest_init_container_and_the_overhead() -> (
    None
):
    spec = {
        "containers": [
            container(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "2"}),
            container(requests={"cpu": "500m"}),
        ],
        "initContainers": [
            container(requests={"cpu": "2", "memory": "1Mi"}),
            container(requests={"cpu": "1"}),
        ],
        "overhead": {"cpu": "100m"},
    }
    assert usage("pods", {"spec": spec}) == {
        "count/pods": "1",
        "pods": "1",
        "cpu": "2100m",
        "requests.cpu": "2100m",
        "limits.cpu": "2100m",
        "memory": "1Gi",
        "requests.memory": "1Gi",
    }


def test_extended_resources_and_huge_pages_are_counted_by_request() -> None:
    requests = {
        "example.com/gpu": "2",
        "hugepages-2Mi": "4Mi",
        "ephemeral-storage": "1Gi",
        "x.kubernetes.io/y": "1",
    }
    assert usage("pods", {"spec": {"containers": [container(requests=requests)]}}) == {
        "count/pods": "1",
        "pods": "1",
        "requests.example.com/gpu": "2",
        "hugepages-2Mi": "4Mi",
        "requests.hugepages-2Mi": "4Mi",
        "ephemeral-storage": "1Gi",
        "requests.ephemeral-storage": "1Gi",
    }


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({"status": {"phase": "Failed"}}, False),
        ({"status": {"phase": "Running"}}, True),
        (
            {
                "metadata": {
                    "deletionTimestamp": "2020-09-13T12:26:40Z",
                    "deletionGracePeriodSeconds": 30,
                }
            },
            True,
        ),
        (
            {
                "metadata": {
                    "deletionTimestamp": "2020-09-13T12:26:00Z",
                    "deletionGracePeriodSeconds": 30,
                }
            },
            False,
        ),
    ],
)
def test_a_pod_at_its_end_is_only_counted(change: dict[str, Any], counts: bool) -> None:
    pod = {"spec": {"containers": [container(requests={"cpu": "1"})]}, **change}
    assert ("cpu" in usage("pods", pod)) == ("pods" in usage("pods", pod)) == counts
    assert usage("pods", pod)["count/pods"] == "1"


@pytest.mark.parametrize(
    ("names", "plural", "matching"),
    [
        (
            [
                "cpu",
                "services",
                "requests.nvidia.com/gpu",
                "hugepages-1Gi",
                "count/pods",
                "requests.storage",
            ],
            "pods",
            ["cpu", "requests.nvidia.com/gpu", "hugepages-1Gi", "count/pods"],
        ),
        (
            [
                "requests.storage",
                "a.storageclass.storage.k8s.io/persistentvolumeclaims",
                "storageclass",
            ],
            "persistentvolumeclaims",
            ["requests.storage", "a.storageclass.storage.k8s.io/persistentvolumeclaims"],
        ),
        (["secrets", "count/secrets", "configmaps"], "secrets", ["secrets", "count/secrets"]),
        (["endpoints", "count/endpoints"], "endpoints", ["count/endpoints"]),
    ],
)
def test_which_names_a_resource_answers_to(
    names: list[str], plural: str, matching: list[str]
) -> None:
    evaluator = quota.evaluator_for("", plural)
    assert evaluator is not None and evaluator.matching(names) == matching


def test_what_is_not_stored_is_not_counted() -> None:
    assert quota.evaluator_for("", "events") is None
    assert quota.evaluator_for("authorization.k8s.io", "localsubjectaccessreviews") is None
    assert usage("gizmos", {}, "a.example") == {"count/gizmos.a.example": "1"}


def test_fractions_of_bytes_are_rounded_up() -> None:
    claim = {"spec": {"resources": {"requests": {"storage": "1500m"}}, "storageClassName": "s"}}
    counted = usage("persistentvolumeclaims", claim)
    assert (
        counted["requests.storage"]
        == counted["s.storageclass.storage.k8s.io/requests.storage"]
        == "2"
    )


def test_a_total_counts_what_is_in_scope_and_tracked() -> None:
    pods, maps = quota.evaluator_for("", "pods"), quota.evaluator_for("", "configmaps")
    assert pods is not None and maps is not None
    total = quota.QuotaTotal(
        {"spec": {"hard": {"pods": "5", "memory": "1Gi"}, "scopes": ["NotBestEffort"]}},
        [pods, maps],
    )
    assert total.evaluators == [pods]
    big = {
        "metadata": {},
        "spec": {"containers": [container(requests={"memory": "1Gi", "cpu": "1"})]},
    }
    for pod in (big, big, {"metadata": {}, "spec": {"containers": [container()]}}):
        total.count(pods, pod, NOW)
    assert quota.format_amounts(total.used) == {"memory": "2Gi", "pods": "2"}


AMOUNTS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 5).map(Quantity))


@given(AMOUNTS, AMOUNTS)
def test_an_increase_is_what_brings_the_old_to_the_new(
    new: quota.Amounts, old: quota.Amounts
) -> None:
    more = quota.amounts_increase(new, old)
    assert all(value.sign > 0 for value in more.values())
    after = quota.add_amounts(old, more)
    assert all(after.get(name, ZERO) == quota.largest_amounts(new, old)[name] for name in new)


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_nothing_is_exceeded_exactly_when_the_sum_fits(
    used: quota.Amounts, requested: quota.Amounts, hard: quota.Amounts
) -> None:
    total = quota.add_amounts(used, requested)
    over = {name for name in requested if name in hard and total[name] > hard[name]}
    assert set(quota.exceeded_resources(used, requested, hard)) == over


# ---- rules of later releases ----


def later(plural: str, obj: dict[str, Any], minor: int, group: str = "") -> dict[str, str]:
    rules = quota.quota_rules(FeatureSet(Release(1, minor)))
    evaluator = quota.evaluator_for(group, plural, rules)
    assert evaluator is not None
    return quota.format_amounts(evaluator.usage({"metadata": {"name": "x"}, **obj}, NOW))


def test_a_sidecar_costs_as_much_as_a_container_since_1_29() -> None:
    spec = {
        "containers": [container(requests={"cpu": "1"})],
        "initContainers": [
            container(requests={"cpu": "2"}) | {"restartPolicy": "Always"},
            container(requests={"cpu": "500m"}),
        ],
    }
    assert later("pods", {"spec": spec}, 28)["cpu"] == "2"
    assert later("pods", {"spec": spec}, 36)["cpu"] == "3"


def test_resources_of_a_pod_replace_those_of_its_containers_since_1_34() -> None:
    spec = {
        "containers": [container(requests={"cpu": "1", "memory": "1Mi"})],
        "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}},
    }
    assert later("pods", {"spec": spec}, 33)["requests.cpu"] == "1"
    found = later("pods", {"spec": spec}, 36)
    assert (found["requests.cpu"], found["limits.cpu"], found["memory"]) == ("2", "4", "1Mi")


def test_the_overhead_is_not_a_limit_since_1_27() -> None:
    spec = {"containers": [container(requests={"cpu": "1"})], "overhead": {"cpu": "100m"}}
    assert later("pods", {"spec": spec}, 26)["limits.cpu"] == "100m"
    assert "limits.cpu" not in later("pods", {"spec": spec}, 27)


def test_a_container_that_is_being_shrunk_costs_what_it_still_has() -> None:
    status = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}
    pod = {"spec": {"containers": [container(requests={"cpu": "1"})]}, "status": status}
    assert later("pods", pod, 32)["cpu"] == "1"
    assert later("pods", pod, 36)["cpu"] == "2"


def test_a_load_balancer_without_node_ports_costs_those_that_it_asks_for() -> None:
    ports = [{"port": 1, "nodePort": 30001}, {"port": 2}]
    spec = {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": ports}
    assert later("services", {"spec": spec}, 36)["services.nodeports"] == "1"


def test_resource_claims_are_counted_by_device_class() -> None:
    requests = [
        {"name": "a", "exactly": {"deviceClassName": "gpu", "count": 2}},
        {"name": "b", "exactly": {"deviceClassName": "nic", "allocationMode": "All"}},
        {
            "name": "c",
            "firstAvailable": [
                {"name": "x", "deviceClassName": "gpu", "count": 3},
                {"name": "y", "deviceClassName": "gpu", "count": 1},
            ],
        },
    ]
    claim = {"spec": {"devices": {"requests": requests}}}
    assert later("resourceclaims", claim, 36, "resource.k8s.io") == {
        "count/resourceclaims.resource.k8s.io": "1",
        "gpu.deviceclass.resource.k8s.io/devices": "5",
        "nic.deviceclass.resource.k8s.io/devices": "32",
    }


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "In", "values": ["gold"]}, True),
        ({"operator": "NotIn", "values": ["gold", "silver"]}, False),
        ({"operator": "NotIn", "values": ["gold"]}, True),
        ({"operator": "DoesNotExist"}, False),
    ],
)
def test_a_claim_is_in_the_scope_of_its_volume_attributes_classes(
    selector: dict[str, Any], matches: bool
) -> None:
    claim = {
        "metadata": {"name": "x"},
        "spec": {"volumeAttributesClassName": "gold"},
        "status": {"currentVolumeAttributesClassName": "silver"},
    }
    rules = quota.quota_rules(FeatureSet(Release(1, 36)))
    evaluator = quota.evaluator_for("", "persistentvolumeclaims", rules)
    assert evaluator is not None
    selectors = [{"scopeName": "VolumeAttributesClass", **selector}]
    assert quota.in_scopes(evaluator, selectors, claim) is matches
