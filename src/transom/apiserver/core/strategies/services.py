"""Services: allocates cluster IPs and node ports before the write and releases them if it fails or
the service is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import orjson

from transom.apiserver.core.allocators import (
    AddressAllocator,
    AllocatorFull,
    AlreadyAllocated,
    NotInRange,
    ServiceAllocators,
)
from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.strategies import service_addresses
from transom.apiserver.core.strategies import service_families as families
from transom.apiserver.core.strategies.base import StorageRules, Strategy
from transom.machinery import errors, field
from transom.machinery.errors import GroupResource
from transom.machinery.field import GoText
from transom.machinery.objects import Object, copy_object
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.validation.addresses import STRICT_ADDRESSES
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.service_releases import find_cluster_ip_errors

_KIND = GroupResource("", "Service")
_WITH_CLUSTER_IP = ("ClusterIP", "NodePort", "LoadBalancer")
_WITH_NODE_PORTS = ("NodePort", "LoadBalancer")
_MADE_UP_PORT = 32768  # one less than the first port that a dry run shows


def needs_cluster_ip(svc: Object) -> bool:
    return svc["spec"].get("type") in _WITH_CLUSTER_IP


def needs_node_port(svc: Object) -> bool:
    spec = svc["spec"]
    return spec.get("type") == "NodePort" or (
        spec.get("type") == "LoadBalancer"
        and spec.get("allocateLoadBalancerNodePorts") is not False
    )


def needs_health_check_node_port(svc: Object) -> bool:
    spec = svc["spec"]
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _node_ports(svc: Object) -> list[int]:
    return [p["nodePort"] for p in svc["spec"].get("ports") or () if p.get("nodePort")]


def _drop_disabled(storage: StorageRules, new: Object, old: Object | None) -> None:
    """Dual-stack fields and topology keys are behind gates that are disabled in 1.20 by default."""
    spec = new["spec"]
    old_spec = (old or {}).get("spec") or {}
    in_use = (
        old_spec.get("ipFamilyPolicy")
        or old_spec.get("ipFamilies")
        or len(old_spec.get("clusterIPs") or ()) > 1
    )
    if not in_use and not _dual_stack(storage):
        spec.pop("ipFamilies", None)
        spec.pop("ipFamilyPolicy", None)
        if len(spec.get("clusterIPs") or ()) > 1:
            spec["clusterIPs"] = spec["clusterIPs"][:1]
    if has_behaviour(storage.release, "InternalTrafficPolicy"):
        if spec.get("type") == "ExternalName":
            spec.pop("internalTrafficPolicy", None)
        return
    for name in ("topologyKeys", "allocateLoadBalancerNodePorts"):
        if name in spec and name not in old_spec:
            del spec[name]


def _dual_stack(storage: StorageRules) -> bool:
    return storage.feature(families.GATE)


def _create(storage: StorageRules, _ctx: RequestContext, svc: Object) -> None:
    spec = svc["spec"]
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    _drop_disabled(storage, svc, None)


def _update(storage: StorageRules, _ctx: RequestContext, new: Object, old: Object) -> None:
    _keep_allocated(new, old)
    _normalise_cluster_ips(new, old)
    _drop_disabled(storage, new, old)
    _drop_for_type(new, old, newer=has_behaviour(storage.release, "ExternalPolicyRequired"))
    if _dual_stack(storage):
        families.trim_for_dual_stack_downgrade(new, old)


def _keep_allocated(new: Object, old: Object) -> None:
    """An update without allocated values keeps them."""
    spec, before = new["spec"], old["spec"]
    if needs_cluster_ip(old) and needs_cluster_ip(new):
        for name in ("clusterIP", "clusterIPs"):
            if not spec.get(name) and before.get(name):
                spec[name] = before[name]
    both_node_ports = (
        before.get("type") in _WITH_NODE_PORTS and spec.get("type") in _WITH_NODE_PORTS
    )
    if both_node_ports:
        kept = set(_node_ports(old)) & set(_node_ports(new))
        by_name = {p.get("name", ""): p.get("nodePort", 0) for p in before.get("ports") or ()}
        for port in spec.get("ports") or ():
            known = by_name.get(port.get("name", ""), 0)
            if not port.get("nodePort") and known and known not in kept:
                port["nodePort"] = known
    if (
        needs_health_check_node_port(old)
        and needs_health_check_node_port(new)
        and not spec.get("healthCheckNodePort")
    ):
        port_number = before.get("healthCheckNodePort")
        if port_number:
            spec["healthCheckNodePort"] = port_number


def _normalise_cluster_ips(new: Object, old: Object) -> None:
    """Keeps `clusterIP` and `clusterIPs` consistent if a client changed only one of them."""
    spec, before = new["spec"], old["spec"]
    ip, ips = spec.get("clusterIP", ""), spec.get("clusterIPs") or []
    old_ip, old_ips = before.get("clusterIP", ""), before.get("clusterIPs") or []
    if old_ips and not ips and old_ip == ip:
        spec["clusterIPs"] = old_ips
    if old_ip != ip and ips == old_ips:
        if old_ip and not ip:
            spec.pop("clusterIPs", None)
        else:
            spec["clusterIPs"] = [ip]


def _externally_accessible(spec: Object) -> bool:
    kind = spec.get("type")
    return kind in _WITH_NODE_PORTS or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def _drop_newer_for_type(spec: Object, before: Object) -> None:
    """Fields that other releases keep, or drop regardless of the request."""
    same = spec.get("externalTrafficPolicy") == before.get("externalTrafficPolicy")
    if _externally_accessible(before) and not _externally_accessible(spec) and same:
        spec.pop("externalTrafficPolicy", None)
    if (
        before.get("type") == "LoadBalancer"
        and spec.get("type") != "LoadBalancer"
        and spec.get("loadBalancerClass") == before.get("loadBalancerClass")
    ):
        spec.pop("loadBalancerClass", None)


def _drop_for_type(new: Object, old: Object, *, newer: bool = False) -> None:
    """Changing the type clears the old type's allocations, unless the user changed them in the same
    request.
    """
    spec, before = new["spec"], old["spec"]
    if needs_cluster_ip(old) and not needs_cluster_ip(new):
        if spec.get("clusterIP") == before.get("clusterIP") and spec.get(
            "clusterIPs"
        ) == before.get("clusterIPs"):
            spec.pop("clusterIP", None)
            spec.pop("clusterIPs", None)
        for name in ("ipFamilies", "ipFamilyPolicy"):
            if spec.get(name) == before.get(name):
                spec.pop(name, None)
    uses_ports = spec.get("type") in _WITH_NODE_PORTS
    if (
        before.get("type") in _WITH_NODE_PORTS
        and not uses_ports
        and set(_node_ports(new)) <= set(_node_ports(old))
    ):
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)
    if (
        needs_health_check_node_port(old)
        and not needs_health_check_node_port(new)
        and (spec.get("healthCheckNodePort") == before.get("healthCheckNodePort"))
    ):
        spec.pop("healthCheckNodePort", None)
    if newer:
        _drop_newer_for_type(spec, before)
        if spec.get("type") != "LoadBalancer" and (new.get("status") or {}).get("loadBalancer"):
            new["status"] = {**new["status"], "loadBalancer": {}}
    elif before.get("type") in _WITH_NODE_PORTS and not uses_ports:
        spec.pop("externalTrafficPolicy", None)  # regardless of the request
    if (
        before.get("type") == "LoadBalancer"
        and spec.get("type") != "LoadBalancer"
        and (
            spec.get("allocateLoadBalancerNodePorts") == before.get("allocateLoadBalancerNodePorts")
        )
    ):
        spec.pop("allocateLoadBalancerNodePorts", None)


class _Reservation:
    """The allocations of this write, to be released if it fails. A dry run allocates nothing: it
    only checks that a port is free, and invents missing ports.
    """

    def __init__(self, storage: StorageRules, svc: Object, dry_run: bool) -> None:
        self._storage = storage
        self._allocators = storage.services
        self._dry_run = dry_run
        self._dry_run_ports: set[int] = set()
        self._made_up_port = _MADE_UP_PORT
        self._name = svc["metadata"].get("name", "")
        self._undo: list[Callable[[], None]] = []
        self._objects = storage.feature(service_addresses.GATE)
        if self._objects:
            service_addresses.use_service_cidrs(storage)

    def invalid(self, path: str, value: Any, why: str) -> errors.ApiError:
        return errors.invalid(_KIND, self._name, [field.invalid(path, value, why)])

    def address(self, wanted: str, pool: AddressAllocator, all_wanted: list[str]) -> str:
        try:
            wanted = self._take(wanted, pool)
        except AllocatorFull:
            raise errors.internal("failed to allocate a serviceIP: range is full") from None
        except (NotInRange, AlreadyAllocated) as problem:
            why = "provided IP is already allocated"
            if isinstance(problem, NotInRange):
                why = self._not_in_range(wanted, pool)
            text = f"failed to allocated ip:{wanted} with error:{why}"
            if has_behaviour(self._storage.release, "ServiceAllocationErrors"):
                text = f"failed to allocate IP {wanted}: {why}"
            value = go_dump("[]string", all_wanted)
            if has_behaviour(self._storage.release, "JsonValuesInErrors"):
                value = GoText(value.json)
            raise self.invalid("spec.clusterIPs", value, text) from None
        if not self._dry_run:
            self._undo.append(lambda: pool.release(wanted))
        return wanted

    def _take(self, wanted: str, pool: AddressAllocator) -> str:
        if self._dry_run:  # only the form is checked, against the range of the cluster
            if wanted:
                pool.check(wanted, pool.network)
                return wanted
            found = pool.allocate_next()
            pool.release(found)
            return found
        if wanted:
            pool.allocate(wanted)
            if self._is_foreign(wanted):
                pool.release(wanted)
                raise AlreadyAllocated
            return wanted
        while self._is_foreign(found := pool.allocate_next()):
            # It stays marked as used, so that the next one is another one.
            self._undo.append(partial(pool.release, found))
        return found

    def _is_foreign(self, address: str) -> bool:
        """Whether an IPAddress object exists that no service of this server has."""
        return self._objects and service_addresses.is_address_stored(self._storage, address)

    def _not_in_range(self, wanted: str, pool: AddressAllocator) -> str:
        network = pool.find_network(wanted)
        if self._objects and not self._dry_run and network is None:
            return "the provided network does not match the current range"
        shown = "provided IP"
        if has_behaviour(self._storage.release, "AddressInRangeErrors"):
            shown = f"the provided IP ({wanted})"
        return (
            f"{shown} is not in the valid range. The range of valid IPs is "
            f"{network or pool.network}"
        )

    def port(self, wanted: int, path: str = "") -> int:
        pool = self._allocators.ports
        try:
            if self._dry_run:
                return self._dry_run_port(wanted)
            if wanted:
                pool.allocate(wanted)
            else:
                wanted = pool.allocate_next()
        except AllocatorFull:
            raise errors.internal("failed to allocate a nodePort: range is full") from None
        except (NotInRange, AlreadyAllocated) as problem:
            why = (
                "provided port is already allocated"
                if isinstance(problem, AlreadyAllocated)
                else (
                    "provided port is not in the valid range. The range of valid ports is "
                    f"{self._allocators.port_range}"
                )
            )
            if not path:
                raise errors.internal(
                    f"failed to allocate requested HealthCheck NodePort {wanted}: {why}"
                ) from None
            raise self.invalid(path, wanted, why) from None
        self._undo.append(lambda: pool.release(wanted))
        return wanted

    def _dry_run_port(self, wanted: int) -> int:
        if wanted and (wanted in self._allocators.ports.used or wanted in self._dry_run_ports):
            raise AlreadyAllocated
        first = not self._dry_run_ports
        port = wanted or self._made_up_port + 1
        self._dry_run_ports.add(port)
        # One more than the largest port so far, however small the first requested one is.
        self._made_up_port = port if first else max(self._made_up_port, port)
        return port

    def undo(self) -> None:
        for step in reversed(self._undo):
            step()


def _reserve(
    storage: StorageRules, ctx: RequestContext, new: Object, old: Object | None
) -> Callable[[], None] | None:
    taken = _Reservation(storage, new, ctx.dry_run)
    dual_stack = _dual_stack(storage)
    if dual_stack:
        newer = has_behaviour(storage.release, "ExternalPolicyRequired")
        as_json = has_behaviour(storage.release, "JsonValuesInErrors")
        families.init_ip_families(new, storage.services.addresses, newer=newer, as_json=as_json)
    try:
        if not ctx.dry_run or storage.feature(service_addresses.GATE):
            (_reserve_of_families if dual_stack else _reserve_address)(
                taken, storage.services, new, old
            )
        if needs_node_port(new):
            _reserve_node_ports(taken, new, old)
        _reserve_health_check(taken, new, old)
    except errors.ApiError:
        taken.undo()
        raise
    return taken.undo


def _allocation_errors(
    storage: StorageRules, ctx: RequestContext, new: Object, old: Object | None, subresource: str
) -> Sequence[field.FieldError]:
    """Raises what an allocation would raise: since 1.23 it comes before validation."""
    if subresource or not has_behaviour(storage.release, "GenericServiceStorage"):
        return ()
    if not find_cluster_ip_errors(new, old, strict=storage.feature(STRICT_ADDRESSES)):
        undo = _reserve(storage, ctx, copy_object(new), old)
        if undo is not None:
            undo()
    return ()


def _reserve_of_families(
    taken: _Reservation, pools: ServiceAllocators, new: Object, old: Object | None
) -> None:
    """Allocates one address of each of the service's families, as far as missing."""
    spec = new["spec"]
    ips = list(spec.get("clusterIPs") or ())
    if not needs_cluster_ip(new) or ips[:1] == ["None"]:
        return
    before: Object = old["spec"] if old is not None and needs_cluster_ip(old) else {}
    held_before = before.get("clusterIPs") or []
    if held_before[:1] == ["None"]:
        return
    had = len(before.get("ipFamilies") or ())
    ips += [""] * (len(spec["ipFamilies"]) - len(ips))
    for index, family in list(enumerate(spec["ipFamilies"]))[had:]:
        ips[index] = taken.address(ips[index], pools.addresses[family], ips)
    if ips:
        spec["clusterIP"], spec["clusterIPs"] = ips[0], ips


