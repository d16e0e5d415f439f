"""Connections that the kernel's connection tracking still forwards to removed endpoints.

UDP connections have no end, so a client that keeps sending is forwarded to a removed endpoint, or
dropped because it started before an endpoint existed. The proxy lists the entries to delete; the
owner of the connection tracker deletes them.
"""

from __future__ import annotations

from collections.abc import Iterator

from transom.kit.lazy_dataclass import dataclass
from transom.proxy.tracker import ProxyEndpoint, ServicePort, addresses_of_family


@dataclass(frozen=True, slots=True)
class StaleFlow:
    """Matches entries by all given fields; `arguments` are those of `conntrack -D`."""

    destination: str = ""  # the client's destination
    port: int = 0  # and its port
    endpoint: str = ""  # the endpoint that it is forwarded to
    ipv6: bool = False

    def arguments(self) -> list[str]:
        given = ["-p", "udp"]
        if self.destination:
            given += ["--orig-dst", self.destination]
        if self.port:
            given += ["--dport", str(self.port)]
        if self.endpoint:
            given += ["--dst-nat", self.endpoint]
        return [*given, "-f", "ipv6"] if self.ipv6 else given


Known = tuple[ServicePort | None, tuple[ProxyEndpoint, ...]]
"""A service port, if it exists, and its endpoints."""


def stale_flows(then: Known, today: Known, ipv6: bool) -> Iterator[StaleFlow]:
    """The stale flows of one service port and family; empty for protocols other than UDP."""
    before, endpoints_before = then
    now, endpoints_now = today
    service = now or before
    if service is None or service.protocol != "UDP":
        return
    if now is None or not now.cluster_ip(ipv6):
        if before is not None and before.cluster_ip(ipv6):
            yield StaleFlow(before.cluster_ip(ipv6), ipv6=ipv6)
        return
    addresses = (
        now.cluster_ip(ipv6),
        *addresses_of_family(now.external_ips, ipv6),
        *addresses_of_family(now.ingress_ips, ipv6),
    )
    was = {(e.address, e.port) for e in endpoints_before if e.ready and e.ipv6 == ipv6}
    is_now = {(e.address, e.port) for e in endpoints_now if e.ready and e.ipv6 == ipv6}
    if is_now and not was:
        for address in dict.fromkeys(addresses):
            yield StaleFlow(address, ipv6=ipv6)
        if now.node_port:
            yield StaleFlow(port=now.node_port, ipv6=ipv6)
    for endpoint in sorted({address for address, _ in was - is_now}):
        if now.node_port:
            yield StaleFlow(port=now.node_port, endpoint=endpoint, ipv6=ipv6)
        for address in dict.fromkeys(addresses):
            yield StaleFlow(address, endpoint=endpoint, ipv6=ipv6)
