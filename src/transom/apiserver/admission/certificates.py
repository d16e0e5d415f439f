"""CertificateApproval, CertificateSigning, CertificateSubjectRestriction, ClusterTrustBundleAttest:
who may approve and sign certificate requests, and publish the trust anchors of a signer.

Approving, signing and attesting require a permission on the signer, which is a resource for authorization
only. Permission to write the request is not enough.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING

from transom.apiserver.admission.plugin import ValidatingPlugin
from transom.apiserver.authorization.chain import Decision
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.requestinfo import RequestInfo
from transom.apiserver.core.resources import Resource
from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_import
from transom.machinery import errors
from transom.machinery.field import forbidden

if TYPE_CHECKING:
    from cryptography import x509
else:
    x509 = lazy_import("cryptography.x509")

Decide = Callable[[UserInfo, RequestInfo], Decision]
_GROUP = "certificates.k8s.io"
_KEY = f"{_GROUP}/CertificateSigningRequest"
_POD_KEY = f"{_GROUP}/PodCertificateRequest"
_BUNDLE_KEY = f"{_GROUP}/ClusterTrustBundle"
_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
_MASTERS = "system:masters"


def may_use_signer(decide: Decide, user: UserInfo, verb: str, signer: str) -> bool:
    """Whether the user has this permission on the signer, or on all signers of its domain."""
    names = (signer, f"{signer.split('/', 1)[0]}/*")
    return any(
        decide(user, RequestInfo(True, "", verb, _GROUP, "*", "", "signers", name)).allowed
        for name in names
    )


def _signer(csr: dict[str, dict[str, str]]) -> str:
    return (csr.get("spec") or {}).get("signerName", "")


class CertificateApproval(ValidatingPlugin):
    name = "CertificateApproval"
    thread_safe = False

    def __init__(self, decide: Decide) -> None:
        self._decide = decide

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return resource.kind.key == _KEY and operation == "UPDATE" and subresource == "approval"

    def validate(self, attributes: Attributes) -> None:
        # of the stored request: the new object could name another signer
        signer = _signer(attributes.old or {})
        if not may_use_signer(self._decide, attributes.ctx.user, "approve", signer):
            raise attributes.forbidden(
                f"user not permitted to approve requests with signerName {go_quote(signer)}"
            )


class CertificateSigning(ValidatingPlugin):
    name = "CertificateSigning"
    thread_safe = False

    def __init__(self, decide: Decide) -> None:
        self._decide = decide

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return resource.kind.key == _KEY and operation == "UPDATE" and subresource == "status"

    def validate(self, attributes: Attributes) -> None:
        old = attributes.old or {}
        before, after = old.get("status") or {}, attributes.obj.get("status") or {}
        fields = ("certificate", "conditions")
        if all((before.get(f) or None) == (after.get(f) or None) for f in fields):
            return
        signer = _signer(old)
        if not may_use_signer(self._decide, attributes.ctx.user, "sign", signer):
            raise attributes.forbidden(
                f"user not permitted to sign requests with signerName {go_quote(signer)}"
            )


class PodCertificateSigning(ValidatingPlugin):
    """Kubernetes checks this in the storage of pod certificate requests, after their validation, so
    the error is that of an invalid object.
    """

    name = "PodCertificateSigning"
    thread_safe = False

    def __init__(self, decide: Decide) -> None:
        self._decide = decide

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return resource.kind.key == _POD_KEY and operation == "UPDATE" and subresource == "status"

    def validate(self, attributes: Attributes) -> None:
        old = attributes.old or {}
        before, after = old.get("status") or {}, attributes.obj.get("status") or {}
        if all((before.get(f) or None) == (after.get(f) or None) for f in before.keys() | after):
            return
        signer, user = _signer(old), attributes.ctx.user
        if may_use_signer(self._decide, user, "sign", signer):
            return
        text = (
            f'User {go_quote(user.name)} is not permitted to "sign" for signer {go_quote(signer)}'
        )
        kind = errors.GroupResource(_GROUP, attributes.resource.kind.kind)
        raise errors.invalid(kind, attributes.name, [forbidden("spec.signerName", text)])


class CertificateSubjectRestriction(ValidatingPlugin):
    name = "CertificateSubjectRestriction"
    thread_safe = False

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return resource.kind.key == _KEY and operation == "CREATE" and not subresource

    def validate(self, attributes: Attributes) -> None:
        if _signer(attributes.obj) != _CLIENT_SIGNER:
            return
        try:
            request = x509.load_pem_x509_csr(
                base64.b64decode(attributes.obj["spec"].get("request", ""))
            )
        except ValueError as problem:
            raise attributes.forbidden(f"failed to parse CSR: {problem}") from None
        groups = request.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)
        if any(group.value == _MASTERS for group in groups):
            raise attributes.forbidden(
                f"use of {_CLIENT_SIGNER} signer with {_MASTERS} group is not allowed"
            )


class ClusterTrustBundleAttest(ValidatingPlugin):
    name = "ClusterTrustBundleAttest"
    thread_safe = False

    def __init__(self, decide: Decide) -> None:
        self._decide = decide

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return resource.kind.key == _BUNDLE_KEY and operation in ("CREATE", "UPDATE")

    def validate(self, attributes: Attributes) -> None:
        signer = _signer(attributes.obj)
        if attributes.operation == "UPDATE" and signer != _signer(attributes.old or {}):
            raise attributes.forbidden("changing signerName is forbidden")
        user = attributes.ctx.user
        if signer and not may_use_signer(self._decide, user, "attest", signer):
            raise attributes.forbidden(
                f"user not permitted to attest for signerName {go_quote(signer)}"
            )
