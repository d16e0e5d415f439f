"""Endpoints: the ready and not-ready addresses of each service with a selector, by port."""

from __future__ import annotations

from collections.abc import Iterable

from transom.client.api import is_namespace_terminating, is_not_found
from transom.client.events import WARNING
from transom.client.resources import ENDPOINTS, PODS, SERVICES
from transom.client.store import object_key, split_key
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker, with_max_retries
from transom.controllers.pods import is_pod_ready
from transom.controllers.service_pods import (
    HEADLESS,
    LEADER,
    RULES_OF_1_20,
    EndpointRules,
    Memberships,
    TriggerTimes,
    dump_pointer,
    endpoint_rules,
    find_port,
    has_cluster_ip,
    has_hostname,
    in_service,
    is_ipv6_address,
    pod_digest,
    target_ref,
    with_trigger_time,
)
from transom.kit import gobool
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, with_metadata

_WORKERS = 5
_CAPACITY = 1000
_OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
_TOLERATE = "service.alpha.kubernetes.io/tolerate-unready-endpoints"


_MANAGED_BY = "endpoints.kubernetes.io/managed-by"


class Endpoints:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._rules = endpoint_rules(env.settings.features)
        self._events = env.recorder("endpoint-controller")
        self._queue: WorkQueue[str] = WorkQueue(env.clock, name="endpoint", metrics=env.queues)
        self._times = TriggerTimes()
        self._services = env.informers(SERVICES)
        self._pods = env.informers(PODS)
        self._endpoints = env.informers(ENDPOINTS)
        self._members = Memberships(self._services, self._pods, self._queue.add)
        self._endpoints.add_handler(delete=lambda endpoints: self._queue.add(object_key(endpoints)))

    async def run(self) -> None:
        for informer in (self._services, self._pods, self._endpoints):
            await informer.synced()
        for endpoints in self._endpoints.list():
            # Their service may have been deleted while the controller was down. Endpoints used as a
            # lock never had one.
            if LEADER not in (endpoints["metadata"].get("annotations") or ()):
                self._queue.add(object_key(endpoints))
        await run_worker(self._queue, self._sync, (), _WORKERS)

    async def _sync(self, key: str) -> None:
        await with_max_retries(self._queue, key, self._try, "endpoints")

    async def _try(self, key: str) -> None:
        namespace, name = split_key(key)
        service = self._services.by_key(key)
        if service is None:
            self._times.forget(key)
            try:  # do not read the informer, which may not show our last write yet
                await self._client.delete(ENDPOINTS, namespace, name)
            except ApiError as problem:
                if not is_not_found(problem):
                    raise
            return
        selector = self._members.selector(service)
        if selector is None:
            return
        pods = self._pods.list(namespace, selector)
        time = self._times.observe(service, pods)
        found = endpoint_subsets(service, pods, self._rules)
        too_many = truncate_endpoints(found)
        current = self._endpoints.by_key(key)
        if current is not None:
            marked = _OVER_CAPACITY in (current["metadata"].get("annotations") or ())
            if (
                (current.get("subsets") or []) == found
                and _labels(current) == _labels(service)
                and (not self._rules.managed_by or _is_labelled(current))
                and marked == too_many
            ):
                return
        await self._write(service, current, found, too_many, time)

    async def _write(
        self,
        service: Object,
        current: Object | None,
        found: list[Object],
        too_many: bool,
        time: str,
    ) -> None:
        meta = service["metadata"]
        base = current or {
            "kind": "Endpoints",
            "apiVersion": "v1",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        }
        annotations = with_trigger_time(base["metadata"].get("annotations"), time)
        annotations.pop(_OVER_CAPACITY, None)
        if too_many:
            annotations[_OVER_CAPACITY] = "truncated"
        wanted = _labels(service)
        if self._rules.managed_by:
            wanted[_MANAGED_BY] = "endpoint-controller"
        if not has_cluster_ip(service):
            wanted[HEADLESS] = ""
        fresh = {
            **with_metadata(base, labels=wanted or None, annotations=annotations or None),
            "subsets": found,
        }
        where = f"{meta['namespace']}/{meta['name']}"
        try:
            if current is None:
                await self._client.create(ENDPOINTS, meta["namespace"], fresh)
            else:
                await self._client.update(ENDPOINTS, fresh)
        except ApiError as problem:
            if current is None and is_namespace_terminating(problem):
                return
            if current is None:
                self._events.event(
                    fresh,
                    WARNING,
                    "FailedToCreateEndpoint",
                    f"Failed to create endpoint for service {where}: {problem}",
                )
            else:
                self._events.event(
                    fresh,
                    WARNING,
                    "FailedToUpdateEndpoint",
                    f"Failed to update endpoint {where}: {problem}",
                )
            raise


