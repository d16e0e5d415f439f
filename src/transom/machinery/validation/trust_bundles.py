"""ClusterTrustBundle (certificates.k8s.io)."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from cryptography import x509

from transom.machinery.field import invalid, too_long
from transom.machinery.validation.certificates import validate_signer_name
from transom.machinery.validation.meta import (
    immutable,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import byte_len, name_is_dns_subdomain
from transom.machinery.validation.rules import Errors, Object, ValidationRules

_MAX_BYTES: Final = 1024 * 1024
_PATH: Final = "spec.trustBundle"
_find_blocks = re.compile(
    r"^-----BEGIN ([^\n]+?)-----[ \t\r]*\n(.*?)^-----END \1-----", re.M | re.S
).finditer


def _bundle_name(signer: str, name: str, prefix: bool) -> list[str]:
    if not signer:
        if ":" in name:
            return ['ClusterTrustBundle without signer name must not have ":" in its name']
        return name_is_dns_subdomain(name, prefix)
    needed = signer.replace("/", ":") + ":"
    if not name.startswith(needed):
        return [f"ClusterTrustBundle for signerName {signer} must be named with prefix {needed}"]
    return name_is_dns_subdomain(name.removeprefix(needed), prefix)


def _block_problem(kind: str, body: str) -> tuple[str, bytes]:
    """What is wrong with a PEM block, or an empty text and its bytes."""
    if kind != "CERTIFICATE":
        return f"has bad block type: {kind}", b""
    if ":" in body:
        return "has PEM block headers", b""
    try:
        data = base64.b64decode("".join(body.split()), validate=True)
        found = x509.load_der_x509_certificate(data)
        constraints = found.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return "does not have the CA bit set", b""
    except (ValueError, binascii.Error):
        return "does not parse as X.509", b""
    return ("" if constraints.value.ca else "does not have the CA bit set"), data


def _trust_bundle(text: str) -> Errors:
    if byte_len(text) > _MAX_BYTES:
        return [too_long(_PATH, "", _MAX_BYTES)]
    errors: Errors = []
    indexes: dict[bytes, list[int]] = {}
    for i, block in enumerate(_find_blocks(text)):
        problem, data = _block_problem(block[1], block[2])
        if problem:
            errors.append(invalid(_PATH, "<value omitted>", f"entry {i} {problem}"))
        else:
            indexes.setdefault(data, []).append(i)
    if errors:
        return errors
    if not indexes:
        problem = "at least one trust anchor must be provided"
        errors.append(invalid(_PATH, "<value omitted>", problem))
    for found in indexes.values():
        if len(found) > 1:
            shown = "[" + " ".join(map(str, found)) + "]"
            problem = f"duplicate trust anchor (indices {shown})"
            errors.append(invalid(_PATH, "<value omitted>", problem))
    return errors


def _check(bundle: Object, *, parse: bool) -> Errors:
    spec = bundle.get("spec") or {}
    signer = spec.get("signerName", "")
    errors = validate_object_meta(
        bundle["metadata"], False, lambda name, prefix: _bundle_name(signer, name, prefix)
    )
    if signer:
        errors += validate_signer_name(signer, "spec.signerName")
    return errors + (_trust_bundle(spec.get("trustBundle", "")) if parse else [])


def validate_cluster_trust_bundle_create(bundle: Object) -> Errors:
    return _check(bundle, parse=True)


def validate_cluster_trust_bundle_update(new: Object, old: Object) -> Errors:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    errors = _check(new, parse=spec.get("trustBundle") != before.get("trustBundle"))
    errors += validate_object_meta_update(new["metadata"], old["metadata"])
    return errors + immutable(
        spec.get("signerName", ""), before.get("signerName", ""), "spec.signerName"
    )


VALIDATORS: Final = {
    "certificates.k8s.io/ClusterTrustBundle": ValidationRules(
        validate_cluster_trust_bundle_create, validate_cluster_trust_bundle_update
    )
}
