"""The behaviour that both implementations of the API client share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.client import api
from transom.client.api import ApiClient, ApiError
from transom.client.resources import (
    CONFIG_MAPS,
    EVENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from transom.machinery.objects import copy_object

from .conftest import NOBODY

Play = Callable[[Any], None]
POD = {
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False},
}


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"app": name}}, "data": data}


async def failure(awaitable: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await awaitable
    return caught.value


async def test_an_object_comes_changes_and_goes(api_server: ContextFactory) -> None:
    async with api_server() as server:
        client = server.client()
        given = config_map("a", k="v")
        made = await client.create(CONFIG_MAPS, "default", given)
        assert made["kind"] == "ConfigMap" and made["metadata"]["uid"]
        assert made["metadata"]["managedFields"][0]["manager"] == "tester"
        assert given == config_map("a", k="v")  # what the caller gave stays as it was
        changed = await client.update(CONFIG_MAPS, {**made, "data": {"k": "w"}})
        assert (await client.get(CONFIG_MAPS, "default", "a"))["data"] == {"k": "w"}
        stale = await failure(client.update(CONFIG_MAPS, {**made, "data": {"k": "x"}}))
        assert api.is_conflict(stale) and stale.code == 409
        patched = await client.patch(CONFIG_MAPS, "default", "a", {"data": {"l": "2"}})
        assert patched["data"] == {"k": "w", "l": "2"}
        assert patched["metadata"]["resourceVersion"] != changed["metadata"]["resourceVersion"]
        other = await failure(client.delete(CONFIG_MAPS, "default", "a", uid="another"))
        assert api.is_conflict(other)
        await client.delete(CONFIG_MAPS, "default", "a", uid=made["metadata"]["uid"])
        gone = await failure(client.get(CONFIG_MAPS, "default", "a"))
        assert api.is_not_found(gone) and gone.message == 'configmaps "a" not found'


async def test_refusals_are_the_servers_own(api_server: ContextFactory) -> None:
    async with api_server() as server:
        client = server.client()
        await client.create(CONFIG_MAPS, "default", config_map("a"))
        twice = await failure(client.create(CONFIG_MAPS, "default", config_map("a")))
        assert api.is_already_exists(twice)
        bad = await failure(client.create(CONFIG_MAPS, "default", {"metadata": {"name": "-"}}))
        assert (bad.code, bad.reason) == (422, "Invalid") and bad.details
        assert bad.details["causes"][0]["field"] == "metadata.name"
        secret = {**config_map("b"), "kind": "Secret", "apiVersion": "v1"}
        odd = await failure(client.create(CONFIG_MAPS, "default", secret))
        assert odd.code == 400
        unknown = await failure(client.get(CONFIG_MAPS._replace(plural="nothings"), "default", "a"))
        assert (unknown.code, unknown.message) == (
            404,
            "the server could not find the requested resource",
        )
        unable = await failure(client.delete_collection(SERVICES, "default"))
        assert api.is_method_not_supported(unable)


async def test_a_patch_makes_nothing_that_is_not_there(api_server: ContextFactory) -> None:
    async with api_server() as server:
        client = server.client()
        for resource in (CONFIG_MAPS, EVENTS):  # an update would make the latter
            for media in (api.MERGE_PATCH, api.STRATEGIC_PATCH):
                refused = await failure(
                    client.patch(resource, "default", "absent", {"metadata": {}}, media)
                )
                assert (
                    api.is_not_found(refused)
                    and refused.message == f'{resource.plural} "absent" not found'
                )


async def test_a_user_without_rights_gets_nowhere(api_server: ContextFactory) -> None:
    async with api_server() as server:
        client = server.client(NOBODY)
        refused = await failure(client.get(CONFIG_MAPS, "default", "a"))
        assert refused.code == 403
        assert 'User "nobody" cannot get resource "configmaps" in API group ""' in refused.message
        assert (await failure(client.list(PODS))).code == 403
        assert (await failure(client.watch(PODS))).code == 403
        assert (await failure(client.create(PODS, "default", POD))).code == 403
        assert (await failure(client.delete_collection(PODS, "default"))).code == 403
        assert (
            await failure(client.create_subresource(PODS, "default", "p", "binding", {}))
        ).code == 403


async def test_lists(api_server: ContextFactory) -> None:
    async with api_server() as server:
        client = server.client()
        for number in range(7):
            await client.create(CONFIG_MAPS, "default", config_map(f"c{number}"))
        await client.create(CONFIG_MAPS, "kube-public", config_map("c1"))

        async def names(**options: Any) -> list[str]:
            listing = await client.list(CONFIG_MAPS, options.pop("namespace", "default"), **options)
            assert all(
                item["kind"] == "ConfigMap" and item["apiVersion"] == "v1" for item in listing.items
            )
            assert int(listing.resource_version) > 1
            return sorted(
                f"{i['metadata']['namespace']}/{i['metadata']['name']}" for i in listing.items
            )

        everything = [f"default/c{n}" for n in range(7)]
        assert (
            await names() == await names(limit=2) == await names(resource_version="0") == everything
        )
        assert await names(label_selector="app in (c1,c2)") == ["default/c1", "default/c2"]
        assert await names(namespace="", label_selector="app=c1") == [
            "default/c1",
            "kube-public/c1",
        ]
        assert await names(field_selector="metadata.name=c3") == ["default/c3"]
        newest = (await client.list(CONFIG_MAPS)).resource_version
        ahead = await failure(client.list(CONFIG_MAPS, resource_version=str(int(newest) + 1000)))
        assert api.is_too_large(ahead) or ahead.code == 504
        assert (await failure(client.list(CONFIG_MAPS, label_selector="a=("))).code == 400


async def test_sub_resources(api_server: ContextFactory) -> None:
    async with api_server() as server:
        client = server.client()
        await client.create(SERVICE_ACCOUNTS, "default", {"metadata": {"name": "default"}})
        pod = await client.create(PODS, "default", POD)
        status = await client.update_status(
            PODS, {**copy_object(pod), "status": {"phase": "Running"}}
        )
        assert status["status"]["phase"] == "Running" and status["spec"] == pod["spec"]
        target = {"kind": "Node", "apiVersion": "v1", "name": "n1"}
        binding = {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": "p"},
            "target": target,
        }
        assert (await client.create_subresource(PODS, "default", "p", "binding", binding))[
            "status"
        ] == "Success"
        assert (await client.get(PODS, "default", "p"))["spec"]["nodeName"] == "n1"
        assert api.is_conflict(
            await failure(client.create_subresource(PODS, "default", "p", "binding", binding))
        )
        await client.delete(PODS, "default", "p", grace=0)
        assert api.is_not_found(await failure(client.get(PODS, "default", "p")))


async def test_namespaces_are_their_own_namespace(api_server: ContextFactory) -> None:
    async with api_server() as server:
        client = server.client()
        made = await client.create(NAMESPACES, "", {"metadata": {"name": "x"}})
        await client.delete(NAMESPACES, "", "x")
        marked = await client.get(NAMESPACES, "", "x")
        assert marked["status"]["phase"] == "Terminating" and marked["spec"]["finalizers"] == [
            "kubernetes"
        ]
        final = copy_object(marked)
        final["spec"]["finalizers"] = []
        await client.update(NAMESPACES, final, subresource="finalize")
        assert api.is_not_found(await failure(client.get(NAMESPACES, "", "x")))
        assert made["metadata"]["name"] == "x"


async def test_collections_are_deleted_by_selector(api_server: ContextFactory) -> None:
    async with api_server() as server:
        client = server.client()
        for name in ("a", "b", "c"):
            await client.create(CONFIG_MAPS, "default", config_map(name))
        await client.delete_collection(CONFIG_MAPS, "default", label_selector="app!=b")
        assert [
            i["metadata"]["name"] for i in (await client.list(CONFIG_MAPS, "default")).items
        ] == ["b"]


async def follow(client: ApiClient, count: int, **options: Any) -> list[tuple[str, str]]:
    watch = await client.watch(CONFIG_MAPS, "default", **options)
    seen = []
    async for event in watch:
        seen.append((event.type, event.object["metadata"]["name"]))
        if len(seen) == count:
            break
    watch.close()
    return seen


async def test_a_watch_continues_from_a_version(api_server: ContextFactory) -> None:
    async with api_server() as server:
        client = server.client()
        start = (await client.list(CONFIG_MAPS)).resource_version
        made = await client.create(CONFIG_MAPS, "default", config_map("a"))
        await client.update(CONFIG_MAPS, {**made, "data": {"x": "y"}})
        await client.create(CONFIG_MAPS, "default", config_map("b"))
        await client.delete(CONFIG_MAPS, "default", "a")
        events = [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
        assert await follow(client, 4, resource_version=start) == events
        middle = made["metadata"]["resourceVersion"]
        assert await follow(client, 3, resource_version=middle) == events[1:]
        assert await follow(client, 1, resource_version=start, label_selector="app=b") == [
            ("ADDED", "b")
        ]
        assert await follow(client, 1) == [("ADDED", "b")]  # without a version: first what there is


async def test_a_watch_ends_and_expires(api_server: ContextFactory) -> None:
    async with api_server() as server:
        client = server.client()
        for name in ("a", "b"):
            await client.create(CONFIG_MAPS, "default", config_map(name))
        store = server.api.storage.store
        short = await client.watch(CONFIG_MAPS, resource_version=str(store.revision), lifetime=1)
        assert await short.next() == []
        store.compact(store.revision - 1)
        with pytest.raises(ApiError) as caught:
            old = await client.watch(CONFIG_MAPS, resource_version="2")
            await old.next()
        assert api.is_expired(caught.value) and caught.value.code == 410


async def test_other_versions_are_converted(api_server: ContextFactory) -> None:
    async with api_server() as server:
        client = server.client()
        v1 = HORIZONTAL_POD_AUTOSCALERS.at("v1")
        spec = {
            "maxReplicas": 3,
            "targetCPUUtilizationPercentage": 70,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        }
        await client.create(v1, "default", {"metadata": {"name": "h"}, "spec": spec})
        (old,), (new,) = [
            (await client.list(r, "default")).items for r in (v1, HORIZONTAL_POD_AUTOSCALERS)
        ]
        assert (
            old["spec"]["targetCPUUtilizationPercentage"] == 70
            and old["apiVersion"] == "autoscaling/v1"
        )
        assert new["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 70
        watch = await client.watch(v1, "default")
        assert (await watch.next())[0].object["apiVersion"] == "autoscaling/v1"
        watch.close()


async def test_documents(api_server: ContextFactory) -> None:
    async with api_server() as server:
        client = server.client()
        assert (await client.get_json("/api/v1"))["kind"] == "APIResourceList"
        assert (await client.get_json("/version"))["major"] == "1"
        assert (await failure(client.get_json("/apis/nothing/v1"))).code == 404
