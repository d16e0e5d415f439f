"""Issues service account tokens, and publishes the keys to verify them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import orjson

from transom.kit.jws import PublicKey, TokenSigner
from transom.machinery import serviceaccounts
from transom.machinery.objects import Object


class TokenKeys:
    """The keys of the cluster, read when they are first needed."""

    def __init__(self, private: bytes, public: Sequence[bytes] = ()) -> None:
        self._private = private
        self._public = tuple(public)

    @cached_property
    def signer(self) -> TokenSigner:
        return TokenSigner(self._private)

    @cached_property
    def verifying(self) -> tuple[PublicKey, ...]:
        """The signing key first, then the other keys whose tokens are still accepted."""
        keys = [self.signer.public] if self._private else []
        keys += [PublicKey.load(pem) for pem in self._public]
        return tuple({key.id: key for key in keys}.values())

    def __repr__(self) -> str:
        return "TokenKeys(...)"


class TokenIssuer:
    def __init__(self, keys: TokenKeys, issuer: str) -> None:
        self._keys = keys
        self.issuer = issuer

    def bound(
        self,
        account: Object,
        audiences: Sequence[str],
        now: float,
        seconds: int,
        *,
        pod: Object | None = None,
        secret: Object | None = None,
        node: Object | None = None,
        token_id: str = "",
    ) -> str:
        warn_after = 0
        if pod is not None and seconds == serviceaccounts.PROJECTED_SECONDS:
            seconds, warn_after = serviceaccounts.EXTENDED_SECONDS, seconds
        claims = serviceaccounts.bound_claims(
            self.issuer,
            account,
            audiences,
            now,
            seconds,
            warn_after=warn_after,
            pod=pod,
            secret=secret,
            node=node,
            token_id=token_id,
        )
        return self._keys.signer.sign(claims)

    def legacy(self, account: Object, secret: Object) -> str:
        return self._keys.signer.sign(serviceaccounts.legacy_claims(account, secret))


def jwks(keys: Sequence[PublicKey]) -> bytes:
    """The document at /openid/v1/jwks."""
    return orjson.dumps({"keys": [key.jwk() for key in keys]})


def discovery(issuer: str, address: str, keys: Sequence[PublicKey]) -> bytes:
    """The document at /.well-known/openid-configuration."""
    document: dict[str, Any] = {
        "issuer": issuer,
        "jwks_uri": f"https://{address}/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": sorted({key.algorithm for key in keys}),
    }
    return orjson.dumps(document)