def _reserve_address(
    taken: _Reservation, pools: ServiceAllocators, new: Object, old: Object | None
) -> None:
    spec = new["spec"]
    if not needs_cluster_ip(new) or spec.get("clusterIP") == "None":
        return
    if (
        old is not None
        and needs_cluster_ip(old)
        and spec.get("clusterIP") == old["spec"].get("clusterIP")
    ):
        return
    wanted = spec.get("clusterIP", "")
    address = taken.address(wanted, pools.default_family, [wanted])
    spec["clusterIP"] = address
    spec["clusterIPs"] = [address]


def _reserve_node_ports(taken: _Reservation, new: Object, old: Object | None) -> None:
    free_to_use = set(_node_ports(old)) if old is not None else set()
    by_port: dict[int, int] = {}
    ports = new["spec"].get("ports") or []
    requested: dict[int, int] = {}
    for port in ports:
        if port.get("nodePort"):
            requested.setdefault(port.get("port", 0), port["nodePort"])
    for index, port in enumerate(ports):
        number, wanted = port.get("port", 0), port.get("nodePort", 0)
        if old is None:
            # A UDP and a TCP port of the same number share a node port, also one that a later entry
            # requests.
            wanted = wanted or by_port.get(number) or requested.get(number, 0)
            free_to_use = {by_port[number]} if number in by_port else set()
        port["nodePort"] = (
            wanted if wanted in free_to_use else taken.port(wanted, f"spec.ports[{index}].nodePort")
        )
        by_port.setdefault(number, port["nodePort"])
        if old is not None and wanted:
            free_to_use.add(wanted)


