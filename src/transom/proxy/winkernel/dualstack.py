"""Two proxiers on one node, one for each family, with the interface of one (feature gate
IPv6DualStack).
"""

from __future__ import annotations

import logging
from dataclasses import replace

from transom.kit.clock import Clock
from transom.machines.windows.hns import HostNetworkService
from transom.proxy.tracker import ServiceTracker
from transom.proxy.winkernel.failures import BalancerFailures
from transom.proxy.winkernel.options import WinkernelOptions
from transom.proxy.winkernel.proxier import ServiceHealthServer, SyncObserver, WinkernelProxier


def node_ips(bind_address: str) -> tuple[str, str]:
    """The node address of both proxiers: the bind address for its family, the unspecified address
    for the other.
    """
    return ("0.0.0.0", bind_address) if ":" in bind_address else (bind_address, "::")


class DualStackProxier:
    def __init__(
        self,
        tracker: ServiceTracker,
        node_name: str,
        hns: HostNetworkService,
        options: WinkernelOptions,
        clock: Clock,
        *,
        bind_address: str = "0.0.0.0",
        health: ServiceHealthServer | None = None,
        observer: SyncObserver | None = None,
        log: logging.Logger | None = None,
    ) -> None:
        self.node_name = node_name
        self._options = options
        self._log = log or logging.getLogger("transom.proxy")
        four, six = node_ips(bind_address)
        self._four = WinkernelProxier(
            tracker,
            node_name,
            hns,
            replace(options, node_ip=four, ipv6=False),
            clock,
            health=health,
            observer=observer,
            log=log,
        )
        self._six = WinkernelProxier(
            tracker,
            node_name,
            hns,
            replace(options, node_ip=six, ipv6=True),
            clock,
            observer=observer,
            log=log,
        )
        self._both = (("ipv4", four, self._four), ("ipv6", six, self._six))

    @property
    def failed(self) -> str:
        for family, address, proxier in self._both:
            if proxier.failed:
                why = proxier.failed.removeprefix("unable to create proxier: ")
                return (
                    f"unable to create proxier: unable to create {family} proxier: {why}, "
                    f"hostname: {self.node_name}, "
                    f"clusterCIDR : {self._options.cluster_cidr}, nodeIP:{address}"
                )
        return ""

    @property
    def dirty(self) -> bool:
        return not self.failed and (self._four.dirty or self._six.dirty)

    @property
    def due(self) -> float:
        return min(self._four.due, self._six.due)

    def sync(self) -> None:
        if self._four.start() and self._six.start():
            self._four.sync()
            self._six.sync()

    def failures(self) -> list[BalancerFailures]:
        return [*self._four.failures(), *self._six.failures()]

    def lost_services(self) -> list[str]:
        return [*dict.fromkeys((*self._four.lost_services(), *self._six.lost_services()))]

    def close(self) -> None:
        self._four.close()
        self._six.close()
