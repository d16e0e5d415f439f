"""Identities for kubectl in tests: kubeconfigs of users, service accounts and nodes, created as
users create them.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from transom.kit import pki

CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
KUBELET_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
T = TypeVar("T")


def eventually(look: Callable[[], T], timeout: float = 15) -> T:
    """What `look` returns, as soon as that is something."""
    deadline = time.monotonic() + timeout
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"{look} still says {found!r}"
        time.sleep(0.05)


@dataclass(frozen=True)
class As:
    """A kubectl with the credentials of a user, in a namespace."""

    binary: str
    kubeconfig: Path
    env: dict[str, str]

    def __call__(
        self, *args: str, stdin: str | None = None, check: bool = True, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self.binary, f"--kubeconfig={self.kubeconfig}", *args],
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check and done.returncode != 0:
            raise AssertionError(
                f"kubectl {' '.join(args)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done

    def refused(self, *args: str, stdin: str | None = None) -> str:
        """The message that kubectl shows, without what kubectl itself puts before it."""
        done = self(*args, stdin=stdin, check=False)
        assert done.returncode != 0, f"kubectl {' '.join(args)} was allowed\n{done.stdout}"
        line = done.stderr.strip()
        for before in ("Error from server (Forbidden): ", "error: "):
            line = line.removeprefix(before)
        if line.startswith(("failed to create ", "error when ")):
            line = line.partition(": ")[2]
        return line


def become(kubectl: Any, folder: Path, user: dict[str, str], namespace: str = "default") -> As:
    """kubectl with a kubeconfig of its own in which `user` is the user entry."""
    content = yaml.safe_load(kubectl.cluster.kubeconfig.read_text())
    (cluster,) = content["clusters"]
    content["users"] = [{"name": "me", "user": user}]
    content["contexts"] = [
        {
            "name": "mine",
            "context": {"cluster": cluster["name"], "user": "me", "namespace": namespace},
        }
    ]
    content["current-context"] = "mine"
    path = folder / "as.kubeconfig"
    path.write_text(yaml.safe_dump(content))
    env = {k: v for k, v in kubectl.cluster.env.items() if k != "KUBECONFIG"}
    return As(kubectl.binary, path, env)


@cache
def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def signing_request(common_name: str, *organizations: str) -> str:
    """A PKCS#10 request in base64, as it stands in a CertificateSigningRequest."""
    oid = x509.NameOID
    names = [
        *(x509.NameAttribute(oid.ORGANIZATION_NAME, o) for o in organizations),
        x509.NameAttribute(oid.COMMON_NAME, common_name),
    ]
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name(names))
        .sign(_key(), hashes.SHA256())
    )
    return base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()


def csr(name: str, request: str, signer: str = CLIENT_SIGNER) -> str:
    usages = ["digital signature", "key encipherment", "client auth"]
    return json.dumps(
        {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {"request": request, "signerName": signer, "usages": usages},
        }
    )


def requested(
    kubectl: Any,
    folder: Path,
    request: str,
    name: str,
    *,
    signer: str = CLIENT_SIGNER,
    namespace: str = "default",
) -> As:
    """Who shows the certificate that the cluster signs for a request: posted, approved, signed."""
    kubectl("create", "-f", "-", stdin=csr(name, request, signer))
    try:
        # what an administrator asks for a kubelet is approved by itself
        if signer == CLIENT_SIGNER:
            assert "Pending" in kubectl("get", "csr", name, "--no-headers").stdout
            approved = kubectl("certificate", "approve", name).stdout
            assert approved == f"certificatesigningrequest.certificates.k8s.io/{name} approved\n"
        certificate = eventually(
            lambda: kubectl("get", "csr", name, "-o", "jsonpath={.status.certificate}").stdout
        )
        assert kubectl("get", "csr", name, "--no-headers").stdout.split()[-1] == "Approved,Issued"
    finally:
        kubectl("delete", "csr", name)
    key = _key().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return holder(kubectl, folder, pki.KeyPair(base64.b64decode(certificate), key), namespace)


def authority(kubectl: Any) -> pki.KeyPair:
    """The one that signs the cluster's clients."""
    folder = Path(kubectl.cluster.env["XDG_DATA_HOME"]) / "transom" / kubectl.cluster.name / "pki"
    return pki.load_key_pair(folder / "ca.crt", folder / "ca.key")


def holder(kubectl: Any, folder: Path, pair: pki.KeyPair, namespace: str = "default") -> As:
    """Who has that certificate and its key."""
    user = {
        "client-certificate-data": base64.b64encode(pair.certificate).decode(),
        "client-key-data": base64.b64encode(pair.key).decode(),
    }
    return become(kubectl, folder, user, namespace)


def issued(
    kubectl: Any, folder: Path, common_name: str, *organizations: str, namespace: str = "default"
) -> As:
    """Who has a certificate from the owner of the cluster's authority."""
    return holder(
        kubectl, folder, pki.issue_client(authority(kubectl), common_name, organizations), namespace
    )


def token_request(kubectl: Any, namespace: str, account: str, **spec: Any) -> str:
    """A bound token, by any kubectl."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [], **spec},
    }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    return json.loads(kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body)).stdout)[
        "status"
    ]["token"]


def legacy_token(kubectl: Any, namespace: str, account: str) -> tuple[str, str]:
    """Name and token of the secret that the token controller has made for the account."""

    def look() -> str:
        return kubectl(
            "-n", namespace, "get", "serviceaccount", account, "-o", "jsonpath={.secrets[0].name}"
        ).stdout

    secret = eventually(look)
    encoded = kubectl(
        "-n", namespace, "get", "secret", secret, "-o", "jsonpath={.data.token}"
    ).stdout
    return secret, base64.b64decode(encoded).decode()
