"""The pools of devices that a node can use, from ResourceSlices."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object

DeviceId = tuple[str, str, str]  # driver, pool, device
NodeMatches = Callable[[Object], bool]  # whether a node selector matches the node


class PoolDevice(NamedTuple):
    id: DeviceId
    device: Object
    slice: Object
    pool: DevicePool


class DevicePool:
    """The slices of a pool's newest generation. `elsewhere` are those for other nodes."""

    def __init__(self, driver: str, name: str) -> None:
        self.driver, self.name = driver, name
        self.slices: list[Object] = []
        self.elsewhere: list[Object] = []
        self.incomplete = False
        self.invalid = False

    @property
    def id(self) -> tuple[str, str]:
        return self.driver, self.name

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"

    @property
    def counters(self) -> dict[str, Object]:
        """The shared counters by the name of their set."""
        return {
            counters["name"]: counters.get("counters") or {}
            for entry in (*self.slices, *self.elsewhere)
            for counters in entry["spec"].get("sharedCounters") or ()
        }

    def devices(self) -> Iterable[PoolDevice]:
        return (device for entry in self.slices for device in _slice_devices(self, entry))

    def all_devices(self) -> Iterable[PoolDevice]:
        """Also those that only other nodes can use."""
        for entry in (*self.slices, *self.elsewhere):
            yield from _slice_devices(self, entry)


def _slice_devices(pool: DevicePool, entry: Object) -> Iterable[PoolDevice]:
    for device in entry["spec"].get("devices") or ():
        yield PoolDevice((pool.driver, pool.name, device["name"]), device, entry, pool)


def device_matches_node(place: Object, node_name: str, matches: NodeMatches) -> bool:
    """Whether a slice or a device is for the node."""
    if place.get("nodeName"):
        return bool(place["nodeName"] == node_name)
    if place.get("allNodes"):
        return True
    selector = place.get("nodeSelector")
    return selector is not None and matches(selector)


def _targets_node(spec: Object, node_name: str, matches: NodeMatches) -> bool:
    if spec.get("sharedCounters"):
        return True
    if spec.get("perDeviceNodeSelection"):
        return any(
            device_matches_node(device, node_name, matches) for device in spec.get("devices") or ()
        )
    return device_matches_node(spec, node_name, matches)


def gather_pools(
    slices: Iterable[Object], node_name: str, matches: NodeMatches
) -> list[DevicePool]:
    """The pools with a slice for the node, in the order of their names."""
    by_pool: dict[tuple[str, str], list[Object]] = {}
    for entry in slices:
        spec = entry["spec"]
        by_pool.setdefault((spec["driver"], spec["pool"]["name"]), []).append(entry)
    out = []
    for (driver, name), entries in sorted(by_pool.items()):
        newest = max(entry["spec"]["pool"].get("generation", 0) for entry in entries)
        current = [e for e in entries if e["spec"]["pool"].get("generation", 0) == newest]
        pool = DevicePool(driver, name)
        for entry in sorted(current, key=lambda e: e["metadata"]["name"]):
            here = _targets_node(entry["spec"], node_name, matches)
            (pool.slices if here else pool.elsewhere).append(entry)
        if not pool.slices:
            continue
        pool.incomplete = len(current) != current[0]["spec"]["pool"].get("resourceSliceCount", 0)
        pool.invalid = not pool.incomplete and _is_invalid(pool)
        out.append(pool)
    return out


def _is_invalid(pool: DevicePool) -> bool:
    names = [device.id for device in pool.devices()]
    if len(names) != len(set(names)):
        return True
    sets = [
        counters["name"]
        for entry in (*pool.slices, *pool.elsewhere)
        for counters in entry["spec"].get("sharedCounters") or ()
    ]
    if len(sets) != len(set(sets)):
        return True
    known = pool.counters
    return any(
        consumption["counterSet"] not in known
        or not set(consumption.get("counters") or {}) <= set(known[consumption["counterSet"]])
        for device in pool.all_devices()
        for consumption in device.device.get("consumesCounters") or ()
    )
