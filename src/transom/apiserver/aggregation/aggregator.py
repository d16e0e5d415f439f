"""The remote APIServices: their group versions, availability and connections.

The stored object decides: requests are proxied only if its `Available` condition is True. The
condition is checked when the APIService, its service or the endpoints change, and every half
minute.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from transom.apiserver.aggregation import availability
from transom.apiserver.aggregation.availability import Availability
from transom.apiserver.aggregation.registration import GROUP
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.discovery import ServedVersion
from transom.apiserver.core.loopback import Loopback
from transom.apiserver.core.service_resolver import Resolve, ServiceResolver, UnresolvedService
from transom.http.messages import Answer, HttpRequest
from transom.http.outgoing import CallTarget, ClientPair, Connect
from transom.http.pool import ConnectionPool
from transom.kit.backoff import exponential_backoff
from transom.kit.clock import Timer, rfc3339
from transom.kit.lazy import lazy_import
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.store.api import StoreEvent, Subscription

if TYPE_CHECKING:
    from transom.apiserver.aggregation import proxy
else:
    proxy = lazy_import("transom.apiserver.aggregation.proxy")

log = logging.getLogger("transom.apiserver")
_RESYNC_SECONDS = 30.0
_FIRST_RETRY, _LAST_RETRY = 0.005, 30.0


class RemoteApiService:
    """One APIService with a service."""

    __slots__ = (
        "available",
        "ca_bundle",
        "failures",
        "name",
        "obj",
        "resources",
        "running",
        "spec",
        "timer",
        "waiting",
    )

    def __init__(self, obj: Object) -> None:
        self.name: str = obj["metadata"]["name"]
        self.resources: list[Any] = []
        self.failures = 0
        self.timer: Timer | None = None
        self.running: asyncio.Task[None] | None = None
        self.waiting = False  # check again after the current check
        self.refresh(obj)

    def refresh(self, obj: Object) -> None:
        self.obj = obj
        self.spec: Object = obj["spec"]
        self.ca_bundle = base64.b64decode(self.spec.get("caBundle") or "")
        self.available = (available_condition(obj) or {}).get("status") == "True"

    @property
    def service(self) -> tuple[str, str, int]:
        reference = self.spec["service"]
        return reference["namespace"], reference["name"], reference.get("port", 443)


def available_condition(obj: Object) -> Object | None:
    conditions: list[Object] = (obj.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c.get("type") == "Available"), None)


class Aggregator:
    def __init__(
        self,
        loopback: Loopback,
        endpoints: ServiceResolver,
        resolve: Resolve,
        connect: Connect | None,
        front_proxy: ClientPair | None,
        *,
        sends_uid: bool = False,
    ) -> None:
        """`resolve` finds the address of a service; `front_proxy` is this server's client
        identity. `sends_uid`: other servers learn the UID of the user (RemoteRequestHeaderUID).
        """
        self._sends_uid = sends_uid
        self._loopback = loopback
        self._storage = loopback.storage
        self._clock = loopback.clock
        self._endpoints = endpoints
        self._resolve = resolve
        self._resource = loopback.resources.require(GROUP, "v1", "apiservices")
        self._remotes: dict[str, RemoteApiService] = {}
        self._by_version: dict[tuple[str, str], RemoteApiService] = {}
        self._pool = ConnectionPool(connect)
        self._pair = front_proxy
        self._subscriptions: list[Subscription] = []
        # watches services and endpoints, while there is any remote APIService
        self._watching: list[Subscription] = []
        self.generation = 0

    # ---- requests ----

    @property
    def any(self) -> bool:
        return bool(self._by_version)

    def answer(self, request: HttpRequest, user: UserInfo) -> Answer | Awaitable[Answer] | None:
        """The response of the server that a path belongs to; None if that is this server."""
        remote = self._by_version.get(_group_version(request.path))
        if remote is None:
            return None
        if not remote.available:
            return proxy.api_service_unavailable()
        try:
            address = self._resolve(*remote.service)
        except UnresolvedService as problem:
            log.warning("APIService %s: %s", remote.name, problem)
            return proxy.api_service_unavailable()
        namespace, name, _ = remote.service
        insecure = bool(remote.spec.get("insecureSkipTLSVerify"))
        target = CallTarget(
            *address, f"{name}.{namespace}.svc", remote.ca_bundle, insecure, self._pair
        )
        return proxy.forward_to_api_service(request, user, target, self._pool, uid=self._sends_uid)

    def claims(self, group: str, version: str) -> bool:
        """Whether another server is registered for a group version."""
        return (group, version) in self._by_version

    def served(self) -> Iterable[ServedVersion]:
        for remote in self._remotes.values():
            spec = remote.spec
            yield ServedVersion(
                spec.get("group", ""),
                spec["version"],
                spec.get("groupPriorityMinimum", 0),
                spec.get("versionPriority", 0),
                tuple(remote.resources),
                remote.available,
            )

    # ---- the stored objects ----

    def start(self) -> None:
        store = self._storage.store
        for obj in self._storage.objects(self._resource):
            self._put(obj)
        self._subscriptions.append(
            store.watch(self._resource.key_prefix(""), store.revision, self._changed)
        )

    async def stop(self) -> None:
        for subscription in (*self._subscriptions, *self._watching):
            subscription.cancel()
        running = [r.running for r in self._remotes.values() if r.running is not None]
        for remote in list(self._remotes.values()):
            self._drop(remote.name)
        await asyncio.gather(*running, return_exceptions=True)
        self._pool.close()

    def _changed(self, events: Sequence[StoreEvent]) -> None:
        for event in events:
            name = event.key.partition("/")[2]
            if event.record is None:
                self._drop(name)
            else:
                self._put(self._storage.decode(self._resource, event.record))

    def _put(self, obj: Object) -> None:
        name = obj["metadata"]["name"]
        if not obj["spec"].get("service"):
            self._drop(name)
            return
        remote = self._remotes.get(name)
        if remote is None:
            remote = self._remotes[name] = RemoteApiService(obj)
            self._by_version[remote.spec.get("group", ""), remote.spec["version"]] = remote
            self._watch_services()
            self.check(remote)
        else:
            before = remote.spec
            remote.refresh(obj)
            if remote.spec != before or available_condition(obj) is None:
                remote.failures = 0
                self.check(remote)
        self.generation += 1

    def _drop(self, name: str) -> None:
        remote = self._remotes.pop(name, None)
        if remote is None:
            return
        self._by_version.pop((remote.spec.get("group", ""), remote.spec["version"]), None)
        if remote.timer is not None:
            remote.timer.cancel()
        if remote.running is not None:
            remote.running.cancel()
        self.generation += 1
        if not self._remotes:
            for subscription in self._watching:
                subscription.cancel()
            self._watching = []

    def _watch_services(self) -> None:
        if self._watching:
            return
        store = self._storage.store
        for prefix in ("services/", "endpoints/", "endpointslices.discovery.k8s.io/"):
            self._watching.append(store.watch(prefix, store.revision, self._service_changed))

    def _service_changed(self, events: Sequence[StoreEvent]) -> None:
        keys = {tuple(event.key.split("/", 2)[1:]) for event in events}
        for remote in list(self._remotes.values()):
            namespace, name, _ = remote.service
            # The name of a slice starts with that of its service.
            if any(
                k[0] == namespace and (k[1] == name or k[1].startswith(f"{name}-"))
                for k in keys
                if len(k) == 2
            ):
                self.check(remote)

    # ---- availability ----

    def check(self, remote: RemoteApiService) -> None:
        """Schedules a check; one at a time for each APIService."""
        if remote.running is not None:
            remote.waiting = True
            return
        if remote.timer is not None:
            remote.timer.cancel()
            remote.timer = None
        remote.running = asyncio.get_running_loop().create_task(self._check(remote))

    async def _check(self, remote: RemoteApiService) -> None:
        pause = _RESYNC_SECONDS
        try:
            found = availability.availability_by_objects(remote.spec, self._endpoints)
            if found is None:
                found = await availability.availability_by_request(
                    remote.spec, self._resolve, self._pool, self._pair
                )
            failed = found.reason == "FailedDiscoveryCheck"
            remote.failures = remote.failures + 1 if failed else 0
            if failed:
                pause = exponential_backoff(_FIRST_RETRY, _LAST_RETRY, remote.failures - 1)
            if found.resources is not None and found.resources != remote.resources:
                remote.resources = found.resources
                self.generation += 1
            await self._publish(remote, found)
        except ApiError as problem:
            log.warning("APIService %s: %s", remote.name, problem)
        finally:
            remote.running = None
        if self._remotes.get(remote.name) is not remote:
            return
        if remote.waiting:
            remote.waiting = False
            self.check(remote)
        else:
            remote.timer = self._clock.call_later(pause, lambda: self.check(remote))

    async def _publish(self, remote: RemoteApiService, found: Availability) -> None:
        """Writes the condition if it changed."""
        now = rfc3339(self._clock.time())
        before = available_condition(remote.obj)
        if found.condition(before, now) == before:
            return

        def transform(old: Object | None) -> Object:
            old = old or {}
            status = old.get("status") or {}
            others = [c for c in status.get("conditions") or () if c.get("type") != "Available"]
            condition = found.condition(available_condition(old), now)
            return {**old, "status": {**status, "conditions": [*others, condition]}}

        try:
            await self._storage.update(
                self._loopback.context(),
                self._resource,
                "",
                remote.name,
                transform,
                subresource="status",
                reread=True,
                checked=False,
            )
        except ApiError as problem:
            if problem.code != 404:
                raise


def _group_version(path: str) -> tuple[str, str]:
    parts = path.split("/", 4)
    if len(parts) >= 4 and parts[1] == "apis":
        return parts[2], parts[3]
    if len(parts) >= 3 and parts[1] == "api":
        return "", parts[2]
    return "", ""
