"""A separate controller manager accepts Kubernetes' options, and rejects what
kube-controller-manager rejects.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from transom.controllers.options import BadOption, ControllerManagerOptions, controller_settings
from transom.kit import pki
from transom.kit.clock import VirtualClock

TWO = "10.244.0.0/16,fd00:1::/48"


@pytest.mark.parametrize(
    ("options", "pods", "services", "masks"),
    [
        ({"cluster_cidr": "10.244.0.0/16"}, (), (), (24, 64)),
        (
            {
                "allocate_node_cidrs": True,
                "cluster_cidr": "10.244.1.2/16",
                "service_cidr": "10.96.0.0/12",
            },
            ("10.244.0.0/16",),
            ("10.96.0.0/12",),
            (24, 64),
        ),
        (
            {"allocate_node_cidrs": True, "cluster_cidr": "10.244.0.0/16", "node_mask": 26},
            ("10.244.0.0/16",),
            (),
            (26, 26),
        ),
        (
            {
                "allocate_node_cidrs": True,
                "cluster_cidr": TWO,
                "node_mask_ipv4": 25,
                "service_cidr": "10.96.0.0/12, fd00::/108",
            },
            ("10.244.0.0/16", "fd00:1::/48"),
            ("10.96.0.0/12", "fd00::/108"),
            (25, 64),
        ),
    ],
)
def test_ranges(
    options: dict[str, object],
    pods: tuple[str, ...],
    services: tuple[str, ...],
    masks: tuple[int, int],
) -> None:
    found = controller_settings(ControllerManagerOptions(**options), "", VirtualClock())  # type: ignore[arg-type]
    assert (found.pod_cidrs, found.service_cidrs) == (pods, services)
    assert (found.node_cidr_mask, found.node_cidr_mask_ipv6) == masks


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cluster_cidr": ""}, "Must specify --cluster-cidr if --allocate-node-cidrs is set"),
        ({"cluster_cidr": "10.244.0.0"}, "invalid CIDR address: 10.244.0.0"),
        ({"cluster_cidr": "ten"}, "invalid CIDR address: ten"),
        ({"cluster_cidr": "10.1.0.0/16,10.2.0.0/16"}, "not configured as dual stack"),
        ({"cluster_cidr": TWO + ",10.2.0.0/16"}, "len of clusters is:3"),
        (
            {"cluster_cidr": TWO, "node_mask": 24},
            "--node-cidr-mask-size is not allowed with dual-stack",
        ),
        ({"cluster_cidr": "10.1.0.0/16", "node_mask_ipv4": 24}, "not allowed with non dual-stack"),
        ({"cluster_cidr": "10.1.0.0/25"}, "Invalid --cluster-cidr, mask size"),
        ({"cluster_cidr": "fd00::/40"}, "the node CIDR size is too big"),
        (
            {"cluster_cidr": "10.1.0.0/16", "service_cidr": "10.2.0.0/16,10.3.0.0/16"},
            "are not dualstack",
        ),
        (
            {"cluster_cidr": "10.1.0.0/16", "load_balancer_cidr": "nowhere"},
            "--load-balancer-cidr: invalid CIDR",
        ),
        ({"cluster_cidr": "10.1.0.0/16", "root_ca": Path("/nowhere")}, "cannot be read"),
    ],
)
def test_contradictions(options: dict[str, object], text: str) -> None:
    wanted = ControllerManagerOptions(allocate_node_cidrs=True, **options)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match=text):
        controller_settings(wanted, "", VirtualClock())


def _request() -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody")])
    signed = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(name)
        .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    )
    return signed.public_bytes(serialization.Encoding.PEM)


def test_files(tmp_path: Path) -> None:
    ours, others = pki.make_ca("ours"), pki.make_ca("others")
    certificate, key, other_key = tmp_path / "ca.crt", tmp_path / "ca.key", tmp_path / "other.key"
    certificate.write_bytes(ours.certificate)
    key.write_bytes(ours.key)
    other_key.write_bytes(others.key)
    found = controller_settings(ControllerManagerOptions(), "of the kubeconfig", VirtualClock())
    assert (found.root_ca, found.sign, found.sign_certificate) == ("of the kubeconfig", None, None)
    assert (
        controller_settings(
            ControllerManagerOptions(signing_key=key), "", VirtualClock()
        ).sign_certificate
        is None
    )
    found = controller_settings(
        ControllerManagerOptions(
            root_ca=certificate,
            service_account_key=key,
            signing_certificate=certificate,
            signing_key=key,
        ),
        "-",
        VirtualClock(),
    )
    assert found.root_ca == ours.certificate.decode()
    assert found.sign is not None and found.sign({"sub": "me"}).count(".") == 2
    assert found.sign_certificate is not None
    made = x509.load_pem_x509_certificate(
        found.sign_certificate(_request(), ["client auth"], 86400.0)
    )
    assert (
        made.issuer.rfc4514_string() == "CN=ours" and made.subject.rfc4514_string() == "CN=somebody"
    )
    for wrong in (
        ControllerManagerOptions(signing_certificate=certificate, signing_key=other_key),
        ControllerManagerOptions(root_ca=key),
        ControllerManagerOptions(signing_certificate=key, signing_key=certificate),
        ControllerManagerOptions(service_account_key=certificate),
    ):
        with pytest.raises(BadOption):
            controller_settings(wrong, "", VirtualClock())
