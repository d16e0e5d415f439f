"""The usage of quotas is recounted when objects are deleted, and never too low."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.resources import CONFIG_MAPS, PODS, RESOURCE_QUOTAS, SERVICE_ACCOUNTS, SERVICES
from transom.controllers import resourcequota
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

from .conftest import Plane

Play = Callable[..., None]
NS = "default"


async def add_quota(plane: Plane, hard: dict[str, str], **spec: Any) -> None:
    await plane.client.create(
        RESOURCE_QUOTAS, NS, {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}}
    )
    await plane.settle(2)


async def status(plane: Plane) -> Object:
    found: Object = (await plane.get(RESOURCE_QUOTAS, NS, "q"))["status"]
    return found


async def add_pod(plane: Plane, name: str, cpu: str = "") -> Object:
    resources = {"requests": {"cpu": cpu}} if cpu else {}
    return await plane.client.create(
        PODS,
        NS,
        {
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
        },
    )


async def quiet(plane: Plane) -> None:
    account = {"metadata": {"name": "default"}, "automountServiceAccountToken": False}
    await plane.client.create(SERVICE_ACCOUNTS, NS, account)


async def test_a_new_quota_counts_what_is_there_and_a_new_limit_counts_again(
    control_plane: ContextFactory,
) -> None:
    async with control_plane("resourcequota") as plane:
        await quiet(plane)
        await add_pod(plane, "a", "1")
        await add_quota(plane, {"pods": "5", "count/nothings.example.com": "1"})
        assert await status(plane) == {
            "hard": {"pods": "5", "count/nothings.example.com": "1"},
            "used": {"pods": "1"},
        }
        await plane.client.patch(
            RESOURCE_QUOTAS, NS, "q", {"spec": {"hard": {"requests.cpu": "3", "pods": None}}}
        )
        await plane.settle(2)
        found = await status(plane)
        assert found["used"] == {"requests.cpu": "1"}
        assert found["hard"] == {"requests.cpu": "3", "count/nothings.example.com": "1"}


async def test_what_goes_or_ends_or_becomes_cheaper_is_given_back(
    control_plane: ContextFactory,
) -> None:
    async with control_plane("resourcequota") as plane:
        await quiet(plane)
        await add_quota(
            plane, {"pods": "9", "cpu": "9", "services.nodeports": "9", "configmaps": "9"}
        )
        for name in ("a", "b", "c"):
            await add_pod(plane, name, "1")
        ports = {"type": "NodePort", "ports": [{"port": 80}]}
        await plane.client.create(SERVICES, NS, {"metadata": {"name": "s"}, "spec": ports})
        await plane.client.create(CONFIG_MAPS, NS, {"metadata": {"name": "m"}})
        assert (await status(plane))["used"] == {
            "pods": "3",
            "cpu": "3",
            "services.nodeports": "1",
            "configmaps": "1",
        }
        await plane.client.delete(PODS, NS, "a")
        await plane.client.delete(CONFIG_MAPS, NS, "m")
        await plane.client.patch(
            PODS, NS, "b", {"status": {"phase": "Succeeded"}}, subresource="status"
        )
        service = await plane.get(SERVICES, NS, "s")
        plain = [
            {key: value for key, value in port.items() if key != "nodePort"}
            for port in service["spec"]["ports"]
        ]
        await plane.client.update(
            SERVICES, {**service, "spec": {**service["spec"], "type": "ClusterIP", "ports": plain}}
        )
        await plane.settle()
        assert (await status(plane))["used"] == {
            "pods": "1",
            "cpu": "1",
            "services.nodeports": "0",
            "configmaps": "0",
        }


async def test_wrong_usage_is_put_right_in_time(control_plane: ContextFactory) -> None:
    async with control_plane("resourcequota") as plane:
        await add_quota(plane, {"pods": "5"})
        await plane.client.patch(
            RESOURCE_QUOTAS, NS, "q", {"status": {"used": {"pods": "4"}}}, subresource="status"
        )
        await plane.settle(10)
        assert (await status(plane))["used"] == {"pods": "4"}
        await plane.settle(600)
        assert (await status(plane))["used"] == {"pods": "0"}


async def test_counting_during_creates_and_deletes_never_exceeds_the_quota(
    control_plane: ContextFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 20
    at_once = InProcessClient.update_status

    async def from_afar(self: InProcessClient, *args: Any) -> Object:
        for _ in range(20):  # others act between the count and its arrival
            await asyncio.sleep(0)
        return await at_once(self, *args)

    monkeypatch.setattr(InProcessClient, "update_status", from_afar)
    monkeypatch.setattr(resourcequota, "_GATHER_SECONDS", 0.0)  # count as often as can be

    async with control_plane("resourcequota") as plane:
        await quiet(plane)
        await add_quota(plane, {"pods": str(limit)})
        most = 0

        async def churn(worker: int) -> None:
            nonlocal most
            for turn in range(40):
                name = f"p{worker}-{turn}"
                try:
                    await add_pod(plane, name)
                except ApiError as problem:
                    assert problem.code == 403 and "exceeded quota" in problem.message
                    await plane.clock.sleep(0.03)
                    continue
                most = max(most, plane.api.storage.store.count("pods/"))
                await plane.clock.sleep((worker * 7 + turn * 13) % 10 / 20)
                await plane.client.delete(PODS, NS, name)

        done = asyncio.gather(*(churn(worker) for worker in range(25)))
        while not done.done():
            await plane.clock.run_for(0.1, turns=3)
        await done
        await plane.settle(2)
        assert most == limit and (await status(plane))["used"] == {"pods": "0"}