def _reserve_health_check(taken: _Reservation, new: Object, old: Object | None) -> None:
    spec = new["spec"]
    needed_before = old is not None and needs_health_check_node_port(old)
    if needs_health_check_node_port(new):
        before = (
            old["spec"].get("healthCheckNodePort", 0) if old is not None and needed_before else 0
        )
        if needed_before and spec.get("healthCheckNodePort", 0) != before:
            raise taken.invalid(
                "spec.healthCheckNodePort",
                spec.get("healthCheckNodePort", 0),
                (
                    "cannot change healthCheckNodePort on loadBalancer service with "
                    "externalTraffic=Local during update"
                ),
            )
        if not needed_before:
            spec["healthCheckNodePort"] = taken.port(spec.get("healthCheckNodePort", 0))
    elif needed_before:
        spec.pop("healthCheckNodePort", None)


def service_allocations(svc: Object) -> tuple[set[str], set[int]]:
    """The cluster IPs and ports of a service."""
    spec = svc.get("spec") or {}
    addresses = {a for a in spec.get("clusterIPs") or [spec.get("clusterIP")] if a and a != "None"}
    ports = set(_node_ports(svc))
    if spec.get("healthCheckNodePort"):
        ports.add(spec["healthCheckNodePort"])
    return addresses, ports


