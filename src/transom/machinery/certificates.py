"""Certificate signing requests: their contents, and whether they meet the requirements of a
built-in signer.

`cryptography` parses PKCS#10; it is imported with the first request.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import TYPE_CHECKING

from transom.kit.lazy import lazy_import
from transom.kit.named_tuple import NamedTuple

if TYPE_CHECKING:
    from cryptography import x509
else:
    x509 = lazy_import("cryptography.x509")

CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING_SIGNER = "kubernetes.io/kubelet-serving"
LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
_CLIENT_USAGES = {"digital signature", "key encipherment", "client auth"}
_SERVING_USAGES = {"digital signature", "key encipherment", "server auth"}


class CertificateRequest(NamedTuple):
    """What a signing request asks for."""

    common_name: str
    organizations: list[str]
    dns_names: list[str]
    addresses: list[str]
    emails: list[str]
    uris: list[str]


def parse_certificate_request(encoded: str) -> CertificateRequest | None:
    """The request of an object (base64 of PEM); None if it cannot be parsed."""
    try:
        csr = x509.load_pem_x509_csr(base64.b64decode(encoded))
        organizations = csr.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)
        names = csr.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        try:
            alternatives = csr.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            alternatives = x509.SubjectAlternativeName([])
    except (ValueError, binascii.Error):
        return None
    return CertificateRequest(
        str(names[-1].value) if names else "",
        [str(o.value) for o in organizations],
        alternatives.get_values_for_type(x509.DNSName),
        [str(a) for a in alternatives.get_values_for_type(x509.IPAddress)],
        alternatives.get_values_for_type(x509.RFC822Name),
        alternatives.get_values_for_type(x509.UniformResourceIdentifier),
    )


def kubelet_client_problem(request: CertificateRequest, usages: Iterable[str]) -> str:
    """Why this is not a valid request for a kubelet client certificate, or ""."""
    if request.organizations != ["system:nodes"]:
        return "subject organization is not system:nodes"
    if request.dns_names:
        return "DNS subjectAltNames are not allowed"
    if request.emails:
        return "Email subjectAltNames are not allowed"
    if request.addresses:
        return "IP subjectAltNames are not allowed"
    if request.uris:
        return "URI subjectAltNames are not allowed"
    if not request.common_name.startswith("system:node:"):
        return "subject common name does not begin with system:node:"
    if not _has_usages(usages, _CLIENT_USAGES):
        return f"usages did not match [{' '.join(sorted(_CLIENT_USAGES))}]"
    return ""


def kubelet_serving_problem(request: CertificateRequest, usages: Iterable[str]) -> str:
    """Why this is not a valid request for a kubelet serving certificate, or ""."""
    if request.organizations != ["system:nodes"]:
        return "subject organization is not system:nodes"
    if not request.dns_names and not request.addresses:
        return "DNS or IP subjectAltName is required"
    if request.emails:
        return "Email subjectAltNames are not allowed"
    if request.uris:
        return "URI subjectAltNames are not allowed"
    if not _has_usages(usages, _SERVING_USAGES):
        return f"usages did not match [{' '.join(sorted(_SERVING_USAGES))}]"
    if not request.common_name.startswith("system:node:"):
        return "subject common name does not begin with system:node:"
    return ""


def _has_usages(usages: Iterable[str], wanted: set[str]) -> bool:
    """Keys that are not RSA keys need no key encipherment."""
    return set(usages) in (wanted, wanted - {"key encipherment"})


def signer_of(encoded: str, usages: Iterable[str]) -> str:
    """The signer for which the request qualifies."""
    request, wanted = parse_certificate_request(encoded), list(usages)
    if request is not None and not kubelet_client_problem(request, wanted):
        return KUBELET_CLIENT_SIGNER
    if request is not None and not kubelet_serving_problem(request, wanted):
        return KUBELET_SERVING_SIGNER
    return LEGACY_SIGNER
