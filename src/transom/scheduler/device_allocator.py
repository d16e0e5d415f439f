"""Allocates devices to ResourceClaims on one node: a depth-first search over claims, requests and
devices, in their order, that goes back when a device does not lead to a solution.

Results have the form of `status.allocation`. Calls no API.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from transom.kit.lazy import lazy_import
from transom.kit.named_tuple import NamedTuple
from transom.machinery import quantity
from transom.machinery.objects import Object
from transom.machinery.quantity import Quantity
from transom.machinery.releases import Release
from transom.scheduler.device_pools import (
    DeviceId,
    DevicePool,
    NodeMatches,
    PoolDevice,
    device_matches_node,
    gather_pools,
)
from transom.scheduler.errors import SchedulingError

if TYPE_CHECKING:
    from transom.scheduler import device_capacity, device_selectors
else:  # clusters without devices need neither CEL nor fractions
    device_capacity = lazy_import("transom.scheduler.device_capacity")
    device_selectors = lazy_import("transom.scheduler.device_selectors")

MAX_RESULTS = 32  # devices of a claim
_MOST_STEPS = 20_000  # of the search on one node, so that it does not hold the scheduler


class SearchDeadline:
    """Ends the searches of a thread: after some of its CPU time, or when they are cancelled."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began: float | None = None
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def is_over(self) -> bool:
        now = time.thread_time()
        if self._began is None:
            self._began = now
        return now - self._began > self._seconds or self._cancelled.is_set()


class AllocatedDevices(NamedTuple):
    """What claims already use: whole devices, and capacity of shared ones."""

    devices: Collection[DeviceId]
    capacity: Mapping[DeviceId, Mapping[str, Quantity]]


class _TooManyResults(Exception):
    pass


class InvalidPools(Exception):
    """Nothing could be allocated, and some pools of the node are invalid."""


class _Request:
    """A request, or one of the alternatives of a request."""

    def __init__(self, request: Object, parent: Object | None, device_class: Object) -> None:
        self.fields: Object = request.get("exactly") or request if parent is None else request
        self.name: str = request["name"]
        self.parent = parent
        self.device_class = device_class
        self.all_devices: list[PoolDevice] = []
        self.count = 0

    @property
    def full_name(self) -> str:
        return self.name if self.parent is None else f"{self.parent['name']}/{self.name}"

    @property
    def admin(self) -> bool:
        return bool(self.fields.get("adminAccess"))

    @property
    def wants_all(self) -> bool:
        return self.fields.get("allocationMode") == "All"


class _Result(NamedTuple):
    request: _Request
    device: PoolDevice
    consumed: dict[str, Quantity] | None  # of a device that several claims share


class _Constraint:
    """matchAttribute: all devices have the same value; distinctAttribute: all have another one."""

    def __init__(self, constraint: Object) -> None:
        self._requests = frozenset(constraint.get("requests") or ())
        self._distinct = "distinctAttribute" in constraint
        self._attribute: str = constraint.get("distinctAttribute") or constraint["matchAttribute"]
        self._values: list[Any] = []

    def applies(self, request: _Request) -> bool:
        if not self._requests:
            return True
        names = {request.full_name, (request.parent or {}).get("name", request.name)}
        return not self._requests.isdisjoint(names)

    def add(self, device: PoolDevice) -> bool:
        value = _attribute(device, self._attribute)
        if value is None or not value:
            return False
        if self._distinct:
            if value in self._values:
                return False
        elif self._values and self._values[0] != value:
            return False
        self._values.append(value)
        return True

    def remove(self) -> None:
        self._values.pop()


def _attribute(device: PoolDevice, name: str) -> Object | None:
    attributes: Object = device.device.get("attributes") or {}
    if name in attributes:
        found: Object = attributes[name]
        return found
    domain, slash, rest = name.partition("/")
    return attributes.get(rest) if slash and domain == device.id[0] else None


class DeviceAllocator:
    """For one pod; `allocate` is called for each node."""

    def __init__(
        self,
        release: Release,
        allocated: AllocatedDevices,
        find_class: Callable[[str], Object | None],
        slices: Sequence[Object],
    ) -> None:
        self._release = release
        self._allocated = allocated
        self._find_class = find_class
        self.slices = slices

    def allocate(
        self,
        claims: Sequence[Object],
        node_name: str,
        matches: NodeMatches,
        deadline: SearchDeadline | None = None,
    ) -> list[Object] | None:
        """An allocation for each claim, or None. Raises SchedulingError if a claim is in error."""
        pools = gather_pools(self.slices, node_name, matches)
        search = _Search(
            claims, pools, node_name, matches, self._allocated, self._find_class, self._release
        )
        search.deadline = deadline
        try:
            done = search.run()
        except RecursionError:
            raise SchedulingError(
                f"node {node_name}: timed out trying to allocate devices"
            ) from None
        if done:
            return [search.allocation(i) for i in range(len(claims))]
        if any(pool.invalid for pool in pools):
            raise InvalidPools("invalid resource pools were encountered")
        return None


