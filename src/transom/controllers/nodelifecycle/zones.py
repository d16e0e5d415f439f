"""The eviction rate of each zone: lower if many nodes fail together, zero if all zones fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum

from transom.client.ratelimit import TokenBucket
from transom.kit.clock import Clock
from transom.machinery.objects import Object

RATE, REDUCED_RATE = 0.1, 0.01  # nodes a second
LARGE_CLUSTER = 50  # in smaller zones, a disruption stops evictions
_UNHEALTHY_SHARE = 0.55
_BURST = 1
_ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_REGION_LABELS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")


class ZoneState(Enum):
    INITIAL = "Initial"
    NORMAL = "Normal"
    PARTIAL = "PartialDisruption"
    FULL = "FullDisruption"


def node_zone(node: Object) -> str:
    labels = node["metadata"].get("labels") or {}
    region = next((labels[key] for key in _REGION_LABELS if key in labels), "")
    zone = next((labels[key] for key in _ZONE_LABELS if key in labels), "")
    return f"{region}:\x00:{zone}" if region or zone else ""


def zone_state_of(ready: Sequence[bool]) -> ZoneState:
    """The state of a zone, from the readiness of its nodes."""
    failed = ready.count(False)
    if failed and failed == len(ready):
        return ZoneState.FULL
    if failed > 2 and failed / len(ready) >= _UNHEALTHY_SHARE:
        return ZoneState.PARTIAL
    return ZoneState.NORMAL


class SlowQueue:
    """A rate-limited queue of names. A processed name is not accepted again until it is removed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rate = RATE
        self._bucket: TokenBucket | None = TokenBucket(clock, RATE, _BURST)
        self._waiting: list[str] = []
        self._known: set[str] = set()

    def add(self, name: str) -> bool:
        if name in self._known:
            return False
        self._known.add(name)
        self._waiting.append(name)
        return True

    def remove(self, name: str) -> bool:
        if name not in self._known:
            return False
        self._known.discard(name)
        if name in self._waiting:
            self._waiting.remove(name)
        return True

    def limit(self, rate: float) -> None:
        """Changes the rate; 0 stops the queue."""
        if rate == self._rate:
            return
        allowed = self._bucket is not None and self._bucket.allow()
        self._rate = rate
        self._bucket = TokenBucket(self._clock, rate, _BURST) if rate > 0 else None
        if self._bucket is not None and not allowed:
            self._bucket.allow()  # a change of the rate does not shorten the current wait

    def __bool__(self) -> bool:
        """Whether the queue is not empty."""
        return bool(self._waiting)

    async def work(self, process_node: Callable[[str], Awaitable[bool]]) -> None:
        """Processes as many names as the rate allows; `deal` returns whether it succeeded."""
        while self._waiting and self._bucket is not None and self._bucket.allow():
            name = self._waiting[0]
            if await process_node(name):
                if name in self._waiting:
                    self._waiting.remove(name)
            elif name in self._waiting:
                self._waiting.remove(name)
                self._waiting.append(name)


class Zones:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._states: dict[str, ZoneState] = {}
        self._queues: dict[str, SlowQueue] = {}

    def queue(self, node: Object) -> SlowQueue:
        zone = node_zone(node)
        if zone not in self._states:
            self._states[zone] = ZoneState.INITIAL
            self._queues[zone] = SlowQueue(self._clock)
        return self._queues[zone]

    def queues(self) -> list[SlowQueue]:
        return [*self._queues.values()]

    def update(self, ready: Mapping[str, Sequence[bool]]) -> tuple[bool, bool]:
        """Updates the readiness of the nodes in each zone. Returns whether all zones have just
        failed, and whether they recovered from that.
        """
        states = {zone: zone_state_of(nodes) for zone, nodes in ready.items()}
        for zone in states:
            self._states.setdefault(zone, ZoneState.INITIAL)
            self._queues.setdefault(zone, SlowQueue(self._clock))
        for zone in [zone for zone in self._states if zone not in states]:
            del self._states[zone]
        all_fail = all(state is ZoneState.FULL for state in states.values())
        all_failed = all(state is ZoneState.FULL for state in self._states.values())
        if all_fail and all_failed:
            return False, False
        for zone, state in states.items():
            if all_fail:
                self._queues[zone].limit(0)
            elif all_failed or self._states[zone] is not state:
                self._queues[zone].limit(_rate(state, len(ready[zone])))
            self._states[zone] = state
        return all_fail, all_failed


def _rate(state: ZoneState, nodes: int) -> float:
    if state is ZoneState.PARTIAL:
        return REDUCED_RATE if nodes > LARGE_CLUSTER else 0.0
    return RATE