def release_allocations(storage: StorageRules, old: Object, new: Object | None = None) -> None:
    """Releases the allocations of the old service that the new one does not have."""
    addresses, ports = service_allocations(old)
    if new is not None:
        kept_addresses, kept_ports = service_allocations(new)
        addresses, ports = addresses - kept_addresses, ports - kept_ports
    for address in addresses:
        pool = storage.services.pool(address)
        if pool is not None:
            pool.release(address)
    for port in ports:
        storage.services.ports.release(port)


def _after_write(
    storage: StorageRules, ctx: RequestContext, new: Object, old: Object | None
) -> Awaitable[object] | None:
    addresses, _ = service_allocations(new)
    before, _ = service_allocations(old) if old is not None else (set(), set())
    return service_addresses.follow_addresses(
        storage, ctx.now, new, addresses - before, before - addresses
    )


async def _delete_along(*work: Awaitable[object] | None) -> None:
    await asyncio.gather(*(each for each in work if each is not None))


def _after_delete(storage: StorageRules, svc: Object) -> Awaitable[object] | None:
    """The endpoints of a service are deleted with it, even if users created them."""
    release_allocations(storage, svc)
    addresses, _ = service_allocations(svc)
    gone = service_addresses.follow_addresses(storage, 0.0, svc, (), addresses)
    key = f"endpoints/{svc['metadata']['namespace']}/{svc['metadata']['name']}"
    endpoints = storage.store.latest(key)
    if endpoints is None or orjson.loads(endpoints.value)["metadata"].get("finalizers"):
        return gone
    deleted = storage.store.delete(key, expected=endpoints.mod_revision)
    return deleted if gone is None else _delete_along(deleted, gone)


STRATEGY = Strategy(
    checks_before_store=True,
    generic_since="GenericServiceStorage",
    deletion_in_words=True,
    on_create=_create,
    on_update=_update,
    find_errors=_allocation_errors,
    reserve=_reserve,
    after_write=_after_write,
    after_delete=_after_delete,
)
