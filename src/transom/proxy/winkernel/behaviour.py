"""What kube-proxy's kernel mode did in which release: one row for each thing that changed between 1.14 and 1.21."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from transom.windows.records import Release

# From which release on.
_SINCE: Final[dict[str, Release]] = {
    "clears_balancers": (1, 15),  # deletes all load balancers of the host when it starts
    "waits_for_network": (1, 15),  # looks for the network again and again; before, it gave up
    "rereads_network": (1, 15),  # every sync looks whether the network is still the same
    "source_vip_each_sync": (1, 15),  # and not only at the start
    "local_routed_vip": (1, 15),  # node ports are made with the flag LocalRoutedVIP
    "preserve_destination": (1, 15),
    "preserve_node_port": (1, 18),  # preserve-destination also keeps node ports to the node's own pods
    "node_address_source": (1, 18),  # node addresses as backends make the node's address the source
    "counts_shared": (1, 19),  # references to remote endpoints are counted by endpoint of HNS, not by backend
    "classifies_known": (1, 19),  # backends that HNS knew already are looked at for that as well
    "affinity": (1, 19),
    "ipv6": (1, 19),
    "local_traffic": (1, 20),  # externalTrafficPolicy
    "skips_empty": (1, 21),  # no load balancer is asked for where there is no backend
}


@dataclass(frozen=True, slots=True)
class Behaviour:
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
    ingress_dsr_by_flag: bool  # load balancers of ingress addresses had DSR when the flag was given, from 1.15 to 1.19


def of_release(release: Release) -> Behaviour:
    since = {name: release >= first for name, first in _SINCE.items()}
    return Behaviour(**since, ingress_dsr_by_flag=(1, 15) <= release <= (1, 19))
