from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.machinery import quota
from transom.machinery.quantity import ZERO, Quantity

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
