"""Rules that are the same on every node, made once for all proxiers of a process.

Most services do not care where a client or an endpoint is, so a thousand nodes would make the same chains a thousand times.
Only identity of what the tracker hands out is compared: it makes a new value whenever something changed.
"""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

from transom.proxy.nftables.rules import Part, Place, part_of
from transom.proxy.tracker import Endpoint, PortName, ServicePort, Tracker


class SharedParts:
    def __init__(self) -> None:
        self._known: dict[Place, dict[PortName, tuple[ServicePort, tuple[Endpoint, ...], Part]]] = {}

    def part(self, name: PortName, service: ServicePort, endpoints: tuple[Endpoint, ...], place: Place) -> Part:
        if service.internal_local or service.external_local or service.source_ranges:
            return part_of(name, service, endpoints, place)
        anywhere = replace(place, node="", node_ips=())
        known = self._known.setdefault(anywhere, {})
        found = known.get(name)
        if found is None or found[0] is not service or found[1] is not endpoints:
            found = known[name] = (service, endpoints, part_of(name, service, endpoints, anywhere))
        return found[2]

    def forget(self, name: PortName) -> None:
        for known in self._known.values():
            known.pop(name, None)


_OF_TRACKER: WeakKeyDictionary[Tracker, SharedParts] = WeakKeyDictionary()


def shared_parts(tracker: Tracker) -> SharedParts:
    found = _OF_TRACKER.get(tracker)
    if found is None:
        found = _OF_TRACKER[tracker] = SharedParts()
    return found
