"""DynamicResources: allocates devices to the ResourceClaims of a pod, and reserves the claims for
it.

A pod that requests an extended resource of a DeviceClass gets a claim of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from transom.client.api import STRATEGIC_PATCH, is_conflict
from transom.client.resources import PODS
from transom.kit.clock import rfc3339
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, controller_of
from transom.machinery.podutil import visit_containers
from transom.scheduler.arrays import np
from transom.scheduler.device_allocator import DeviceAllocator, InvalidPools, SearchDeadline
from transom.scheduler.device_pools import NodeMatches
from transom.scheduler.errors import SchedulingError
from transom.scheduler.framework import (
    Code,
    CycleState,
    FilterPlugin,
    Handle,
    NodeToStatusMap,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreparingPlugin,
    ReservePlugin,
    StateKey,
    Status,
    error_status,
    unresolvable,
    unschedulable,
)
from transom.scheduler.labels import any_term, node_terms
from transom.scheduler.plugins.device_search import is_long_search, search_nodes
from transom.scheduler.plugins.extended_resources import (
    SPECIAL_CLAIM,
    extended_resource_requests,
    is_dra_resource,
)
from transom.scheduler.pods import PodInfo
from transom.scheduler.resource_claims import RESOURCE_CLAIMS, ResourceClaimCache
from transom.scheduler.snapshot import NodeInfo

FINALIZER = "resource.kubernetes.io/delete-protection"
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
_MAX_RESERVED = 256
_UPDATE_TRIES = 5
_MOST_CONTAINERS = 20  # of a pod whose search may be short
_BINDING_POLL, _BINDING_TIMEOUT = 5.0, 600.0


class _Allocation:
    """The allocation of the pod's claims on one node."""

    def __init__(self, results: list[Object], special: Object | None, mappings: list[Object]):
        self.results = results
        self.special = special  # the claim for extended resources, with the requests of this node
        self.mappings = mappings


class _PodClaims:
    """The claims of a pod in one scheduling cycle."""

    def __init__(self) -> None:
        self.claims: list[Object] = []
        self.special = -1  # the position of the claim for extended resources
        self.classes: dict[str, Object] = {}  # of extended resources that the pod requests
        self.allocator: DeviceAllocator | None = None
        self.nodes: dict[str, _Allocation] = {}
        self.unavailable: set[int] = set()
        self.reserved: dict[int, Object] = {}  # position -> allocation on the selected node
        self.mappings: list[Object] = []
        self.status: Status | None = None  # of PreFilter
        # What was found before the cycle, None without such a search. A node without an entry was
        # added since.
        self.found: dict[str, _Allocation | Status | SchedulingError] | None = None

    def to_allocate(self) -> list[int]:
        return [i for i, claim in enumerate(self.claims) if allocation_of(claim) is None]


def _largest_claims(pod: PodInfo, mine: _PodClaims) -> list[Object]:
    """The claims to allocate; the one for extended resources for a node that has none of them."""
    claims = [mine.claims[position] for position in mine.to_allocate()]
    if mine.special in mine.to_allocate():
        requests, _ = extended_resource_requests(pod.pod["spec"], mine.classes)
        claims.append({"spec": {"devices": {"requests": requests}}})
    return claims


_POD_CLAIMS = StateKey[_PodClaims]("PreFilterDynamicResources")
_PREPARED = StateKey[_PodClaims]("PrepareDynamicResources")


class ClaimProblem(Exception):
    """Why the claims of a pod cannot be used."""


def allocation_of(claim: Object) -> Object | None:
    found: Object | None = (claim.get("status") or {}).get("allocation")
    return found


def _reservations(claim: Object) -> list[Object]:
    found: list[Object] = (claim.get("status") or {}).get("reservedFor") or []
    return found


def is_reserved_for(claim: Object, pod: PodInfo) -> bool:
    return any(reference.get("uid") == pod.uid for reference in _reservations(claim))


