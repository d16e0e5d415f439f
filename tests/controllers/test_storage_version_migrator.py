"""Objects are written again in the storage version, one migration of a resource at a time."""

from __future__ import annotations

from tests.conftest import ContextFactory

from transom.client.resources import CONFIG_MAPS, GroupVersionResource
from transom.controllers.storage_version_migrator import (
    STORAGE_VERSION_MIGRATIONS,
    running_message,
)
from transom.machinery.objects import Object

from .conftest import Plane

CONTROLLER = "storage-version-migrator-controller"
CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions", False)
OLD, NEW = (GroupVersionResource("ex.io", v, "things", True, "Thing") for v in ("v1", "v2"))


def migration(name: str, resource: str, group: str = "") -> Object:
    return {
        "metadata": {"name": name},
        "spec": {"resource": {"group": group, "resource": resource}},
    }


def definition(storage: str) -> Object:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [
        {
            "name": name,
            "served": True,
            "storage": name == storage,
            "schema": {"openAPIV3Schema": schema},
        }
        for name in ("v1", "v2")
    ]
    names = {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"}
    spec = {"group": "ex.io", "scope": "Namespaced", "names": names, "versions": versions}
    return {"metadata": {"name": "things.ex.io"}, "spec": spec}


async def conditions(plane: Plane, name: str) -> dict[str, tuple[str, str]]:
    found = await plane.get(STORAGE_VERSION_MIGRATIONS, "", name)
    return {c["type"]: (c["status"], c["message"]) for c in found["status"]["conditions"]}


async def test_stored_versions_are_dropped_after_a_migration(control_plane: ContextFactory) -> None:
    async with control_plane(CONTROLLER, release="1.37") as plane:
        await plane.client.create(CRDS, "", definition("v1"))
        await plane.settle(5)
        thing = {"apiVersion": "ex.io/v1", "kind": "Thing", "metadata": {"name": "t"}}
        made = await plane.client.create(OLD, "default", thing)
        crd = await plane.get(CRDS, "", "things.ex.io")
        await plane.client.update(CRDS, {**crd, "spec": definition("v2")["spec"]})
        await plane.settle(5)
        stored = (await plane.get(CRDS, "", "things.ex.io"))["status"]["storedVersions"]
        assert stored == ["v1", "v2"]
        await plane.client.create(STORAGE_VERSION_MIGRATIONS, "", migration("m", "things", "ex.io"))
        await plane.settle(10)
        assert await conditions(plane, "m") == {
            "Running": ("False", "Migration completed"),
            "Succeeded": ("True", "Migration completed"),
        }
        crd = await plane.get(CRDS, "", "things.ex.io")
        assert crd["status"]["storedVersions"] == ["v2"]
        shown = {c["type"]: (c["status"], c["reason"]) for c in crd["status"]["conditions"]}
        assert shown["StorageMigrating"] == ("False", "MigrationSucceeded")
        now = await plane.get(NEW, "default", "t")
        assert now["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]


async def test_migrations_of_a_resource_run_one_after_the_other(
    control_plane: ContextFactory,
) -> None:
    async with control_plane(CONTROLLER, release="1.37") as plane:
        await plane.client.create(CONFIG_MAPS, "default", {"metadata": {"name": "c"}})
        for name in ("b", "a"):
            await plane.client.create(STORAGE_VERSION_MIGRATIONS, "", migration(name, "configmaps"))
        await plane.settle(10)
        found = [await plane.get(STORAGE_VERSION_MIGRATIONS, "", name) for name in ("a", "b")]
        versions = [int(one["status"]["resourceVersion"]) for one in found]
        assert versions[0] != versions[1]
        for name in ("a", "b"):
            assert (await conditions(plane, name))["Succeeded"] == ("True", "Migration completed")


async def test_an_unknown_resource_fails_after_a_minute(control_plane: ContextFactory) -> None:
    async with control_plane(CONTROLLER, release="1.37") as plane:
        await plane.client.create(STORAGE_VERSION_MIGRATIONS, "", migration("m", "absent", "ex.io"))
        await plane.settle(30)
        assert "Failed" not in await conditions(plane, "m")
        await plane.settle(120)
        assert (await conditions(plane, "m"))["Failed"] == (
            "True",
            "migration encountered unhandled error: resource does not exist in discovery",
        )


def test_the_message_of_a_running_migration() -> None:
    assert running_message(0, 0) == "The migration is running"
    assert running_message(2, 3) == "The migration is running, 2/3 objects not yet migrated"
    assert running_message(0, 3) == "The migration is running, 3 objects verified migrated"
    assert running_message(1, 1, "busy").endswith("not yet migrated; transient error: busy")