def _labels(obj: Object) -> dict[str, str]:
    """All labels except the headless-service label."""
    return {
        name: value
        for name, value in (obj["metadata"].get("labels") or {}).items()
        if name not in (HEADLESS, _MANAGED_BY)
    }


def _is_labelled(endpoints: Object) -> bool:
    labels = endpoints["metadata"].get("labels") or {}
    return bool(labels.get(_MANAGED_BY) == "endpoint-controller")


# ---- subsets ----

_Port = tuple[str, int, str, str | None]  # name, number, protocol, application protocol
_Address = tuple[str, str]  # IP and uid


def _tolerates_unready(service: Object) -> bool:
    """The field, unless its deprecated annotation is set."""
    text = (service["metadata"].get("annotations") or {}).get(_TOLERATE, "")
    if text in gobool.TRUE:
        return True
    if text in gobool.FALSE:
        return False
    return bool(service["spec"].get("publishNotReadyAddresses"))


def _address_of(service: Object, pod: Object) -> str:
    """The pod's address of the service's primary family; in single-stack clusters its only
    address.
    """
    status = pod.get("status") or {}
    first: str = status.get("podIP") or ""
    families = service["spec"].get("ipFamilies")
    if not first or not families:
        return first
    wanted = families[0] == "IPv6"
    return next(
        (
            ip["ip"]
            for ip in status.get("podIPs") or ()
            if is_ipv6_address(ip.get("ip", "")) == wanted
        ),
        "",
    )


def endpoint_subsets(
    service: Object, pods: Iterable[Object], rules: EndpointRules = RULES_OF_1_20
) -> list[Object]:
    """Groups the pods by their ports, in a deterministic order."""
    spec = service["spec"]
    tolerant = _tolerates_unready(service)
    by_port: dict[_Port | None, dict[_Address, bool]] = {}
    addresses: dict[_Address, Object] = {}
    for pod in pods:
        ip = _address_of(service, pod)
        if not ip or (not tolerant and "deletionTimestamp" in pod["metadata"]):
            continue
        ready = tolerant or is_pod_ready(pod)
        if (not ready or not rules.ended_pods) and not in_service(pod, rules):
            continue
        key = ip, pod["metadata"]["uid"]
        for port in _ports(spec, pod):
            addresses.setdefault(key, _address(service, pod, ip, rules))
            offers = by_port.setdefault(port, {})
            offers[key] = offers.get(key, True) and ready
    by_addresses: dict[frozenset[tuple[_Address, bool]], list[_Port]] = {}
    for port, offers in by_port.items():
        ports = by_addresses.setdefault(frozenset(offers.items()), [])
        if port is not None:
            ports.append(port)
    out = [
        _subset(
            [addresses[a] for a, ready in sorted(group) if ready],
            [addresses[a] for a, ready in sorted(group) if not ready],
            ports,
            rules,
        )
        for group, ports in by_addresses.items()
    ]
    if len(out) <= 1:
        return out
    return sorted(out, key=lambda subset: pod_digest(_dump_subset(subset), fnv=rules.fnv))


def _ports(spec: Object, pod: Object) -> Iterable[_Port | None]:
    ports = spec.get("ports") or ()
    if not ports and spec.get("clusterIP") == "None":
        yield None  # a headless service needs none
    for port in ports:
        number = find_port(pod, port)
        if number is not None:
            yield port.get("name", ""), number, port.get("protocol", "TCP"), port.get("appProtocol")


