"""CertificateSigningRequest: the request itself, its usages and signer, and what approval and
signing may change.

The cryptography library parses PKCS#10; it is imported with the first request.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_import
from transom.machinery.field import (
    GoText,
    duplicate,
    forbidden,
    go_bytes,
    invalid,
    not_supported,
    required,
    too_long,
)
from transom.machinery.validation.checks import decoded_base64
from transom.machinery.validation.godiff import go_diff
from transom.machinery.validation.meta import validate_object_meta, validate_object_meta_update
from transom.machinery.validation.names import (
    any_name,
    byte_len,
    is_dns1123_label,
    is_dns1123_subdomain,
)
from transom.machinery.validation.repetitions import repetitions
from transom.machinery.validation.rules import Errors, Object, ValidationRules

if TYPE_CHECKING:
    from cryptography import exceptions, x509
else:
    exceptions = lazy_import("cryptography.exceptions")
    x509 = lazy_import("cryptography.x509")

USAGES = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)
_SHORTEST_SECONDS = 600  # of the validity that a request asks for
LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
_EXCLUSIVE = "Approved and Denied conditions are mutually exclusive"
_BEGIN, _END, _DASHES = b"-----BEGIN ", b"-----END ", b"-----"


class PemBlock(NamedTuple):
    kind: str
    headers: bool
    data: bytes


def pem_blocks(data: bytes) -> list[PemBlock]:
    """The well-formed PEM blocks of a text; other text between them is ignored. Linear time for any
    input.
    """
    blocks = []
    end = -1  # the position of the next END line; searched once, not for each BEGIN line before it
    at = _line_beginning_with(_BEGIN, data, 0)
    while at >= 0:
        body = data.find(b"\n", at) + 1
        if not body:
            break
        if end < body:
            end = _line_beginning_with(_END, data, body)
        if end < 0:
            break
        following = _line_beginning_with(_BEGIN, data, body)
        # otherwise this block has no end: a BEGIN line is not base64
        if following < 0 or following > end:
            after = data.find(b"\n", end) + 1 or len(data)
            kind = data[at + len(_BEGIN) : body].rstrip()
            if kind.endswith(_DASHES) and data[end + len(_END) : after].rstrip() == kind:
                block = _pem_block(kind.removesuffix(_DASHES), data[body:end])
                if block is not None:
                    blocks.append(block)
        at = following
    return blocks


def _line_beginning_with(mark: bytes, data: bytes, at: int) -> int:
    """The start of the next line with this prefix, from `at`, itself the start of a line; -1 if
    there is none.
    """
    if data.startswith(mark, at):
        return at
    found = data.find(b"\n" + mark, at)
    return found + 1 if found >= 0 else -1


def _pem_block(kind: bytes, text: bytes) -> PemBlock | None:
    head, blank, body = text.partition(b"\n\n")
    headers = bool(blank) and b":" in head
    try:
        raw = base64.b64decode(b"".join((body if headers else text).split()), validate=True)
    except binascii.Error:
        return None
    return PemBlock(kind.decode("latin-1"), headers, raw)


def _request_problem(data: bytes) -> str:
    block = next(iter(pem_blocks(data)), None)
    if block is None or block.kind != "CERTIFICATE REQUEST":
        return "PEM block type must be CERTIFICATE REQUEST"
    try:
        request = x509.load_der_x509_csr(block.data)
        valid = request.is_signature_valid
    except (exceptions.InvalidSignature, exceptions.UnsupportedAlgorithm):
        valid = False
    except ValueError:
        return "asn1: structure error: malformed certificate request"
    return "" if valid else "x509: certificate request signature is not valid"


def certificate_problem(data: bytes) -> str:
    """Why this is not a chain of PEM certificates; empty if it is, or if it is empty."""
    if not data:
        return ""
    blocks = pem_blocks(data)
    for block in blocks:
        if block.kind != "CERTIFICATE":
            return f"only CERTIFICATE PEM blocks are allowed, found {go_quote(block.kind)}"
        if block.headers:
            return "no PEM block headers are permitted"
        if not block.data:
            return "found CERTIFICATE PEM block containing 0 certificates"
        try:
            x509.load_der_x509_certificate(block.data)
        except ValueError:
            return "asn1: structure error: malformed certificate"
    return "" if blocks else "must contain at least one CERTIFICATE PEM block"


def validate_signer_name(name: str, path: str) -> Errors:
    if not name:
        return [required(path, "signerName must be provided")]
    parts = name.split("/")
    if len(parts) != 2:
        return [
            invalid(
                path,
                name,
                "must be a fully qualified domain and path of the form 'example.com/signer-name'",
            )
        ]
    domain, rest = parts
    errors: Errors = []
    if byte_len(domain) > 253:
        errors.append(too_long(path, domain, 253))
    labels = domain.split(".")
    errors += _labels(labels, is_dns1123_label, domain, path)
    if len(labels) < 2:
        errors.append(
            invalid(path, domain, "should be a domain with at least two segments separated by dots")
        )
    errors += _labels(rest.split("."), is_dns1123_subdomain, rest, path)
    if byte_len(name) > 571:
        errors.append(too_long(path, name, 571))
    return errors


def _labels(labels: Sequence[str], rule: Any, whole: str, path: str) -> Errors:
    """Only the first bad label is reported."""
    for label in labels:
        if messages := rule(label):
            return [
                invalid(path, whole, f"validating label {go_quote(label)}: {text}")
                for text in messages
            ]
    return []


class _Options(NamedTuple):
    """What is allowed: everything legacy in v1beta1, and whatever the stored object already has."""

    both_verdicts: bool = False
    legacy_signer: bool = False
    duplicate_conditions: bool = False
    empty_conditions: bool = False
    any_certificate: bool = False
    duplicate_usages: bool = False
    unknown_usages: bool = False
    reset_certificate: bool = False


def _options(beta: bool, new: Object, old: Object | None) -> _Options:
    if old is None:
        return _Options(False, beta, beta, beta, beta, beta, beta, beta)
    status, spec = old.get("status") or {}, old.get("spec") or {}
    types = [condition.get("type", "") for condition in status.get("conditions") or ()]
    usages = spec.get("usages") or ()
    certificate = status.get("certificate") or ""
    same = certificate == ((new.get("status") or {}).get("certificate") or "")
    return _Options(
        both_verdicts="Approved" in types and "Denied" in types,
        legacy_signer=beta or spec.get("signerName") == LEGACY_SIGNER,
        duplicate_conditions=beta or len(set(types)) < len(types),
        empty_conditions=beta or "" in types,
        any_certificate=beta or same or bool(certificate_problem(decoded_base64(certificate))),
        duplicate_usages=beta or len(set(usages)) < len(usages),
        unknown_usages=beta or any(usage not in USAGES for usage in usages),
        reset_certificate=beta,
    )


def _conditions(conditions: Sequence[Mapping[str, Any]], options: _Options) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        path, kind, status = (
            f"status.conditions[{i}]",
            condition.get("type", ""),
            condition.get("status", ""),
        )
        if not kind and not options.empty_conditions:
            errors.append(required(f"{path}.type"))
        allowed = (
            ("True",) if kind in ("Approved", "Denied", "Failed") else ("False", "True", "Unknown")
        )
        if not status:
            errors.append(required(f"{path}.status"))
        elif status not in allowed:
            errors.append(not_supported(f"{path}.status", status, allowed))
        opposite = {"Approved": "Denied", "Denied": "Approved"}.get(kind)
        if opposite in seen and not options.both_verdicts:
            errors.append(invalid(f"{path}.type", kind, _EXCLUSIVE))
        if kind in seen and not options.duplicate_conditions:
            errors.append(duplicate(f"{path}.type", kind))
        seen.add(kind)
    return errors


def _request(csr: Object, options: _Options) -> Errors:
    spec, status = csr.get("spec") or {}, csr.get("status") or {}
    usages, signer = spec.get("usages") or (), spec.get("signerName", "")
    errors = validate_object_meta(csr["metadata"], False, any_name)
    data = decoded_base64(spec.get("request") or "")
    if problem := _request_problem(data):
        shown = f"[]byte{{{go_bytes(data)}}}" if data else "[]byte(nil)"
        as_json = go_quote(spec["request"]) if data else "null"
        errors.append(invalid("spec.request", GoText(shown, as_json), problem))
    if not usages:
        errors.append(required("spec.usages", "usages must be provided"))
    if not options.unknown_usages:
        errors += [
            not_supported(f"spec.usages[{i}]", usage, USAGES)
            for i, usage in enumerate(usages)
            if usage not in USAGES
        ]
    if not options.duplicate_usages:
        errors += [duplicate(f"spec.usages[{i}]", usages[i]) for i in sorted(repetitions(usages))]
    if signer == LEGACY_SIGNER and not options.legacy_signer:
        errors.append(
            invalid(
                "spec.signerName",
                signer,
                "the legacy signerName is not allowed via this API version",
            )
        )
    else:
        errors += validate_signer_name(signer, "spec.signerName")
    expiry = spec.get("expirationSeconds")
    if expiry is not None and expiry < _SHORTEST_SECONDS:
        text = "may not specify a duration less than 600 seconds (10 minutes)"
        errors.append(invalid("spec.expirationSeconds", expiry, text))
    errors += _conditions(status.get("conditions") or (), options)
    if not options.any_certificate and (
        problem := certificate_problem(decoded_base64(status.get("certificate") or ""))
    ):
        errors.append(invalid("status.certificate", "<certificate data>", problem))
    return errors


def validate_certificate_signing_request_create(beta: bool, csr: Object) -> Errors:
    return _request(csr, _options(beta, csr, None))


def _of_type(csr: Object, kind: str) -> list[dict[str, Any]]:
    return [c for c in (csr.get("status") or {}).get("conditions") or () if c.get("type") == kind]


def validate_certificate_signing_request_update(
    beta: bool, approves: bool, signs: bool, new: Object, old: Object
) -> Errors:
    """`approves` and `signs`: what this request may change, the approval or the certificate."""
    options = _options(beta, new, old)
    errors = _request(new, options)
    path = "status.conditions"
    for kind in ("Approved", "Denied", "Failed"):
        if len(_of_type(new, kind)) < len(_of_type(old, kind)):
            errors.append(forbidden(path, f'updates may not remove a condition of type "{kind}"'))
    for kind in () if approves else ("Approved", "Denied"):
        now, was = _of_type(new, kind), _of_type(old, kind)
        if len(now) > len(was):
            errors.append(forbidden(path, f'updates may not add a condition of type "{kind}"'))
        elif len(now) == len(was) and now != was:
            errors.append(
                forbidden(
                    path,
                    f'updates may not modify a condition of type "{kind}"\n'
                    + go_diff("[]certificates.CertificateSigningRequestCondition", was, now),
                )
            )
    certificate = (old.get("status") or {}).get("certificate") or ""
    if ((new.get("status") or {}).get("certificate") or "") != certificate:
        if not signs:
            errors.append(
                forbidden("status.certificate", "updates may not set certificate content")
            )
        elif certificate and not options.reset_certificate:
            errors.append(
                forbidden(
                    "status.certificate", "updates may not modify existing certificate content"
                )
            )
    return errors + validate_object_meta_update(new["metadata"], old["metadata"])


def _rules(beta: bool) -> ValidationRules:
    return ValidationRules(
        partial(validate_certificate_signing_request_create, beta),
        partial(validate_certificate_signing_request_update, beta, False, False),
        partial(validate_certificate_signing_request_update, beta, False, True),
        {"approval": partial(validate_certificate_signing_request_update, beta, True, False)},
    )


_KEY = "certificates.k8s.io/CertificateSigningRequest"
VALIDATORS = {_KEY: _rules(False), f"{_KEY}@certificates.k8s.io/v1beta1": _rules(True)}
