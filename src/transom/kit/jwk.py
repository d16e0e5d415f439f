"""Public keys of other issuers (JWK), and the signatures that they verify.

Imports `cryptography` when a key is first read. Does not fetch keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from transom.kit.jws import BadSignature, base64url_decode
from transom.kit.lazy import lazy_import

if TYPE_CHECKING:
    from cryptography import exceptions
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
else:
    ec = lazy_import("cryptography.hazmat.primitives.asymmetric.ec")
    exceptions = lazy_import("cryptography.exceptions")
    hashes = lazy_import("cryptography.hazmat.primitives.hashes")
    padding = lazy_import("cryptography.hazmat.primitives.asymmetric.padding")
    rsa = lazy_import("cryptography.hazmat.primitives.asymmetric.rsa")
    utils = lazy_import("cryptography.hazmat.primitives.asymmetric.utils")

# Algorithm -> family, hash, size of a coordinate. Kubernetes accepts these, and no others.
_ALGORITHMS: Final[dict[str, tuple[str, str, int]]] = {
    "RS256": ("RSA", "SHA256", 0),
    "RS384": ("RSA", "SHA384", 0),
    "RS512": ("RSA", "SHA512", 0),
    "PS256": ("PSS", "SHA256", 0),
    "PS384": ("PSS", "SHA384", 0),
    "PS512": ("PSS", "SHA512", 0),
    "ES256": ("secp256r1", "SHA256", 32),
    "ES384": ("secp384r1", "SHA384", 48),
    "ES512": ("secp521r1", "SHA512", 66),
}
SIGNING_ALGORITHMS: Final = tuple(_ALGORITHMS)
_CURVES: Final = {"P-256": "SECP256R1", "P-384": "SECP384R1", "P-521": "SECP521R1"}
_FAILED = "failed to verify signature"
_MOST_BITS = 16384  # of an RSA key


class JsonWebKey(NamedTuple):
    id: str
    algorithm: str  # "" if the key does not say
    key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey

    def verify(self, algorithm: str, signed: bytes, signature: bytes) -> None:
        """Raises BadSignature."""
        if algorithm not in _ALGORITHMS or self.algorithm not in ("", algorithm):
            raise BadSignature(_FAILED)
        family, hash_name, size = _ALGORITHMS[algorithm]
        hashing: dict[str, Callable[[], hashes.HashAlgorithm]] = {
            "SHA256": hashes.SHA256,
            "SHA384": hashes.SHA384,
            "SHA512": hashes.SHA512,
        }
        digest = hashing[hash_name]()
        key = self.key
        try:
            if isinstance(key, ec.EllipticCurvePublicKey):
                if key.curve.name != family or len(signature) != 2 * size:
                    raise BadSignature(_FAILED)
                pair = (signature[:size], signature[size:])
                r, s = (int.from_bytes(part, "big") for part in pair)
                key.verify(utils.encode_dss_signature(r, s), signed, ec.ECDSA(digest))
            elif family == "RSA":
                key.verify(signature, signed, padding.PKCS1v15(), digest)
            elif family == "PSS":
                salted = padding.PSS(padding.MGF1(digest), padding.PSS.AUTO)
                key.verify(signature, signed, salted, digest)
            else:
                raise BadSignature(_FAILED)
        except exceptions.InvalidSignature:
            raise BadSignature(_FAILED) from None


def read_jwk(value: Any) -> JsonWebKey | None:
    """A key for signatures; None for other keys. Raises ValueError for one that is malformed."""
    if not isinstance(value, dict) or value.get("use", "sig") != "sig":
        return None
    kind = value.get("kty")
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        return None
    return JsonWebKey(str(value.get("kid", "")), str(value.get("alg", "")), read(value))


def _number(value: dict[str, Any], name: str) -> int:
    text = value.get(name)
    if not isinstance(text, str) or len(text) > _MOST_BITS:
        raise ValueError(f"the key has no valid {name!r}")
    return int.from_bytes(base64url_decode(text), "big")


def _read_rsa(value: dict[str, Any]) -> rsa.RSAPublicKey:
    modulus = _number(value, "n")
    if modulus.bit_length() > _MOST_BITS:
        raise ValueError("the RSA key is too large")
    return rsa.RSAPublicNumbers(_number(value, "e"), modulus).public_key()


def _read_ec(value: dict[str, Any]) -> ec.EllipticCurvePublicKey:
    curves: dict[str, Callable[[], ec.EllipticCurve]] = {
        "SECP256R1": ec.SECP256R1,
        "SECP384R1": ec.SECP384R1,
        "SECP521R1": ec.SECP521R1,
    }
    name = value.get("crv")
    curve = _CURVES.get(name) if isinstance(name, str) else None
    if curve is None:
        raise ValueError("unknown curve of a key")
    numbers = (_number(value, "x"), _number(value, "y"))
    return ec.EllipticCurvePublicNumbers(*numbers, curves[curve]()).public_key()


_READERS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {"RSA": _read_rsa, "EC": _read_ec}
