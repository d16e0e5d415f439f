"""Counts failed operations on load balancers, as kube-proxy's metrics of 1.37 do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from transom.kit.prometheus import Family, Sample
from transom.machines.windows.hns import HnsError
from transom.machines.windows.hns.errors import (
    INVALID_IP,
    NETWORK_NOT_FOUND,
    NOT_IMPLEMENTED,
    PORT_EXISTS,
)

_TYPES: Final[Mapping[str, str]] = {
    "cluster": "clusterip",
    "node port": "nodeport",
    "external": "externalip",
    "ingress": "ingressip",
    "health check": "healthcheck",
}
_ERRORS: Final[Mapping[int, str]] = {
    PORT_EXISTS: "port_already_exists",
    NETWORK_NOT_FOUND: "network_not_found",
    NOT_IMPLEMENTED: "not_implemented",
    INVALID_IP: "invalid_ip",
}


class BalancerFailures:
    """Of one proxier, which serves one family."""

    def __init__(self, *, ipv6: bool) -> None:
        self._family = "IPv6" if ipv6 else "IPv4"
        self._created: dict[tuple[str, str], int] = {}

    def creation_failed(self, slot: str, problem: HnsError) -> None:
        key = _TYPES[slot], _ERRORS.get(problem.code, "other")
        self._created[key] = self._created.get(key, 0) + 1

    def samples(self) -> list[Sample]:
        family = ("ip_family", self._family)
        return [
            Sample((("error", error), family, ("lb_type", kind)), count)
            for (kind, error), count in self._created.items()
        ]


def balancer_failure_metrics(failures: Iterable[BalancerFailures]) -> list[Family]:
    """Nothing as long as nothing has failed, like a vector of counters without children."""
    samples = [sample for one in failures for sample in one.samples()]
    if not samples:
        return []
    name = "kubeproxy_sync_proxy_rules_winkernel_lb_create_failures_total"
    text = "[ALPHA] Cumulative proxy winkernel lb create failures"
    return [Family(name, "counter", text, samples)]
