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
from transom.client.api import STRATEGIC_PATCH, ApiClient
from transom.client.resources import GroupVersionResource
from transom.kit.clock import Clock, rfc3339
from transom.kit.goquote import go_quote
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
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
        self._due = False
        self._putting_back = False
        self._tasks: set[asyncio.Task[None]] = set()

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
        have = {obj["metadata"]["name"] for obj in self._stored(_LEVELS.plural)}
        schemas, levels = objects.mandatory_schemas(), objects.mandatory_levels()
        if (
            objects.EXEMPT not in have
        ):  # the first start; later the suggested objects belong to the administrator
            release = self._resources.types.release
            await self._create(
                [*objects.suggested_schemas(), *objects.newer_schemas(release)],
                [*objects.suggested_levels(), *objects.newer_levels(release)],
            )
        await self._create(schemas, levels)

    async def _create(self, schemas: Iterable[Object], levels: Iterable[Object]) -> None:
        release = self._resources.types.release
        version = objects.version_in(release)
        missing = [
            (resource.at(version), obj)
            for resource, made in ((_SCHEMAS, schemas), (_LEVELS, levels))
            for obj in objects.in_release(release, made)
            if not self._exists(resource.plural, obj)
        ]
        results = await asyncio.gather(
            *(self._producer.create(resource, "", obj) for resource, obj in missing),
            return_exceptions=True,
        )
        for problem in results:
            # Another server of the cluster may start at the same time.
            exists = isinstance(problem, ApiError) and problem.reason == "AlreadyExists"
            if isinstance(problem, BaseException) and not exists:
                raise problem

    def _exists(self, plural: str, obj: Object) -> bool:
        res = self._resources.require(objects.GROUP, "v1", plural)
        return self._objects.find(res, "", obj["metadata"]["name"]) is not None

    def _stored(self, plural: str) -> list[Object]:
        return self._objects.objects(self._resources.require(objects.GROUP, "v1", plural))

    def _changed(self, _events: Sequence[StoreEvent]) -> None:
        if not self._due:
            self._due = True
            self._spawn(self._digest())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

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
        await self._consumer.patch(
            _SCHEMAS,
            "",
            schema["metadata"]["name"],
            {"status": {"conditions": [condition]}},
            STRATEGIC_PATCH,
            subresource="status",
        )

    def _notice_missing(self, schemas: set[str], levels: set[str]) -> None:
        mandatory = {objects.EXEMPT, objects.CATCH_ALL}
        if not self._putting_back and not (mandatory <= schemas and mandatory <= levels):
            self._putting_back = True
            self._clock.call_later(_PUT_BACK_AFTER, self._spawn_put_back)

    def _spawn_put_back(self) -> None:
        self._putting_back = False
        self._spawn(self._put_back())

    async def _put_back(self) -> None:
        try:
            await self._create(objects.mandatory_schemas(), objects.mandatory_levels())
        except ApiError as problem:
            log.warning("a mandatory flow control object could not be put back: %s", problem)
            self._notice_missing(set(), set())
