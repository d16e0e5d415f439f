"""Searches devices for the claims of a pod in a thread, before its scheduling cycle: a search, and
the expressions of selectors, can take seconds. The search reads only what does not change meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from transom.kit.lazy import lazy_import
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.scheduler.arrays import np
from transom.scheduler.device_allocator import SearchDeadline
from transom.scheduler.device_pools import NodeMatches
from transom.scheduler.errors import SchedulingError
from transom.scheduler.framework import Status
from transom.scheduler.labels import any_term, node_terms
from transom.scheduler.snapshot import NodeInfo, Snapshot

if TYPE_CHECKING:
    from transom.machinery.cel import devices as cel_devices
else:
    cel_devices = lazy_import("transom.machinery.cel.devices")

_SECONDS = 10.0  # of CPU time for all nodes; the filter timeout of Kubernetes
_FEW = 1000  # steps, about 10 ms; also pairs of a slice and a node
_CHEAP = 20_000  # cost of all selectors for all devices, about 10 ms

T = TypeVar("T")
Find = Callable[[NodeInfo, NodeMatches, SearchDeadline], T | Status | None]


def is_long_search(
    claims: Iterable[Object],
    slices: Sequence[Object],
    nodes: int,
    find_class: Callable[[str], Object | None],
    release: Release,
) -> bool:
    """Whether the search could hold the event loop."""
    own: dict[str, int] = {}  # devices of each node
    shared = 0
    for entry in slices:
        spec, count = entry["spec"], len(entry["spec"].get("devices") or ())
        if spec.get("nodeName"):
            own[spec["nodeName"]] = own.get(spec["nodeName"], 0) + count
        else:
            shared += count
    most = shared + max(own.values(), default=0)  # that a node has
    pairs = shared * nodes + sum(own.values())  # of a device and a node
    if len(slices) * nodes > _FEW or pairs > _FEW:
        return True
    wanted = 0
    selectors: list[Object] = []
    for claim in claims:
        devices = claim["spec"].get("devices") or {}
        if devices.get("constraints"):
            return True  # the search may go back again and again
        for request in devices.get("requests") or ():
            for option in request.get("firstAvailable") or (request.get("exactly") or request,):
                wanted += (
                    most if option.get("allocationMode") == "All" else option.get("count") or 1
                )
                device_class = find_class(option.get("deviceClassName", ""))
                spec = device_class["spec"] if device_class is not None else {}
                selectors += (*(spec.get("selectors") or ()), *(option.get("selectors") or ()))
        if wanted > _FEW:
            return True
    return _steps(most, wanted) * nodes > _FEW or pairs * _cost(selectors, release) > _CHEAP


def _steps(devices: int, wanted: int) -> int:
    """The most steps of a search without a solution: it tries the devices in every order."""
    steps, orders = 0, 1
    for number in range(wanted):
        orders *= max(devices - number, 1)
        steps += orders
        if steps > _FEW:
            break
    return steps


def _cost(selectors: Iterable[Object], release: Release) -> int:
    cost = 0
    for selector in selectors:
        text = (selector.get("cel") or {}).get("expression", "")
        try:
            cost += cel_devices.device_selector_cost(text, release)
        except cel_devices.DeviceSelectorError:
            continue  # the search reports it
    return cost


async def search_nodes(
    find: Find[T], snapshot: Snapshot, slices: Sequence[Object]
) -> dict[str, T | Status | SchedulingError]:
    """What `find` returns or raises for each node."""
    nodes = [node for node in snapshot.rows if node is not None]
    matching = await _matching_selectors(slices, nodes, snapshot)
    deadline = SearchDeadline(_SECONDS)
    try:
        return await asyncio.to_thread(_search, find, nodes, matching, deadline)
    finally:
        deadline.cancel()


async def _matching_selectors(
    slices: Iterable[Object], nodes: list[NodeInfo], snapshot: Snapshot
) -> dict[str, set[int]]:
    """The identities of the node selectors of devices that match, for each node."""
    rows = np.array([node.row for node in nodes], np.intp)
    names = [node.name for node in nodes]
    out: dict[str, set[int]] = {name: set() for name in names}
    for entry in slices:
        for place in (entry["spec"], *(entry["spec"].get("devices") or ())):
            selector = place.get("nodeSelector")
            if selector is None:
                continue
            terms = node_terms(selector.get("nodeSelectorTerms"))
            mask = any_term(terms, snapshot.labels, rows)
            for name, matches in zip(names, mask.tolist(), strict=True):
                if matches:
                    out[name].add(id(selector))
            await asyncio.sleep(0)
    return out


def _search(
    find: Find[T], nodes: list[NodeInfo], matching: dict[str, set[int]], deadline: SearchDeadline
) -> dict[str, T | Status | SchedulingError]:
    out: dict[str, T | Status | SchedulingError] = {}
    for node in nodes:
        here = matching[node.name]

        def matches(selector: Object, here: set[int] = here) -> bool:
            return id(selector) in here

        try:
            found = find(node, matches, deadline)
        except SchedulingError as problem:
            out[node.name] = problem
        else:
            if found is not None:
                out[node.name] = found
    return out
