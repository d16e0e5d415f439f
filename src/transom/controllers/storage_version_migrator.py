"""Runs StorageVersionMigrations: writes every object of a resource again, so that all are stored in
the storage version. One migration of a resource runs at a time; a CustomResourceDefinition shows
it in a condition and drops its old stored versions afterwards.

Kubernetes reads the objects from the garbage collector's cache; this controller lists them.
"""

from __future__ import annotations

from typing import Any, Final

from transom.client.api import APPLY_PATCH, MERGE_PATCH, is_conflict, is_not_found
from transom.client.discovery import DiscoveredResource, preferred_resources
from transom.client.resources import GroupVersionResource
from transom.client.workqueue import RetryLater, WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.kit.clock import parse_rfc3339, rfc3339
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

STORAGE_VERSION_MIGRATIONS: Final = GroupVersionResource(
    "storagemigration.k8s.io",
    "v1",
    "storageversionmigrations",
    False,
    "StorageVersionMigration",
)
_CRDS: Final = GroupVersionResource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    False,
    "CustomResourceDefinition",
)
_NAME: Final = "storage-version-migrator-controller"
_RUNNER: Final = "migration-runner-controller"
_VERBS: Final = ("update", "patch", "list")
_DISCOVERY_SECONDS: Final = 60.0  # a new custom resource may appear late
_PAGE: Final = 500
_RETRIABLE: Final = (408, 429, 500, 503, 504)
_RUNNING, _SUCCEEDED, _FAILED = "Running", "Succeeded", "Failed"


def _resource_of(migration: Object) -> tuple[str, str]:
    resource = migration["spec"]["resource"]
    return resource.get("group", ""), resource["resource"]


def _conditions(migration: Object) -> list[Object]:
    return list((migration.get("status") or {}).get("conditions") or ())


def _is_true(migration: Object, *kinds: str) -> bool:
    return any(c["type"] in kinds and c["status"] == "True" for c in _conditions(migration))


def running_message(left: int, total: int, problem: object = None) -> str:
    text = "The migration is running"
    if total:
        text += (
            f", {left}/{total} objects not yet migrated"
            if left
            else f", {total} objects verified migrated"
        )
    return text if problem is None else f"{text}; transient error: {problem}"


