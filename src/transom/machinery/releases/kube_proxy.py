"""What changed in kube-proxy, by release: on Windows since 1.14."""

from __future__ import annotations

from typing import Final, Literal

from transom.kit.lazy_dataclass import dataclass
from transom.machinery.releases.kubelet_flags import KLOG_FLAGS
from transom.machinery.releases.release import Release

ProxyBehaviour = Literal[
    "KernelspaceAnnounced",
    "NftablesMode",
    "NoUserspaceMode",
    "SpacedModeLists",
    "WindowsServiceSetting",
]

_PROXY_SINCE: Final[dict[ProxyBehaviour, Release]] = {
    # Errors on Windows say that kernelspace will be the usual mode.
    "KernelspaceAnnounced": Release(1, 25),
    # There is a mode nftables, by its feature gate.
    "NftablesMode": Release(1, 29),
    # There is no mode userspace; the usual mode on Windows is kernelspace.
    "NoUserspaceMode": Release(1, 26),
    # Errors list the modes as in "iptables, ipvs".
    "SpacedModeLists": Release(1, 28),
    # The configuration can say that kube-proxy runs as a Windows service.
    "WindowsServiceSetting": Release(1, 31),
}

# The first release that has a flag.
_FLAGS_SINCE: Final = {
    "forward-healthcheck-vip": Release(1, 24),
    "pod-bridge-interface": Release(1, 24),
    "pod-interface-name-prefix": Release(1, 24),
    "root-hnsendpoint-name": Release(1, 24),
    "iptables-localhost-nodeports": Release(1, 26),
    "conntrack-tcp-be-liberal": Release(1, 29),
    "conntrack-udp-timeout": Release(1, 29),
    "conntrack-udp-timeout-stream": Release(1, 29),
    "init-only": Release(1, 29),
}
# The first release that refuses to start with a flag.
_FLAGS_REMOVED: Final = {
    **dict.fromkeys(KLOG_FLAGS, Release(1, 26)),
    "cleanup-ipvs": Release(1, 21),
    "proxy-port-range": Release(1, 31),
    "udp-timeout": Release(1, 26),
}

# Behaviour of the mode kernelspace.
_WINKERNEL_SINCE: Final[dict[str, tuple[int, int]]] = {
    "clears_balancers": (1, 15),  # deletes all load balancers of the host when it starts
    "waits_for_network": (1, 15),  # retries until the network exists; before, it gave up
    "rereads_network": (1, 15),  # every sync checks whether the network is still the same
    "source_vip_each_sync": (1, 15),  # and not only at startup
    "local_routed_vip": (1, 15),  # node ports have the flag LocalRoutedVIP
    "preserve_destination": (1, 15),
    "preserve_node_port": (
        1,
        18,
    ),  # preserve-destination also applies to node ports with backends on the node
    # for node addresses as backends, the node's address becomes the source
    "node_address_source": (1, 18),
    "counts_shared": (
        1,
        19,
    ),  # references to remote endpoints are counted per HNS endpoint, not per backend
    "classifies_known": (1, 19),  # also for backends that HNS already knew
    "affinity": (1, 19),
    "ipv6": (1, 19),
    "local_traffic": (1, 20),  # externalTrafficPolicy
    "skips_empty": (1, 21),  # no load balancer is created without backends
    # the port of the last backend is used; before, a number in the service's targetPort, else the
    # port of the first backend
    "port_of_last": (1, 34),
    "counts_failures": (1, 37),  # metrics of failed operations on load balancers
}


@dataclass(frozen=True, slots=True)
class WinkernelBehaviour:
    clears_balancers: bool
    waits_for_network: bool
    rereads_network: bool
    source_vip_each_sync: bool
    local_routed_vip: bool
    preserve_destination: bool
    preserve_node_port: bool
    node_address_source: bool
    counts_shared: bool
    classifies_known: bool
    affinity: bool
    ipv6: bool
    local_traffic: bool
    skips_empty: bool
    port_of_last: bool
    counts_failures: bool
    # load balancers of ingress addresses used DSR if the flag was set, from 1.15 to 1.19
    ingress_dsr_by_flag: bool


def proxy_has(release: tuple[int, int], name: ProxyBehaviour) -> bool:
    return release >= _PROXY_SINCE[name]


def proxy_accepts(release: tuple[int, int], flag: str) -> bool:
    since, removed = _FLAGS_SINCE.get(flag), _FLAGS_REMOVED.get(flag)
    return (since is None or release >= since) and (removed is None or release < removed)


def winkernel_behaviour(release: tuple[int, int]) -> WinkernelBehaviour:
    since = {name: release >= first for name, first in _WINKERNEL_SINCE.items()}
    return WinkernelBehaviour(**since, ingress_dsr_by_flag=(1, 15) <= release <= (1, 19))
