"""Builds authentication and authorization: the order of authenticators and authorizers, and their
keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from transom.apiserver.authentication.bearer import BearerTokens, for_any_audience
from transom.apiserver.authentication.bootstrap_tokens import BootstrapTokens
from transom.apiserver.authentication.certificates import ClientCertificates
from transom.apiserver.authentication.chain import Authentication
from transom.apiserver.authentication.service_accounts import ServiceAccountAuthenticator
from transom.apiserver.authentication.static_tokens import StaticTokens
from transom.apiserver.authentication.tokens import TokenIssuer, TokenKeys
from transom.apiserver.authorization.chain import Authorization, masters
from transom.apiserver.authorization.node import NodeAuthorizer
from transom.apiserver.authorization.rbac import Rbac
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.objectstore import FindCore
from transom.kit.clock import Clock
from transom.machinery.releases.features import FeatureSet
from transom.store.api import Store


class Security:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        find: FindCore,
        tokens: Mapping[str, UserInfo],
        service_account_key: bytes,
        service_account_keys: Sequence[bytes],
        issuer: str,
        audiences: Sequence[str],
        features: FeatureSet,
    ) -> None:
        """`tokens` are static ones; without `audiences`, the issuer is the only audience."""
        own = audiences or (issuer,)
        self.keys = TokenKeys(service_account_key, service_account_keys)
        self.issuer = TokenIssuer(self.keys, issuer)
        self.tokens = BearerTokens(
            [
                for_any_audience(own, StaticTokens(tokens)),
                ServiceAccountAuthenticator(
                    lambda: self.keys.verifying, issuer, own, find, clock, features
                ),
                for_any_audience(own, BootstrapTokens(find, clock)),
            ],
            own,
        )
        self.authenticate = Authentication([ClientCertificates(clock), self.tokens], anonymous=True)
        self.rbac = Rbac(store)
        self.authorize = Authorization([masters, NodeAuthorizer(store, features), self.rbac])
        self.decide = self.authorize.decide
