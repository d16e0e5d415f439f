"""The keys of a cluster: created at the first start and reused by later ones.

ca                      signs the certificates of the API server, clients and kubelets
apiserver               the API server's serving certificate
sa.key, sa.pub          sign and verify service account tokens
front-proxy-ca, -client authenticate the API server to aggregated API servers
kubelet-client          authenticates the API server to kubelets
admin                   the user of the kubeconfig, in system:masters
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING

from transom.cluster.config import ClusterConfig
from transom.kit import pki as kit
from transom.kit.files import make_private, sync_directory, write_atomic
from transom.kit.ip_addresses import is_ip_address
from transom.kit.lazy import lazy_import
from transom.kit.lazy_dataclass import dataclass
from transom.kit.user_errors import UserError
from transom.node.settings import split_cidrs

if TYPE_CHECKING:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
else:
    ec = lazy_import("cryptography.hazmat.primitives.asymmetric.ec")
    serialization = lazy_import("cryptography.hazmat.primitives.serialization")


@dataclass(frozen=True, slots=True)
class ClusterPki:
    """The paths of all files, which exist once `ensure_cluster_pki` has returned."""

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

    def certificates(self) -> dict[str, Path]:
        """The purpose of each certificate, as shown by doctor."""
        return {
            "the cluster's certificate authority": self.ca,
            "the API server's certificate": self.server_cert,
            "the administrator's client certificate": self.admin_cert,
            "the certificate with which the API server calls kubelets": self.kubelet_client_cert,
            "the front proxy's certificate authority": self.front_proxy_ca,
            "the front proxy's client certificate": self.front_proxy_client_cert,
        }


def ensure_cluster_pki(config: ClusterConfig) -> ClusterPki:
    """Creates missing files and renews expiring certificates; leaves the rest alone. Raises
    UserError when a file is damaged.
    """
    try:
        return _ensure(config)
    except ValueError as problem:
        raise UserError(
            f"a certificate or key in {config.pki} is damaged: {problem}",
            "restore the files from a backup, or the cluster from a snapshot with keys: "
            "transom snapshot restore",
        ) from problem


# What all API servers of a cluster share; the names are kubeadm's.
_SHARED = ("ca.crt", "ca.key", "sa.key", "sa.pub", "front-proxy-ca.crt", "front-proxy-ca.key")


def import_shared_keys(config: ClusterConfig, source: Path) -> None:
    """Copies the authorities and the service account keys of another server of the cluster, or of
    kubeadm. Raises UserError when one is missing, or differs from what this server already uses.
    """
    make_private(config.pki)
    for name in _SHARED:
        target = config.pki / name
        try:
            content = (source / name).read_bytes()
        except OSError as problem:
            raise UserError(
                f"--cert-dir: {source / name}: {problem.strerror}",
                f"it needs {', '.join(_SHARED)}, for example the folder pki of another server",
            ) from problem
        if not target.exists():
            write_atomic(target, content, 0o600 if name.endswith(".key") else 0o644)
        elif target.read_bytes() != content:
            raise UserError(
                f"--cert-dir: {name} differs from {target}, which this server already uses",
                "delete the cluster first (transom delete), or use another one (--name)",
            )


def _ensure(config: ClusterConfig) -> ClusterPki:
    folder = config.pki
    make_private(folder)
    made = ClusterPki(folder)
    ca = _authority(folder, "ca", "kubernetes")
    names = _server_names(config)
    listed = folder / "apiserver.names"
    if not kit.is_fresh(made.server_cert, made.server_key, made.ca) or _text(listed) != " ".join(
        names
    ):
        dns = [n for n in names if not is_ip_address(n)]
        pair = kit.issue_server(ca, "kube-apiserver", dns, [n for n in names if is_ip_address(n)])
        kit.save_key_pair(pair, made.server_cert, made.server_key, sync_names=False)
        write_atomic(listed, " ".join(names).encode(), 0o644, sync_name=False)
    if not kit.is_fresh(made.admin_cert, made.admin_key, made.ca):
        admin = kit.issue_client(ca, "admin", ["system:masters"])
        kit.save_key_pair(admin, made.admin_cert, made.admin_key, sync_names=False)
    if (not config.no_nodes or config.advertise_address) and not kit.is_fresh(
        made.kubelet_client_cert, made.kubelet_client_key, made.ca
    ):
        pair = kit.issue_client(ca, "kube-apiserver-kubelet-client", ["system:masters"])
        kit.save_key_pair(pair, made.kubelet_client_cert, made.kubelet_client_key, sync_names=False)
    proxy_ca = _authority(folder, "front-proxy-ca", "front-proxy-ca")
    if not kit.is_fresh(
        made.front_proxy_client_cert, made.front_proxy_client_key, made.front_proxy_ca
    ):
        pair = kit.issue_client(proxy_ca, "front-proxy-client")
        kit.save_key_pair(
            pair, made.front_proxy_client_cert, made.front_proxy_client_key, sync_names=False
        )
    if not (made.service_account_key.exists() and made.service_account_public.exists()):
        _service_account_key(made)
    sync_directory(folder)
    return made


def _server_names(config: ClusterConfig) -> list[str]:
    service_ips = [str(ipaddress.ip_network(cidr)[1]) for cidr in split_cidrs(config.service_cidr)]
    names = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
        "127.0.0.1",
        "::1",
        *service_ips,
    ]
    for address in (config.bind, config.advertise_address, *config.cert_extra_sans):
        if address and address not in (*names, "0.0.0.0", "::"):
            names.append(address)
    return names


def _authority(folder: Path, name: str, cn: str) -> kit.KeyPair:
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    if cert.exists() and key.exists():
        return kit.load_key_pair(cert, key)
    pair = kit.make_ca(cn)
    kit.save_key_pair(pair, cert, key)
    return pair


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _service_account_key(made: ClusterPki) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    write_atomic(made.service_account_public, public, 0o644, sync_name=False)
    write_atomic(made.service_account_key, private, 0o600, sync_name=False)
