"""Whether a certificate and a private key belong together, with the errors of Go's crypto/tls."""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.hazmat.primitives.serialization import load_der_private_key

from transom.machinery.validation.certificates import PemBlock, pem_blocks

_KEY_TYPES = (
    (rsa.RSAPublicKey, rsa.RSAPrivateKey),
    (ec.EllipticCurvePublicKey, ec.EllipticCurvePrivateKey),
    (ed25519.Ed25519PublicKey, ed25519.Ed25519PrivateKey),
)


def key_pair_problem(certificate: bytes, key: bytes) -> str:
    """What is wrong with a pair of PEM texts, or ""."""
    blocks = pem_blocks(certificate)
    first = next((block for block in blocks if block.kind == "CERTIFICATE"), None)
    if first is None:
        return _no_certificate([block.kind for block in blocks])
    blocks = pem_blocks(key)
    at = next((i for i, block in enumerate(blocks) if _holds_key(block)), None)
    if at is None:
        return _no_key([block.kind for block in blocks])
    try:
        public = x509.load_der_x509_certificate(first.data).public_key()
    except UnsupportedAlgorithm:
        return "tls: unknown public key algorithm"
    except ValueError:
        return "x509: malformed certificate"
    try:
        private = load_der_private_key(blocks[at].data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "tls: failed to parse private key"
    return _mismatch(public, private)


def _holds_key(block: PemBlock) -> bool:
    return block.kind == "PRIVATE KEY" or block.kind.endswith(" PRIVATE KEY")


def _no_certificate(skipped: list[str]) -> str:
    if not skipped:
        return "tls: failed to find any PEM data in certificate input"
    if len(skipped) == 1 and skipped[0].endswith("PRIVATE KEY"):
        return (
            "tls: failed to find certificate PEM data in certificate input, but did find a private "
            "key; PEM inputs may have been switched"
        )
    return (
        'tls: failed to find "CERTIFICATE" PEM block in certificate input after skipping PEM '
        f"blocks of the following types: [{' '.join(skipped)}]"
    )


def _no_key(skipped: list[str]) -> str:
    if not skipped:
        return "tls: failed to find any PEM data in key input"
    if skipped == ["CERTIFICATE"]:
        return "tls: found a certificate rather than a key in the PEM for the private key"
    return (
        'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input after '
        f"skipping PEM blocks of the following types: [{' '.join(skipped)}]"
    )


def _mismatch(public: PublicKeyTypes, private: PrivateKeyTypes) -> str:
    if not any(isinstance(private, key) for _, key in _KEY_TYPES):
        return "tls: found unknown private key type in PKCS#8 wrapping"
    for public_type, private_type in _KEY_TYPES:
        if isinstance(public, public_type):
            if not isinstance(private, private_type):
                return "tls: private key type does not match public key type"
            same = private.public_key() == public
            return "" if same else "tls: private key does not match public key"
    return "tls: unknown public key algorithm"
