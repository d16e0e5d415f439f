"""A client finds the version of a resource that a server of another release has."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.conftest import Tls, running_api_server
from tests.conftest import ContextFactory

from transom.client.api import ObjectList
from transom.client.http import HttpClient
from transom.client.informer import Informer
from transom.client.negotiation import NegotiatingClient
from transom.client.resources import (
    CRON_JOBS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    HORIZONTAL_POD_AUTOSCALERS,
    INGRESSES,
    NEW_EVENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    GroupVersionResource,
)
from transom.kit.clock import RealClock
from transom.machinery.errors import ApiError

Scenario = Callable[[NegotiatingClient, HttpClient], Awaitable[None]]


@pytest.fixture
def api_server(tls: Tls) -> ContextFactory:
    """Runs a scenario with a client of a server of another release."""

    @asynccontextmanager
    async def run(release: str) -> AsyncIterator[Any]:
        async with asyncio.timeout(20), running_api_server("https", tls, release) as made:
            client = made.client()
            assert isinstance(client, HttpClient)
            yield (NegotiatingClient(client, RealClock()), client)

    return run


@pytest.mark.parametrize(
    ("release", "resource", "version"),
    [
        ("1.15", HORIZONTAL_POD_AUTOSCALERS, "v1"),
        ("1.15", CRON_JOBS, "v1beta1"),
        ("1.18", INGRESSES, "v1beta1"),
        ("1.19", POD_DISRUPTION_BUDGETS, "v1beta1"),
        ("1.18", ENDPOINT_SLICES, "v1beta1"),
        ("1.18", NEW_EVENTS, "v1beta1"),
        ("1.15", DEPLOYMENTS, "v1"),
        ("1.20", HORIZONTAL_POD_AUTOSCALERS, "v2"),
    ],
)
async def test_each_resource_is_asked_for_in_a_served_version(
    api_server: ContextFactory,
    release: str,
    resource: GroupVersionResource,
    version: str,
) -> None:
    async with api_server(release) as (client, server):
        used: list[str] = []
        requested: list[str] = []
        get_json = server.get_json

        async def documents(path: str) -> object:
            requested.append(path)
            return await get_json(path)

        async def listed(resource: GroupVersionResource, *_: object, **__: object) -> ObjectList:
            used.append(resource.version)
            return ObjectList([], "1")

        server.list = listed  # type: ignore[method-assign,assignment]
        server.get_json = documents  # type: ignore[method-assign]
        await client.list(resource)
        await client.list(resource)
        assert used == [version, version]
        assert len(requested) == len(set(requested))


async def test_objects_are_converted_both_ways(api_server: ContextFactory) -> None:
    async with api_server("1.18") as (client, server):
        backend = {"service": {"name": "a", "port": {"number": 80}}}
        ingress = {"metadata": {"name": "a", "namespace": "default"}, "spec": {}}
        ingress["spec"] = {"defaultBackend": backend}
        made = await client.create(INGRESSES, "default", ingress)
        assert made["apiVersion"] == "networking.k8s.io/v1"
        assert made["spec"]["defaultBackend"] == backend
        stored = await server.get(INGRESSES.at("v1beta1"), "default", "a")
        assert stored["spec"]["backend"] == {"serviceName": "a", "servicePort": 80}
        informer = Informer(client, INGRESSES, RealClock(), random.Random(1))
        seen: asyncio.Queue[object] = asyncio.Queue()
        informer.add_handler(
            add=lambda new: seen.put_nowait(new["spec"]["defaultBackend"]),
            update=lambda _, new: seen.put_nowait(new["metadata"]["labels"]),
        )
        running = asyncio.create_task(informer.run())
        assert await seen.get() == backend
        await client.update(
            INGRESSES, {**made, "metadata": {**made["metadata"], "labels": {"a": "b"}}}
        )
        assert await seen.get() == {"a": "b"}
        running.cancel()


async def test_a_resource_that_the_server_does_not_have_has_no_objects(
    api_server: ContextFactory,
) -> None:
    async with api_server("1.15") as (client, _):
        assert not await client.serves(ENDPOINT_SLICES)
        assert await client.serves(PODS)
        assert (await client.list(ENDPOINT_SLICES)).items == []
        watch = await client.watch(ENDPOINT_SLICES, lifetime=0.001)
        assert await watch.next() == []
        body = {"metadata": {"name": "a", "namespace": "default"}, "endpoints": []}
        with pytest.raises(ApiError) as problem:
            await client.create(ENDPOINT_SLICES, "default", body)
        assert problem.value.code == 404
