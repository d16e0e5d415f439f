"""Fields that endpoints do not change, by release."""

from __future__ import annotations

import pytest

from transom.machinery.kinds import KINDS, STATUS, Kind
from transom.machinery.releases import parse_release
from transom.machinery.releases.reset_fields import reset_paths

CUSTOM = Kind("a.example", "Widget", "widgets", subresources=(STATUS,), custom=True)
CLAIM = Kind("resource.k8s.io", "ResourceClaim", "resourceclaims", subresources=(STATUS,))
BY_KEY = {kind.key: kind for kind in (*KINDS, CUSTOM, CLAIM)}
CSR = "certificates.k8s.io/CertificateSigningRequest"


@pytest.mark.parametrize(
    ("key", "release", "subresource", "paths"),
    [
        ("/ConfigMap", "1.36", "", ""),
        ("/Pod", "1.36", "", "status"),
        ("/Pod", "1.36", "status", "spec metadata.deletionTimestamp metadata.ownerReferences"),
        ("/Pod", "1.36", "resize", ""),
        ("/Service", "1.36", "status", "spec"),
        ("/Namespace", "1.36", "finalize", "status"),
        ("apps/Deployment", "1.22", "status", "spec metadata.labels"),
        ("apps/Deployment", "1.22", "scale", ""),
        (CSR, "1.22", "", "spec status"),
        (CSR, "1.36", "status", "spec status.conditions"),
        (CSR, "1.36", "approval", "spec status.certificate"),
        ("storage.k8s.io/VolumeAttachment", "1.22", "status", "spec metadata"),
        ("resource.k8s.io/ResourceClaim", "1.34", "status", "spec"),
        ("resource.k8s.io/ResourceClaim", "1.35", "status", "spec metadata"),
        ("a.example/Widget", "1.35", "status", "spec"),
        ("a.example/Widget", "1.36", "status", "spec metadata"),
        ("a.example/Widget", "1.36", "", "status"),
    ],
)
def test_reset_paths(key: str, release: str, subresource: str, paths: str) -> None:
    found = reset_paths(BY_KEY[key], parse_release(release), subresource)
    shown = [".".join(name.removeprefix("f:") for name in path) for path in found]
    assert shown == paths.split()
