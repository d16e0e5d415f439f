"""Service account tokens: signed with the cluster's key, and valid while the objects they refer to
exist.

A signature is verified once and the claims are cached by the token's digest. The account, Secret
and pod are looked up on every use, so a token becomes invalid when they are deleted.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transom.apiserver.authentication.bearer import BadToken, VerifiedToken
from transom.apiserver.authentication.chain import with_authenticated
from transom.apiserver.authentication.legacy_tokens import LegacyTokenTracker
from transom.apiserver.core.context import UserInfo
from transom.kit.clock import Clock, parse_rfc3339
from transom.kit.jws import BadSignature, PublicKey, SignedToken
from transom.machinery import errors, serviceaccounts
from transom.machinery.errors import GroupResource
from transom.machinery.field import aggregate_text
from transom.machinery.objects import Object
from transom.machinery.rbac import go_strings
from transom.machinery.releases import DEFAULT
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet

Find = Callable[[str, str, str], Object | None]  # (plural, namespace, name) of the core group
_LEEWAY = 60.0  # tolerated clock skew
_KEPT = 10_000
_INVALIDATED = "Token has been invalidated"
_NEWER_INVALIDATED = "service account token has been invalidated"
_POD_NODE_INFO = "ServiceAccountTokenPodNodeInfo"
DEFAULT_FEATURES = FeatureSet(DEFAULT)
# Audit annotations of tokens without an audience, and of tokens after their requested lifetime.
_LEGACY = "authentication.k8s.io/legacy-token"
_STALE = "authentication.k8s.io/stale-token"
_NOT_VALID = "Token could not be validated."
_GENERATED = (
    "Use tokens from the TokenRequest API or manually created secret-based tokens instead of "
    "auto-generated secret-based tokens."
)


class _Known:
    """The verified claims of a token."""

    __slots__ = ("audiences", "claims", "legacy", "secret_data", "user")

    def __init__(self, token: str, claims: Mapping[str, Any], legacy: bool) -> None:
        self.claims = claims
        self.legacy = legacy
        audience = claims.get("aud") or ()
        self.audiences = (audience,) if isinstance(audience, str) else tuple(audience)
        self.secret_data = base64.b64encode(token.encode()).decode() if legacy else ""
        self.user: UserInfo | None = None


class ServiceAccountAuthenticator:
    def __init__(
        self,
        keys: Callable[[], Sequence[PublicKey]],
        issuer: str,
        audiences: Sequence[str],
        find: Find,
        clock: Clock,
        features: FeatureSet = DEFAULT_FEATURES,
        legacy_tokens: LegacyTokenTracker | None = None,
    ) -> None:
        """`keys` is called for the first token."""
        self._legacy_tokens = legacy_tokens
        self._features = features
        self._newer_texts = has_behaviour(features.release, "ServiceAccountTokenErrors")
        self._annotates = has_behaviour(features.release, "StaleTokenAnnotations")
        self._annotates_secrets = has_behaviour(features.release, "AnnotatedTokenSecrets")
        self._keys = keys
        self._issuer = issuer
        self._audiences = tuple(audiences)
        self._find = find
        self._clock = clock
        self._known: dict[bytes, _Known] = {}

    def __call__(self, token: str, audiences: Sequence[str]) -> VerifiedToken | None:
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        known = self._known.get(digest)
        if known is None:
            known = self._verify(token)
            if known is None:
                return None
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[digest] = known
        annotations: dict[str, str] = {}
        try:
            return self._check(token, known, audiences, annotations)
        except BadToken as problem:
            raise BadToken(str(problem), annotations) from None

    def _check(
        self, token: str, known: _Known, audiences: Sequence[str], annotations: dict[str, str]
    ) -> VerifiedToken:
        """Fills `annotations`, which the audit event of a rejected token has too."""
        if not known.audiences and self._annotates:
            annotations[_LEGACY] = known.claims.get("sub") or ""
        own = known.audiences or self._audiences
        meant = tuple(a for a in audiences if a in own)
        if not meant:
            raise BadToken(
                f"token audiences {go_strings(own)} is invalid for the target audiences "
                f"{go_strings(audiences)}"
            )
        warning = ""
        if known.legacy:
            warning = self._check_legacy(token, known, annotations)
        else:
            self._check_bound(known, annotations)
        assert known.user is not None
        return VerifiedToken(known.user, meant, warning, annotations)

    def _verify(self, text: str) -> _Known | None:
        token = SignedToken.parse(text)
        if token is None or token.claims.get("iss") not in (
            serviceaccounts.LEGACY_ISSUER,
            self._issuer,
        ):
            return None
        problems = []
        for key in self._keys():
            try:
                key.verify(token.algorithm, token.signed, token.signature)
            except BadSignature as problem:
                problems.append(f"square/go-jose: {problem}")
            else:
                return _Known(
                    text, token.claims, token.claims["iss"] == serviceaccounts.LEGACY_ISSUER
                )
        if not problems:
            return None
        raise BadToken(aggregate_text(problems))

    # ---- is it still good ----

    def _check_legacy(self, token: str, known: _Known, annotations: dict[str, str]) -> str:
        """Returns a warning for the client, or ""."""
        claims, prefix = known.claims, serviceaccounts.LEGACY_CLAIM
        subject = claims.get("sub") or ""
        if not subject:
            raise BadToken("sub claim is missing")
        namespace, secret_name, account, uid = (
            _claim(claims, prefix + key, missing)
            for key, missing in (
                ("namespace", "namespace"),
                ("secret.name", "secretName"),
                ("service-account.name", "serviceAccountName"),
                ("service-account.uid", "serviceAccountUID"),
            )
        )
        if serviceaccounts.split_user_name(subject) != (namespace, account):
            raise BadToken("sub claim is invalid")
        secret = self._find("secrets", namespace, secret_name)
        if secret is None or secret["metadata"].get("deletionTimestamp"):
            raise self._bad(_INVALIDATED, _NEWER_INVALIDATED)
        stored = (secret.get("data") or {}).get("token", "")
        if stored != known.secret_data and base64.b64decode(stored) != token.encode(
            errors="surrogateescape"
        ):
            raise self._bad(
                "Token does not match server's copy",
                "service account token does not match server's copy",
            )
        found = self._check_account(namespace, account, uid, None)
        warning = self._track(secret, found, annotations)
        if known.user is None:
            known.user = _user(namespace, account, uid, {})
        return warning

    def _track(self, secret: Object, found: Object, annotations: dict[str, str]) -> str:
        """Records the use; a token that was generated with its account causes a warning."""
        tracker, meta = self._legacy_tokens, secret["metadata"]
        if tracker is None or not tracker.enabled:
            return ""
        namespace, account = meta["namespace"], found["metadata"]["name"]
        tracker.record(secret)
        invalid = (meta.get("labels") or {}).get(serviceaccounts.INVALID_SINCE)
        if invalid and self._features.enabled("LegacyServiceAccountTokenCleanUp"):
            if self._annotates_secrets:
                annotations[f"{_LEGACY}-invalidated"] = f"{meta['name']}/{namespace}"
            raise BadToken(
                f"the token in secret {namespace}/{meta['name']} for service account "
                f"{namespace}/{account} has been marked invalid. Use tokens from the TokenRequest "
                "API or manually created secret-based tokens, or remove the "
                f"'{serviceaccounts.INVALID_SINCE}' label from the secret to temporarily allow use "
                "of this token"
            )
        generated = any(ref.get("name") == meta["name"] for ref in found.get("secrets") or ())
        if self._annotates_secrets:
            kind = "autogenerated" if generated else "manual"
            annotations[f"{_LEGACY}-{kind}-secret"] = meta["name"]
        return _GENERATED if generated else ""

    def _check_bound(self, known: _Known, annotations: dict[str, str]) -> None:
        claims, now = known.claims, self._clock.time()
        self._check_times(claims, now)
        private = claims.get("kubernetes.io") or {}
        namespace, account = private.get("namespace", ""), private.get("serviceaccount") or {}
        name, uid = account.get("name", ""), account.get("uid", "")
        self._check_account(namespace, name, uid, now)
        for field, plural in (("secret", "secrets"), ("pod", "pods")):
            reference = private.get(field)
            if reference is not None:
                self._check_reference(namespace, field.capitalize(), plural, reference, now)
        node = private.get("node")
        if node is not None and "pod" not in private:
            gate = "ServiceAccountTokenNodeBindingValidation"
            if not self._features.enabled(gate):
                raise BadToken(
                    f"token is bound to a Node object but the {gate} feature gate is disabled"
                )
            self._check_reference("", "Node", "nodes", node, now)
        warn_after = private.get("warnafter")
        if isinstance(warn_after, int) and 0 < warn_after < now and self._annotates:
            late = int(now) - warn_after
            annotations[_STALE] = (
                f"subject: {claims.get('sub', '')}, seconds after warning threshold: {late}"
            )
        if known.user is None:
            known.user = _user(namespace, name, uid, self._extra(claims, private))

    def _extra(self, claims: Mapping[str, Any], private: Mapping[str, Any]) -> dict[str, list[str]]:
        """What the token says about itself and the objects it is bound to."""
        pod, node = private.get("pod") or {}, private.get("node")
        extra: dict[str, list[str]] = {}
        if claims.get("jti") and self._features.enabled("ServiceAccountTokenJTI"):
            extra[serviceaccounts.CREDENTIAL_ID] = [f"JTI={claims['jti']}"]
        if pod.get("name") and pod.get("uid"):
            extra[serviceaccounts.POD_NAME] = [pod["name"]]
            extra[serviceaccounts.POD_UID] = [pod["uid"]]
        if node is not None and (not pod or self._features.enabled(_POD_NODE_INFO)):
            extra[serviceaccounts.NODE_NAME] = [node.get("name", "")]
            if node.get("uid"):
                extra[serviceaccounts.NODE_UID] = [node["uid"]]
        return extra

    def _check_times(self, claims: Mapping[str, Any], now: float) -> None:
        try:
            if "nbf" in claims and now + _LEEWAY < claims["nbf"]:
                raise self._bad(_NOT_VALID, "service account token is not valid yet")
            if "exp" in claims and now - _LEEWAY > claims["exp"]:
                raise self._bad("Token has expired.", "service account token has expired")
            if "iat" in claims and now + _LEEWAY < claims["iat"]:
                raise self._bad(_NOT_VALID, "service account token is issued in the future")
        except TypeError:
            raise BadToken(_NOT_VALID) from None

    def _check_account(self, namespace: str, name: str, uid: str, now: float | None) -> Object:
        """`now` None: an account that is being deleted counts as deleted; otherwise only after its
        grace period.
        """
        found = self._find("serviceaccounts", namespace, name)
        if found is None:
            raise BadToken(errors.not_found(GroupResource("", "serviceaccounts"), name).message)
        if _gone(found, now):
            text = f"{namespace}/{name} has been deleted"
            raise self._bad(f"ServiceAccount {text}", f"service account {text}")
        if found["metadata"]["uid"] != uid:
            text = f"UID ({found['metadata']['uid']}) does not match claim ({uid})"
            raise self._bad(f"ServiceAccount {text}", f"service account {text}")
        return found

    def _check_reference(
        self, namespace: str, kind: str, plural: str, reference: Object, now: float
    ) -> None:
        found = self._find(plural, namespace, reference.get("name", ""))
        if found is None or _gone(found, now):
            raise self._bad(_INVALIDATED, _NEWER_INVALIDATED)
        uid, claim = found["metadata"]["uid"], reference.get("uid", "")
        if uid != claim:
            raise self._bad(
                f"{kind} UID ({uid}) does not match claim ({claim})",
                f"{kind.lower()} UID ({uid}) does not match service account {kind.lower()} ref "
                f"claim ({claim})",
            )

    def _bad(self, text: str, newer: str) -> BadToken:
        return BadToken(newer if self._newer_texts else text)


def _claim(claims: Mapping[str, Any], key: str, name: str) -> str:
    value = claims.get(key)
    if not value or not isinstance(value, str):
        raise BadToken(f"{name} claim is missing")
    return value


def _gone(obj: Object, now: float | None) -> bool:
    stamp = obj["metadata"].get("deletionTimestamp")
    return bool(stamp) and (now is None or parse_rfc3339(stamp) < now - _LEEWAY)


def _user(namespace: str, name: str, uid: str, extra: Mapping[str, list[str]]) -> UserInfo:
    groups = with_authenticated(serviceaccounts.group_names(namespace))
    return UserInfo(serviceaccounts.user_name(namespace, name), groups, uid, extra)
