"""Signed tokens in the compact form of JWS, with elliptic-curve or RSA keys.

Imports `cryptography` when a key is first used, so a server that gets no tokens never pays for it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

import orjson

from transom.kit.lazy import lazy_import
from transom.kit.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from cryptography import exceptions
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
else:
    ec = lazy_import("cryptography.hazmat.primitives.asymmetric.ec")
    exceptions = lazy_import("cryptography.exceptions")
    hashes = lazy_import("cryptography.hazmat.primitives.hashes")
    padding = lazy_import("cryptography.hazmat.primitives.asymmetric.padding")
    rsa = lazy_import("cryptography.hazmat.primitives.asymmetric.rsa")
    serialization = lazy_import("cryptography.hazmat.primitives.serialization")
    utils = lazy_import("cryptography.hazmat.primitives.asymmetric.utils")

# Curve -> algorithm, hash, bytes of a coordinate.
_CURVES = {
    "secp256r1": ("ES256", "SHA256", 32, "P-256"),
    "secp384r1": ("ES384", "SHA384", 48, "P-384"),
    "secp521r1": ("ES512", "SHA512", 66, "P-521"),
}


LONGEST_TOKEN: Final = 64 << 10  # as long as the head of a request


class BadSignature(Exception):
    """The token was not signed with this key."""


def base64url_encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def base64url_decode(text: str) -> bytes:
    """Base64 for URLs, without padding; raises ValueError for anything else."""
    if "=" in text or not text.isascii():
        raise ValueError("not unpadded base64url")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as problem:
        raise ValueError(str(problem)) from problem


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that verifies: its algorithm, its name (a digest of the key) and its public form as
    JWK.
    """

    key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey
    algorithm: str
    id: str

    @staticmethod
    def load(pem: bytes) -> PublicKey:
        return public_key(serialization.load_pem_public_key(pem))

    def verify(self, algorithm: str, signed: bytes, signature: bytes) -> None:
        if algorithm != self.algorithm:
            raise BadSignature("unknown/unsupported algorithm")
        try:
            if isinstance(self.key, ec.EllipticCurvePublicKey):
                _, hashing, size, _ = _CURVES[self.key.curve.name]
                if len(signature) != 2 * size:
                    raise BadSignature("error in cryptographic primitive")
                r, s = (
                    int.from_bytes(signature[:size], "big"),
                    int.from_bytes(signature[size:], "big"),
                )
                self.key.verify(
                    utils.encode_dss_signature(r, s), signed, ec.ECDSA(getattr(hashes, hashing)())
                )
            else:
                self.key.verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
        except exceptions.InvalidSignature:
            raise BadSignature("error in cryptographic primitive") from None

    def jwk(self) -> dict[str, str]:
        if isinstance(self.key, ec.EllipticCurvePublicKey):
            _, _, size, curve = _CURVES[self.key.curve.name]
            numbers = self.key.public_numbers()
            return {
                "use": "sig",
                "kty": "EC",
                "kid": self.id,
                "crv": curve,
                "alg": self.algorithm,
                "x": base64url_encode(numbers.x.to_bytes(size, "big")),
                "y": base64url_encode(numbers.y.to_bytes(size, "big")),
            }
        modulus, exponent = self.key.public_numbers().n, self.key.public_numbers().e
        return {
            "use": "sig",
            "kty": "RSA",
            "kid": self.id,
            "alg": self.algorithm,
            "n": base64url_encode(_big_endian(modulus)),
            "e": base64url_encode(_big_endian(exponent)),
        }


def public_key(key: Any) -> PublicKey:
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES:
        algorithm = _CURVES[key.curve.name][0]
    elif isinstance(key, rsa.RSAPublicKey):
        algorithm = "RS256"
    else:
        raise ValueError("the key is neither RSA nor of the curves P-256, P-384, P-521")
    der = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return PublicKey(key, algorithm, base64url_encode(hashlib.sha256(der).digest()))


class TokenSigner:
    """Signs claims with a private key. ES256 takes about 30 microseconds."""

    __slots__ = ("_header", "_key", "public")

    def __init__(self, pem: bytes) -> None:
        self._key: Any = serialization.load_pem_private_key(pem, None)
        self.public = public_key(self._key.public_key())
        self._header = base64url_encode(
            _compact({"alg": self.public.algorithm, "kid": self.public.id})
        )

    def sign(self, claims: dict[str, Any]) -> str:
        signed = f"{self._header}.{base64url_encode(_compact(claims))}"
        if isinstance(self._key, ec.EllipticCurvePrivateKey):
            _, hashing, size, _ = _CURVES[self._key.curve.name]
            r, s = utils.decode_dss_signature(
                self._key.sign(signed.encode(), ec.ECDSA(getattr(hashes, hashing)()))
            )
            signature = r.to_bytes(size, "big") + s.to_bytes(size, "big")
        else:
            signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{base64url_encode(signature)}"

    def __repr__(self) -> str:
        return f"Signer({self.public.id})"


@dataclass(frozen=True, slots=True)
class SignedToken:
    """A parsed token. Do not trust its contents before the signature is verified."""

    algorithm: str
    claims: dict[str, Any]
    signed: bytes
    signature: bytes
    key_id: str = ""

    @staticmethod
    def parse(text: str) -> SignedToken | None:
        """Returns None if the text is not a signed token, or requires an extension (`crit`)."""
        if len(text) > LONGEST_TOKEN or text.count(".") != 2:
            return None
        parts = text.split(".")
        try:
            header, claims = (
                orjson.loads(base64url_decode(parts[0])),
                orjson.loads(base64url_decode(parts[1])),
            )
            signature = base64url_decode(parts[2])
        except ValueError:
            return None
        if (
            not isinstance(header, dict)
            or not isinstance(claims, dict)
            or not isinstance(header.get("alg"), str)
            or "crit" in header
        ):
            return None
        signed, key_id = f"{parts[0]}.{parts[1]}".encode(), header.get("kid")
        return SignedToken(
            header["alg"], claims, signed, signature, key_id if isinstance(key_id, str) else ""
        )


def _compact(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


def _big_endian(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")
