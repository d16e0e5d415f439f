"""PodCertificateRequest (certificates.k8s.io): a certificate for a pod, which a signer issues,
denies or fails to issue.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from transom.kit.clock import parse_rfc3339
from transom.machinery.field import (
    NO_VALUE,
    FieldError,
    invalid,
    not_supported,
    required,
    too_long,
)
from transom.machinery.validation.certificates import validate_signer_name
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.meta import (
    ANNOTATIONS_LIMIT,
    validate_conditions,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import (
    IMMUTABLE,
    byte_len,
    is_dns1123_subdomain,
    is_qualified_name,
    name_is_dns_subdomain,
)
from transom.machinery.validation.rules import Errors, Object, ValidationRules

_OMITTED: Final = NO_VALUE
_HOUR: Final = 3600
_DAY: Final = 24 * _HOUR
_LONGEST: Final = 91 * _DAY
_MOST_REQUEST_BYTES: Final = 10 * 1024
_MOST_CHAIN_BYTES: Final = 100 * 1024
_MOST_UID: Final = 128
_CONDITIONS: Final = ("Denied", "Failed", "Issued")
_REFRESH: Final = timedelta(minutes=10).total_seconds()
_CSR_PATH: Final = "spec.stubPKCS10Request"
_KEY_PATH: Final = "spec.pkixPublicKey"
_PROOF_PATH: Final = "spec.proofOfPossession"
_CHAIN_PATH: Final = "status.certificateChain"
_find_blocks = re.compile(
    r"^-----BEGIN ([^\n]+?)-----[ \t\r]*\n(.*?)^-----END \1-----", re.M | re.S
).finditer

PublicKey = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey | rsa.RSAPublicKey


def _names(spec: Object) -> Errors:
    errors: Errors = []
    for name, uid in (
        ("podName", "podUID"),
        ("serviceAccountName", "serviceAccountUID"),
        ("nodeName", "nodeUID"),
    ):
        value, given = spec.get(name, ""), spec.get(uid, "")
        errors += [invalid(f"spec.{name}", value, text) for text in is_dns1123_subdomain(value)]
        if not given:
            errors.append(invalid(f"spec.{uid}", given, "must not be empty"))
        if byte_len(given) > _MOST_UID:
            errors.append(too_long(f"spec.{uid}", given, _MOST_UID))
    return errors


def validate_user_annotations(annotations: Object, path: str) -> Errors:
    errors: Errors = []
    for key in sorted(map(str.lower, annotations)):
        if not key:
            errors.append(required(path))
        elif problems := is_qualified_name(key):
            errors += [invalid(path, key, text) for text in problems]
        elif "/" not in key:
            text = 'must be a domain-prefixed key (such as "acme.io/foo")'
            errors.append(invalid(path, key, text))
    if sum(byte_len(key) + byte_len(value) for key, value in annotations.items()) > (
        ANNOTATIONS_LIMIT
    ):
        errors.append(too_long(path, "", ANNOTATIONS_LIMIT))
    return errors


def _key_problem(key: object, path: str) -> FieldError | None:
    if isinstance(key, ec.EllipticCurvePublicKey):
        curve = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
        if key.curve.name in curve:
            return None
        known = "P256, P384, or P521" if path == _CSR_PATH else "P256 or P384"
        text = f"elliptic public keys must use curve {known}"
        return invalid(path, f"curve {key.curve.name}", text)
    if isinstance(key, rsa.RSAPublicKey):
        bits = (key.key_size + 7) // 8 * 8
        text = "RSA keys must have modulus size 3072 or 4096"
        return None if bits in (3072, 4096) else invalid(path, f"{bits}-bit modulus", text)
    if isinstance(key, ed25519.Ed25519PublicKey):
        return None
    text = "unknown public key type; supported types are Ed25519, ECDSA, and RSA"
    return invalid(path, _OMITTED, text)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except (ValueError, binascii.Error):
        return b""


def _stub_request(encoded: str) -> Errors:
    data = _decoded(encoded)
    if len(data) > _MOST_REQUEST_BYTES:
        return [too_long(_CSR_PATH, "", _MOST_REQUEST_BYTES)]
    try:
        request = x509.load_der_x509_csr(data)
        key = request.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return [invalid(_CSR_PATH, _OMITTED, "must be a valid PKCS#10 CSR")]
    problem = _key_problem(key, _CSR_PATH)
    if problem is not None:
        return [problem]
    return [] if request.is_signature_valid else [invalid(_CSR_PATH, _OMITTED, "invalid signature")]


def _is_proven(key: object, proof: bytes, uid: bytes) -> bool:
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(proof, uid)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(proof, uid, ec.ECDSA(hashes.SHA256()))
        elif isinstance(key, rsa.RSAPublicKey):
            pss = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.AUTO)
            key.verify(proof, uid, pss, hashes.SHA256())
    except InvalidSignature:
        return False
    return True


def _public_key(spec: Object) -> Errors:
    """The deprecated fields, which v1beta1 has."""
    data, proof = _decoded(spec["pkixPublicKey"]), _decoded(spec["proofOfPossession"])
    for path, value in ((_KEY_PATH, data), (_PROOF_PATH, proof)):
        if len(value) > _MOST_REQUEST_BYTES:
            return [too_long(path, "", _MOST_REQUEST_BYTES)]
    try:
        key = serialization.load_der_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        text = "must be a valid PKIX-serialized public key"
        return [invalid(_KEY_PATH, spec["pkixPublicKey"], text)]
    problem = _key_problem(key, _KEY_PATH)
    if problem is not None:
        return [problem]
    if _is_proven(key, proof, spec.get("podUID", "").encode()):
        return []
    return [invalid(_PROOF_PATH, _OMITTED, "could not verify proof-of-possession signature")]


def validate_pod_certificate_request_create(request: Object) -> Errors:
    spec = request.get("spec") or {}
    signer = spec.get("signerName", "")
    errors = validate_object_meta(request["metadata"], True, name_is_dns_subdomain)
    errors += validate_signer_name(signer, "spec.signerName")
    annotations = spec.get("unverifiedUserAnnotations") or {}
    errors += validate_user_annotations(annotations, "spec.unverifiedUserAnnotations")
    errors += _names(spec)
    seconds, path = spec.get("maxExpirationSeconds"), "spec.maxExpirationSeconds"
    if seconds is None:
        return [*errors, required(path, "must be set")]
    most = _DAY if signer.startswith("kubernetes.io/") else _LONGEST
    if not _HOUR <= seconds <= most:
        errors.append(invalid(path, seconds, f"must be in the range [{_HOUR}, {most}]"))
    given = [bool(spec.get(n)) for n in ("stubPKCS10Request", "pkixPublicKey", "proofOfPossession")]
    if given == [True, False, False]:
        return errors + _stub_request(spec["stubPKCS10Request"])
    if given == [False, True, True]:
        return errors + _public_key(spec)
    text = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"
    return [*errors, invalid("spec", _OMITTED, text)]


def validate_pod_certificate_request_update(new: Object, old: Object) -> Errors:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    if new.get("spec") == old.get("spec"):
        return errors
    shown = go_dump("certificates.PodCertificateRequestSpec", new.get("spec") or {})
    return [*errors, invalid("spec", shown, IMMUTABLE)]


def _state(request: Object) -> str:
    """Issued, Denied, Failed, or an empty text while the request is pending."""
    conditions = (request.get("status") or {}).get("conditions") or ()
    return next((one["type"] for one in conditions if one.get("status") == "True"), "")


def _known_conditions(conditions: list[Object]) -> Errors:
    errors: Errors = []
    known = 0
    for i, condition in enumerate(conditions):
        kind, path = condition.get("type", ""), f"status.conditions.[{i}]"
        if kind not in _CONDITIONS:
            errors.append(not_supported(f"{path}.type", kind, _CONDITIONS))
            continue
        known += 1
        if known > 1:
            text = 'There may be at most one condition with type "Issued", "Denied", or "Failed"'
            errors.append(invalid(f"{path}.type", kind, text))
        if condition.get("status") != "True":
            errors.append(not_supported(f"{path}.status", condition.get("status", ""), ("True",)))
    return errors + validate_conditions(conditions, "status.conditions")


def validate_pod_certificate_request_status_update(new: Object, old: Object) -> Errors:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    status, before = new.get("status") or {}, old.get("status") or {}
    errors = errors or _known_conditions(status.get("conditions") or [])
    if errors:
        return errors
    state = _state(new)
    if _state(old):
        text = "immutable after PodCertificateRequest is issued, denied, or failed"
        return [] if status == before else [invalid("status", _OMITTED, text)]
    if state in ("Denied", "Failed"):
        text = (
            "non-condition status fields must be empty when denying or failing the "
            "PodCertificateRequest"
        )
        extra = any(value for name, value in status.items() if name != "conditions")
        return [invalid("status", _OMITTED, text)] if extra else []
    if state == "Issued":
        return _issued(new, old)
    text = 'status is immutable unless transitioning to "Issued", "Denied", or "Failed"'
    return [] if status == before else [invalid("status", _OMITTED, text)]


def _requested_key(spec: Object) -> bytes | None:
    try:
        if spec.get("stubPKCS10Request"):
            key = x509.load_der_x509_csr(_decoded(spec["stubPKCS10Request"])).public_key()
        else:
            found = serialization.load_der_public_key(_decoded(spec.get("pkixPublicKey", "")))
            return _key_bytes(found)
    except (ValueError, UnsupportedAlgorithm):
        return None
    return _key_bytes(key)


def _key_bytes(key: object) -> bytes | None:
    if not isinstance(key, PublicKey):
        return None
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _load_chain(chain: str) -> tuple[x509.Certificate | None, Errors]:
    """The leaf, and what is wrong with the blocks."""
    leaf: x509.Certificate | None = None
    for kind, body in ((block[1], block[2]) for block in _find_blocks(chain)):
        if kind != "CERTIFICATE":
            typo = "CERTIFICATE" if leaf is None else "CERTFICATE"
            text = f"issued certificate chain must consist entirely of {typo} PEM blocks"
            return leaf, [invalid(_CHAIN_PATH, chain, text)]
        try:
            found = x509.load_der_x509_certificate(_decoded("".join(body.split())))
        except ValueError:
            which = "leaf" if leaf is None else "intermediate"
            text = f"{which} certificate does not parse as valid X.509"
            return leaf, [invalid(_CHAIN_PATH, chain, text)]
        leaf = leaf or found
    if leaf is None:
        text = "issued certificate chain must contain at least one certificate"
        return None, [invalid(_CHAIN_PATH, chain, text)]
    return leaf, []


def _leaf_names(leaf: x509.Certificate) -> Errors:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    errors: Errors = []
    for name in names.get_values_for_type(x509.DNSName):
        if not name:
            text = "leaf certificate should not contain empty DNSName"
            errors.append(invalid(_CHAIN_PATH, name, text))
        if ".." in name:
            text = "leaf certificate's DNSName should not contain '..'"
            errors.append(invalid(_CHAIN_PATH, name, text))
        if name.startswith(".") or name.endswith("."):
            text = "leaf certificate's DNSName should not start or end with '.'"
            errors.append(invalid(_CHAIN_PATH, name, text))
    return errors


def _issued(new: Object, old: Object) -> Errors:
    status, spec = new["status"], old.get("spec") or {}
    chain = status.get("certificateChain", "")
    if byte_len(chain) > _MOST_CHAIN_BYTES:
        return [too_long(_CHAIN_PATH, "", _MOST_CHAIN_BYTES)]
    leaf, errors = _load_chain(chain)
    if leaf is None or errors:
        return errors
    errors = _leaf_names(leaf)
    if _key_bytes(leaf.public_key()) != _requested_key(spec):
        text = "leaf certificate was not issued to the requested public key"
        return [*errors, invalid(_CHAIN_PATH, chain, text)]
    consistent = "must be present and consistent with the issued certificate"
    for name, text in (
        ("notBefore", consistent),
        ("notAfter", consistent),
        ("beginRefreshAt", "must be present and in the range [notbefore+10min, notafter-10min]"),
    ):
        if not status.get(name):
            errors.append(required(f"status.{name}", text))
    return errors or _times(status, leaf, spec["maxExpirationSeconds"])


def _times(status: Object, leaf: x509.Certificate, longest: int) -> Errors:
    start, end = leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp()
    for name, label, value in (("notBefore", "NotBefore", start), ("notAfter", "NotAfter", end)):
        if parse_rfc3339(status[name]) != value:
            text = f"must be set to the {label} time encoded in the leaf certificate"
            return [invalid(f"status.{name}", status[name], text)]
    lifetime = end - start
    if lifetime < _HOUR:
        text = "leaf certificate lifetime must be >= 1 hour"
        return [invalid(_CHAIN_PATH, int(lifetime * 1e9), text)]
    if lifetime > longest:
        text = f"leaf certificate lifetime must be <= spec.maxExpirationSeconds ({longest})"
        return [invalid(_CHAIN_PATH, int(lifetime * 1e9), text)]
    refresh, path = parse_rfc3339(status["beginRefreshAt"]), "status.beginRefreshAt"
    if refresh < start + _REFRESH:
        text = "must be at least 10 minutes after status.notBefore"
        return [invalid(path, status["beginRefreshAt"], text)]
    if refresh > end - _REFRESH:
        text = "must be at least 10 minutes before status.notAfter"
        return [invalid(path, status["beginRefreshAt"], text)]
    return []


VALIDATORS: Final = {
    "certificates.k8s.io/PodCertificateRequest": ValidationRules(
        validate_pod_certificate_request_create,
        validate_pod_certificate_request_update,
        validate_pod_certificate_request_status_update,
    )
}
