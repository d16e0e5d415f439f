"""The options of a standalone controller manager, and the controller settings derived from them.

They follow kube-controller-manager, including its validation errors; only the load balancer pool is
ours, because clouds provide it otherwise. Independent of the command line.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.controllers.base import ControllerSettings
from transom.kit.clock import Clock
from transom.kit.jws import TokenSigner
from transom.kit.lazy import lazy_import
from transom.kit.lazy_dataclass import dataclass
from transom.kit.pki import KeyPair
from transom.kit.signing import sign_request

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
else:
    serialization = lazy_import("cryptography.hazmat.primitives.serialization")
    x509 = lazy_import("cryptography.x509")

_MASK_IPV4, _MASK_IPV6 = 24, 64
# the maximum difference between the prefix lengths of the node CIDR and the whole range
_MOST_BITS = 16

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Sign = Callable[[dict[str, Any]], str]
SignCertificate = Callable[[bytes, Iterable[str], float], bytes]


class BadOption(Exception):
    """Options that contradict each other, or refer to a file that cannot be used."""


@dataclass(frozen=True, slots=True)
class ControllerManagerOptions:
    """Options of `transom controller-manager`."""

    kubeconfig: Path | None = None
    context: str = ""
    controllers: Sequence[str] = ("*",)
    leader_elect: bool = True
    root_ca: Path | None = None
    service_account_key: Path | None = None
    signing_certificate: Path | None = None
    signing_key: Path | None = None
    allocate_node_cidrs: bool = False
    cluster_cidr: str = ""  # one, or one of each family separated by a comma
    service_cidr: str = ""
    node_mask: int = 0  # 0: 24, with IPv6 64
    node_mask_ipv4: int = 0
    node_mask_ipv6: int = 0
    load_balancer_cidr: str = ""
    metrics_bind_address: str = ""


def controller_settings(
    wanted: ControllerManagerOptions, authority: str, clock: Clock
) -> ControllerSettings:
    """`authority` is the CA with which this process verifies the API server; pods use it too unless
    a file is given.
    """
    for text in filter(None, wanted.load_balancer_cidr.split(",")):
        _network(text, "--load-balancer-cidr")
    pods = _pod_networks(wanted)
    mask_ipv4, mask_ipv6 = _masks(wanted, pods)
    for network in pods:
        mask = mask_ipv4 if network.version == 4 else mask_ipv6
        if network.prefixlen > mask:
            raise BadOption(
                "Invalid --cluster-cidr, mask size of cluster CIDR must be less than or "
                "equal to --node-cidr-mask-size "
                "configured for CIDR family"
            )
        if mask > network.max_prefixlen or (
            network.version == 6 and mask - network.prefixlen > _MOST_BITS
        ):
            raise BadOption("New CIDR set failed; the node CIDR size is too big")
    return ControllerSettings(
        root_ca=_root_ca(wanted.root_ca) if wanted.root_ca is not None else authority,
        sign=_signer(wanted.service_account_key)
        if wanted.service_account_key is not None
        else None,
        sign_certificate=_certificate_signer(wanted, clock),
        pod_cidrs=tuple(map(str, pods)),
        service_cidrs=_service_cidrs(wanted) if pods else (),
        node_cidr_mask=mask_ipv4,
        node_cidr_mask_ipv6=mask_ipv6,
        load_balancers=wanted.load_balancer_cidr,
    )


# ---- ranges ----


def _network(text: str, option: str) -> Network:
    address, slash, bits = text.strip().partition("/")
    try:
        if not (slash and bits.isdigit()):
            raise ValueError
        return ipaddress.ip_network(f"{address}/{bits}", strict=False)
    except ValueError:
        raise BadOption(f"{option}: invalid CIDR address: {text}") from None


def _pod_networks(wanted: ControllerManagerOptions) -> list[Network]:
    if not wanted.allocate_node_cidrs:
        return []
    if not wanted.cluster_cidr.strip():
        raise BadOption("Must specify --cluster-cidr if --allocate-node-cidrs is set")
    found = [_network(text, "--cluster-cidr") for text in wanted.cluster_cidr.split(",")]
    if len(found) > 1 and len({network.version for network in found}) < 2:
        raise BadOption(
            f"len of ClusterCIDRs=={len(found)} and they are not configured as dual stack "
            "(at least one from each IPFamily)"
        )
    if len(found) > 2:
        raise BadOption(f"len of clusters is:{len(found)} > more than max allowed of 2")
    return found


def _service_cidrs(wanted: ControllerManagerOptions) -> tuple[str, ...]:
    found = [
        _network(text, "--service-cluster-ip-range")
        for text in wanted.service_cidr.split(",")
        if text.strip()
    ]
    if len(found) > 2:
        raise BadOption("--service-cluster-ip-range can not contain more than two entries")
    if len(found) == 2 and found[0].version == found[1].version:
        raise BadOption(
            "serviceCIDR and secondaryServiceCIDR are not dualstack (from different IPfamiles)"
        )
    return tuple(map(str, found))


def _masks(wanted: ControllerManagerOptions, pods: Sequence[Network]) -> tuple[int, int]:
    if len(pods) > 1:
        if wanted.node_mask:
            raise BadOption(
                "usage of --node-cidr-mask-size is not allowed with dual-stack clusters"
            )
        return wanted.node_mask_ipv4 or _MASK_IPV4, wanted.node_mask_ipv6 or _MASK_IPV6
    if pods and (wanted.node_mask_ipv4 or wanted.node_mask_ipv6):
        raise BadOption(
            "usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 are not "
            "allowed with non dual-stack clusters"
        )
    return wanted.node_mask or _MASK_IPV4, wanted.node_mask or _MASK_IPV6


# ---- keys ----


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as problem:
        raise BadOption(f"{file} cannot be read: {problem.strerror}") from problem


def _root_ca(file: Path) -> str:
    content = _read(file)
    try:
        x509.load_pem_x509_certificates(content)
    except ValueError as problem:
        raise BadOption(f"error parsing root-ca-file at {file}: {problem}") from problem
    return content.decode()


def _signer(file: Path) -> Sign:
    try:
        return TokenSigner(_read(file)).sign
    except (ValueError, TypeError) as problem:
        raise BadOption(
            f"error reading key for service account token controller: {problem}"
        ) from problem


def _certificate_signer(wanted: ControllerManagerOptions, clock: Clock) -> SignCertificate | None:
    """None unless both files are given, as in Kubernetes: then no certificate is signed."""
    if wanted.signing_certificate is None or wanted.signing_key is None:
        return None
    authority = KeyPair(_read(wanted.signing_certificate), _read(wanted.signing_key))
    try:
        certificate = x509.load_pem_x509_certificate(authority.certificate)
        key = serialization.load_pem_private_key(authority.key, None)
    except (ValueError, TypeError) as problem:
        raise BadOption(
            f"error reading CA cert file {str(wanted.signing_certificate)!r}: {problem}"
        ) from problem
    if certificate.public_key() != key.public_key():
        raise BadOption(f"{wanted.signing_key} is not the key of {wanted.signing_certificate}")

    def sign(request: bytes, usages: Iterable[str], seconds: float) -> bytes:
        return sign_request(authority, request, usages, seconds, clock.time())

    return sign
