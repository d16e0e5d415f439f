"""The keys of a cluster: made at the first start, found again at every later one.

    ca                      signs the API server, clients, kubelets
    apiserver               what the API server shows
    sa.key, sa.pub          sign service account tokens
    front-proxy-ca, -client how the API server shows itself to aggregated API servers
    kubelet-client          how the API server shows itself to kubelets
    admin                   the user of the kubeconfig, in system:masters
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from transom.cluster.config import ClusterConfig
from transom.cluster.families import split
from transom.kit import pki as kit
from transom.kit.files import sync_directory, write_atomic

_RENEW_AFTER = (kit.LEAF_DAYS - 30) * 86400.0


@dataclass(frozen=True, slots=True)
class ClusterPki:
    """Where everything is; the files are there once `ensure` has returned."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def ca_key(self) -> Path:
        return self.folder / "ca.key"

    @property
    def server_cert(self) -> Path:
        return self.folder / "apiserver.crt"

    @property
    def server_key(self) -> Path:
        return self.folder / "apiserver.key"

    @property
    def service_account_key(self) -> Path:
        return self.folder / "sa.key"

    @property
    def service_account_public(self) -> Path:
        return self.folder / "sa.pub"

    @property
    def front_proxy_ca(self) -> Path:
        return self.folder / "front-proxy-ca.crt"

    @property
    def front_proxy_client_cert(self) -> Path:
        return self.folder / "front-proxy-client.crt"

    @property
    def front_proxy_client_key(self) -> Path:
        return self.folder / "front-proxy-client.key"

    @property
    def kubelet_client_cert(self) -> Path:
        return self.folder / "apiserver-kubelet-client.crt"

    @property
    def kubelet_client_key(self) -> Path:
        return self.folder / "apiserver-kubelet-client.key"

    @property
    def admin_cert(self) -> Path:
        return self.folder / "admin.crt"

    @property
    def admin_key(self) -> Path:
        return self.folder / "admin.key"


def ensure(config: ClusterConfig) -> ClusterPki:
    """Makes what is missing, renews what would run out; leaves the rest alone."""
    folder = config.pki
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = ClusterPki(folder)
    ca = _authority(folder, "ca", "kubernetes")
    names = _server_names(config)
    listed = folder / "apiserver.names"
    if not _fresh(made.server_cert, made.server_key) or _text(listed) != " ".join(names):
        dns = [n for n in names if not _is_address(n)]
        pair = kit.issue_server(ca, "kube-apiserver", dns, [n for n in names if _is_address(n)])
        kit.save(pair, made.server_cert, made.server_key, sync_names=False)
        write_atomic(listed, " ".join(names).encode(), 0o644, sync_name=False)
    if not _fresh(made.admin_cert, made.admin_key):
        admin = kit.issue_client(ca, "admin", ["system:masters"])
        kit.save(admin, made.admin_cert, made.admin_key, sync_names=False)
    if not config.no_nodes and not _fresh(made.kubelet_client_cert, made.kubelet_client_key):
        pair = kit.issue_client(ca, "kube-apiserver-kubelet-client", ["system:masters"])
        kit.save(pair, made.kubelet_client_cert, made.kubelet_client_key, sync_names=False)
    proxy_ca = _authority(folder, "front-proxy-ca", "front-proxy-ca")
    if not _fresh(made.front_proxy_client_cert, made.front_proxy_client_key):
        pair = kit.issue_client(proxy_ca, "front-proxy-client")
        kit.save(pair, made.front_proxy_client_cert, made.front_proxy_client_key, sync_names=False)
    if not (made.service_account_key.exists() and made.service_account_public.exists()):
        _service_account_key(made)
    sync_directory(folder)
    return made


def _server_names(config: ClusterConfig) -> list[str]:
    import ipaddress

    service_ips = [str(ipaddress.ip_network(cidr)[1]) for cidr in split(config.service_cidr)]
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
             "localhost", "127.0.0.1", "::1", *service_ips]  # fmt: skip
    if config.bind not in (*names, "0.0.0.0", "::"):
        names.append(config.bind)
    return names


def _is_address(name: str) -> bool:
    return ":" in name or name.replace(".", "").isdigit()


def _authority(folder: Path, name: str, cn: str) -> kit.KeyPair:
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    if cert.exists() and key.exists():
        return kit.load(cert, key)
    pair = kit.make_ca(cn)
    kit.save(pair, cert, key)
    return pair


def _fresh(cert: Path, key: Path) -> bool:
    """There, and good for a month at least. The age of the file is enough to know; nothing is parsed at each start."""
    return cert.exists() and key.exists() and time.time() - cert.stat().st_mtime < _RENEW_AFTER


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _service_account_key(made: ClusterPki) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    write_atomic(made.service_account_public, public, 0o644, sync_name=False)
    write_atomic(made.service_account_key, private, 0o600, sync_name=False)
