"""Hints of endpoints: which zones and nodes should use them.

The annotation `service.kubernetes.io/topology-mode: Auto` shares the endpoints of a service out to
zones by their CPU; `spec.trafficDistribution` keeps traffic in its zone or on its node. Hints are
assigned to the planned slices before they are written; this module writes nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from transom.client.events import NORMAL, WARNING
from transom.controllers.endpointslice.common import ZONE, SliceChanges, slice_endpoints
from transom.controllers.pods import is_node_ready
from transom.controllers.service_pods import EndpointRules
from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object
from transom.machinery.quantity import parse_quantity

_OVERLOAD = 0.2  # how much more than its share of endpoints a zone may need
_MODE, _OLD_MODE = (
    "service.kubernetes.io/topology-mode",
    "service.kubernetes.io/topology-aware-hints",
)
_EXCLUDED = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_ENABLED, _DISABLED = "TopologyAwareHintsEnabled", "TopologyAwareHintsDisabled"
_CLOSE = ("PreferClose", "PreferSameZone", "PreferSameNode")


class HintsEvent(NamedTuple):
    type: str
    reason: str
    message: str


class _NoHints(Exception):
    """Endpoints cannot be shared out; the text is for the user."""


class _Allocation(NamedTuple):
    minimum: int
    maximum: int
    desired: float


def is_topology_aware(service: Object, rules: EndpointRules) -> bool:
    """Whether an annotation asks for hints by zone."""
    annotations = service["metadata"].get("annotations") or {}
    mode = annotations.get(_OLD_MODE)
    if mode is None and rules.topology_mode:
        mode = annotations.get(_MODE)
    return rules.zone_hints and (mode == "auto" or (mode == "Auto" and rules.capital_auto))


def traffic_distribution(service: Object, rules: EndpointRules) -> str | None:
    """The distribution of a service, if its release supports it."""
    wanted: str | None = service["spec"].get("trafficDistribution")
    known = _CLOSE if rules.node_hints else _CLOSE[:1]
    return wanted if rules.close_traffic and wanted in known else None


class TopologyCache:
    """The CPU of zones, and which services have hints by zone."""

    def __init__(self, nodes: Callable[[], Iterable[Object]]) -> None:
        self._nodes = nodes
        self._ratios: dict[str, float] | None = None
        self._stale = True
        self._allocated: dict[str, dict[str, dict[str, int]]] = {}  # service, family, zone
        self._populated: set[str] = set()

    def nodes_changed(self) -> None:
        self._stale = True

    def overloaded_services(self) -> list[str]:
        """Services with too few endpoints in a zone since nodes have changed."""
        ratios = self._cpu_ratios()
        return [
            key
            for key, families in self._allocated.items()
            if any(_is_overloaded(zones, ratios or {}) for zones in families.values())
        ]

    def forget(self, key: str, address_type: str | None = None) -> None:
        families = self._allocated.get(key, {})
        if address_type is None:
            families.clear()
        families.pop(address_type or "", None)
        if not families:
            self._allocated.pop(key, None)
        self._populated.discard(key)

    def add_hints(
        self, key: str, address_type: str, changes: SliceChanges, unchanged: Sequence[Object]
    ) -> HintsEvent | None:
        """Gives every ready endpoint to a zone. Removes all hints if that is not possible."""
        try:
            allocated = self._allocate(changes, unchanged)
        except _NoHints as problem:
            self.forget(key, address_type)
            set_hints(changes, unchanged, lambda _: None)
            return HintsEvent(WARNING, _DISABLED, f"{problem}, addressType: {address_type}")
        known = key in self._populated
        self._allocated.setdefault(key, {})[address_type] = allocated
        self._populated.add(key)
        if known:
            return None
        text = f"Topology Aware Hints has been enabled, addressType: {address_type}"
        return HintsEvent(NORMAL, _ENABLED, text)

    def remove_hints(self, key: str, address_type: str) -> HintsEvent | None:
        """The service asks for no hints by zone, or no longer."""
        had = key in self._populated
        self.forget(key, address_type)
        text = f"Topology Aware Hints has been disabled, addressType: {address_type}"
        return HintsEvent(WARNING, _DISABLED, text) if had else None

    def _cpu_ratios(self) -> dict[str, float] | None:
        if self._stale:
            self._ratios = cpu_ratios(self._nodes())
            self._stale = False
        return self._ratios

    def _allocate(self, changes: SliceChanges, unchanged: Sequence[Object]) -> dict[str, int]:
        pieces = [*changes.create, *changes.update, *unchanged]
        ready = sum(_is_ready(endpoint) for piece in pieces for endpoint in slice_endpoints(piece))
        allocations = _allocations(self._cpu_ratios(), ready)
        allocated: Counter[str] = Counter()
        create, update = list(changes.create), list(changes.update)
        for piece in unchanged:
            found = _hinted_zones(piece, allocated, allocations)
            if found is None:
                update.append(piece)
            else:
                allocated.update(found)
        create, update = (
            [
                {**piece, "endpoints": [_in_own_zone(e, allocated) for e in slice_endpoints(piece)]}
                for piece in group
            ]
            for group in (create, update)
        )
        giving, receiving = _giving_and_receiving(allocations, allocated)
        for piece in (*create, *update):
            _redistribute(piece, giving, receiving, allocated)
        if not allocated:
            raise _NoHints("No hints allocated for zones")
        changes.create, changes.update = create, update
        return dict(allocated)


def set_hints(
    changes: SliceChanges, unchanged: Iterable[Object], hints_for: Callable[[Object], Object | None]
) -> None:
    """Sets the hints of all endpoints; slices whose hints are right stay unchanged."""

    def with_hints(piece: Object) -> Object:
        endpoints = []
        for endpoint in slice_endpoints(piece):
            hints = hints_for(endpoint)
            rest = {name: value for name, value in endpoint.items() if name != "hints"}
            endpoints.append({**rest, "hints": hints} if hints else rest)
        return {**piece, "endpoints": endpoints} if endpoints else piece

    changes.create = [with_hints(piece) for piece in changes.create]
    changes.update = [with_hints(piece) for piece in changes.update]
    for piece in unchanged:
        wanted = with_hints(piece)
        if slice_endpoints(wanted) != slice_endpoints(piece):
            changes.update.append(wanted)


def close_hints(distribution: str, endpoint: Object) -> Object | None:
    """Where clients should use a ready endpoint, as trafficDistribution says."""
    if not _is_ready(endpoint):
        return None
    hints: Object = {}
    if endpoint.get("zone"):
        hints["forZones"] = [{"name": endpoint["zone"]}]
    if distribution == "PreferSameNode" and endpoint.get("nodeName"):
        hints["forNodes"] = [{"name": endpoint["nodeName"]}]
    return hints


# ---- zones ----


def cpu_ratios(nodes: Iterable[Object]) -> dict[str, float] | None:
    """The share of each zone in the CPU of the cluster; None if a node has no zone or no CPU, or if
    there is only one zone.
    """
    by_zone: Counter[str] = Counter()
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        if any(label in labels for label in _EXCLUDED) or not is_node_ready(node):
            continue
        cpu = ((node.get("status") or {}).get("allocatable") or {}).get("cpu")
        milli = parse_quantity(cpu).milli_value() if cpu is not None else 0
        if not labels.get(ZONE) or not milli:
            return None
        by_zone[labels[ZONE]] += milli
    total = by_zone.total()
    if len(by_zone) < 2:
        return None
    return {zone: by_zone[zone] / total for zone in sorted(by_zone)}


def _allocations(ratios: dict[str, float] | None, endpoints: int) -> dict[str, _Allocation]:
    if ratios is None:
        raise _NoHints(
            "Insufficient Node information: allocatable CPU or zone not specified on one or more "
            "nodes"
        )
    counts = f"({endpoints} endpoints, {len(ratios)} zones)"
    if len(ratios) > endpoints:
        raise _NoHints(f"Insufficient number of endpoints {counts}")
    desired = {zone: ratio * endpoints for zone, ratio in ratios.items()}
    minimum = {zone: math.ceil(want * (1 / (1 + _OVERLOAD))) for zone, want in desired.items()}
    spare = endpoints - sum(minimum.values())
    if spare < 0:
        raise _NoHints(
            "Unable to allocate minimum required endpoints to each zone without exceeding overload "
            f"threshold {counts}"
        )
    return {
        zone: _Allocation(least, least + spare, max(desired[zone], least))
        for zone, least in minimum.items()
    }


def _is_ready(endpoint: Object) -> bool:
    return (endpoint.get("conditions") or {}).get("ready") is True


def _hinted_zones(
    piece: Object, allocated: Mapping[str, int], allocations: Mapping[str, _Allocation]
) -> Counter[str] | None:
    """How many endpoints of a slice each zone has; None if its hints must change."""
    found: Counter[str] = Counter()
    for endpoint in filter(_is_ready, slice_endpoints(piece)):
        zones = [zone["name"] for zone in (endpoint.get("hints") or {}).get("forZones") or ()]
        if not zones or any(zone not in allocations for zone in zones):
            return None
        found.update(zones)
    over = any(allocated[z] + count > allocations[z].maximum for z, count in found.items())
    return None if over else found


def _in_own_zone(endpoint: Object, allocated: Counter[str]) -> Object:
    if not _is_ready(endpoint):
        return endpoint
    zone = endpoint.get("zone")
    if not zone:
        raise _NoHints("One or more endpoints do not have a zone specified")
    allocated[zone] += 1
    return {**endpoint, "hints": {"forZones": [{"name": zone}]}}


def _giving_and_receiving(
    allocations: Mapping[str, _Allocation], allocated: Mapping[str, int]
) -> tuple[Counter[str], Counter[str]]:
    """How many endpoints zones give away and get."""
    surplus = {zone: allocated.get(zone, 0) - want.desired for zone, want in allocations.items()}
    more = {zone: value for zone, value in surplus.items() if value > 0}
    less = {zone: -value for zone, value in surplus.items() if value < 0}
    giving: Counter[str] = Counter()
    receiving: Counter[str] = Counter()
    while more and less:
        giver, taker = max(more, key=more.__getitem__), max(less, key=less.__getitem__)
        give, take = more[giver], less[taker]
        if (give < 1 and take < 1) or give < 0.5 or take < 0.5:
            break
        giving[giver] += 1
        more[giver] -= 1
        receiving[taker] += 1
        less[taker] -= 1
    return giving, receiving


def _redistribute(
    piece: Object, giving: Counter[str], receiving: Counter[str], allocated: Counter[str]
) -> None:
    """Hints endpoints of zones that have too many to zones that have too few."""
    for endpoint in filter(_is_ready, slice_endpoints(piece)):
        zone = endpoint["zone"]
        taker = next((name for name, count in receiving.items() if count > 0), None)
        if taker is None:
            return
        if giving[zone] > 0:
            endpoint["hints"] = {"forZones": [{"name": taker}]}
            giving[zone] -= 1
            receiving[taker] -= 1
            allocated[zone] -= 1
            allocated[taker] += 1


def _is_overloaded(zones: Mapping[str, int], ratios: Mapping[str, float]) -> bool:
    if not zones:
        return False
    total = sum(zones.values())
    return not ratios or any(
        zone not in zones or zones[zone] < math.ceil(total * ratio * (1 / (1 + _OVERLOAD)))
        for zone, ratio in ratios.items()
    )
