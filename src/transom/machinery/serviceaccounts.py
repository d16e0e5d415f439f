"""Service accounts as identities: their user and group names, and the claims of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from transom.machinery.objects import Object
from transom.machinery.validation.names import is_dns1123_label, is_dns1123_subdomain

USER_PREFIX = "system:serviceaccount:"
ALL_ACCOUNTS = "system:serviceaccounts"
POD_NAME, POD_UID = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
NODE_NAME = "authentication.kubernetes.io/node-name"
NODE_UID = "authentication.kubernetes.io/node-uid"
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
LEGACY_ISSUER = "kubernetes/serviceaccount"
DEFAULT_ISSUER = "https://kubernetes.default.svc"
LEGACY_CLAIM = "kubernetes.io/serviceaccount/"
TOKEN_SECRET = "kubernetes.io/service-account-token"
# Annotations of token Secrets: the account.
ACCOUNT_NAME = "kubernetes.io/service-account.name"
ACCOUNT_UID = "kubernetes.io/service-account.uid"
# Labels of token Secrets: the date of the last use, and the date from which the token is rejected.
LAST_USED = "kubernetes.io/legacy-token-last-used"
INVALID_SINCE = "kubernetes.io/legacy-token-invalid-since"
# Namespace and name of the ConfigMap that records since when the use of these tokens is tracked, and
# the key of the date.
TRACKING_CONFIG_MAP = ("kube-system", "kube-apiserver-legacy-service-account-token-tracking")
TRACKED_SINCE = "since"
# The lifetime that the ServiceAccount admission plugin asks for. Such a token is valid for a year,
# because old programs read their token once; the server records its use after the requested
# lifetime.
PROJECTED_SECONDS = 3607
EXTENDED_SECONDS = 365 * 24 * 3600


# The sources of the token volume that admission adds to pods. Most pods have exactly these, so they
# need no validation. The order of the fields is that of normalised objects.
TOKEN_SOURCES: Final[list[Object]] = [
    {"serviceAccountToken": {"expirationSeconds": PROJECTED_SECONDS, "path": "token"}},
    {
        "configMap": {
            "name": "kube-root-ca.crt",
            "items": [{"key": "ca.crt", "path": "ca.crt"}],
        }
    },
    {
        "downwardAPI": {
            "items": [
                {
                    "path": "namespace",
                    "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                }
            ]
        }
    },
]
_TOKEN_SOURCES_JSON: Final = orjson.dumps(TOKEN_SOURCES)


def token_sources() -> list[Object]:
    """A copy of TOKEN_SOURCES."""
    made: list[Object] = orjson.loads(_TOKEN_SOURCES_JSON)
    return made


def are_token_sources(value: Any) -> bool:
    """Whether a value is TOKEN_SOURCES to the byte: with integers that are not floats, and the
    order of normalised objects.
    """
    try:
        return orjson.dumps(value) == _TOKEN_SOURCES_JSON
    except orjson.JSONEncodeError:  # an integer of more than 64 bits
        return False


def user_name(namespace: str, name: str) -> str:
    return f"{USER_PREFIX}{namespace}:{name}"


def group_names(namespace: str) -> tuple[str, str]:
    return (ALL_ACCOUNTS, f"{ALL_ACCOUNTS}:{namespace}")


def split_user_name(user: str) -> tuple[str, str] | None:
    """Namespace and name of the account of a user name, None if it does not have that form."""
    if not user.startswith(USER_PREFIX):
        return None
    parts = user[len(USER_PREFIX) :].split(":")
    if len(parts) != 2 or is_dns1123_label(parts[0]) or is_dns1123_subdomain(parts[1]):
        return None
    return parts[0], parts[1]


def _reference(obj: Object) -> Object:
    return {"name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"]}


def bound_claims(
    issuer: str,
    account: Object,
    audiences: Sequence[str],
    now: float,
    seconds: int,
    *,
    warn_after: int = 0,
    pod: Object | None = None,
    secret: Object | None = None,
    node: Object | None = None,
    token_id: str = "",
) -> dict[str, Any]:
    """Claims of a token that expires with its time, its account, and the object it is bound to. A
    token of a pod also names its node.
    """
    meta, start = account["metadata"], int(now)
    private: dict[str, Any] = {
        "namespace": meta["namespace"],
        "serviceaccount": _reference(account),
    }
    if pod is not None:
        private["pod"] = _reference(pod)
    elif secret is not None:
        private["secret"] = _reference(secret)
    if node is not None:
        private["node"] = _reference(node)
    if warn_after:
        private["warnafter"] = start + warn_after
    return {
        **({"jti": token_id} if token_id else {}),
        "iss": issuer,
        "sub": user_name(meta["namespace"], meta["name"]),
        "aud": list(audiences),
        "iat": start,
        "nbf": start,
        "exp": start + seconds,
        "kubernetes.io": private,
    }


def legacy_claims(account: Object, secret: Object) -> dict[str, Any]:
    """Claims of a token that is stored in a secret; it is valid as long as the secret and the
    account exist.
    """
    meta = account["metadata"]
    return {
        "iss": LEGACY_ISSUER,
        "sub": user_name(meta["namespace"], meta["name"]),
        LEGACY_CLAIM + "namespace": meta["namespace"],
        LEGACY_CLAIM + "secret.name": secret["metadata"]["name"],
        LEGACY_CLAIM + "service-account.name": meta["name"],
        LEGACY_CLAIM + "service-account.uid": meta["uid"],
    }
