"""Who may do what, put together: the order of authenticators and authorizers, and the keys behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transom.apiserver.authentication.bearer import BearerTokens, for_any_audience
from transom.apiserver.authentication.bootstrap_tokens import BootstrapTokens
from transom.apiserver.authentication.certificates import ClientCertificates
from transom.apiserver.authentication.chain import Authentication
from transom.apiserver.authentication.service_accounts import Find, ServiceAccountTokens
from transom.apiserver.authentication.static_tokens import StaticTokens
from transom.apiserver.authentication.tokens import TokenIssuer, TokenKeys
from transom.apiserver.authorization.chain import Authorization, masters
from transom.apiserver.authorization.node import NodeAuthorizer
from transom.apiserver.authorization.rbac import Rbac

if TYPE_CHECKING:
    from transom.apiserver.server import ServerOptions


class Security:
    def __init__(self, options: ServerOptions, find: Find) -> None:
        """`find` looks up objects of the core group."""
        own = options.api_audiences or (options.issuer,)
        self.keys = TokenKeys(options.service_account_key, options.service_account_keys)
        self.issuer = TokenIssuer(self.keys, options.issuer)
        self.tokens = BearerTokens(
            [
                for_any_audience(own, StaticTokens(options.tokens)),
                ServiceAccountTokens(lambda: self.keys.verifying, options.issuer, own, find, options.clock),
                for_any_audience(own, BootstrapTokens(find, options.clock)),
            ],
            own,
        )
        self.authenticate = Authentication([ClientCertificates(options.clock), self.tokens], anonymous=True)
        self.rbac = Rbac(options.store)
        self.authorize = Authorization([masters, NodeAuthorizer(options.store), self.rbac])
        self.decide = self.authorize.decide