def _address(service: Object, pod: Object, ip: str, rules: EndpointRules) -> Object:
    out: Object = {"ip": ip, "targetRef": target_ref(pod, rules)}
    node = pod["spec"].get("nodeName")
    if node:
        out["nodeName"] = node
    if has_hostname(pod, service):
        out["hostname"] = pod["spec"]["hostname"]
    return out


def _subset(
    ready: list[Object], unready: list[Object], ports: list[_Port], rules: EndpointRules
) -> Object:
    out: Object = {}
    if ready:
        out["addresses"] = ready
    if unready:
        out["notReadyAddresses"] = unready
    if ports:
        out["ports"] = [
            _port(port)
            for port in sorted(
                ports,
                key=lambda p: pod_digest("(v1.EndpointPort)" + _dump_port(p), fnv=rules.fnv),
            )
        ]
    return out


def _port(port: _Port) -> Object:
    name, number, protocol, application = port
    out: Object = {"name": name} if name else {}
    out |= {"port": number, "protocol": protocol}
    if application is not None:
        out["appProtocol"] = application
    return out


def truncate_endpoints(found: list[Object]) -> bool:
    """Limits the addresses to a thousand, ready ones first, proportionally for each subset; returns
    whether any were dropped.
    """
    ready = sum(len(subset.get("addresses") or ()) for subset in found)
    unready = sum(len(subset.get("notReadyAddresses") or ()) for subset in found)
    if ready + unready <= _CAPACITY:
        return False
    field, total, room = (
        ("addresses", ready, _CAPACITY)
        if ready >= _CAPACITY
        else ("notReadyAddresses", unready, _CAPACITY - ready)
    )
    if field == "addresses":
        for subset in found:
            subset.pop("notReadyAddresses", None)
    shares = [len(subset.get(field) or ()) * room // total for subset in found]
    left = room - sum(shares)
    for i, subset in enumerate(found):
        more = min(left, len(subset.get(field) or ()) - shares[i])
        left -= more
        if subset.get(field):
            subset[field] = subset[field][: shares[i] + more]
            if not subset[field]:
                del subset[field]
    found[:] = [
        subset for subset in found if "addresses" in subset or "notReadyAddresses" in subset
    ]
    return True


def _dump_port(port: _Port) -> str:
    name, number, protocol, application = port
    return (
        f"{{Name:(string){name} Port:(int32){number} Protocol:(v1.Protocol){protocol} "
        f"AppProtocol:{dump_pointer('string', application)}}}"
    )


def _dump_address(address: Object) -> str:
    ref = address["targetRef"]
    return (
        f"{{IP:(string){address['ip']} Hostname:(string){address.get('hostname', '')} "
        f"NodeName:{dump_pointer('string', address.get('nodeName', ''))} "
        f"TargetRef:(*v1.ObjectReference){{"
        f"Kind:(string){ref['kind']} Namespace:(string){ref['namespace']} "
        f"Name:(string){ref['name']} "
        f"UID:(types.UID){ref['uid']} APIVersion:(string) "
        f"ResourceVersion:(string){ref.get('resourceVersion', '')} "
        "FieldPath:(string)}}"
    )


def _dump_subset(subset: Object) -> str:
    def listed(items: list[str] | None) -> str:
        return f"[{' '.join(items)}]" if items else "<nil>"

    ready, unready = (
        [_dump_address(a) for a in subset.get(f) or ()] for f in ("addresses", "notReadyAddresses")
    )
    ports = [
        _dump_port((p.get("name", ""), p["port"], p["protocol"], p.get("appProtocol")))
        for p in subset.get("ports") or ()
    ]
    return (
        f"(v1.EndpointSubset){{Addresses:([]v1.EndpointAddress){listed(ready)} "
        f"NotReadyAddresses:([]v1.EndpointAddress){listed(unready)} "
        f"Ports:([]v1.EndpointPort){listed(ports)}}}"
    )
