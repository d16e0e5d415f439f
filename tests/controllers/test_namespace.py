"""The end of a namespace, on virtual time."""

from __future__ import annotations

from collections.abc import Callable

from tests.conftest import ContextFactory

from transom.client.resources import CONFIG_MAPS, NAMESPACES, PODS, SERVICE_ACCOUNTS, SERVICES
from transom.machinery.objects import Object

from .conftest import Plane

Play = Callable[..., None]


async def namespace_with(plane: Plane, *config_maps: Object) -> None:
    await plane.client.create(NAMESPACES, "", {"metadata": {"name": "x"}})
    for meta in config_maps:
        await plane.client.create(CONFIG_MAPS, "x", {"metadata": meta})


async def conditions(plane: Plane) -> dict[str, tuple[str, str, str]]:
    status = (await plane.get(NAMESPACES, "", "x"))["status"]
    assert status["phase"] == "Terminating"
    return {
        c["type"]: (c["status"], c["reason"], c["message"]) for c in status.get("conditions") or ()
    }


async def test_everything_goes_after_the_grace_period(control_plane: ContextFactory) -> None:
    async with control_plane("namespace") as plane:
        await namespace_with(plane, {"name": "a"}, {"name": "b"})
        await plane.client.create(
            SERVICES, "x", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
        )
        await plane.client.delete(NAMESPACES, "", "x")
        await plane.settle(4.9)
        assert not await plane.missing(CONFIG_MAPS, "x", "a")
        await plane.settle(0.2)
        assert await plane.missing(CONFIG_MAPS, "x", "a") and await plane.missing(
            SERVICES, "x", "s"
        )
        assert await plane.missing(NAMESPACES, "", "x")
        assert not await plane.missing(NAMESPACES, "", "default")


async def test_it_waits_for_finalizers_and_says_so(control_plane: ContextFactory) -> None:
    async with control_plane("namespace") as plane:
        hold = ["example.org/a", "example.org/b"]
        await namespace_with(
            plane,
            {"name": "h1", "finalizers": hold},
            {"name": "h2", "finalizers": hold[:1]},
            {"name": "z"},
        )
        await plane.client.delete(NAMESPACES, "", "x")
        await plane.settle(6)
        assert await conditions(plane) == {
            "NamespaceDeletionDiscoveryFailure": (
                "False",
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            "NamespaceDeletionGroupVersionParsingFailure": (
                "False",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            "NamespaceDeletionContentFailure": (
                "False",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            "NamespaceContentRemaining": (
                "True",
                "SomeResourcesRemain",
                "Some resources are remaining: configmaps. has 2 resource instances",
            ),
            "NamespaceFinalizersRemaining": (
                "True",
                "SomeFinalizersRemain",
                "Some content in the namespace has finalizers remaining: example.org/a in 2 "
                "resource instances, "
                "example.org/b in 1 resource instances",
            ),
        }
        assert await plane.missing(CONFIG_MAPS, "x", "z")
        for name in ("h1", "h2"):
            await plane.client.patch(CONFIG_MAPS, "x", name, {"metadata": {"finalizers": None}})
        await plane.settle(10)
        assert await plane.missing(NAMESPACES, "", "x")


async def test_it_gives_pods_their_time(control_plane: ContextFactory) -> None:
    pod = {
        "metadata": {"name": "p"},
        "spec": {
            "nodeName": "n",
            "terminationGracePeriodSeconds": 40,
            "containers": [{"name": "c", "image": "i"}],
        },
    }

    async with control_plane("namespace") as plane:
        await namespace_with(plane)
        await plane.client.create(
            SERVICE_ACCOUNTS,
            "x",
            {
                "metadata": {"name": "default"},
                "automountServiceAccountToken": False,
            },
        )
        await plane.client.create(PODS, "x", pod)
        await plane.client.delete(NAMESPACES, "", "x")
        await plane.settle(6)
        found = await plane.get(PODS, "x", "p")
        assert found["metadata"]["deletionGracePeriodSeconds"] == 40
        remaining = await conditions(plane)
        assert (
            remaining["NamespaceContentRemaining"][2]
            == "Some resources are remaining: pods. has 1 resource instances"
        )
        # no kubelet runs: after its grace period the pod should be gone and is not
        await plane.settle(50)
        assert (await conditions(plane))["NamespaceDeletionContentFailure"] == (
            "True",
            "ContentDeletionFailed",
            "Failed to delete all resource types, 1 remaining: unexpected items still remain "
            "in namespace: x for gvr: "
            "/v1, Resource=pods",
        )
        await plane.client.delete(PODS, "x", "p", grace=0)
        await plane.settle(70)
        assert await plane.missing(NAMESPACES, "", "x")


async def test_pods_are_deleted_before_other_content(control_plane: ContextFactory) -> None:
    finalizers = ["example.org/wait"]
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
    pod = {"metadata": {"name": "p", "finalizers": finalizers}, "spec": spec}
    account = {"metadata": {"name": "default"}, "automountServiceAccountToken": False}
    for release, is_ordered in (("1.32", False), ("1.33", True), ("1.36", True)):
        async with control_plane("namespace", release=release) as plane:
            await namespace_with(plane, {"name": "a"})
            await plane.client.create(SERVICE_ACCOUNTS, "x", account)
            await plane.client.create(PODS, "x", pod)
            await plane.client.delete(NAMESPACES, "", "x")
            await plane.settle(20)
            assert (await plane.get(PODS, "x", "p"))["metadata"]["deletionTimestamp"]
            assert await plane.missing(CONFIG_MAPS, "x", "a") is not is_ordered
            found = await conditions(plane)
            assert found["NamespaceContentRemaining"][0] == ("False" if is_ordered else "True")
            await plane.client.patch(PODS, "x", "p", {"metadata": {"finalizers": None}})
            await plane.client.delete(PODS, "x", "p", grace=0)
            await plane.settle(70)
            assert await plane.missing(NAMESPACES, "", "x")


async def test_finalizers_of_others_keep_the_namespace(control_plane: ContextFactory) -> None:
    async with control_plane("namespace") as plane:
        meta = {"name": "x"}
        spec = {"finalizers": ["kubernetes", "example.org/mine"]}
        await plane.client.create(NAMESPACES, "", {"metadata": meta, "spec": spec})
        await plane.client.delete(NAMESPACES, "", "x")
        await plane.settle(10)
        left = await plane.get(NAMESPACES, "", "x")
        assert left["spec"]["finalizers"] == ["example.org/mine"]
        assert left["status"]["conditions"][3]["reason"] == "ContentRemoved"


async def test_a_restart_in_the_middle_ends_well(control_plane: ContextFactory) -> None:
    async with control_plane("namespace") as plane:
        await namespace_with(plane, {"name": "a"})
        await plane.client.delete(NAMESPACES, "", "x")
        await plane.settle(3)
        await plane.stop_controllers()
        await plane.settle(10)
        assert not await plane.missing(CONFIG_MAPS, "x", "a")
        plane.start_controllers()
        await plane.settle(6)
        assert await plane.missing(NAMESPACES, "", "x")