class DynamicResources(
    PreEnqueuePlugin,
    PreparingPlugin,
    FilterPlugin,
    PostFilterPlugin,
    ReservePlugin,
    PreBindPlugin,
):
    name = "DynamicResources"

    def __init__(self, args: Object, handle: Handle) -> None:
        self._handle = handle
        self._client, self._clock = handle.client, handle.clock
        self._cache: ResourceClaimCache = handle.claims
        on = handle.features.enabled
        self._extended = on("DRAExtendedResource")
        self._binding = on("DRADeviceBindingConditions") and on("DRAResourceClaimDeviceStatus")

    # ---- the claims of a pod ----

    def _claims_of(self, pod: PodInfo) -> list[Object]:
        """Raises ClaimProblem if a claim is missing or is not the pod's own."""
        names = {
            status["name"]: status.get("resourceClaimName")
            for status in (pod.pod.get("status") or {}).get("resourceClaimStatuses") or ()
        }
        out = []
        for entry in pod.pod["spec"].get("resourceClaims") or ():
            name, generated = entry.get("resourceClaimName"), False
            if name is None:
                if entry["name"] not in names:
                    raise ClaimProblem(
                        f'pod "{pod.key}": PodResourceClaim "{entry["name"]}": resource claim not '
                        "created yet"
                    )
                name, generated = names[entry["name"]], True
                if name is None:
                    continue  # the template's claim was not needed
            claim = self._cache.claim(pod.namespace, name)
            if claim is None:
                raise ClaimProblem(f'resourceclaim.resource.k8s.io "{name}" not found')
            if "deletionTimestamp" in claim["metadata"]:
                raise ClaimProblem(f'resourceclaim "{name}" is being deleted')
            owner = controller_of(claim)
            if generated and (owner is None or owner.get("uid") != pod.uid):
                raise ClaimProblem(
                    f"ResourceClaim {pod.namespace}/{name} was not created for pod {pod.key} (pod "
                    "is not owner)"
                )
            out.append(claim)
        return out

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        try:
            self._claims_of(pod)
        except ClaimProblem as problem:
            return unresolvable(str(problem))
        return None

    async def prepare(self, state: CycleState, pod: PodInfo) -> None:
        if not pod.pod["spec"].get("resourceClaims") and not pod.shape.requests.scalars:
            return
        mine = _PodClaims()
        mine.status = self._read_claims(pod, mine)
        state.write(_PREPARED, mine)
        allocator = mine.allocator
        if allocator is None or mine.status is not None:
            return
        snapshot = self._handle.snapshot
        if len(visit_containers(pod.pod["spec"])) > _MOST_CONTAINERS or is_long_search(
            _largest_claims(pod, mine),
            allocator.slices,
            sum(node is not None for node in snapshot.rows),
            self._cache.device_class,
            self._handle.features.release,
        ):
            mine.found = await search_nodes(
                lambda node, matches, deadline: self._allocate(mine, pod, node, matches, deadline),
                snapshot,
                allocator.slices,
            )

    def pre_filter(self, state: CycleState, pod: PodInfo) -> Status | None:
        mine = state.get(_PREPARED)
        if mine is None:
            mine = _PodClaims()
            mine.status = self._read_claims(pod, mine)
        state.write(_POD_CLAIMS, mine)
        return mine.status

    def _read_claims(self, pod: PodInfo, mine: _PodClaims) -> Status | None:
        try:
            mine.claims = self._claims_of(pod)
        except ClaimProblem as problem:
            return unresolvable(str(problem))
        if self._extended:
            mine.classes = self._extended_classes(pod)
        if mine.classes:
            mine.special = len(mine.claims)
            mine.claims.append(self._special_claim(pod))
        for position, claim in enumerate(mine.claims):
            status = self._check_claim(pod, claim, special=position == mine.special)
            if status is not None:
                mine.claims = []
                return status
        if mine.to_allocate():
            mine.allocator = DeviceAllocator(
                self._handle.features.release,
                self._cache.allocated(),
                self._cache.device_class,
                self._cache.tainted_slices(),
            )
        return None

    def _check_claim(self, pod: PodInfo, claim: Object, *, special: bool) -> Status | None:
        if allocation_of(claim) is not None:
            full = len(_reservations(claim)) >= _MAX_RESERVED
            return (
                unresolvable("resourceclaim in use")
                if full and not is_reserved_for(claim, pod)
                else None
            )
        meta = claim["metadata"]
        if self._cache.pending(meta["uid"]) is not None:
            return unresolvable(
                f"resource claim {meta['namespace']}/{meta['name']} is in the process of being "
                "allocated"
            )
        if special:
            return None
        for request in (claim["spec"].get("devices") or {}).get("requests") or ():
            for name, wanted in _device_classes(request):
                if self._cache.device_class(wanted) is None:
                    return unresolvable(f"request {name}: device class {wanted} does not exist")
        return None

    # ---- extended resources ----

    def _extended_classes(self, pod: PodInfo) -> dict[str, Object]:
        wanted = [
            name for name, amount in pod.shape.requests.scalars if amount and is_dra_resource(name)
        ]
        return self._cache.classes_of_resources(wanted) if wanted else {}

    def _special_claim(self, pod: PodInfo) -> Object:
        for claim in self._cache.all_claims():
            owner = controller_of(claim)
            annotations = claim["metadata"].get("annotations") or {}
            if (
                annotations.get(EXTENDED_RESOURCE_CLAIM) == "true"
                and owner is not None
                and owner.get("uid") == pod.uid
            ):
                return claim
        owner_ref = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.name,
            "uid": pod.uid,
            "controller": True,
        }
        meta: Object = {
            "namespace": pod.namespace,
            "name": SPECIAL_CLAIM,
            "uid": str(uuid.uuid4()),
            "generateName": f"{pod.name}-extended-resources-",
            "ownerReferences": [owner_ref],
            "annotations": {EXTENDED_RESOURCE_CLAIM: "true"},
        }
        return {"metadata": meta, "spec": {}}

    def _special_for_node(
        self, pod: PodInfo, mine: _PodClaims, node: NodeInfo
    ) -> tuple[Object | None, list[Object], Status | None]:
        """The claim with the requests that this node cannot meet itself."""
        claim = mine.claims[mine.special]
        if (claim["spec"].get("devices") or {}).get("requests"):
            return None, [], unresolvable("cannot schedule extended resource claim")
        allocatable = dict(node.allocatable.scalars)
        wanted: dict[str, Object] = {}
        for name, amount in pod.shape.requests.scalars:
            if not amount or not is_dra_resource(name):
                continue
            device_class = mine.classes.get(name)
            if device_class is not None and not allocatable.get(name):
                wanted[name] = device_class
            elif name not in allocatable:
                return None, [], unresolvable("cannot fit resource")
        if not wanted:
            return None, [], None
        requests, mappings = extended_resource_requests(pod.pod["spec"], wanted)
        return {**claim, "spec": {"devices": {"requests": requests}}}, mappings, None

    # ---- filter ----

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        mine = state.get(_POD_CLAIMS)
        if mine is None or not mine.claims:
            return None
        unavailable = {
            position
            for position, claim in enumerate(mine.claims)
            if not self._is_available(claim, node)
        }
        if unavailable:
            mine.unavailable |= unavailable
            return unresolvable("resourceclaim not available on the node")
        if mine.allocator is None:
            return None
        if mine.found is None:
            found = self._allocate(mine, pod, node, lambda selector: self._selects(selector, node))
        else:
            outcome = mine.found.get(node.name, unresolvable("cannot allocate all claims"))
            if isinstance(outcome, SchedulingError):
                raise outcome
            found = outcome
        if isinstance(found, Status):
            return None if found.is_success else found
        mine.nodes[node.name] = found
        return None

    def _allocate(
        self,
        mine: _PodClaims,
        pod: PodInfo,
        node: NodeInfo,
        matches: NodeMatches,
        deadline: SearchDeadline | None = None,
    ) -> _Allocation | Status:
        """The allocation on this node; Success if the node itself has what the pod needs."""
        assert mine.allocator is not None
        special: Object | None = None
        mappings: list[Object] = []
        positions = mine.to_allocate()
        if mine.special in positions:
            special, mappings, status = self._special_for_node(pod, mine, node)
            if status is not None:
                return status
            if special is None and len(mine.claims) == 1:
                return Status(Code.SUCCESS)
        wanted = [
            special if position == mine.special else mine.claims[position] for position in positions
        ]
        claims = [claim for claim in wanted if claim is not None]
        try:
            results = mine.allocator.allocate(claims, node.name, matches, deadline)
        except InvalidPools as problem:
            return unresolvable(str(problem))
        if results is None:
            return unresolvable("cannot allocate all claims")
        return _Allocation(results, special, mappings)

    def _is_available(self, claim: Object, node: NodeInfo) -> bool:
        selector = (allocation_of(claim) or {}).get("nodeSelector")
        return selector is None or self._selects(selector, node)

    def _selects(self, selector: Object, node: NodeInfo) -> bool:
        rows = np.array([node.row], np.intp)
        terms = node_terms(selector.get("nodeSelectorTerms"))
        return bool(any_term(terms, self._handle.snapshot.labels, rows)[0])

    async def post_filter(
        self, state: CycleState, pod: PodInfo, filtered_nodes: NodeToStatusMap
    ) -> tuple[PostFilterResult | None, Status | None]:
        """Frees a claim of the pod that is allocated for other nodes and that no pod uses."""
        mine = state.get(_POD_CLAIMS)
        if mine is None:
            return None, error_status("not found")
        if not mine.claims:
            return None, unschedulable("no new claims to deallocate")
        for position in sorted(mine.unavailable):
            claim = mine.claims[position]
            users = [r for r in _reservations(claim) if r.get("uid") != pod.uid]
            if position != mine.special and not users:
                status = {
                    name: value
                    for name, value in (claim.get("status") or {}).items()
                    if name not in ("reservedFor", "allocation", "devices")
                }
                await self._client.update_status(RESOURCE_CLAIMS, {**claim, "status": status})
                return None, unschedulable("deallocation of ResourceClaim completed")
        return None, unschedulable("still not schedulable")

    # ---- reserve and preBind ----

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        mine = state.get(_POD_CLAIMS)
        if mine is None or mine.allocator is None:
            return None
        found = mine.nodes.get(node_name)
        positions = mine.to_allocate()
        if found is None:
            if positions == [mine.special]:
                return None
            return error_status("claim allocation not found for node")
        if found.special is None and mine.special in positions:
            positions.remove(mine.special)
        mine.mappings = found.mappings
        for position, allocation in zip(positions, found.results, strict=True):
            mine.reserved[position] = allocation
            if position == mine.special and found.special is not None:
                mine.claims[position] = found.special
            self._cache.set_pending(mine.claims[position]["metadata"]["uid"], allocation)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        mine = state.get(_POD_CLAIMS)
        if mine is not None:
            for position in mine.reserved:
                self._cache.remove_pending(mine.claims[position]["metadata"]["uid"])

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> bool:
        mine = state.get(_POD_CLAIMS)
        return mine is not None and any(not is_reserved_for(c, pod) for c in mine.claims)

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        mine = state.get(_POD_CLAIMS)
        if mine is None:
            return None
        for position, claim in enumerate(mine.claims):
            if is_reserved_for(claim, pod):
                continue
            allocation = mine.reserved.get(position)
            if position == mine.special and allocation is None:
                continue
            mine.claims[position] = await self._bind_claim(pod, claim, allocation)
            if position == mine.special:
                await self._report_special(pod, mine.claims[position], mine.mappings)
        if self._binding:
            await self._wait_for_conditions(pod, mine, node_name)
        return None

    async def _bind_claim(self, pod: PodInfo, claim: Object, allocation: Object | None) -> Object:
        """Writes the allocation and the reservation."""
        uid = claim["metadata"]["uid"]
        if claim["metadata"]["name"] == SPECIAL_CLAIM:
            meta = {k: v for k, v in claim["metadata"].items() if k not in ("name", "uid")}
            claim = await self._client.create(
                RESOURCE_CLAIMS, pod.namespace, {"metadata": meta, "spec": claim["spec"]}
            )
        try:
            for attempt in range(_UPDATE_TRIES):
                try:
                    claim = await self._write_claim(pod, claim, allocation)
                    break
                except ApiError as problem:
                    if not is_conflict(problem) or attempt == _UPDATE_TRIES - 1:
                        raise
                meta = claim["metadata"]
                claim = await self._client.get(RESOURCE_CLAIMS, meta["namespace"], meta["name"])
            self._cache.assume(claim)
        finally:
            self._cache.remove_pending(uid)
        return claim

    async def _write_claim(self, pod: PodInfo, claim: Object, allocation: Object | None) -> Object:
        meta = claim["metadata"]
        where = f"{meta['namespace']}/{meta['name']}"
        if "deletionTimestamp" in meta:
            raise SchedulingError(f"claim {where} got deleted in the meantime")
        status = dict(claim.get("status") or {})
        if allocation is not None:
            if status.get("allocation") is not None:
                raise SchedulingError(f"claim {where} got allocated elsewhere in the meantime")
            if FINALIZER not in (meta.get("finalizers") or ()):
                finalizers = [*(meta.get("finalizers") or ()), FINALIZER]
                claim = await self._client.update(
                    RESOURCE_CLAIMS, {**claim, "metadata": {**meta, "finalizers": finalizers}}
                )
            status["allocation"] = allocation
        if self._binding:
            if status.get("allocation") is None:
                raise SchedulingError(f"claim {where} got deallocated elsewhere in the meantime")
            if "allocationTimestamp" not in status["allocation"]:
                now = rfc3339(self._clock.time())
                status["allocation"] = {**status["allocation"], "allocationTimestamp": now}
        user = {"resource": "pods", "name": pod.name, "uid": pod.uid}
        status["reservedFor"] = [*(status.get("reservedFor") or ()), user]
        return await self._client.update_status(RESOURCE_CLAIMS, {**claim, "status": status})

    async def _report_special(self, pod: PodInfo, claim: Object, mappings: list[Object]) -> None:
        report = {"requestMappings": mappings, "resourceClaimName": claim["metadata"]["name"]}
        await self._client.patch(
            PODS,
            pod.namespace,
            pod.name,
            {"status": {"extendedResourceClaimStatus": report}},
            STRATEGIC_PATCH,
            subresource="status",
        )

    async def _wait_for_conditions(self, pod: PodInfo, mine: _PodClaims, node_name: str) -> None:
        """Waits until the drivers report that the devices are ready to be used on the node."""
        if not any(
            result.get("bindingConditions")
            for claim in mine.claims
            for result in _results(allocation_of(claim))
        ):
            return
        self._handle.event_recorder.event(
            pod.pod,
            "Normal",
            "BindingConditionsPending",
            "Scheduling",
            f"waiting for binding conditions for device on node {node_name}",
        )
        end = self._clock.monotonic() + _BINDING_TIMEOUT
        while True:
            claims = [self._current(claim) for claim in mine.claims]
            if all(map(_is_ready_for_binding, claims)):
                return
            if self._clock.monotonic() >= end:
                raise SchedulingError("device binding timeout: context deadline exceeded")
            await self._clock.sleep(_BINDING_POLL)

    def _current(self, claim: Object) -> Object:
        meta = claim["metadata"]
        return self._cache.claim(meta.get("namespace", ""), meta["name"]) or claim


