"""Builds authentication and authorization: the order of authenticators and authorizers, and their
keys. Configuration files replace parts of both while the server runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from transom.apiserver.authentication.bearer import BearerTokens, TokenAuthenticator
from transom.apiserver.authentication.bearer import for_any_audience as for_any
from transom.apiserver.authentication.bootstrap_tokens import BootstrapTokens
from transom.apiserver.authentication.certificates import ClientCertificates
from transom.apiserver.authentication.chain import Authentication
from transom.apiserver.authentication.legacy_tokens import LegacyTokenTracker
from transom.apiserver.authentication.service_accounts import ServiceAccountAuthenticator
from transom.apiserver.authentication.static_tokens import StaticTokens
from transom.apiserver.authentication.tokens import TokenIssuer, TokenKeys
from transom.apiserver.authorization.chain import (
    Authorization,
    Authorizer,
    always_allow,
    always_deny,
    masters,
)
from transom.apiserver.authorization.node import NodeAuthorizer
from transom.apiserver.authorization.rbac import Rbac
from transom.apiserver.core.access_options import AccessOptions
from transom.apiserver.core.config_file import ConfigFile
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.objectstore import FindCore
from transom.http.pool import ConnectionPool
from transom.kit.clock import Clock
from transom.kit.lazy import lazy_import
from transom.kit.prometheus import Family
from transom.kit.workers import WorkRunner
from transom.machinery.apiserver_config import ConfigurationError
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.store.api import Store

# Few clusters have a configuration of their own; CEL is slow to load.
if TYPE_CHECKING:
    from transom.apiserver.authentication import jwt
    from transom.apiserver.authorization import webhook
    from transom.machinery import authentication_config, authorization_config
    from transom.machinery.authentication_config import AuthenticationConfig
    from transom.machinery.authorization_config import AuthorizationConfig
else:
    jwt = lazy_import("transom.apiserver.authentication.jwt")
    webhook = lazy_import("transom.apiserver.authorization.webhook")
    authentication_config = lazy_import("transom.machinery.authentication_config")
    authorization_config = lazy_import("transom.machinery.authorization_config")

DEFAULT_AUTHORIZERS = ("Node", "RBAC")


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
        access: AccessOptions,
        workers: WorkRunner,
    ) -> None:
        """`tokens` are static ones; without `audiences`, the issuer is the only audience. Raises
        ConfigurationError.
        """
        own = audiences or (issuer,)
        self._clock, self._features, self._access = clock, features, access
        self._pool, self._workers = ConnectionPool(), workers
        self.keys = TokenKeys(service_account_key, service_account_keys)
        self.issuer = TokenIssuer(self.keys, issuer)
        self.legacy_tokens = LegacyTokenTracker(clock, features)
        self._fixed_tokens: list[TokenAuthenticator] = [
            for_any(own, StaticTokens(tokens)),
            ServiceAccountAuthenticator(
                lambda: self.keys.verifying,
                issuer,
                own,
                find,
                clock,
                features,
                self.legacy_tokens,
            ),
            for_any(own, BootstrapTokens(find, clock)),
        ]
        self.tokens = BearerTokens(
            self._fixed_tokens,
            own,
            warns_of_spaces=has_behaviour(features.release, "BearerSpaceWarning"),
        )
        self.authenticate = Authentication(
            [
                ClientCertificates(
                    clock,
                    credential_ids=self._has_credential_ids(),
                    reads_uids=features.enabled("AllowParsingUserUIDFromCertAuth"),
                ),
                self.tokens,
            ],
            self._default_anonymous,
        )
        self.rbac = Rbac(store)
        self._local: dict[str, Authorizer] = {
            "Node": NodeAuthorizer(store, features),
            "RBAC": self.rbac,
            "AlwaysAllow": always_allow,
            "AlwaysDeny": always_deny,
        }
        self.authorize = Authorization(
            [masters, *(self._local[name] for name in DEFAULT_AUTHORIZERS)], DEFAULT_AUTHORIZERS
        )
        self.decide = self.authorize.decide
        # The types of the first configuration file, which later ones must keep.
        self._needed: frozenset[str] | None = None
        self._files = self._configure()

    def _has_credential_ids(self) -> bool:
        return has_behaviour(self._features.release, "CredentialIds")

    def _configure(self) -> list[ConfigFile]:
        access, clock, files = self._access, self._clock, []
        if access.authentication is not None:
            self._use_authentication(
                authentication_config.read_authentication_config(
                    access.authentication, self._features, [self.issuer.issuer]
                )
            )
        if access.authorization is not None:
            self._use_authorization(
                authorization_config.read_authorization_config(access.authorization, self._features)
            )
        kinds: tuple[tuple[str, str, Callable[[bytes], None]], ...] = (
            (access.authentication_file, "authentication", self._load_authentication),
            (access.authorization_file, "authorization", self._load_authorization),
        )
        for path, kind, apply in kinds:
            if path:
                files.append(ConfigFile(path, kind, apply, clock))
        return files

    def _default_anonymous(self, _path: str) -> bool:
        return self._access.anonymous

    def _load_authentication(self, data: bytes) -> None:
        self._use_authentication(
            authentication_config.load_authentication_config(
                data, self._features, [self.issuer.issuer]
            )
        )

    def _use_authentication(self, config: AuthenticationConfig) -> None:
        own = self.tokens.audiences
        issuers = jwt.JwtAuthenticator(
            config.jwt,
            self._clock,
            self._pool,
            self._workers,
            credential_ids=self._has_credential_ids(),
        )
        self.tokens.configure([*self._fixed_tokens, for_any(own, issuers)])
        anonymous = config.anonymous
        if anonymous is None:
            self.authenticate.anonymous = self._default_anonymous
            return
        enabled, paths = anonymous.enabled, anonymous.paths
        self.authenticate.anonymous = lambda path: enabled and (paths is None or path in paths)

    def _load_authorization(self, data: bytes) -> None:
        config = authorization_config.load_authorization_config(
            data, self._features, self._needed or ()
        )
        local = frozenset(one.type for one in config if one.webhook is None)
        added = local - self._needed if self._needed is not None else ()
        for name in sorted(added):
            if name in DEFAULT_AUTHORIZERS:
                raise ConfigurationError(
                    f"authorizer type {name} is not allowed if it was not enabled at initial "
                    "server startup"
                )
        self._use_authorization(config)
        self._needed = local if self._needed is None else self._needed

    def _use_authorization(self, config: AuthorizationConfig) -> None:
        made: list[Authorizer] = [masters]
        for one in config:
            if one.webhook is None:
                made.append(self._local[one.type])
            else:
                made.append(
                    webhook.WebhookAuthorizer(
                        one.name,
                        one.webhook,
                        self._clock,
                        self._pool,
                        self._workers,
                        selectors=self._features.enabled("AuthorizeWithSelectors"),
                    )
                )
        self.authorize.configure(made, [one.type for one in config])

    def start(self) -> None:
        for file in self._files:
            file.start()

    def stop(self) -> None:
        for file in self._files:
            file.stop()
        self._pool.close()

    def collect_metrics(self) -> list[Family]:
        return [family for file in self._files for family in file.collect_metrics()]
