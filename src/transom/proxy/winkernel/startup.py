"""The startup of the kernel mode: it deletes leftovers, waits for the network, and rejects options
that the node does not support.

Nothing blocks: `ProxierStartup.step` is called repeatedly and returns whether the proxier may
continue. The wait is never shorter than kube-proxy's, but longer if the calls are rare.
"""

from __future__ import annotations

import logging
from typing import Final

from transom.kit.clock import Clock
from transom.machinery.releases.kube_proxy import WinkernelBehaviour
from transom.machines.windows.hns import HnsError, HostNetworkService
from transom.proxy.winkernel.hostnetwork import HnsNetworkInfo, HostNetwork, delete_all_balancers
from transom.proxy.winkernel.options import LOCALHOST, WinkernelOptions

_POLL: Final = 1.0  # seconds between two lookups of the network
_OVERLAY_WAIT: Final = 10.0  # subnets of other nodes and the node's own address may appear late
_DSR: Final = "Direct Server Return (DSR)"
_SUBNETS: Final = "Remote Subnet"


class ProxierError(Exception):
    """kube-proxy does not start; the text is its message."""


class StartedProxier:
    __slots__ = ("host_mac", "network", "node_ip", "source_vip")

    def __init__(
        self, network: HnsNetworkInfo, node_ip: str, source_vip: str = "", host_mac: str = ""
    ) -> None:
        self.network = network
        self.node_ip = node_ip
        self.source_vip = source_vip  # only on overlay networks
        self.host_mac = host_mac


class ProxierStartup:
    def __init__(
        self,
        host: HostNetwork,
        hns: HostNetworkService,
        options: WinkernelOptions,
        behaviour: WinkernelBehaviour,
        clock: Clock,
        log: logging.Logger,
    ) -> None:
        self._host = host
        self._hns = hns
        self._options = options
        self._behaviour = behaviour
        self._clock = clock
        self._log = log
        self.due = 0.0  # clock time; nothing happens before it
        self._name = ""
        self._settled = False  # the wait of overlay networks is over

    def step(self) -> StartedProxier | None:
        """None while it waits. Raises ProxierError."""
        if self._clock.monotonic() < self.due:
            return None
        if not self._name:
            self._begin()
        try:
            network = self._host.network(self._name)
        except HnsError as problem:
            self._missing(problem)
            return None
        if network.overlay and self._behaviour.waits_for_network and not self._settled:
            self._settled = True
            self.due = self._clock.monotonic() + _OVERLAY_WAIT
            return None
        self._log.debug(
            "Hns Network loaded with info = %s %s %s", network.name, network.type, network.id
        )
        return self._check(network)

    def _begin(self) -> None:
        options = self._options
        if not options.node_ip:
            self._log.warning("invalid nodeIP, initializing kube-proxy with 127.0.0.1 as nodeIP")
        if not options.cluster_cidr:
            self._log.warning(
                "clusterCIDR not specified, unable to distinguish between internal and "
                "external traffic"
            )
        self._name = options.network_name
        if not self._name:
            self._log.debug("network-name flag not set. Checking environment variable")
            self._name = options.environment.get("KUBE_NETWORK", "")
            if not self._name:
                raise ProxierError(
                    "Environment variable KUBE_NETWORK and network-flag not initialized"
                )
        if self._behaviour.clears_balancers:
            self._log.debug("Cleaning up old HNS policy lists")
            delete_all_balancers(self._hns)

    def _missing(self, problem: HnsError) -> None:
        if not self._behaviour.waits_for_network:
            self._log.error(
                "Unable to find Hns Network specified by %s. Please check environment "
                "variable KUBE_NETWORK or"
                " network-name flag",
                self._name,
            )
            raise ProxierError(problem.text) from problem
        if self._settled:
            raise ProxierError(f"Could not find HNS network {self._name}") from problem
        self._log.error(
            (
                "Unable to find HNS Network specified by %s. Please check network name and CNI "
                "deployment"
            ),
            self._name,
        )
        self.due = self._clock.monotonic() + _POLL

    def _check(self, network: HnsNetworkInfo) -> StartedProxier:
        options = self._options
        if options.enable_dsr:
            if not options.gate("WinDSR"):
                raise ProxierError("WinDSR feature gate not enabled")
            if not self._hns.supports(_DSR):
                raise ProxierError(f"platform does not support feature {_DSR}")
        node_ip = options.node_ip or LOCALHOST
        if not network.overlay:
            return StartedProxier(network, node_ip)
        if not options.gate("WinOverlay"):
            raise ProxierError("WinOverlay feature gate not enabled")
        if not self._hns.supports(_SUBNETS):
            raise ProxierError(f"platform does not support feature {_SUBNETS}")
        if not options.source_vip:
            raise ProxierError("source-vip flag not set")
        mac = _mac_of(self._hns, node_ip)
        if not mac:
            raise ProxierError(f"Could not find host mac address for {node_ip}")
        self._log.debug("Host MAC address is %s", mac)
        return StartedProxier(network, node_ip, options.source_vip, mac)


def _mac_of(hns: HostNetworkService, address: str) -> str:
    """The MAC address of the adapter with this address; of the last one if several have it.
    Formatted like Go.
    """
    found = ""
    for adapter in hns.adapters.values():
        if adapter.ip == address:
            found = adapter.mac
    return found.replace("-", ":").lower()