def _device_classes(request: Object) -> Iterable[tuple[str, str]]:
    """The names of a request and its alternatives, with their device classes."""
    if request.get("firstAvailable"):
        for option in request["firstAvailable"]:
            yield f"{request['name']}/{option['name']}", option.get("deviceClassName", "")
    else:
        yield request["name"], (request.get("exactly") or {}).get("deviceClassName", "")


def _results(allocation: Object | None) -> list[Object]:
    found: list[Object] = ((allocation or {}).get("devices") or {}).get("results") or []
    return found


def _is_ready_for_binding(claim: Object) -> bool:
    """Raises SchedulingError if a device reports a failure."""
    devices = {
        (d["driver"], d["pool"], d["device"]): {
            c["type"] for c in d.get("conditions") or () if c.get("status") == "True"
        }
        for d in (claim.get("status") or {}).get("devices") or ()
    }
    for result in _results(allocation_of(claim)):
        met = devices.get((result["driver"], result["pool"], result["device"]), set())
        failed = met & set(result.get("bindingFailureConditions") or ())
        if failed:
            raise SchedulingError(
                f"claim {claim['metadata']['name']} failed for binding: {', '.join(sorted(failed))}"
            )
        if not set(result.get("bindingConditions") or ()) <= met:
            return False
    return True
