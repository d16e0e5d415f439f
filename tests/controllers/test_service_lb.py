"""Addresses for services of type LoadBalancer, out of a pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conftest import ContextFactory

from transom.client.api import MERGE_PATCH
from transom.client.resources import EVENTS, SERVICES
from transom.controllers.base import ControllerSettings

from .conftest import Plane

Play = Callable[..., None]
NS = "default"
POOL = ControllerSettings(load_balancers="127.100.0.0/30")


async def service(plane: Plane, name: str, **spec: Any) -> None:
    full = {"type": "LoadBalancer", "ports": [{"port": 80}], **spec}
    await plane.client.create(SERVICES, NS, {"metadata": {"name": name}, "spec": full})
    await plane.settle(1)


async def address(plane: Plane, name: str) -> list[str]:
    found = await plane.get(SERVICES, NS, name)
    return [row["ip"] for row in found["status"]["loadBalancer"].get("ingress") or ()]


async def reasons(plane: Plane, name: str) -> set[str]:
    return {
        e["reason"]
        for e in (await plane.client.list(EVENTS)).items
        if e["involvedObject"]["name"] == name
    }


async def test_addresses_are_given_and_given_back(control_plane: ContextFactory) -> None:
    async with control_plane("service", settings=POOL) as plane:
        await service(plane, "a")
        await service(plane, "b", loadBalancerIP="127.100.0.2")
        assert await address(plane, "a") == ["127.100.0.1"] and await address(plane, "b") == [
            "127.100.0.2"
        ]
        found = await plane.get(SERVICES, NS, "a")
        assert found["metadata"]["finalizers"] == ["service.kubernetes.io/load-balancer-cleanup"]
        assert {
            "EnsuringLoadBalancer",
            "EnsuredLoadBalancer",
            "UnAvailableLoadBalancer",
        } == await reasons(plane, "a")
        await service(plane, "c")
        assert await address(plane, "c") == [] and "SyncLoadBalancerFailed" in await reasons(
            plane, "c"
        )
        await plane.client.delete(SERVICES, NS, "a")
        await plane.settle(1)
        assert await plane.missing(SERVICES, NS, "a")
        assert {"DeletingLoadBalancer", "DeletedLoadBalancer"} <= await reasons(plane, "a")
        await plane.settle(30)
        assert await address(plane, "c") == ["127.100.0.1"]


async def test_a_restart_and_another_type(control_plane: ContextFactory) -> None:
    async with control_plane("service", settings=POOL) as plane:
        await service(plane, "a")
        await plane.stop_controllers()
        plane.start_controllers()
        await service(plane, "b")
        assert await address(plane, "a") == ["127.100.0.1"] and await address(plane, "b") == [
            "127.100.0.2"
        ]
        await plane.client.patch(
            SERVICES,
            NS,
            "a",
            {
                "spec": {
                    "type": "ClusterIP",
                    "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
                }
            },
            MERGE_PATCH,
        )
        await plane.settle(1)
        found = await plane.get(SERVICES, NS, "a")
        assert await address(plane, "a") == [] and "finalizers" not in found["metadata"]
        assert "Type" in await reasons(plane, "a")


async def test_without_a_pool_services_wait(control_plane: ContextFactory) -> None:
    async with control_plane("service") as plane:
        await service(plane, "a")
        found = await plane.get(SERVICES, NS, "a")
        assert found["status"] == {"loadBalancer": {}} and "finalizers" not in found["metadata"]


async def test_an_address_of_each_family(control_plane: ContextFactory) -> None:
    async with control_plane(
        "service", settings=ControllerSettings(load_balancers="127.100.0.0/30,2001:2::/112")
    ) as plane:
        families: Any = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]}
        await service(plane, "both", loadBalancerIP="127.100.0.2", **families)
        await service(plane, "six", ipFamilies=["IPv6"])
        await service(plane, "four")
        assert await address(plane, "both") == ["2001:2::1", "127.100.0.2"]
        assert await address(plane, "six") == ["2001:2::2"]
        assert await address(plane, "four") == ["127.100.0.1"]
        await plane.client.patch(
            SERVICES, NS, "both", {"spec": {"ipFamilyPolicy": "SingleStack"}}, MERGE_PATCH
        )
        await plane.settle(1)
        assert await address(plane, "both") == ["2001:2::1"]
