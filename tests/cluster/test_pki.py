from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from transom.cluster.config import ClusterConfig
from transom.cluster.pki import ensure


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterConfig:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return ClusterConfig(name="blue")


def files(config: ClusterConfig) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in config.pki.iterdir()}


def test_names_of_the_api_server(config: ClusterConfig) -> None:
    certificate = x509.load_pem_x509_certificate(ensure(config).server_cert.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
        "localhost",
    ]  # fmt: skip
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1", "10.96.0.1"]


def test_keys_are_private_and_elliptic(config: ClusterConfig) -> None:
    pki = ensure(config)
    for path in config.pki.glob("*.key"):
        assert path.stat().st_mode & 0o777 == 0o600, path
    key = serialization.load_pem_private_key(pki.service_account_key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp256r1"
    public = serialization.load_pem_public_key(pki.service_account_public.read_bytes())
    assert public == key.public_key()
    assert config.pki.stat().st_mode & 0o777 == 0o700


def test_second_start_finds_everything(config: ClusterConfig) -> None:
    ensure(config)
    before = files(config)
    ensure(config)
    assert files(config) == before


def test_what_is_old_or_has_other_names_is_issued_again_by_the_same_authority(config: ClusterConfig) -> None:
    pki = ensure(config)
    before = files(config)
    old = time.time() - 340 * 86400
    os.utime(pki.admin_cert, (old, old))
    ensure(replace(config, bind="192.0.2.7"))
    after = files(config)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"admin.crt", "admin.key", "apiserver.crt", "apiserver.key", "apiserver.names"}