class StorageVersionMigrator:
    def __init__(self, env: ControllerContext) -> None:
        self._client, self._clock = env.client, env.clock
        self._queue: WorkQueue[tuple[str, str]] = WorkQueue(
            env.clock, name="storage_version_migrator", metrics=env.queues
        )
        self._migrations = env.informers(STORAGE_VERSION_MIGRATIONS)
        self._migrations.add_handler(
            add=self._changed, update=lambda _, new: self._changed(new), delete=self._changed
        )

    def _changed(self, migration: Object) -> None:
        self._queue.add(_resource_of(migration))

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._migrations,), 5)

    async def _sync(self, resource: tuple[str, str]) -> None:
        mine = sorted(
            (one for one in self._migrations.list() if _resource_of(one) == resource),
            key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]),
        )
        pending: list[Object] = []
        for migration in mine:
            ended = _is_true(migration, _SUCCEEDED, _FAILED)
            if ended and _is_true(migration, _RUNNING):
                await self._finish(migration, resource)
            elif not ended:
                pending.append(migration)
        running = next((one for one in pending if _is_true(one, _RUNNING)), None)
        if running is not None:
            await self._migrate(running, resource)
        elif pending:
            await self._start(pending[0], resource)

    # ---- the steps of a migration; each ends with a write of its status ----

    async def _start(self, migration: Object, resource: tuple[str, str]) -> None:
        crd = await self._find_crd(resource)
        if crd is not None:
            message = f"Migration {migration['metadata']['name']} is running"
            await self._apply_crd_status(crd, "True", "MigrationRunning", message)
        await self._report(migration, (_RUNNING, "True", "MigrationRunning", running_message(0, 0)))

    async def _migrate(self, migration: Object, resource: tuple[str, str]) -> None:
        found = await self._discover(resource)
        if found is None:
            age = self._clock.time() - parse_rfc3339(migration["metadata"]["creationTimestamp"])
            if age < _DISCOVERY_SECONDS:
                raise RetryLater(f"{'.'.join(resource)} does not exist in discovery")
            await self._fail(migration, "resource does not exist in discovery")
            return
        gvr = found.resource
        if not found.verbs.issuperset(_VERBS):
            shown = f"{gvr.group}/{gvr.version}, Resource={gvr.plural}"
            text = f'resource "{shown}" does not support discovery operations: [{" ".join(_VERBS)}]'
            await self._fail(migration, text)
            return
        listed = await self._client.list(gvr, limit=_PAGE)
        if not (migration.get("status") or {}).get("resourceVersion"):
            await self._report(migration, resource_version=listed.resource_version)
            return
        await self._write_objects(migration, gvr, listed.items)

    async def _write_objects(
        self, migration: Object, gvr: GroupVersionResource, objects: list[Object]
    ) -> None:
        last = int(migration["status"]["resourceVersion"])
        old = [one for one in objects if int(one["metadata"]["resourceVersion"]) <= last]
        left, total = len(old), len(objects)
        for obj in old:
            try:
                await self._write(gvr, obj["metadata"])
            except ApiError as problem:
                running = (_RUNNING, "True", "MigrationRunning")
                if problem.code in _RETRIABLE:
                    await self._report(migration, (*running, running_message(left, total, problem)))
                    raise
                text = (
                    f"{left}/{total} not yet migrated. migration encountered unhandled error: "
                    f"{problem}"
                )
                await self._report(
                    migration,
                    (*running, running_message(left, total)),
                    (_FAILED, "True", "StorageVersionMigrationFailed", text),
                )
                return
            left -= 1
        await self._report(
            migration,
            (_RUNNING, "True", "MigrationRunning", running_message(left, total)),
            (_SUCCEEDED, "True", "StorageVersionMigrationSucceeded", "Migration completed"),
        )

    async def _write(self, gvr: GroupVersionResource, meta: Object) -> None:
        """A patch without a change: the server stores the object in the storage version."""
        body = {
            "apiVersion": gvr.api_version,
            "kind": gvr.kind,
            "metadata": {"resourceVersion": meta["resourceVersion"]},
        }
        where = gvr, meta.get("namespace", ""), meta["name"]
        try:
            await self._client.patch(*where, body, MERGE_PATCH, field_manager=_NAME)
        except ApiError as problem:
            # Written or deleted by another client: there is nothing to migrate.
            if not (is_conflict(problem) or is_not_found(problem)):
                raise

    async def _finish(self, migration: Object, resource: tuple[str, str]) -> None:
        crd = await self._find_crd(resource)
        if crd is not None:
            await self._finish_crd(crd, _is_true(migration, _SUCCEEDED))
        completed = (_RUNNING, "False", "MigrationCompleted", "Migration completed")
        await self._report(migration, completed, observe=True)

    # ---- status ----

    async def _fail(self, migration: Object, text: str) -> None:
        message = f"migration encountered unhandled error: {text}"
        await self._report(migration, (_FAILED, "True", "StorageVersionMigrationFailed", message))

    async def _report(
        self,
        migration: Object,
        *wanted: tuple[str, str, str, str],
        resource_version: str = "",
        observe: bool = False,
    ) -> None:
        status = dict(migration.get("status") or {})
        conditions = {one["type"]: one for one in _conditions(migration)}
        for kind, value, reason, message in wanted:
            before = conditions.get(kind) or {}
            since = before.get("lastTransitionTime")
            condition = {
                **before,
                "type": kind,
                "status": value,
                "reason": reason,
                "message": message,
                "lastTransitionTime": since
                if since and before["status"] == value
                else rfc3339(self._clock.time()),
            }
            if observe:
                condition["observedGeneration"] = migration["metadata"].get("generation", 0)
            conditions[kind] = condition
        status["conditions"] = [*conditions.values()]
        if resource_version:
            status["resourceVersion"] = resource_version
        if status != migration.get("status"):
            try:
                await self._client.update_status(
                    STORAGE_VERSION_MIGRATIONS, {**migration, "status": status}
                )
            except ApiError as problem:
                if not is_not_found(problem):
                    raise

    # ---- other objects ----

    async def _discover(self, resource: tuple[str, str]) -> DiscoveredResource | None:
        found, _failures = await preferred_resources(self._client)
        for one in found:
            if (one.resource.group, one.resource.plural) == resource:
                return one
        return None

    async def _find_crd(self, resource: tuple[str, str]) -> Object | None:
        try:
            return await self._client.get(_CRDS, "", f"{resource[1]}.{resource[0]}")
        except ApiError as problem:
            if not is_not_found(problem):
                raise
            return None

    async def _finish_crd(self, crd: Object, succeeded: bool) -> None:
        conditions = (crd.get("status") or {}).get("conditions") or ()
        generation = crd["metadata"].get("generation", 0)
        unchanged = any(
            one["type"] == "StorageMigrating" and one.get("observedGeneration", 0) == generation
            for one in conditions
        )
        reason, message = "MigrationFailed", "The migration has failed"
        if succeeded:
            reason, message = "MigrationSucceeded", "The migration has succeeded"
            message += (
                " and the stored versions have been updated"
                if unchanged
                else " but the stored versions have not been updated due to a generation mismatch"
            )
        extra: dict[str, Any] = {}
        if unchanged:
            versions = [one["name"] for one in crd["spec"]["versions"] if one.get("storage")]
            extra["storedVersions"] = versions
        await self._apply_crd_status(crd, "False", reason, message, **extra)

    async def _apply_crd_status(
        self, crd: Object, value: str, reason: str, message: str, **extra: Any
    ) -> None:
        meta = crd["metadata"]
        condition = {
            "type": "StorageMigrating",
            "status": value,
            "reason": reason,
            "message": message,
            "lastTransitionTime": rfc3339(self._clock.time()),
            "observedGeneration": meta.get("generation", 0),
        }
        body = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": meta["name"], "resourceVersion": meta["resourceVersion"]},
            "status": {"conditions": [condition], **extra},
        }
        await self._client.patch(
            _CRDS,
            "",
            meta["name"],
            body,
            APPLY_PATCH,
            subresource="status",
            field_manager=_RUNNER,
            force=True,
        )