class _Search:
    def __init__(
        self,
        claims: Sequence[Object],
        pools: Sequence[DevicePool],
        node_name: str,
        matches: NodeMatches,
        allocated: AllocatedDevices,
        find_class: Callable[[str], Object | None],
        release: Release,
    ) -> None:
        self._claims = claims
        self._pools = pools
        self._node_name = node_name
        self._matches = matches
        self._allocated = allocated
        self._find_class = find_class
        self._release = release
        self._selectable: dict[tuple[DeviceId, int, str], bool] = {}
        self._in_use: dict[DeviceId, set[int]] = {}  # by claim
        self._shared: dict[DeviceId, dict[str, Quantity]] = {}
        self._counters: dict[tuple[str, str], dict[tuple[str, str], Quantity]] = {}
        self._results: list[list[_Result]] = [[] for _ in claims]
        self._chosen: dict[tuple[int, int], _Request] = {}
        self._steps = 0
        self.deadline: SearchDeadline | None = None
        self._requests: list[list[list[_Request]]] = []
        self._constraints: list[list[_Constraint]] = []

    # ---- requests ----

    def run(self) -> bool:
        for number, claim in enumerate(self._claims):
            devices = claim["spec"].get("devices") or {}
            alternatives = [
                self._alternatives(number, request) for request in devices.get("requests") or ()
            ]
            least = sum(min(a.count for a in options) for options in alternatives)
            if least > MAX_RESULTS:
                raise SchedulingError(
                    f"claim {_key(claim)}: number of requested devices {least} exceeds the claim "
                    f"limit of {MAX_RESULTS}"
                )
            self._requests.append(alternatives)
            self._constraints.append([_Constraint(c) for c in devices.get("constraints") or ()])
        try:
            return self._allocate(0, 0)
        except _TooManyResults:
            return False

    def _alternatives(self, number: int, request: Object) -> list[_Request]:
        options = request.get("firstAvailable")
        entries = [(o, request) for o in options] if options else [(request, None)]
        return [self._request(number, entry, parent) for entry, parent in entries]

    def _request(self, number: int, entry: Object, parent: Object | None) -> _Request:
        fields: Object = entry.get("exactly") or entry if parent is None else entry
        where = f"claim {_key(self._claims[number])}, request {entry['name']}"
        name = fields.get("deviceClassName", "")
        device_class = self._find_class(name)
        if device_class is None:
            raise SchedulingError(
                f"{where}: could not retrieve device class {name}: "
                f'deviceclass.resource.k8s.io "{name}" not found'
            )
        request = _Request(entry, parent, device_class)
        if not request.wants_all:
            request.count = fields.get("count") or 1
            return request
        for pool in self._pools:
            if pool.incomplete or pool.invalid:
                state = "being updated" if pool.incomplete else "invalid"
                raise SchedulingError(
                    f"{where}: asks for all devices, but resource pool {pool} is currently {state}"
                )
            request.all_devices += [
                device for device in pool.devices() if self._is_selectable(number, request, device)
            ]
        request.count = len(request.all_devices)
        return request

    # ---- search ----

    def _allocate(self, claim: int, request: int) -> bool:
        """Allocates this request and all that follow."""
        if claim >= len(self._claims):
            return True
        if request >= len(self._requests[claim]):
            try:
                return self._allocate(claim + 1, 0)
            except _TooManyResults:
                return False
        exceeded = True
        for option in self._requests[claim][request]:
            self._chosen[claim, request] = option
            try:
                if self._allocate_device(claim, request, option, 0):
                    return True
            except _TooManyResults:
                continue
            exceeded = False
        if exceeded:
            raise _TooManyResults
        return False

    def _allocate_device(self, claim: int, request: int, option: _Request, done: int) -> bool:
        """Allocates the devices of a request from the one with this number on."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise self._timed_out()
        if option.wants_all and not option.all_devices:
            return False
        if done >= option.count:
            return self._allocate(claim, request + 1)
        if len(self._results[claim]) + option.count - done > MAX_RESULTS:
            raise _TooManyResults
        if option.wants_all:
            candidates: Iterator[PoolDevice] = iter([option.all_devices[done]])
        else:
            candidates = (
                device
                for pool in self._pools
                if not (pool.incomplete or pool.invalid)
                for device in pool.devices()
                if self._is_selectable(claim, option, device)
            )
        for device in candidates:
            self._check_deadline()
            with self._taken(claim, option, device) as taken:
                if taken and self._allocate_device(claim, request, option, done + 1):
                    taken.keep()
                    return True
        return False

    def _check_deadline(self) -> None:
        if self.deadline is not None and self.deadline.is_over:
            raise self._timed_out()

    def _timed_out(self) -> SchedulingError:
        return SchedulingError(f"node {self._node_name}: timed out trying to allocate devices")

    def _is_selectable(self, claim: int, request: _Request, device: PoolDevice) -> bool:
        key = (device.id, claim, request.full_name)
        known = self._selectable.get(key)
        if known is None:
            known = self._selectable[key] = self._matches_request(claim, request, device)
        return known

    def _matches_request(self, claim: int, request: _Request, device: PoolDevice) -> bool:
        self._check_deadline()
        variable = device_selectors.device_variable(device.id[0], device.device)
        name = request.device_class["metadata"]["name"]
        for selectors, where in (
            (request.device_class["spec"].get("selectors"), f"class {name}"),
            (request.fields.get("selectors"), f"claim {_key(self._claims[claim])}"),
        ):
            if not device_selectors.selectors_match(
                selectors or [], variable, self._release, where
            ):
                return False
        if device.slice["spec"].get("perDeviceNodeSelection"):
            return device_matches_node(device.device, self._node_name, self._matches)
        return True

    # ---- one device ----

    @contextmanager
    def _taken(self, claim: int, request: _Request, device: PoolDevice) -> Iterator[_Undo | None]:
        """Takes a device, if it is free, and gives it back unless it is kept."""
        undo = _Undo()
        try:
            yield undo if self._take(claim, request, device, undo) else None
        finally:
            undo.run()

    def _take(self, claim: int, request: _Request, device: PoolDevice, undo: _Undo) -> bool:
        consumed: dict[str, Quantity] | None = None
        if device.device.get("allowMultipleAllocations") and not request.admin:
            consumed = device_capacity.consumed_capacity(
                device.device, request.fields.get("capacity")
            )
            if consumed is None or not self._share(device, consumed, undo):
                return False
        else:
            if self._is_in_use(claim, request, device.id):
                return False
            if not _has_capacity(device.device, request.fields.get("capacity")):
                return False
        if not self._consume_counters(device, undo) or _is_tainted(device.device, request):
            return False
        for constraint in self._constraints[claim]:
            if not constraint.applies(request):
                continue
            if not constraint.add(device):
                if request.wants_all:
                    raise SchedulingError(
                        f"claim {_key(self._claims[claim])}, request {request.name}: cannot add "
                        f"device {'/'.join(device.id)} because a claim constraint would not be "
                        "satisfied"
                    )
                return False
            undo.add(constraint.remove)
        users = self._in_use.setdefault(device.id, set())
        if consumed is None and claim not in users:
            users.add(claim)
            undo.add(lambda: users.discard(claim))
        results = self._results[claim]
        results.append(_Result(request, device, consumed))
        undo.add(results.pop)
        return True

    def _is_in_use(self, claim: int, request: _Request, device: DeviceId) -> bool:
        users = self._in_use.get(device) or ()
        if request.admin:
            return claim in users
        return device in self._allocated.devices or bool(users)

    def _share(self, device: PoolDevice, wanted: dict[str, Quantity], undo: _Undo) -> bool:
        before = self._allocated.capacity.get(device.id) or {}
        mine = self._shared.setdefault(device.id, {})
        for name, capacity in (device.device.get("capacity") or {}).items():
            total = mine.get(name, _ZERO) + before.get(name, _ZERO) + wanted.get(name, _ZERO)
            if total > quantity.parse_quantity(capacity.get("value", "0")):
                return False
        for name, amount in wanted.items():
            mine[name] = mine.get(name, _ZERO) + amount

        def give_back() -> None:
            for name, amount in wanted.items():
                mine[name] = mine[name] - amount

        undo.add(give_back)
        return True

    def _consume_counters(self, device: PoolDevice, undo: _Undo) -> bool:
        wanted = _counter_amounts(device.device)
        if not wanted:
            return True
        left = self._counters.get(device.pool.id)
        if left is None:
            left = self._counters[device.pool.id] = self._free_counters(device.pool)
        if any(left.get(name, _ZERO) < amount for name, amount in wanted.items()):
            return False
        counters = left
        for name, amount in wanted.items():
            counters[name] = counters[name] - amount

        def give_back() -> None:
            for name, amount in wanted.items():
                counters[name] = counters[name] + amount

        undo.add(give_back)
        return True

    def _free_counters(self, pool: DevicePool) -> dict[tuple[str, str], Quantity]:
        out = {
            (group, name): quantity.parse_quantity(counter.get("value", "0"))
            for group, counters in pool.counters.items()
            for name, counter in counters.items()
        }
        for device in pool.all_devices():
            if device.id in self._allocated.devices:
                for name, amount in _counter_amounts(device.device).items():
                    if name in out:
                        out[name] = out[name] - amount
        return out

    # ---- results ----

    def allocation(self, number: int) -> Object:
        claim, results = self._claims[number], self._results[number]
        devices: Object = {"results": [_result(result) for result in results]}
        config = self._config(number)
        if config:
            devices["config"] = config
        out: Object = {"devices": devices}
        selector = _node_selector(claim, results, self._node_name)
        if selector is not None:
            out["nodeSelector"] = selector
        return out

    def _config(self, number: int) -> list[Object]:
        devices = self._claims[number]["spec"].get("devices") or {}
        out: list[Object] = []
        of_class: dict[str, list[Object]] = {}
        chosen = [self._chosen[number, i] for i in range(len(self._requests[number]))]
        for request in chosen:
            name = request.device_class["metadata"]["name"]
            if name in of_class:
                for entry in of_class[name]:
                    entry["requests"].append(request.full_name)
                continue
            of_class[name] = [
                {"source": "FromClass", "requests": [request.full_name], **config}
                for config in request.device_class["spec"].get("config") or ()
            ]
            out += of_class[name]
        for config in devices.get("config") or ():
            wanted = config.get("requests") or []
            if not wanted:
                out.append({"source": "FromClaim", **config})
                continue
            for request in chosen:
                parent = (request.parent or {}).get("name", request.name)
                if parent in wanted or request.full_name in wanted:
                    out.append({"source": "FromClaim", **config})
        return out


class _Undo:
    """Steps to take back, in reverse order."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def add(self, step: Callable[[], object]) -> None:
        self._steps.append(step)

    def keep(self) -> None:
        self._steps.clear()

    def run(self) -> None:
        while self._steps:
            self._steps.pop()()


