"""Signed tokens: against a known answer of another implementation, and against everything that is
not one.
"""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from transom.kit.jws import (
    BadSignature,
    PublicKey,
    SignedToken,
    TokenSigner,
    base64url_decode,
    base64url_encode,
    public_key,
)


def pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def test_the_example_of_rfc_7515() -> None:
    """Appendix A.3: ES256 over the claims of "joe"."""
    numbers = ec.EllipticCurvePublicNumbers(
        int.from_bytes(base64url_decode("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"), "big"),
        int.from_bytes(base64url_decode("x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"), "big"),
        ec.SECP256R1(),
    )
    token = SignedToken.parse(
        "eyJhbGciOiJFUzI1NiJ9."
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ."
        "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    )
    assert token is not None and token.claims["iss"] == "joe"
    key = public_key(numbers.public_key())
    key.verify(token.algorithm, token.signed, token.signature)
    assert key.jwk()["x"] == "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"
    with pytest.raises(BadSignature):
        key.verify(token.algorithm, token.signed + b" ", token.signature)


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (ec.generate_private_key(ec.SECP256R1()), "ES256"),
        (ec.generate_private_key(ec.SECP384R1()), "ES384"),
        (ec.generate_private_key(ec.SECP521R1()), "ES512"),
        (rsa.generate_private_key(65537, 2048), "RS256"),
    ],
)
def test_what_is_signed_verifies_with_that_key_only(
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, algorithm: str
) -> None:
    signer = TokenSigner(pem(key))
    token = SignedToken.parse(signer.sign({"a": 1}))
    assert token is not None and token.algorithm == algorithm and token.claims == {"a": 1}
    signer.public.verify(token.algorithm, token.signed, token.signature)
    for wrong in (b"", token.signature[:-1], token.signature[::-1], token.signature + b"\0"):
        with pytest.raises(BadSignature):
            signer.public.verify(token.algorithm, token.signed, wrong)
    with pytest.raises(BadSignature):
        TokenSigner(pem(ec.generate_private_key(ec.SECP256R1()))).public.verify(
            algorithm, token.signed, token.signature
        )
    with pytest.raises(BadSignature):
        signer.public.verify("none", token.signed, b"")


def test_a_public_key_reads_back_from_pem() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    text = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert PublicKey.load(text).id == TokenSigner(pem(key)).public.id


@given(st.binary())
def test_base64url_round_trip(data: bytes) -> None:
    assert base64url_decode(base64url_encode(data)) == data


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_a_token_or_none(text: str) -> None:
    SignedToken.parse(text)
    SignedToken.parse(f"{text}.{text}.{text}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.b",
        "a.b.c.d",
        "e30.e30.",
        "W10.e30.x",
        "eyJhbGciOjF9.e30.AA",
        "eyJhbGci.e30.AA",
        "eyJhbGciOiJFUzI1NiJ9.W10.AA",
        "eyJhbGciOiJFUzI1NiJ9.e30=.AA",
    ],
)
def test_invalid_tokens(text: str) -> None:
    assert SignedToken.parse(text) is None
