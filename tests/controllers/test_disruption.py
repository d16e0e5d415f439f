"""PodDisruptionBudgets report how many pods may be evicted; when in doubt, none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.client.resources import (
    EVENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
)
from transom.kit.clock import rfc3339
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

from .conftest import Plane

Play = Callable[..., None]
NS = "default"
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
TEMPLATE = {
    "metadata": {"labels": {"app": "w"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
SELECTOR = {"matchLabels": {"app": "w"}}


async def quiet(plane: Plane) -> None:
    await plane.client.create(
        SERVICE_ACCOUNTS,
        NS,
        {"metadata": {"name": "default"}, "automountServiceAccountToken": False},
    )


async def add_pod(plane: Plane, name: str, owner: Object | None = None) -> None:
    meta: Object = {"name": name, "labels": {"app": "w"}}
    if owner is not None:
        meta["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "controller": True,
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
            }
        ]
    await plane.client.create(
        PODS, NS, {"metadata": meta, "spec": {**TEMPLATE["spec"], "nodeName": "n"}}
    )  # type: ignore[dict-item]
    await plane.client.patch(PODS, NS, name, {"status": READY}, subresource="status")


async def add_budget(plane: Plane, name: str = "b", **spec: Any) -> None:
    await plane.client.create(
        POD_DISRUPTION_BUDGETS,
        NS,
        {"metadata": {"name": name}, "spec": {"selector": SELECTOR, **spec}},
    )
    await plane.settle()


async def counts(plane: Plane, name: str = "b") -> tuple[int, ...]:
    """Expected, healthy, must be healthy, may go."""
    status = (await plane.get(POD_DISRUPTION_BUDGETS, NS, name))["status"]
    return tuple(
        status.get(f, 0)
        for f in ("expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed")
    )


async def reasons(plane: Plane) -> set[str]:
    return {e["reason"] for e in (await plane.client.list(EVENTS, NS)).items}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"minAvailable": 2}, (3, 3, 2, 1)),
        ({"minAvailable": 5}, (3, 3, 5, 0)),
        ({"minAvailable": 0}, (3, 3, 0, 3)),
        ({"minAvailable": "50%"}, (5, 3, 3, 0)),
        ({"minAvailable": "40%"}, (5, 3, 2, 1)),
        ({"maxUnavailable": 3}, (5, 3, 2, 1)),
        ({"maxUnavailable": "50%"}, (5, 3, 2, 1)),
        ({"maxUnavailable": 9}, (5, 3, 0, 3)),
        ({"maxUnavailable": 0}, (5, 3, 5, 0)),
    ],
)
async def test_numbers(
    control_plane: ContextFactory, spec: Object, expected: tuple[int, ...]
) -> None:
    async with control_plane("disruption") as plane:
        await quiet(plane)
        owner = await plane.client.create(
            REPLICA_SETS,
            NS,
            {
                "metadata": {"name": "w"},
                "spec": {"replicas": 5, "selector": SELECTOR, "template": TEMPLATE},
            },
        )
        for name in ("a", "b", "c"):
            await add_pod(plane, name, owner)
        await add_budget(plane, **spec)
        assert await counts(plane) == expected
        assert (await plane.get(POD_DISRUPTION_BUDGETS, NS, "b"))["status"][
            "observedGeneration"
        ] == 1


async def test_scales_of_several_owners_are_added_up(control_plane: ContextFactory) -> None:
    async with control_plane("disruption") as plane:
        await quiet(plane)
        spec = {"replicas": 2, "selector": SELECTOR, "template": TEMPLATE}
        a = await plane.client.create(REPLICA_SETS, NS, {"metadata": {"name": "a"}, "spec": spec})
        b = await plane.client.create(
            STATEFUL_SETS,
            NS,
            {"metadata": {"name": "b"}, "spec": {**spec, "replicas": 4, "serviceName": "s"}},
        )
        await add_pod(plane, "a1", a)
        await add_pod(plane, "b1", b)
        await add_budget(plane, maxUnavailable=5)
        assert await counts(plane) == (6, 2, 1, 1)


@pytest.mark.parametrize(
    ("owner", "reason"),
    [
        (None, "NoControllerRef"),
        (
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": "gone", "uid": "u"},
            },
            "NoControllers",
        ),
        (
            {
                "apiVersion": "example.com/v1",
                "kind": "Thing",
                "metadata": {"name": "t", "uid": "u"},
            },
            "CalculateExpectedPodCountFailed",
        ),
    ],
)
async def test_pods_that_cannot_be_counted_allow_no_disruption(
    control_plane: ContextFactory, owner: Object | None, reason: str
) -> None:
    async with control_plane("disruption") as plane:
        await quiet(plane)
        await add_pod(plane, "a", owner)
        await add_budget(plane, maxUnavailable=1)
        assert await counts(plane) == (0, 0, 0, 0)
        assert reason in await reasons(
            plane
        ) and "CalculateExpectedPodCountFailed" in await reasons(plane)


async def test_evictions_are_allowed_one_after_the_other(control_plane: ContextFactory) -> None:
    async with control_plane("disruption") as plane:
        await quiet(plane)
        for name in ("a", "b", "c"):
            await add_pod(plane, name)
        await add_budget(plane, minAvailable=2)
        assert await counts(plane) == (3, 3, 2, 1)

        async def evict(name: str) -> None:
            await plane.client.create_subresource(
                PODS, NS, name, "eviction", {"metadata": {"name": name}}
            )

        await evict("a")
        with pytest.raises(ApiError) as refused:
            await evict("b")
        assert refused.value.code == 429
        await plane.settle()
        assert await counts(plane) == (
            3,
            2,
            2,
            0,
        )  # it is on its way out until its node says that it has gone
        await plane.client.delete(PODS, NS, "a", grace=0)
        await add_pod(plane, "d")
        await plane.settle()
        assert await counts(plane) == (3, 3, 2, 1)
        assert "disruptedPods" not in (await plane.get(POD_DISRUPTION_BUDGETS, NS, "b"))["status"]


async def test_a_pod_that_was_to_go_and_stays_is_counted_again(
    control_plane: ContextFactory,
) -> None:
    async with control_plane("disruption") as plane:
        await quiet(plane)
        await add_pod(plane, "a")
        await add_pod(plane, "b")
        await add_budget(plane, minAvailable=1)
        since = {"a": rfc3339(plane.clock.time()), "gone": rfc3339(plane.clock.time())}
        body = {"status": {"disruptedPods": since, "disruptionsAllowed": 0}}
        await plane.client.patch(POD_DISRUPTION_BUDGETS, NS, "b", body, subresource="status")
        await plane.settle()
        assert await counts(plane) == (2, 1, 1, 0)
        assert list(
            (await plane.get(POD_DISRUPTION_BUDGETS, NS, "b"))["status"]["disruptedPods"]
        ) == ["a"]
        await plane.settle(115)
        assert await counts(plane) == (2, 1, 1, 0)
        await plane.settle(10)
        assert await counts(plane) == (2, 2, 1, 1)
        assert "NotDeleted" in await reasons(plane)


async def test_no_pods_and_two_budgets(control_plane: ContextFactory) -> None:
    async with control_plane("disruption") as plane:
        await quiet(plane)
        await add_budget(plane, minAvailable=1)
        assert "NoPods" in await reasons(plane)
        await add_budget(plane, "c", minAvailable=0)
        await add_pod(plane, "a")
        await plane.settle()
        assert await counts(plane) == (1, 1, 1, 0) and await counts(plane, "c") == (1, 1, 0, 1)
        assert "MultiplePodDisruptionBudgets" in await reasons(plane)


async def test_an_empty_selector_means_none_in_the_old_version_and_all_in_the_new(
    control_plane: ContextFactory,
) -> None:
    async with control_plane("disruption") as plane:
        await quiet(plane)
        await add_pod(plane, "a")
        for version in ("v1beta1", "v1"):
            budget = {"metadata": {"name": version}, "spec": {"minAvailable": 0, "selector": {}}}
            await plane.client.create(POD_DISRUPTION_BUDGETS.at(version), NS, budget)
        await plane.settle()
        assert await counts(plane, "v1beta1") == (0, 0, 0, 0) and await counts(plane, "v1") == (
            1,
            1,
            0,
            1,
        )


async def test_a_pod_that_is_taken_away_by_its_labels_counts_no_more(
    control_plane: ContextFactory,
) -> None:
    async with control_plane("disruption") as plane:
        await quiet(plane)
        for name in ("a", "b"):
            await add_pod(plane, name)
        await add_budget(plane, minAvailable=1)
        assert await counts(plane) == (2, 2, 1, 1)
        await plane.client.patch(PODS, NS, "a", {"metadata": {"labels": {"app": "elsewhere"}}})
        await plane.settle()
        assert await counts(plane) == (1, 1, 1, 0)
