"""EndpointSlices of services that select pods."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from transom.client.events import WARNING
from transom.client.ratelimit import ControllerLimiter
from transom.client.resources import ENDPOINT_SLICES, NODES, PODS, SERVICES
from transom.client.store import key_of, split_key
from transom.client.workqueue import RetryLater, WorkQueue
from transom.controllers.base import Env, work
from transom.controllers.endpointslice import common, plan
from transom.controllers.endpointslice.common import (
    IPV4,
    IPV6,
    Endpoints,
    Plan,
    Port,
    Ports,
    Slices,
    StaleSlices,
    Tracker,
    UpdateFailed,
    Writer,
)
from transom.controllers.pods import is_ready, node_of
from transom.controllers.service_pods import (
    Memberships,
    TriggerTimes,
    find_port,
    has_cluster_ip,
    has_hostname,
    in_service,
    is_ipv6,
    target_ref,
)
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

log = logging.getLogger("transom.controllers")

_WORKERS = 5
_CHANGE_SECONDS = 1.0  # changes of slices by others are gathered for so long


class EndpointSlices:
    def __init__(self, env: Env) -> None:
        self._events = env.recorder("endpoint-slice-controller")
        limiter = ControllerLimiter(env.clock, common.FIRST_RETRY, common.LONGEST_RETRY)
        self._queue: WorkQueue[str] = WorkQueue(env.clock, limiter, name="endpoint_slice")
        self._times = TriggerTimes()
        self._tracker = Tracker()
        self._writer = Writer(env.client, self._tracker)
        self._services = env.informers(SERVICES)
        self._pods = env.informers(PODS)
        self._nodes = env.informers(NODES)
        self._informer = env.informers(ENDPOINT_SLICES)
        self._members = Memberships(self._services, self._pods, self._queue.add)
        self._slices = Slices(
            self._informer, plan.MANAGER, self._tracker, lambda key: self._queue.add_after(key, _CHANGE_SECONDS)
        )

    async def run(self) -> None:
        await work(self._queue, self._sync, (self._services, self._pods, self._nodes, self._informer), _WORKERS)

    async def _sync(self, key: str) -> None:
        try:
            await self._try(key)
        except (ApiError, RetryLater) as problem:
            if self._queue.failures(key) < common.TRIES:
                raise
            log.warning("endpoint slices of %s are set aside: %s", key, problem)
            self._queue.set_aside(key)

    async def _try(self, key: str) -> None:
        service = self._services.by_key(key)
        if service is None:  # the garbage collector takes its slices
            self._times.forget(key)
            self._tracker.forget(key)
            return
        selector = self._members.selector(service)
        if selector is None:
            return
        pods = self._pods.list(split_key(key)[0], selector)
        mine = self._slices.of(key)
        if self._tracker.is_stale(key, mine):
            raise StaleSlices
        time = self._times.observe(service, pods)
        try:
            await self._reconcile(service, pods, mine, time)
        except (ApiError, UpdateFailed) as problem:
            self._events.event(service, WARNING, "FailedToUpdateEndpointSlices",
                               f"Error updating Endpoint Slices for Service {key}: {problem}")
            raise

    async def _reconcile(self, service: Object, pods: Sequence[Object], mine: Sequence[Object], time: str) -> None:
        types = _address_types(service)
        problems: dict[str, None] = {}  # each once
        for address_type in types:
            pieces = [piece for piece in mine if piece["addressType"] == address_type]
            try:
                await self._writer.carry_out(service, "Service", self._plan(service, pods, pieces, address_type), time)
            except UpdateFailed as problem:
                problems[str(problem)] = None
        for piece in mine:
            if piece["addressType"] not in types:
                try:
                    await self._writer.delete(piece, f"for Service {key_of(service)}")
                except UpdateFailed as problem:
                    problems[str(problem)] = None
        if problems:
            raise UpdateFailed(next(iter(problems)) if len(problems) == 1 else f"[{', '.join(problems)}]")

    def _plan(self, service: Object, pods: Iterable[Object], mine: Sequence[Object], address_type: str) -> Plan:
        desired: dict[Ports, Endpoints] = {}
        published = bool(service["spec"].get("publishNotReadyAddresses"))
        for pod in pods:
            status = pod.get("status") or {}
            if not (status.get("podIP") or status.get("podIPs")) or not in_service(pod):
                continue
            if "deletionTimestamp" in pod["metadata"] and not published:
                continue
            group = desired.setdefault(_ports(service, pod), {})
            node = self._nodes.get("", node_of(pod))
            if node is None:
                raise UpdateFailed(f'node "{node_of(pod)}" not found')
            endpoint = _endpoint(service, pod, node, address_type)
            if endpoint["addresses"]:
                group[common.endpoint_key(endpoint)] = endpoint
        return plan.make(service, mine, desired, address_type)


# ---- endpoints of pods -----------------------------------------------------------------------------------------------


def _address_types(service: Object) -> list[str]:
    spec = service["spec"]
    families = [family for family in (IPV4, IPV6) if family in (spec.get("ipFamilies") or ())]
    if families:
        return families
    if has_cluster_ip(service):
        return [IPV6 if is_ipv6(spec["clusterIP"]) else IPV4]
    return [IPV4, IPV6]  # nothing says which, so both


def _ports(service: Object, pod: Object) -> Ports:
    out = []
    for port in service["spec"].get("ports") or ():
        number = find_port(pod, port)
        if number is not None:
            out.append(Port(port.get("name", ""), port.get("protocol", "TCP"), number, port.get("appProtocol")))
    return common.in_order(tuple(out))


def _endpoint(service: Object, pod: Object, node: Object, address_type: str) -> Object:
    labels = node["metadata"].get("labels") or {}
    ready = is_ready(pod) and "deletionTimestamp" not in pod["metadata"]
    addresses = [ip["ip"] for ip in (pod.get("status") or {}).get("podIPs") or () if ip.get("ip")]
    topology = {common.HOSTNAME: node_of(pod)}
    if labels.get(common.REGION):
        topology[common.REGION] = labels[common.REGION]
    out: Object = {
        "addresses": sorted(ip for ip in addresses if is_ipv6(ip) == (address_type == IPV6)),
        "conditions": {"ready": ready or bool(service["spec"].get("publishNotReadyAddresses"))},
        "deprecatedTopology": topology, "targetRef": target_ref(pod),
    }
    if labels.get(common.ZONE):
        out["zone"] = labels[common.ZONE]
    if has_hostname(pod, service):
        out["hostname"] = pod["spec"]["hostname"]
    return out
