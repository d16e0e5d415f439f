"""Load balancers inside the cluster: assigns services of this type an address from a pool.

There is no cloud, so the pool is a range that is routed only to the cluster itself, independent of
the machine's network; with dual stack one of each family, and a service gets an address of each of
its families. Without a pool this controller does not run, and such services wait for another
component, as in a cluster without a cloud provider.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from transom.client.api import MERGE_PATCH, is_not_found
from transom.client.events import NORMAL, WARNING
from transom.client.ratelimit import ControllerLimiter
from transom.client.resources import NODES, SERVICES
from transom.client.store import object_key
from transom.client.workqueue import RetryLater, WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
_FIRST_RETRY, _LONGEST_RETRY = 5.0, 300.0
_EXCLUDED_LABELS = (
    "node-role.kubernetes.io/master",
    "node.kubernetes.io/exclude-from-external-load-balancers",
)
# Fields whose change requires a new load balancer: (field, reason of the event or "")
_FIELDS = (
    ("loadBalancerSourceRanges", "LoadBalancerSourceRanges"),
    ("ports", ""),
    ("sessionAffinity", ""),
    ("sessionAffinityConfig", ""),
    ("loadBalancerIP", "LoadbalancerIP"),
    ("externalIPs", ""),
    ("externalTrafficPolicy", "ExternalTrafficPolicy"),
    ("healthCheckNodePort", "HealthCheckNodePort"),
    ("ipFamilies", ""),
)


class NoAddress(Exception):
    """The pool is exhausted, or does not contain the requested address."""


class LoadBalancers:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        pools = [
            ipaddress.ip_network(text.strip()) for text in env.settings.load_balancers.split(",")
        ]
        self._pools = {f"IPv{pool.version}": pool for pool in pools}
        self._events = env.recorder("service-controller")
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock,
            ControllerLimiter(env.clock, _FIRST_RETRY, _LONGEST_RETRY),
            name="service",
            metrics=env.queues,
        )
        # service -> addresses, until the informer shows them
        self._given: dict[str, list[str]] = {}
        self._hosts: set[str] = set()
        self._services = env.informers(SERVICES)
        self._nodes = env.informers(NODES)
        self._services.add_handler(add=self._added, update=self._updated, delete=self._deleted)
        self._nodes.add_handler(
            add=self._node_seen, update=lambda _, new: self._node_seen(new), delete=self._node_gone
        )

    async def run(self) -> None:
        await self._services.synced()
        await self._nodes.synced()
        # One worker: two services must not get the same address.
        await run_worker(self._queue, self._sync, (self._services, self._nodes))

    # ---- changes ----

    def _added(self, service: Object) -> None:
        if _wanted(service) or _needs_cleanup(service):
            self._queue.add(object_key(service))

    def _updated(self, old: Object, new: Object) -> None:
        if self._differs(old, new) or _needs_cleanup(new):
            self._queue.add(object_key(new))

    def _deleted(self, service: Object) -> None:
        self._given.pop(object_key(service), None)

    def _differs(self, old: Object, new: Object) -> bool:
        if not _wanted(old) and not _wanted(new):
            return False
        before, after = old.get("spec") or {}, new.get("spec") or {}
        if _wanted(old) != _wanted(new):
            self._record_event(new, "Type", f"{before.get('type', '')} -> {after.get('type', '')}")
            return True
        for field, reason in _FIELDS:
            if before.get(field) != after.get(field):
                if reason:
                    self._record_event(
                        new, reason, f"{_text(before.get(field))} -> {_text(after.get(field))}"
                    )
                return True
        meta, other = old["metadata"], new["metadata"]
        return any(meta.get(field) != other.get(field) for field in ("annotations", "uid"))

    def _node_seen(self, node: Object) -> None:
        name = node["metadata"]["name"]
        if _usable(node) == (name in self._hosts):
            return
        (self._hosts.discard if name in self._hosts else self._hosts.add)(name)
        self._hosts_changed()

    def _node_gone(self, node: Object) -> None:
        if node["metadata"]["name"] in self._hosts:
            self._hosts.discard(node["metadata"]["name"])
            self._hosts_changed()

    def _hosts_changed(self) -> None:
        if not self._nodes.has_synced:
            return
        for service in self._services.list():
            if _wanted(service) and FINALIZER in (service["metadata"].get("finalizers") or ()):
                if self._hosts:
                    self._record_event(
                        service, "UpdatedLoadBalancer", "Updated load balancer with new hosts"
                    )
                else:
                    self._warn_no_hosts(service)

    # ---- one service ----

    async def _sync(self, key: str) -> None:
        service = self._services.by_key(key)
        if service is None:
            return
        try:
            if _wanted(service) and not _needs_cleanup(service):
                await self._ensure(key, service)
            elif _needs_cleanup(service):
                await self._clean_up(key, service)
        except (ApiError, NoAddress) as problem:
            if is_not_found(problem):
                return
            self._events.event(
                service,
                WARNING,
                "SyncLoadBalancerFailed",
                f"Error syncing load balancer: {problem}",
            )
            raise RetryLater(str(problem)) from problem

    async def _ensure(self, key: str, service: Object) -> None:
        self._record_event(service, "EnsuringLoadBalancer", "Ensuring load balancer")
        finalizers = service["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            service = await self._patch(
                service, {"metadata": {"finalizers": [*finalizers, FINALIZER]}}
            )
        if not self._hosts:
            self._warn_no_hosts(service)
        try:
            addresses = [self._address(key, service, family) for family in self._families(service)]
        except NoAddress as problem:
            raise NoAddress(f"failed to ensure load balancer: {problem}") from problem
        self._given[key] = addresses
        self._record_event(service, "EnsuredLoadBalancer", "Ensured load balancer")
        if _addresses(service) != addresses:
            ingress = [{"ip": address} for address in addresses]
            await self._patch(service, {"status": {"loadBalancer": {"ingress": ingress}}})

    async def _clean_up(self, key: str, service: Object) -> None:
        if key in self._given or _addresses(service):
            self._record_event(service, "DeletingLoadBalancer", "Deleting load balancer")
        self._given.pop(key, None)
        rest = [f for f in service["metadata"].get("finalizers") or () if f != FINALIZER]
        change: Object = {"metadata": {"finalizers": rest or None}}
        if _addresses(service):
            change["status"] = {"loadBalancer": {"ingress": None}}
        await self._patch(service, change)
        self._record_event(service, "DeletedLoadBalancer", "Deleted load balancer")

    async def _patch(self, service: Object, change: Object) -> Object:
        meta = service["metadata"]
        versioned = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        body = {**change, "metadata": {**change.get("metadata", {}), **versioned}}
        return await self._client.patch(
            SERVICES, meta["namespace"], meta["name"], body, MERGE_PATCH, subresource="status"
        )

    def _families(self, service: Object) -> list[str]:
        """The families of the service that have a pool; the default one if it specifies none, or
        has no pool.
        """
        wanted = (service.get("spec") or {}).get("ipFamilies") or ()
        return [family for family in wanted if family in self._pools] or [next(iter(self._pools))]

    def _address(self, key: str, service: Object, family: str) -> str:
        """The current address, the requested one, or the first free one."""
        pool = self._pools[family]
        taken = {
            address
            for other in self._services.list()
            if object_key(other) != key
            for address in _addresses(other)
        }
        taken |= {
            address
            for other, addresses in self._given.items()
            if other != key
            for address in addresses
        }
        wanted = (service.get("spec") or {}).get("loadBalancerIP")
        if wanted and (len(self._pools) == 1 or (":" in wanted) == (family == "IPv6")):
            if wanted in taken or ipaddress.ip_address(wanted) not in pool:
                raise NoAddress(f"the address {wanted} is not free in {pool}")
            return str(wanted)
        for held in (*_addresses(service), *self._given.get(key, ())):
            if held not in taken and ipaddress.ip_address(held) in pool:
                return held
        for free in pool.hosts():
            if str(free) not in taken:
                return str(free)
        raise NoAddress(f"no address of {pool} is free")

    def _record_event(self, service: Object, reason: str, message: str) -> None:
        self._events.event(service, NORMAL, reason, message)

    def _warn_no_hosts(self, service: Object) -> None:
        text = "There are no available nodes for LoadBalancer"
        self._events.event(service, WARNING, "UnAvailableLoadBalancer", text)


def _wanted(service: Object) -> bool:
    return bool((service.get("spec") or {}).get("type") == "LoadBalancer")


def _needs_cleanup(service: Object) -> bool:
    meta = service["metadata"]
    held = FINALIZER in (meta.get("finalizers") or ())
    return held and ("deletionTimestamp" in meta or not _wanted(service))


def _addresses(service: Object) -> list[str]:
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    return [row["ip"] for row in balancer.get("ingress") or () if row.get("ip")]


def _usable(node: Object) -> bool:
    labels: Iterable[str] = node["metadata"].get("labels") or ()
    conditions: Sequence[Object] = (node.get("status") or {}).get("conditions") or ()
    ready = all(row.get("status") == "True" for row in conditions if row["type"] == "Ready")
    return bool(conditions) and ready and not any(label in labels for label in _EXCLUDED_LABELS)


def _text(value: object) -> str:
    """As Go prints it."""
    if isinstance(value, list):
        return "[" + " ".join(map(str, value)) + "]"
    return "" if value is None else str(value)
