"""The flags of kube-apiserver for authentication and authorization that a cluster accepts. Cheap to
import: the command line shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transom.kit.named_tuple import NamedTuple


class AccessFlag(NamedTuple):
    metavar: str
    help: str

    @property
    def is_file(self) -> bool:
        return self.metavar == "FILE"


AUTHENTICATION_CONFIG, AUTHORIZATION_CONFIG = "authentication-config", "authorization-config"
AUTHORIZATION_MODE, WEBHOOK_FILE = "authorization-mode", "authorization-webhook-config-file"
WEBHOOK_PREFIX: Final = "authorization-webhook-"
OIDC_PREFIX: Final = "oidc-"
ACCESS_FLAGS: Final[Mapping[str, AccessFlag]] = {
    AUTHENTICATION_CONFIG: AccessFlag("FILE", "an AuthenticationConfiguration (since 1.30)"),
    AUTHORIZATION_CONFIG: AccessFlag("FILE", "an AuthorizationConfiguration (since 1.30)"),
    "anonymous-auth": AccessFlag(
        "true|false", "whether requests without credentials are anonymous"
    ),
    AUTHORIZATION_MODE: AccessFlag(
        "MODE[,MODE...]",
        "the authorizers in order: Node, RBAC, Webhook, AlwaysAllow, AlwaysDeny (default: Node,RBAC)",
    ),
    WEBHOOK_FILE: AccessFlag("FILE", "the webhook of the mode Webhook, as a kubeconfig"),
    "authorization-webhook-version": AccessFlag(
        "v1|v1beta1", "the version of its SubjectAccessReviews (default: v1beta1)"
    ),
    "authorization-webhook-cache-authorized-ttl": AccessFlag(
        "DURATION", "how long its positive answers are cached (default: 5m)"
    ),
    "authorization-webhook-cache-unauthorized-ttl": AccessFlag(
        "DURATION", "how long its negative answers are cached (default: 30s)"
    ),
    "oidc-issuer-url": AccessFlag("URL", "accept tokens of this OpenID Connect issuer"),
    "oidc-client-id": AccessFlag("ID", "the audience of its tokens"),
    "oidc-ca-file": AccessFlag("FILE", "the certificate authority of the issuer"),
    "oidc-username-claim": AccessFlag("CLAIM", "the claim with the user name (default: sub)"),
    "oidc-username-prefix": AccessFlag("PREFIX", "a prefix of user names; - for none"),
    "oidc-groups-claim": AccessFlag("CLAIM", "the claim with the groups"),
    "oidc-groups-prefix": AccessFlag("PREFIX", "a prefix of groups"),
    "oidc-signing-algs": AccessFlag("ALG[,ALG...]", "accepted algorithms (default: RS256)"),
    "oidc-required-claim": AccessFlag(
        "CLAIM=VALUE[,CLAIM=VALUE...]", "claims that a token must have"
    ),
}
