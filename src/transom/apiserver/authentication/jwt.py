"""JSON web tokens of other issuers (OpenID Connect): verifies a token with the issuer's keys and
maps its claims to a user, by an AuthenticationConfiguration or the flags --oidc-*.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from transom.apiserver.authentication.bearer import BadToken
from transom.apiserver.authentication.chain import with_authenticated
from transom.apiserver.authentication.key_sets import KeySet
from transom.apiserver.core.answers import AnswerNeeded, find_answer
from transom.apiserver.core.context import UserInfo
from transom.http.pool import ConnectionPool
from transom.kit.cel.errors import CelError
from transom.kit.cel.values import is_list
from transom.kit.clock import Clock, rfc3339
from transom.kit.jws import BadSignature, SignedToken
from transom.kit.workers import WorkRejected, WorkRunner, WorkTimeout
from transom.machinery.authentication_config import (
    ClaimMapping,
    JwtConfig,
    ValidationRule,
)
from transom.machinery.cel.brief import BriefBudget, BriefBudgetSpentError
from transom.machinery.cel.identity import IdentityExpression
from transom.machinery.rbac import go_strings
from transom.machinery.serviceaccounts import CREDENTIAL_ID

log = logging.getLogger("transom.apiserver")

_GOOGLE: Final = "accounts.google.com"
_NOT_BEFORE_LEEWAY: Final = 300.0
_EXPRESSION_SECONDS: Final = 2.0  # CPU time of all expressions for one token
_CLAIM_RULES = "oidc: error evaluating claim validation expression"
_USER_RULES = "oidc: error evaluating user info validation rule"


class JwtAuthenticator:
    """Authenticates the tokens of the configured issuers; None for tokens of others. Raises
    BadToken, and AnswerNeeded.
    """

    def __init__(
        self,
        configs: tuple[JwtConfig, ...],
        clock: Clock,
        pool: ConnectionPool,
        workers: WorkRunner,
        *,
        credential_ids: bool,
    ) -> None:
        self._issuers = {
            config.issuer: JwtIssuer(config, clock, pool, workers, credential_ids=credential_ids)
            for config in configs
        }

    def __call__(self, text: str) -> UserInfo | None:
        token = SignedToken.parse(text) if self._issuers else None
        issuer = self._issuers.get(_issuer(token.claims)) if token is not None else None
        return None if token is None or issuer is None else issuer.authenticate(token)


class JwtIssuer:
    """Authenticates the tokens of one issuer. Raises BadToken, and AnswerNeeded for keys that are
    not known yet and for expressions that must be evaluated in a worker.
    """

    def __init__(
        self,
        config: JwtConfig,
        clock: Clock,
        pool: ConnectionPool,
        workers: WorkRunner,
        *,
        credential_ids: bool,
    ) -> None:
        self._config = config
        self._workers = workers
        self._clock = clock
        self._credential_ids = credential_ids
        self.keys = KeySet(config.issuer, config.discovery_url, config.ca, clock, pool)

    def authenticate(self, token: SignedToken) -> UserInfo:
        if not self.keys.initialized:
            self._need_keys()
            raise BadToken("oidc: authenticator not initialized")
        try:
            self._verify(token)
        except ValueError as problem:
            raise BadToken(f"oidc: verify token: {problem}") from None
        try:
            return self._user(token.claims, BriefBudget())
        except BriefBudgetSpentError:
            key = (self, token.signed)
        found: UserInfo | BadToken | None = find_answer(key)
        if found is None:
            raise AnswerNeeded(key, lambda: self._user_in_worker(token.claims))
        if isinstance(found, BadToken):
            raise found
        return found

    async def _user_in_worker(self, claims: Mapping[str, Any]) -> UserInfo | BadToken:
        issuer = self._config.issuer
        try:
            return await self._workers.run(
                lambda: self._user(claims, None), group=issuer, seconds=_EXPRESSION_SECONDS
            )
        except BadToken as problem:
            return problem
        except (WorkTimeout, WorkRejected) as problem:
            return BadToken(f"oidc: the expressions of {issuer} cannot be evaluated: {problem}")

    def _need_keys(self) -> None:
        """Raises AnswerNeeded unless this request already fetched the keys."""
        if find_answer(self.keys) is None and self.keys.may_fetch:
            raise AnswerNeeded(self.keys, self.keys.fetch)

    def _verify(self, token: SignedToken) -> None:
        """Raises ValueError with go-oidc's texts."""
        config, claims, now = self._config, token.claims, self._clock.time()
        audiences = _token_audiences(claims)
        if set(config.audiences).isdisjoint(audiences):
            wanted, got = go_strings(sorted(config.audiences)), go_strings(audiences)
            if len(config.audiences) == 1:
                wanted = f'"{config.audiences[0]}"'
            preposition = "in " if len(config.audiences) > 1 else ""
            raise ValueError(f"oidc: expected audience {preposition}{wanted} got {got}")
        expiry = _time(claims, "exp")
        if expiry is None or expiry < now:
            raise ValueError(f"oidc: token is expired (Token Expiry: {rfc3339(expiry or 0)})")
        start = _time(claims, "nbf")
        if start is not None and now + _NOT_BEFORE_LEEWAY < start:
            raise ValueError(
                f"oidc: current time {rfc3339(now)} before the nbf (not before) time: "
                f"{rfc3339(start)}"
            )
        if token.algorithm not in config.algorithms:
            raise ValueError(
                "oidc: id token signed with unsupported algorithm, expected "
                f'{go_strings(config.algorithms)} got "{token.algorithm}"'
            )
        if not self._is_signed(token):
            self._need_keys()  # the issuer may have new ones
            raise ValueError("failed to verify signature: failed to verify id token signature")

    def _is_signed(self, token: SignedToken) -> bool:
        for key in self.keys.find(token.key_id):
            try:
                key.verify(token.algorithm, token.signed, token.signature)
            except BadSignature:
                continue
            return True
        return False

    def _user(self, claims: Mapping[str, Any], brief: BriefBudget | None) -> UserInfo:
        config = self._config
        name = _username(config.username, claims, brief)
        groups = _groups(config.groups, claims, brief)
        uid = _uid(config.uid, claims, brief)
        extra = self._extra(claims, brief)
        for claim, wanted in config.required_claims.items():
            if claim not in claims:
                raise BadToken(f"oidc: required claim {claim} not present in ID token")
            value = _text(claims, claim, f"oidc: parse claim {claim}")
            if value != wanted:
                raise BadToken(
                    f"oidc: required claim {claim} value does not match. Got = {value}, want = "
                    f"{wanted}"
                )
        _check_rules(config.claim_rules, dict(claims), _CLAIM_RULES, brief)
        user = UserInfo(name, tuple(groups), uid, extra)
        shown = {"username": name, "uid": uid, "groups": groups, "extra": extra}
        _check_rules(config.user_rules, shown, _USER_RULES, brief)
        return UserInfo(user.name, with_authenticated(user.groups), uid, extra)

    def _extra(self, claims: Mapping[str, Any], brief: BriefBudget | None) -> dict[str, list[str]]:
        extra: dict[str, list[str]] = {}
        token_id = claims.get("jti")
        if self._credential_ids and isinstance(token_id, str) and token_id:
            extra[CREDENTIAL_ID] = [f"JTI={token_id}"]
        for key, expression in self._config.extra:
            values = _evaluate(
                expression, dict(claims), "oidc: error evaluating extra claim", brief
            )
            texts = _texts(
                values, f"oidc: error evaluating extra claim expression: {expression.source}"
            )
            if texts:
                extra[key] = texts
        return extra


