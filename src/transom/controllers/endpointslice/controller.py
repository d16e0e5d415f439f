"""EndpointSlices of services that select pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from transom.client.events import WARNING
from transom.client.ratelimit import ControllerLimiter
from transom.client.resources import ENDPOINT_SLICES, NODES, PODS, SERVICES
from transom.client.store import object_key, split_key
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker, with_max_retries
from transom.controllers.endpointslice import common, plan, topology
from transom.controllers.endpointslice.common import (
    IPV4,
    IPV6,
    EndpointPort,
    Endpoints,
    EndpointSliceTracker,
    Ports,
    ServiceSlices,
    SliceChanges,
    SliceWriter,
    StaleSlices,
    UpdateFailed,
)
from transom.controllers.pods import assigned_node, is_node_ready, is_pod_ready
from transom.controllers.service_pods import (
    EndpointRules,
    Memberships,
    TriggerTimes,
    endpoint_rules,
    find_port,
    has_cluster_ip,
    has_hostname,
    in_service,
    is_ipv6_address,
    target_ref,
)
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

_WORKERS = 5
_NODES_KEY = ""  # of the queue: nodes have changed; no service has this key
_CHANGE_SECONDS = 1.0  # seconds for which external changes of slices are batched


class EndpointSlices:
    def __init__(self, env: ControllerContext) -> None:
        self._events = env.recorder("endpoint-slice-controller")
        limiter = ControllerLimiter(env.clock, common.FIRST_RETRY, common.LONGEST_RETRY)
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock, limiter, name="endpoint_slice", metrics=env.queues
        )
        self._times = TriggerTimes()
        self._rules = endpoint_rules(env.settings.features)
        self._tracker = EndpointSliceTracker()
        self._writer = SliceWriter(env.client, self._tracker)
        self._services = env.informers(SERVICES)
        self._pods = env.informers(PODS)
        self._nodes = env.informers(NODES)
        self._topology = topology.TopologyCache(self._nodes.list)
        if self._rules.zone_hints:
            self._nodes.add_handler(
                add=self._nodes_changed, update=self._node_updated, delete=self._nodes_changed
            )
        self._informer = env.informers(ENDPOINT_SLICES)
        self._members = Memberships(self._services, self._pods, self._queue.add)
        self._slices = ServiceSlices(
            self._informer,
            plan.MANAGER,
            self._tracker,
            lambda key: self._queue.add_after(key, _CHANGE_SECONDS),
        )

    async def run(self) -> None:
        await run_worker(
            self._queue,
            self._sync,
            (self._services, self._pods, self._nodes, self._informer),
            _WORKERS,
        )

    def _nodes_changed(self, _node: Object) -> None:
        self._topology.nodes_changed()
        self._queue.add(_NODES_KEY)

    def _node_updated(self, old: Object, new: Object) -> None:
        if is_node_ready(old) != is_node_ready(new) or _zone(old) != _zone(new):
            self._nodes_changed(new)

    async def _sync(self, key: str) -> None:
        if key == _NODES_KEY:
            for service in self._topology.overloaded_services():
                self._queue.add(service)
            return
        await with_max_retries(self._queue, key, self._try, "service")

    async def _try(self, key: str) -> None:
        service = self._services.by_key(key)
        if service is None:  # the garbage collector deletes its slices
            self._times.forget(key)
            self._tracker.forget(key)
            self._topology.forget(key)
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
            self._events.event(
                service,
                WARNING,
                "FailedToUpdateEndpointSlices",
                f"Error updating Endpoint Slices for Service {key}: {problem}",
            )
            raise

    async def _reconcile(
        self, service: Object, pods: Sequence[Object], mine: Sequence[Object], time: str
    ) -> None:
        types = _address_types(service)
        problems: dict[str, None] = {}  # without duplicates
        for address_type in types:
            pieces = [piece for piece in mine if piece["addressType"] == address_type]
            events: list[topology.HintsEvent] = []
            try:
                changes, missing = self._plan(service, pods, pieces, address_type, events)
                problems |= dict.fromkeys(missing)
                await self._writer.carry_out(service, "Service", changes, time)
            except UpdateFailed as problem:
                problems[str(problem)] = None
            for event in events if self._rules.hint_events else ():
                self._events.event(service, *event)
        for piece in mine:
            if piece["addressType"] not in types:
                self._topology.forget(object_key(service), piece["addressType"])
                try:
                    await self._writer.delete(piece, f"for Service {object_key(service)}")
                except UpdateFailed as problem:
                    problems[str(problem)] = None
        if problems:
            raise UpdateFailed(
                next(iter(problems)) if len(problems) == 1 else f"[{', '.join(problems)}]"
            )

    def _plan(
        self,
        service: Object,
        pods: Iterable[Object],
        mine: Sequence[Object],
        address_type: str,
        events: list[topology.HintsEvent],
    ) -> tuple[SliceChanges, list[str]]:
        """The changes, and the problems with pods that are left out."""
        desired: dict[Ports, Endpoints] = {}
        missing: list[str] = []
        published = bool(service["spec"].get("publishNotReadyAddresses"))
        for pod in pods:
            status = pod.get("status") or {}
            if not (status.get("podIP") or status.get("podIPs")):
                continue
            if not in_service(pod, self._rules):
                continue
            going = "deletionTimestamp" in pod["metadata"]
            if going and not published and not self._rules.terminating:
                continue
            group = desired.setdefault(_ports(service, pod), {})
            node = self._nodes.get("", assigned_node(pod))
            if node is None and not self._rules.skips_pods:
                raise UpdateFailed(f'node "{assigned_node(pod)}" not found')
            if node is None and not published:
                missing.append(
                    f"skipping Pod {pod['metadata']['name']} for Service {object_key(service)}: "
                    f"Node {assigned_node(pod)} Not Found"
                )
                continue
            endpoint = _endpoint(service, pod, node, address_type, self._rules)
            if endpoint["addresses"]:
                group[common.endpoint_key(endpoint)] = endpoint

        def assign_hints(changes: SliceChanges, unchanged: list[Object]) -> None:
            event = self._assign_hints(service, address_type, changes, unchanged)
            if event is not None:
                events.append(event)

        changes = plan.plan_slices(
            service,
            mine,
            desired,
            address_type,
            keeps_empty=self._rules.skips_pods,
            assign_hints=assign_hints,
        )
        return changes, missing

    def _assign_hints(
        self, service: Object, address_type: str, changes: SliceChanges, unchanged: list[Object]
    ) -> topology.HintsEvent | None:
        key = object_key(service)
        if topology.is_topology_aware(service, self._rules):
            return self._topology.add_hints(key, address_type, changes, unchanged)
        distribution = topology.traffic_distribution(service, self._rules)
        hints = partial(topology.close_hints, distribution) if distribution else lambda _: None
        topology.set_hints(changes, unchanged, hints)
        return self._topology.remove_hints(key, address_type)


# ---- endpoints of pods ----


def _zone(node: Object) -> str | None:
    return (node["metadata"].get("labels") or {}).get(common.ZONE)


def _address_types(service: Object) -> list[str]:
    spec = service["spec"]
    families = [family for family in (IPV4, IPV6) if family in (spec.get("ipFamilies") or ())]
    if families:
        return families
    if has_cluster_ip(service):
        return [IPV6 if is_ipv6_address(spec["clusterIP"]) else IPV4]
    return [IPV4, IPV6]  # the family is unknown, so use both


def _ports(service: Object, pod: Object) -> Ports:
    out = []
    for port in service["spec"].get("ports") or ():
        number = find_port(pod, port)
        if number is not None:
            out.append(
                EndpointPort(
                    port.get("name", ""),
                    port.get("protocol", "TCP"),
                    number,
                    port.get("appProtocol"),
                )
            )
    return common.sorted_ports(tuple(out))


def _endpoint(
    service: Object, pod: Object, node: Object | None, address_type: str, rules: EndpointRules
) -> Object:
    labels = (node["metadata"].get("labels") if node is not None else None) or {}
    serving, terminating = is_pod_ready(pod), "deletionTimestamp" in pod["metadata"]
    ready = (serving and not terminating) or bool(service["spec"].get("publishNotReadyAddresses"))
    addresses = [ip["ip"] for ip in (pod.get("status") or {}).get("podIPs") or () if ip.get("ip")]
    topology = {common.HOSTNAME: assigned_node(pod)}
    if labels.get(common.REGION):
        topology[common.REGION] = labels[common.REGION]
    out: Object = {
        "addresses": sorted(
            ip for ip in addresses if is_ipv6_address(ip) == (address_type == IPV6)
        ),
        "conditions": {"ready": ready},
        "targetRef": target_ref(pod, rules),
    }
    if rules.terminating:
        out["conditions"] |= {"serving": serving, "terminating": terminating}
    if rules.node_names:
        out["nodeName"] = assigned_node(pod)
    else:
        out["deprecatedTopology"] = topology
    if labels.get(common.ZONE):
        out["zone"] = labels[common.ZONE]
    if has_hostname(pod, service):
        out["hostname"] = pod["spec"]["hostname"]
    return out
