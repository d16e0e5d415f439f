"""Ranges of addresses of a cluster: one, or one of each family with a comma, as kubeadm writes them. What a cluster of both
families has where nobody says it, and what does not go together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from transom.cluster.errors import ClusterError
from transom.cluster.features import gates

if TYPE_CHECKING:
    from transom.cluster.config import ClusterConfig

GATE = "IPv6DualStack"
# Of IPv6: addresses of sites without a registry; for what is outside, those of documents and of bench tests.
POD_CIDR = "fd00:10:244::/56"  # each node gets a /64 of it
LARGE_POD_CIDR = "fd00:10:128::/48"
SERVICE_CIDR = "fd00:10:96::/112"
NODE_CIDR = "fd00:172:20::/64"
LOAD_BALANCER_CIDR = "2001:2::/112"
_LARGEST_SERVICES = {4: 12, 6: 108}  # the least length of a prefix; more addresses than that nobody keeps books of
_NODE_MASK, _MOST_BITS = {4: 24, 6: 64}, 16
_FIELDS = {"pod_cidr": "podCIDR", "service_cidr": "serviceCIDR"}
_HINT = "say --dual-stack, or dualStack: true in the part network of the cluster file"


def split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def of(text: str, version: int) -> str:
    """The range of a family, "" for none."""
    return next((part for part in split(text) if (":" in part) == (version == 6)), "")


def choose(config: ClusterConfig) -> ClusterConfig:
    """With the gate that its families need; raises ClusterError for what does not go together."""
    for name in _FIELDS:
        _check(config, name)
    both = any(len(split(getattr(config, name))) == 2 for name in _FIELDS)
    known = gates(config.feature_gates)
    dual = config.network.dual_stack or (both and known.get(GATE, False))  # the gate and ranges are how kubeadm has it
    if both and not dual:
        raise ClusterError("ranges of both families are dual stack, which this cluster is not to have", _HINT)
    if not dual:
        return config
    if known.get(GATE) is False:
        raise ClusterError(f"dual stack needs the feature gate {GATE}, which is off", f"leave out {GATE}=false")
    if config.release in ("1.14", "1.15"):
        raise ClusterError(f"Kubernetes {config.release} has no dual stack", "choose a release from 1.16 on")
    gate = () if GATE in known else (f"{GATE}=true",)
    return replace(config, network=replace(config.network, dual_stack=True), feature_gates=(*config.feature_gates, *gate))


def fill(config: ClusterConfig, *, large: bool) -> ClusterConfig:
    """With ranges of both families, if it is to have both; large ones for many nodes."""
    if not config.network.dual_stack:
        return config
    return replace(
        config,
        pod_cidr=_with(config.pod_cidr, LARGE_POD_CIDR if large else POD_CIDR),
        service_cidr=_with(config.service_cidr, SERVICE_CIDR), node_cidr=_with(config.node_cidr, NODE_CIDR),
        load_balancer_cidr=_with(config.load_balancer_cidr, LOAD_BALANCER_CIDR),
    )  # fmt: skip


def _with(ranges: str, other: str) -> str:
    return ranges if of(ranges, 6) else f"{ranges},{other}"


def _check(config: ClusterConfig, name: str) -> None:
    import ipaddress

    field, text = _FIELDS[name], getattr(config, name)
    networks = []
    for part in split(text):
        try:
            networks.append(ipaddress.ip_network(part))
        except ValueError as problem:
            raise ClusterError(f"{field}: {problem}", "write it as 10.1.0.0/16, or 10.1.0.0/16,fd00:1::/56") from problem
    versions = [network.version for network in networks]
    if len(versions) > 2 or len(set(versions)) != len(versions) or not versions:
        raise ClusterError(f"{field}: {text!r} must be one range, or one of each family", "for example 10.1.0.0/16,fd00:1::/56")
    if versions == [6, 4]:
        raise ClusterError(f"{field}: the range of IPv4 comes first here", f"write {','.join(reversed(split(text)))}")
    for network in networks:
        version = network.version
        if name == "service_cidr" and network.prefixlen < _LARGEST_SERVICES[version]:
            raise ClusterError(
                f"{field}: {network} is too large; for {network.max_prefixlen}-bit addresses, the mask must be >= "
                f"{_LARGEST_SERVICES[version]}"
            )
        mask = _NODE_MASK[version]
        if name == "pod_cidr" and not mask - (_MOST_BITS if version == 6 else mask) <= network.prefixlen <= mask:
            why = "small" if network.prefixlen > mask else "large"
            raise ClusterError(f"{field}: {network} is too {why}: each node gets a /{mask} of it")