def _issuer(claims: Mapping[str, Any]) -> str:
    issuer = claims.get("iss")
    if issuer == _GOOGLE:
        return f"https://{_GOOGLE}"
    return issuer if isinstance(issuer, str) else ""


def _token_audiences(claims: Mapping[str, Any]) -> list[str]:
    """Raises ValueError."""
    given = claims.get("aud")
    audiences = given if isinstance(given, list) else [] if given is None else [given]
    if not all(isinstance(one, str) for one in audiences):
        raise ValueError("oidc: failed to unmarshal claims: aud is not a list of strings")
    return audiences


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > 1e11:
        return None
    return float(value)


def _text(claims: Mapping[str, Any], claim: str, what: str) -> str:
    if claim not in claims:
        raise BadToken(f"{what}: claim not present")
    value = claims[claim]
    if not isinstance(value, str):
        kinds: tuple[tuple[type, str], ...] = (
            (bool, "bool"),
            (int, "number"),
            (float, "number"),
            (list, "array"),
        )
        kind = next((name for python, name in kinds if isinstance(value, python)), "object")
        raise BadToken(f"{what}: json: cannot unmarshal {kind} into Go value of type string")
    return value


def _username(mapping: ClaimMapping, claims: Mapping[str, Any], brief: BriefBudget | None) -> str:
    what = "oidc: error evaluating username claim expression"
    if mapping.expression is not None:
        value = _evaluate(mapping.expression, dict(claims), what, brief)
        if not isinstance(value, str):
            raise BadToken(f"{what}: username claim expression must return a string")
        if not value:
            raise BadToken("oidc: empty username via CEL expression is not allowed")
        return value
    value = _text(claims, mapping.claim, f'oidc: parse username claims "{mapping.claim}"')
    if mapping.claim == "email" and "email_verified" in claims:
        verified = claims["email_verified"]
        if not isinstance(verified, bool):
            raise BadToken("oidc: parse 'email_verified' claim: it is not a bool")
        if not verified:
            raise BadToken("oidc: email not verified")
    return mapping.prefix + value


