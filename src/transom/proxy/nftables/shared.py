"""Rules that are the same on every node, created once for all proxiers of a process.

The rules of most services do not depend on where a client or an endpoint is, so a thousand nodes
would create the same chains a thousand times. Values from the tracker are compared by identity: the
tracker creates a new value for every change.
"""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

from transom.proxy.nftables.rules import RuleContext, ServicePortRules, rules_of_service_port
from transom.proxy.tracker import (
    PortName,
    ProxyEndpoint,
    ServicePort,
    ServiceTracker,
    has_hints,
)


class SharedServiceRules:
    def __init__(self) -> None:
        self._known: dict[
            RuleContext,
            dict[PortName, tuple[ServicePort, tuple[ProxyEndpoint, ...], ServicePortRules]],
        ] = {}

    def rules_of(
        self,
        name: PortName,
        service: ServicePort,
        endpoints: tuple[ProxyEndpoint, ...],
        place: RuleContext,
    ) -> ServicePortRules:
        local = service.internal_local or service.external_local
        if local or service.source_ranges or has_hints(endpoints):
            return rules_of_service_port(name, service, endpoints, place)
        anywhere = replace(place, node="", node_ips=(), zone="")
        known = self._known.setdefault(anywhere, {})
        found = known.get(name)
        if found is None or found[0] is not service or found[1] is not endpoints:
            found = known[name] = (
                service,
                endpoints,
                rules_of_service_port(name, service, endpoints, anywhere),
            )
        return found[2]

    def forget(self, name: PortName) -> None:
        for known in self._known.values():
            known.pop(name, None)


_OF_TRACKER: WeakKeyDictionary[ServiceTracker, SharedServiceRules] = WeakKeyDictionary()


def shared_service_rules(tracker: ServiceTracker) -> SharedServiceRules:
    found = _OF_TRACKER.get(tracker)
    if found is None:
        found = _OF_TRACKER[tracker] = SharedServiceRules()
    return found
