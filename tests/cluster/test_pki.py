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
from transom.cluster.pki import ensure_cluster_pki, import_shared_keys
from transom.kit.user_errors import UserError


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterConfig:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return ClusterConfig(name="blue")


def files(config: ClusterConfig) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in config.pki.iterdir()}


def test_names_of_the_api_server(config: ClusterConfig) -> None:
    certificate = x509.load_pem_x509_certificate(
        ensure_cluster_pki(config).server_cert.read_bytes()
    )
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
    ]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == [
        "127.0.0.1",
        "::1",
        "10.96.0.1",
    ]


def test_keys_are_private_and_elliptic(config: ClusterConfig) -> None:
    pki = ensure_cluster_pki(config)
    for path in config.pki.glob("*.key"):
        assert path.stat().st_mode & 0o777 == 0o600, path
    key = serialization.load_pem_private_key(pki.service_account_key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp256r1"
    public = serialization.load_pem_public_key(pki.service_account_public.read_bytes())
    assert public == key.public_key()
    assert config.pki.stat().st_mode & 0o777 == 0o700


def test_second_start_finds_everything(config: ClusterConfig) -> None:
    ensure_cluster_pki(config)
    before = files(config)
    ensure_cluster_pki(config)
    assert files(config) == before


def test_renewal_that_was_interrupted_between_key_and_certificate_is_done_again(
    config: ClusterConfig,
) -> None:
    pki = ensure_cluster_pki(config)
    before = files(config)
    pki.server_key.write_bytes(pki.admin_key.read_bytes())
    ensure_cluster_pki(config)
    after = files(config)
    assert {name for name in after if after[name] != before[name]} == {
        "apiserver.crt",
        "apiserver.key",
    }
    certificate = x509.load_pem_x509_certificate(after["apiserver.crt"])
    key = serialization.load_pem_private_key(after["apiserver.key"], None)
    assert certificate.public_key() == key.public_key()


def test_what_is_old_or_has_other_names_is_issued_again_by_the_same_authority(
    config: ClusterConfig,
) -> None:
    pki = ensure_cluster_pki(config)
    before = files(config)
    old = time.time() - 340 * 86400
    os.utime(pki.admin_cert, (old, old))
    ensure_cluster_pki(replace(config, bind="192.0.2.7"))
    after = files(config)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {
        "admin.crt",
        "admin.key",
        "apiserver.crt",
        "apiserver.key",
        "apiserver.names",
    }


@pytest.mark.parametrize("name", ["ca.crt", "ca.key"])
def test_a_damaged_authority_is_an_error_for_the_user(config: ClusterConfig, name: str) -> None:
    path = ensure_cluster_pki(config).ca.parent / name
    path.write_bytes(path.read_bytes()[:200])
    (path.parent / "apiserver.names").write_text("")  # the certificate is to be made again
    with pytest.raises(UserError, match="is damaged"):
        ensure_cluster_pki(config)


def test_servers_of_one_cluster_share_authorities_and_keys(config: ClusterConfig) -> None:
    first = ensure_cluster_pki(config)
    other = replace(config, name="green", bind="10.0.0.2")
    import_shared_keys(other, config.pki)
    second = ensure_cluster_pki(other)
    for name in ("ca.crt", "ca.key", "sa.key", "sa.pub", "front-proxy-ca.key"):
        assert (second.folder / name).read_bytes() == (first.folder / name).read_bytes()
    assert second.ca_key.stat().st_mode & 0o777 == 0o600
    # Its serving certificate is its own.
    assert second.server_cert.read_bytes() != first.server_cert.read_bytes()
    certificate = x509.load_pem_x509_certificate(second.server_cert.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "10.0.0.2" in [str(ip) for ip in names.get_values_for_type(x509.IPAddress)]
    import_shared_keys(other, config.pki)  # the same ones again
    third = replace(config, name="red")
    ensure_cluster_pki(third)
    with pytest.raises(UserError, match="differs from"):
        import_shared_keys(third, config.pki)
    with pytest.raises(UserError, match="No such file"):
        import_shared_keys(replace(config, name="grey"), config.state)