def _groups(
    mapping: ClaimMapping, claims: Mapping[str, Any], brief: BriefBudget | None
) -> list[str]:
    if mapping.claim and mapping.claim in claims:
        value = claims[mapping.claim]
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return [mapping.prefix + one for one in value]
        text = _text(claims, mapping.claim, f'oidc: parse groups claim "{mapping.claim}"')
        return [mapping.prefix + text]
    if mapping.expression is None:
        return []
    what = "oidc: error evaluating group claim expression"
    return _texts(_evaluate(mapping.expression, dict(claims), what, brief), what)


def _uid(mapping: ClaimMapping, claims: Mapping[str, Any], brief: BriefBudget | None) -> str:
    if mapping.claim:
        return _text(claims, mapping.claim, f'oidc: parse uid claim "{mapping.claim}"')
    if mapping.expression is None:
        return ""
    what = "oidc: error evaluating uid claim expression"
    value = _evaluate(mapping.expression, dict(claims), what, brief)
    if not isinstance(value, str):
        raise BadToken(f"{what}: uid claim expression must return a string")
    return value


def _evaluate(
    expression: IdentityExpression, value: Any, what: str, brief: BriefBudget | None
) -> Any:
    try:
        return expression.evaluate(value, brief)
    except CelError as problem:
        raise BadToken(
            f"{what}: expression '{expression.source}' resulted in error: {problem}"
        ) from None


def _texts(value: Any, what: str) -> list[str]:
    """A string or a list of strings; empty ones are left out."""
    values = [value] if isinstance(value, str) else [*value] if is_list(value) else None
    if values is None or not all(isinstance(one, str) for one in values):
        raise BadToken(f"{what}: expression must return a string or a list of strings")
    return [one for one in values if one]


def _check_rules(
    rules: tuple[ValidationRule, ...], value: Any, what: str, brief: BriefBudget | None
) -> None:
    for rule in rules:
        if _evaluate(rule.expression, value, what, brief) is not True:
            raise BadToken(
                f"{what}: validation expression '{rule.expression.source}' failed: {rule.message}"
            )