_ZERO = quantity.parse_quantity("0")


def _key(claim: Object) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"


def _counter_amounts(device: Object) -> dict[tuple[str, str], Quantity]:
    return {
        (consumption["counterSet"], name): quantity.parse_quantity(counter.get("value", "0"))
        for consumption in device.get("consumesCounters") or ()
        for name, counter in (consumption.get("counters") or {}).items()
    }


def _has_capacity(device: Object, wanted: Object | None) -> bool:
    """Whether a whole device has the capacity that a request asks for."""
    for name, amount in ((wanted or {}).get("requests") or {}).items():
        capacity = (device.get("capacity") or {}).get(name)
        if capacity is None or quantity.parse_quantity(amount) > quantity.parse_quantity(
            capacity.get("value", "0")
        ):
            return False
    return True


def _is_tainted(device: Object, request: _Request) -> bool:
    tolerations = request.fields.get("tolerations") or ()
    return any(
        taint.get("effect") in ("NoSchedule", "NoExecute")
        and not any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in device.get("taints") or ()
    )


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("value", "") == taint.get("value", ""))


def _result(result: _Result) -> Object:
    driver, pool, device = result.device.id
    out: Object = {
        "request": result.request.full_name,
        "driver": driver,
        "pool": pool,
        "device": device,
    }
    if result.request.admin:
        out["adminAccess"] = True
    tolerations = result.request.fields.get("tolerations")
    if tolerations:
        out["tolerations"] = tolerations
    for field in ("bindingConditions", "bindingFailureConditions"):
        if result.device.device.get(field):
            out[field] = result.device.device[field]
    if result.consumed is not None:
        out["shareID"] = str(uuid.uuid4())
        if result.consumed:
            out["consumedCapacity"] = {n: str(amount) for n, amount in result.consumed.items()}
    return out


def _node_selector(claim: Object, results: Sequence[_Result], node_name: str) -> Object | None:
    """The nodes where all devices of an allocation can be used; None: all nodes."""
    fields: list[Object] = []
    expressions: list[Object] = []
    for result in results:
        spec = result.device.slice["spec"]
        place = result.device.device if spec.get("perDeviceNodeSelection") else spec
        name = node_name if result.device.device.get("bindsToNode") else place.get("nodeName")
        if name:
            requirement = {"key": "metadata.name", "operator": "In", "values": [name]}
            return {"nodeSelectorTerms": [{"matchFields": [requirement]}]}
        terms = (place.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
        if len(terms) > 1:
            raise SchedulingError(
                f"create NodeSelector for claim {claim['metadata']['name']}: unsupported "
                f"ResourceSlice.NodeSelector with {len(terms)} terms"
            )
        for term in terms:
            fields += [r for r in term.get("matchFields") or () if r not in fields]
            expressions += [r for r in term.get("matchExpressions") or () if r not in expressions]
    term = {}
    if expressions:
        term["matchExpressions"] = expressions
    if fields:
        term["matchFields"] = fields
    return {"nodeSelectorTerms": [term]} if term else None
