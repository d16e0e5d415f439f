"""Owners and dependents: background, foreground, orphans, owners that never were."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.client.api import MERGE_PATCH
from transom.client.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    NAMESPACES,
    PERSISTENT_VOLUMES,
    SECRETS,
    GroupVersionResource,
)
from transom.controllers.garbagecollector.graph import (
    DependencyGraph,
    GraphChanges,
    GraphNode,
    OwnerIdentity,
)
from transom.machinery.objects import Object

from .conftest import Plane

Play = Callable[..., None]
NS = "default"


def owned_by(*owners: Object, block: bool = False) -> dict[str, Any]:
    extra = {"blockOwnerDeletion": True} if block else {}
    return {
        "ownerReferences": [
            {
                "apiVersion": o["apiVersion"],
                "kind": o["kind"],
                "name": o["metadata"]["name"],
                "uid": o["metadata"]["uid"],
                **extra,
            }
            for o in owners
        ]
    }


async def make(plane: Plane, name: str, namespace: str = NS, **meta: Any) -> Object:
    return await plane.client.create(CONFIG_MAPS, namespace, {"metadata": {"name": name, **meta}})


async def gone(plane: Plane, *names: str) -> list[bool]:
    return [await plane.missing(CONFIG_MAPS, NS, name) for name in names]


async def test_dependents_go_down_the_chain(control_plane: ContextFactory) -> None:
    async with control_plane("garbagecollector") as plane:
        a = await make(plane, "a")
        b = await make(plane, "b", **owned_by(a))
        await make(plane, "c", **owned_by(b))
        await plane.settle()
        assert await gone(plane, "a", "b", "c") == [False, False, False]
        await plane.client.delete(CONFIG_MAPS, NS, "a", propagation="Background")
        await plane.settle()
        assert await gone(plane, "a", "b", "c") == [True, True, True]


async def test_orphans_lose_the_reference_and_stay(control_plane: ContextFactory) -> None:
    async with control_plane("garbagecollector") as plane:
        a, other = await make(plane, "a"), await make(plane, "other")
        await make(plane, "b", **owned_by(a, other))
        await plane.settle()
        await plane.client.delete(CONFIG_MAPS, NS, "a", propagation="Orphan")
        assert not await plane.missing(CONFIG_MAPS, NS, "a")
        await plane.settle()
        assert await gone(plane, "a", "b") == [True, False]
        refs = (await plane.get(CONFIG_MAPS, NS, "b"))["metadata"]["ownerReferences"]
        assert [ref["name"] for ref in refs] == ["other"]


async def test_foreground_waits_for_those_that_block(control_plane: ContextFactory) -> None:
    async with control_plane("garbagecollector") as plane:
        a = await make(plane, "a")
        await make(plane, "blocking", finalizers=["example.org/hold"], **owned_by(a, block=True))
        await make(plane, "other", finalizers=["example.org/hold"], **owned_by(a))
        await plane.settle()
        await plane.client.delete(CONFIG_MAPS, NS, "a", propagation="Foreground")
        await plane.settle(60)
        assert await gone(plane, "a", "blocking", "other") == [False, False, False]
        assert "deletionTimestamp" in (await plane.get(CONFIG_MAPS, NS, "other"))["metadata"]
        await plane.client.patch(
            CONFIG_MAPS, NS, "blocking", {"metadata": {"finalizers": None}}, MERGE_PATCH
        )
        await plane.settle()
        assert await gone(plane, "a", "blocking", "other") == [True, True, False]


async def test_a_reference_that_stops_to_block_lets_the_owner_go(
    control_plane: ContextFactory,
) -> None:
    async with control_plane("garbagecollector") as plane:
        a = await make(plane, "a")
        await make(plane, "b", finalizers=["example.org/hold"], **owned_by(a, block=True))
        await plane.settle()
        await plane.client.delete(CONFIG_MAPS, NS, "a", propagation="Foreground")
        await plane.settle()
        assert not await plane.missing(CONFIG_MAPS, NS, "a")
        await plane.client.patch(CONFIG_MAPS, NS, "b", {"metadata": owned_by(a)}, MERGE_PATCH)
        await plane.settle()
        assert await gone(plane, "a", "b") == [True, False]


async def test_a_circle_of_blocking_references_ends(control_plane: ContextFactory) -> None:
    async with control_plane("garbagecollector") as plane:
        a = await make(plane, "a")
        b = await make(plane, "b", **owned_by(a, block=True))
        await plane.client.patch(
            CONFIG_MAPS, NS, "a", {"metadata": owned_by(b, block=True)}, MERGE_PATCH
        )
        await plane.settle()
        await plane.client.delete(CONFIG_MAPS, NS, "a", propagation="Foreground")
        await plane.settle(5)
        assert await gone(plane, "a", "b") == [True, True]


async def test_owners_that_do_not_exist(control_plane: ContextFactory) -> None:
    async with control_plane("garbagecollector") as plane:
        a = await make(plane, "a")
        never = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "never", "uid": "0-1"},
        }
        wrong_uid = {**a, "metadata": {"name": "a", "uid": "0-2"}}
        await make(plane, "lost", **owned_by(never))
        await make(plane, "deceived", **owned_by(wrong_uid))
        await make(plane, "shared", **owned_by(never, a))
        unknown = {
            "apiVersion": "example.org/v1",
            "kind": "Thing",
            "metadata": {"name": "t", "uid": "0-3"},
        }
        await make(plane, "unsure", **owned_by(unknown))
        await plane.settle()
        assert await gone(plane, "lost", "deceived", "shared", "unsure") == [
            True,
            True,
            False,
            False,
        ]
        refs = (await plane.get(CONFIG_MAPS, NS, "shared"))["metadata"]["ownerReferences"]
        assert [ref["name"] for ref in refs] == ["a"]


@pytest.mark.parametrize("owner_first", [True, False])
async def test_an_owner_in_another_namespace_is_none(
    control_plane: ContextFactory, owner_first: bool
) -> None:
    async with control_plane("garbagecollector") as plane:
        await plane.client.create(NAMESPACES, "", {"metadata": {"name": "x"}})
        if not owner_first:
            await plane.stop_controllers()
        a = await make(plane, "a", "x")
        await make(plane, "good", "x", **owned_by(a))
        await make(plane, "bad", **owned_by(a))
        if not owner_first:
            plane.start_controllers()
        await plane.settle(5)
        assert await gone(plane, "bad") == [True]
        assert not await plane.missing(CONFIG_MAPS, "x", "good")
        events = [
            e
            for e in (await plane.client.list(EVENTS, NS)).items
            if e["reason"] == "OwnerRefInvalidNamespace"
        ]
        uid = a["metadata"]["uid"]
        assert [(e["type"], e["message"], e["source"]["component"]) for e in events] == [
            (
                "Warning",
                (
                    f"ownerRef [v1/ConfigMap, namespace: default, name: a, uid: {uid}] does not "
                    'exist in namespace "default"'
                ),
                "garbage-collector-controller",
            )
        ]


async def test_something_without_a_namespace_cannot_be_owned_by_something_in_one(
    control_plane: ContextFactory,
) -> None:
    async with control_plane("garbagecollector") as plane:
        a = await make(plane, "a")
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/x"},
        }
        meta = {"name": "v", **owned_by(a)}
        await plane.client.create(PERSISTENT_VOLUMES, "", {"metadata": meta, "spec": spec})
        await plane.client.delete(CONFIG_MAPS, NS, "a")
        await plane.settle(5)
        assert not await plane.missing(PERSISTENT_VOLUMES, "", "v")


async def test_changes_before_the_start_are_found(control_plane: ContextFactory) -> None:
    async with control_plane("garbagecollector") as plane:
        a = await make(plane, "a")
        await plane.client.create(SECRETS, NS, {"metadata": {"name": "b", **owned_by(a)}})
        await plane.settle()
        await plane.stop_controllers()
        await plane.client.delete(CONFIG_MAPS, NS, "a", propagation="Background")
        plane.start_controllers()
        await plane.settle()
        assert await plane.missing(SECRETS, NS, "b")


WIDGETS = GroupVersionResource("example.org", "v1", "widgets", True, "Widget")


def widget_definition() -> Object:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "metadata": {"name": "widgets.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


async def test_custom_resources_own_and_are_owned(control_plane: ContextFactory) -> None:
    async with control_plane("garbagecollector") as plane:
        await plane.client.create(CUSTOM_RESOURCE_DEFINITIONS, "", widget_definition())
        await plane.settle(8)
        w = await plane.client.create(
            WIDGETS,
            NS,
            {
                "apiVersion": "example.org/v1",
                "kind": "Widget",
                "metadata": {"name": "w"},
            },
        )
        await make(plane, "child", **owned_by(w))
        a = await make(plane, "a")
        other = {
            "apiVersion": "example.org/v1",
            "kind": "Widget",
            "metadata": {"name": "v", **owned_by(a)},
        }
        await plane.client.create(WIDGETS, NS, other)
        await plane.settle()
        await plane.client.delete(WIDGETS, NS, "w", propagation="Background")
        await plane.client.delete(CONFIG_MAPS, NS, "a", propagation="Orphan")
        await plane.settle()
        assert await gone(plane, "child", "a") == [True, True]
        assert "ownerReferences" not in (await plane.get(WIDGETS, NS, "v"))["metadata"]


async def test_only_the_metadata_of_custom_objects_is_kept(
    control_plane: ContextFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Object] = []
    original = DependencyGraph.seen

    def record(self: DependencyGraph, *args: Any) -> Iterator[None]:
        seen.append(args[-1])
        return original(self, *args)

    monkeypatch.setattr(DependencyGraph, "seen", record)
    async with control_plane("garbagecollector") as plane:
        await plane.client.create(CUSTOM_RESOURCE_DEFINITIONS, "", widget_definition())
        await plane.settle(8)
        large = {"metadata": {"name": "w"}, "spec": {"items": [{}] * 1000}}
        await plane.client.create(
            WIDGETS, NS, {"apiVersion": "example.org/v1", "kind": "Widget", **large}
        )
        await plane.settle()
        (kept,) = (obj for obj in seen if obj["metadata"]["name"] == "w")
        assert set(kept) == {"apiVersion", "kind", "metadata"}


def test_every_name_of_an_owner_gets_its_turn() -> None:
    checked: list[GraphNode] = []
    later: list[GraphNode] = []
    graph = DependencyGraph(checked.append, later.append, checked.append, lambda node, owner: None)
    changes = GraphChanges()
    for name, kind in (("one", "ConfigMap"), ("two", "Secret")):
        ref = {"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u"}
        meta = {"name": name, "namespace": NS, "uid": name, "ownerReferences": [ref]}
        changes.apply(graph.seen("v1", "ConfigMap", None, {"metadata": meta}))
    owner = graph.get("u")
    assert owner is not None and owner.virtual and owner.identity.kind == "ConfigMap"
    changes.apply(graph.absent_on_server(owner.identity))
    assert [node.identity.kind for node in later] == ["Secret"]
    assert [node.identity.name for node in checked] == ["o", "two", "one"]
    changes.apply(graph.absent_on_server(OwnerIdentity("Secret", "v1", NS, "o", "u")))
    other = graph.get("u")
    assert other is not None and other.identity.kind == "ConfigMap"


def test_an_object_with_thousands_of_owners_changes_the_graph_in_steps() -> None:
    checked: list[GraphNode] = []
    graph = DependencyGraph(
        checked.append, checked.append, checked.append, lambda node, owner: None
    )
    refs = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": f"n{i}", "uid": f"u{i}"}
        for i in range(25_000)
    ]
    meta = {"name": "owned", "namespace": NS, "uid": "owned", "ownerReferences": refs}
    identity = OwnerIdentity("ConfigMap", "v1", NS, "owned", "owned")
    for change in (
        graph.seen("v1", "ConfigMap", None, {"metadata": meta}),
        graph.seen("v1", "ConfigMap", None, {"metadata": {**meta, "ownerReferences": refs[:9]}}),
        graph.seen("v1", "ConfigMap", None, {"metadata": meta}),
        graph.gone(identity),
    ):
        known = len(graph)
        for _ in change:
            assert len(graph) - known <= 1000
            known = len(graph)
    assert len(graph) == 25_000  # the virtual owners, which the server is asked about
    owner = graph.get("u24999")
    assert owner is not None and not owner.dependents


async def test_changes_of_the_graph_are_applied_in_their_order() -> None:
    applied: list[str] = []

    def change(name: str, steps: int) -> Iterator[None]:
        for _ in range(steps):
            yield
        applied.append(name)

    changes = GraphChanges()
    changes.apply(change("small", 0))
    assert applied == ["small"]
    changes.apply(change("large", 3))
    changes.apply(change("next", 0))
    assert applied == ["small"]
    task = asyncio.create_task(changes.run())
    await changes.drained()
    assert applied == ["small", "large", "next"]
    task.cancel()
