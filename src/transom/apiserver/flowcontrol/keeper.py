"""Keeps the flows in step with the stored FlowSchemas and PriorityLevelConfigurations, and those with the flows.

Writes what Kubernetes' own two parts write: the objects of a new cluster (the producer), and in the status of each
FlowSchema whether its priority level exists (the consumer).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from transom.apiserver.context import User
from transom.apiserver.flowcontrol import objects
from transom.apiserver.flowcontrol.flows import Flows
from transom.apiserver.inprocess import InProcessClient
from transom.client.api import STRATEGIC_PATCH
from transom.client.resources import GroupVersionResource
from transom.kit.clock import rfc3339
from transom.machinery.errors import ApiError
from transom.machinery.field import go_quote
from transom.machinery.objects import Object
from transom.store.api import Event

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer

log = logging.getLogger("transom.apiserver")

_SCHEMAS = GroupVersionResource(objects.GROUP, objects.VERSION, "flowschemas")
_LEVELS = GroupVersionResource(objects.GROUP, objects.VERSION, "prioritylevelconfigurations")
_PRODUCER = "api-priority-and-fairness-config-producer-v1"
_CONSUMER = "api-priority-and-fairness-config-consumer-v1"
_PUT_BACK_AFTER = 60.0


class Keeper:
    def __init__(self, server: ApiServer, flows: Flows, user: User) -> None:
        self._server = server
        self._flows = flows
        self._producer = InProcessClient(server, user, user_agent=_PRODUCER)
        self._consumer = InProcessClient(server, user, user_agent=_CONSUMER)
        self._due = False
        self._putting_back = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Make what is missing, then follow every change."""
        await self._make()
        store = self._server.options.store
        for plural in (_SCHEMAS.plural, _LEVELS.plural):
            store.watch(self._server.resource(objects.GROUP, "v1", plural).key_prefix(""), store.revision, self._changed)
        await self._digest()

    async def _make(self) -> None:
        have = {obj["metadata"]["name"] for obj in self._stored(_LEVELS.plural)}
        schemas, levels = objects.mandatory_schemas(), objects.mandatory_levels()
        if objects.EXEMPT not in have:  # the first start; later the suggested ones belong to the administrator
            await self._create(objects.suggested_schemas(), objects.suggested_levels())
        await self._create(schemas, levels)

    async def _create(self, schemas: Iterable[Object], levels: Iterable[Object]) -> None:
        missing = [(_SCHEMAS, obj) for obj in schemas if not self._exists(_SCHEMAS.plural, obj)]
        missing += [(_LEVELS, obj) for obj in levels if not self._exists(_LEVELS.plural, obj)]
        await asyncio.gather(*(self._producer.create(resource, "", obj) for resource, obj in missing))

    def _exists(self, plural: str, obj: Object) -> bool:
        res = self._server.resource(objects.GROUP, "v1", plural)
        return self._server.storage.find(res, "", obj["metadata"]["name"]) is not None

    def _stored(self, plural: str) -> list[Object]:
        return self._server.storage.objects(self._server.resource(objects.GROUP, "v1", plural))

    def _changed(self, _events: Sequence[Event]) -> None:
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
        self._notice_missing({obj["metadata"]["name"] for obj in schemas}, {obj["metadata"]["name"] for obj in levels})
        results = await asyncio.gather(
            *(self._tell(obj, obj["metadata"]["name"] in dangling) for obj in schemas), return_exceptions=True
        )
        for problem in results:
            # Gone, or changed by another in between: the next change brings us here again.
            if isinstance(problem, ApiError) and problem.code in (404, 409):
                continue
            if isinstance(problem, Exception):
                log.warning("the status of a FlowSchema could not be written: %s", problem)

    async def _tell(self, schema: Object, dangling: bool) -> None:
        level = (schema["spec"].get("priorityLevelConfiguration") or {}).get("name", "")
        found = "but there is no such object" if dangling else "and it exists"
        condition = {
            "type": "Dangling", "status": "True" if dangling else "False", "reason": "NotFound" if dangling else "Found",
            "message": f"This FlowSchema references the PriorityLevelConfiguration object named {go_quote(level)} {found}",
        }
        for old in (schema.get("status") or {}).get("conditions") or ():
            if condition.items() <= old.items():
                return
        condition["lastTransitionTime"] = rfc3339(self._server.clock.time())
        await self._consumer.patch(
            _SCHEMAS, "", schema["metadata"]["name"], {"status": {"conditions": [condition]}}, STRATEGIC_PATCH,
            subresource="status",
        )

    def _notice_missing(self, schemas: set[str], levels: set[str]) -> None:
        mandatory = {objects.EXEMPT, objects.CATCH_ALL}
        if not self._putting_back and not (mandatory <= schemas and mandatory <= levels):
            self._putting_back = True
            self._server.clock.call_later(_PUT_BACK_AFTER, self._spawn_put_back)

    def _spawn_put_back(self) -> None:
        self._putting_back = False
        self._spawn(self._put_back())

    async def _put_back(self) -> None:
        try:
            await self._create(objects.mandatory_schemas(), objects.mandatory_levels())
        except ApiError as problem:
            log.warning("a mandatory flow control object could not be put back: %s", problem)
            self._notice_missing(set(), set())
