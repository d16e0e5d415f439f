"""The API server's own writes as `system:apiserver`: admitted and validated, but not authorized."""

from __future__ import annotations

from transom.apiserver.core.bodies import own_fields
from transom.apiserver.core.context import RequestContext, UserInfo
from transom.apiserver.core.resources import ResourceRegistry
from transom.apiserver.core.storage import Storage
from transom.kit.clock import Clock
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

SERVER_USER = UserInfo("system:apiserver", ("system:masters", "system:authenticated"))
_USER_AGENT = "kube-apiserver/transom"


class Loopback:
    def __init__(self, storage: Storage, resources: ResourceRegistry, clock: Clock) -> None:
        self.storage = storage
        self.resources = resources
        self.clock = clock

    def context(self) -> RequestContext:
        return RequestContext(SERVER_USER, self.clock.time(), user_agent=_USER_AGENT)

    async def ensure(
        self, group: str, version: str, plural: str, namespace: str, obj: Object
    ) -> None:
        """Creates the object unless it exists."""
        res = self.resources.require(group, version, plural)
        if self.storage.find(res, namespace, obj["metadata"]["name"]) is not None:
            return
        complete = res.ops.normalise(obj)
        res.ops.default(complete)
        ctx = self.context()
        own_fields(ctx, res, complete, None)
        try:
            await self.storage.create(ctx, res, namespace, res.ops.to_storage(complete))
        except ApiError as problem:
            if problem.reason != "AlreadyExists":
                raise
