"""Keeps the flows consistent with the stored FlowSchemas and PriorityLevelConfigurations.

Writes what Kubernetes' two parts write: the default objects of a new cluster (the producer), and in
the status of each FlowSchema whether its priority level exists (the consumer).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.resources import ResourceRegistry
from transom.apiserver.flowcontrol import objects
from transom.apiserver.flowcontrol.flows import RequestFlows
from transom.apiserver.flowcontrol.objects import version_in as flow_objects_version
from transom.client.api import APPLY_PATCH, STRATEGIC_PATCH, ApiClient
from transom.client.resources import GroupVersionResource
from transom.kit import gobool
from transom.kit.clock import Clock, rfc3339
from transom.kit.goquote import go_quote
from transom.kit.task_set import TaskSet
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.releases.behaviour import has_behaviour
from transom.store.api import StoreEvent

log = logging.getLogger("transom.apiserver")

_SCHEMAS = GroupVersionResource(objects.GROUP, objects.VERSION, "flowschemas")
_LEVELS = GroupVersionResource(objects.GROUP, objects.VERSION, "prioritylevelconfigurations")
PRODUCER = "api-priority-and-fairness-config-producer-v1"
CONSUMER = "api-priority-and-fairness-config-consumer-v1"
_PUT_BACK_AFTER = 60.0


class FlowConfigController:
    def __init__(
        self,
        flows: RequestFlows,
        objects: ObjectStore,
        resources: ResourceRegistry,
        producer: ApiClient,
        consumer: ApiClient,
        clock: Clock,
    ) -> None:
        """`producer` and `consumer` write, with the user agents PRODUCER and CONSUMER."""
        self._flows = flows
        self._objects = objects
        self._resources = resources
        self._producer = producer
        self._consumer = consumer
        self._clock = clock
        self._release = release = resources.types.release
        version = flow_objects_version(release)
        self._schemas, self._levels = _SCHEMAS.at(version), _LEVELS.at(version)
        self._keeps_suggested = has_behaviour(release, "NodeHighLevel")
        self._applies = has_behaviour(release, "NominalShares")
        self._due = False
        self._putting_back = False
        self._tasks = TaskSet()

    async def start(self) -> None:
        """Creates missing objects, then follows every change."""
        await self._make()
        store = self._objects.store
        for plural in (_SCHEMAS.plural, _LEVELS.plural):
            store.watch(
                self._resources.require(objects.GROUP, "v1", plural).key_prefix(""),
                store.revision,
                self._changed,
            )
        await self._digest()

    async def _make(self) -> None:
        if self._keeps_suggested:
            await self._ensure()
            return
        have = {obj["metadata"]["name"] for obj in self._stored(_LEVELS.plural)}
        # the first start; later the suggested objects belong to the administrator
        if objects.EXEMPT not in have:
            await self._create(objects.suggested_objects(self._release))
        await self._create(objects.mandatory_objects(self._release))

    async def _create(self, bootstrap: objects.BootstrapObjects) -> None:
        missing = [
            (resource, obj)
            for resource, made in (
                (self._schemas, bootstrap.schemas),
                (self._levels, bootstrap.levels),
            )
            for obj in made
            if not self._exists(resource.plural, obj)
        ]
        await _all_written(self._producer.create(resource, "", obj) for resource, obj in missing)

    # ---- since 1.22 ----

    async def _ensure(self) -> None:
        """Creates missing objects, updates those that the administrator has not taken over, and
        deletes those of earlier releases.
        """
        suggested = objects.suggested_objects(self._release)
        mandatory = objects.mandatory_objects(self._release)
        await self._ensure_kind(self._levels, suggested.levels, mandatory.levels)
        await self._ensure_kind(self._schemas, suggested.schemas, mandatory.schemas)

    async def _ensure_kind(
        self, resource: GroupVersionResource, suggested: list[Object], mandatory: list[Object]
    ) -> None:
        found = await self._producer.list(resource)
        current = {obj["metadata"]["name"]: obj for obj in found.items}
        wanted = {obj["metadata"]["name"]: obj for obj in (*suggested, *mandatory)}
        always = {obj["metadata"]["name"] for obj in mandatory}
        writes: list[Coroutine[Any, Any, Any]] = []
        for name, obj in wanted.items():
            if name not in current:
                writes.append(self._producer.create(resource, "", obj))
            elif revised := revised_object(current[name], obj, always=name in always):
                writes.append(self._producer.update(resource, revised))
        for name, obj in current.items():
            if name not in wanted and _annotated(obj) is True:
                version = obj["metadata"]["resourceVersion"]
                writes.append(self._producer.delete(resource, "", name, resource_version=version))
        await _all_written(writes)

    def _exists(self, plural: str, obj: Object) -> bool:
        res = self._resources.require(objects.GROUP, "v1", plural)
        return self._objects.find(res, "", obj["metadata"]["name"]) is not None

    def _stored(self, plural: str) -> list[Object]:
        return self._objects.objects(self._resources.require(objects.GROUP, "v1", plural))

    def _changed(self, _events: Sequence[StoreEvent]) -> None:
        if not self._due:
            self._due = True
            self._tasks.start(self._digest())

    async def _digest(self) -> None:
        self._due = False
        schemas, levels = self._stored(_SCHEMAS.plural), self._stored(_LEVELS.plural)
        dangling = {obj["metadata"]["name"] for obj in self._flows.configure(levels, schemas)}
        self._notice_missing(
            {obj["metadata"]["name"] for obj in schemas},
            {obj["metadata"]["name"] for obj in levels},
        )
        results = await asyncio.gather(
            *(self._write_condition(obj, obj["metadata"]["name"] in dangling) for obj in schemas),
            return_exceptions=True,
        )
        for problem in results:
            # Deleted or changed concurrently: the next change triggers another sync.
            if isinstance(problem, ApiError) and problem.code in (404, 409):
                continue
            if isinstance(problem, Exception):
                log.warning("the status of a FlowSchema could not be written: %s", problem)

    async def _write_condition(self, schema: Object, dangling: bool) -> None:
        level = (schema["spec"].get("priorityLevelConfiguration") or {}).get("name", "")
        found = "but there is no such object" if dangling else "and it exists"
        condition = {
            "type": "Dangling",
            "status": "True" if dangling else "False",
            "reason": "NotFound" if dangling else "Found",
            "message": (
                "This FlowSchema references the PriorityLevelConfiguration object named "
                f"{go_quote(level)} {found}"
            ),
        }
        for old in (schema.get("status") or {}).get("conditions") or ():
            if condition.items() <= old.items():
                return
        condition["lastTransitionTime"] = rfc3339(self._clock.time())
        name, resource = schema["metadata"]["name"], self._schemas
        change: Object = {"status": {"conditions": [condition]}}
        if self._applies:
            version = f"{resource.group}/{resource.version}"
            change |= {"apiVersion": version, "kind": "FlowSchema", "metadata": {"name": name}}
            await self._consumer.patch(
                resource,
                "",
                name,
                change,
                APPLY_PATCH,
                subresource="status",
                field_manager=CONSUMER,
                force=True,
            )
            return
        await self._consumer.patch(
            resource, "", name, change, STRATEGIC_PATCH, subresource="status"
        )

    def _notice_missing(self, schemas: set[str], levels: set[str]) -> None:
        mandatory = {objects.EXEMPT, objects.CATCH_ALL}
        is_complete = mandatory <= schemas and mandatory <= levels
        if not self._putting_back and (self._keeps_suggested or not is_complete):
            self._putting_back = True
            self._clock.call_later(_PUT_BACK_AFTER, self._spawn_put_back)

    def _spawn_put_back(self) -> None:
        self._putting_back = False
        self._tasks.start(self._put_back())

    async def _put_back(self) -> None:
        try:
            if self._keeps_suggested:
                await self._ensure()
            else:
                await self._create(objects.mandatory_objects(self._release))
        except ApiError as problem:
            log.warning("a flow control object could not be put back: %s", problem)
            self._notice_missing(set(), set())


async def _all_written(writes: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Another server of the cluster, or the administrator, may write the same objects; the next
    change is noticed.
    """
    for problem in await asyncio.gather(*writes, return_exceptions=True):
        if isinstance(problem, ApiError) and problem.code in (404, 409):
            continue
        if isinstance(problem, BaseException):
            raise problem


def _annotated(obj: Object) -> bool | None:
    """The annotation, None if it is absent or not a boolean."""
    text = (obj["metadata"].get("annotations") or {}).get(objects.AUTO_UPDATE, "")
    if text in gobool.TRUE:
        return True
    return False if text in gobool.FALSE else None


def revised_object(current: Object, wanted: Object, *, always: bool) -> Object | None:
    """The stored object with the specification of the release, if it may be updated, and with the
    annotation that says so; None if nothing changes. `always`: a mandatory object.
    """
    annotated, meta = _annotated(current), current["metadata"]
    updates = always or (meta.get("generation") == 1 if annotated is None else annotated)
    changed = updates and current["spec"] != wanted["spec"]
    if annotated is updates and not changed:
        return None
    notes = {**(meta.get("annotations") or {}), objects.AUTO_UPDATE: str(updates).lower()}
    spec = wanted["spec"] if changed else current["spec"]
    return {**current, "metadata": {**meta, "annotations": notes}, "spec": spec}
