"""Flags of the API server that envtest starts."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from transom.cluster.envtest.serving import read_account_key, uid_headers
from transom.kit.user_errors import UserError
from transom.machinery.releases import parse_release
from transom.machinery.releases.features import FeatureSet


def test_uid_headers_need_their_feature_gate() -> None:
    names = ("X-Id", "x-remote-uid")
    assert uid_headers(names, FeatureSet(parse_release("1.33"))) == names
    enabled = {"RemoteRequestHeaderUID": True}
    assert uid_headers(names, FeatureSet(parse_release("1.32"), enabled)) == names
    assert uid_headers((), FeatureSet(parse_release("1.20"))) == ()
    for release in ("1.20", "1.31", "1.32"):
        with pytest.raises(UserError, match='requires the "RemoteRequestHeaderUID" feature'):
            uid_headers(names, FeatureSet(parse_release(release)))


def test_uid_headers_include_the_standard_one() -> None:
    with pytest.raises(UserError, match="without specifying the standard X-Remote-Uid header"):
        uid_headers(("X-Id",), FeatureSet(parse_release("1.33")))


def test_keys_of_service_accounts() -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    assert read_account_key(pem) == public
    assert read_account_key(public) == public
