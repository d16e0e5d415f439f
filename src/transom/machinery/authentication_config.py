"""AuthenticationConfiguration: validation with Kubernetes' errors, and what an authenticator needs
of it, with compiled expressions. Authenticates nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from transom.kit.jwk import SIGNING_ALGORITHMS
from transom.kit.lazy import lazy_import
from transom.kit.lazy_dataclass import dataclass
from transom.machinery.apiserver_config import ConfigurationError, decode_configuration
from transom.machinery.cel.identity import IdentityExpression, compile_identity
from transom.machinery.field import (
    FieldError,
    aggregate_text,
    duplicate,
    forbidden,
    invalid,
    required,
    too_many,
)
from transom.machinery.objects import Object
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation.names import domain_prefixed_path

if TYPE_CHECKING:
    from cryptography import x509
else:
    x509 = lazy_import("cryptography.x509")

KIND: Final = "AuthenticationConfiguration"
_GATE: Final = "StructuredAuthenticationConfiguration"
_MOST: Final = 64
_RESERVED = ("kubernetes.io", "k8s.io")
_BOTH = "claim and expression can't both be set"
_EMAIL = (
    "claims.email_verified must be used in claimMappings.username.expression or "
    "claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when "
    "claims.email is used in claimMappings.username.expression"
)


@dataclass(frozen=True, slots=True)
class ClaimMapping:
    """A claim with a prefix, or an expression."""

    claim: str = ""
    prefix: str = ""
    expression: IdentityExpression | None = None


@dataclass(frozen=True, slots=True)
class ValidationRule:
    expression: IdentityExpression
    message: str = ""


@dataclass(frozen=True, slots=True)
class JwtConfig:
    """One JWT authenticator."""

    issuer: str
    audiences: tuple[str, ...]
    discovery_url: str = ""
    ca: str = ""  # PEM; "" for the system's
    algorithms: tuple[str, ...] = SIGNING_ALGORITHMS
    username: ClaimMapping = field(default_factory=ClaimMapping)
    groups: ClaimMapping = field(default_factory=ClaimMapping)
    uid: ClaimMapping = field(default_factory=ClaimMapping)
    extra: tuple[tuple[str, IdentityExpression], ...] = ()
    required_claims: Mapping[str, str] = field(default_factory=dict)
    claim_rules: tuple[ValidationRule, ...] = ()
    user_rules: tuple[ValidationRule, ...] = ()


@dataclass(frozen=True, slots=True)
class AnonymousConfig:
    enabled: bool = True
    paths: frozenset[str] | None = None  # None: every path


@dataclass(frozen=True, slots=True)
class AuthenticationConfig:
    jwt: tuple[JwtConfig, ...] = ()
    anonymous: AnonymousConfig | None = None  # None: as without a file


class _Compiler:
    """Compiles expressions; collects their errors, and whether they use the claims of an email."""

    def __init__(self, features: FeatureSet) -> None:
        self._release = features.release
        self.errors: list[FieldError] = []
        self.email_verified = False

    def __call__(
        self, source: str, path: str, *, variable: str = "claims", boolean: bool = False
    ) -> IdentityExpression | None:
        try:
            made = compile_identity(self._release, source, variable, boolean=boolean)
        except ValueError as problem:
            self.errors.append(invalid(path, source, str(problem)))
            return None
        return made

    def note_email_verified(self, made: IdentityExpression | None) -> None:
        if made is not None and made.compiled.selects("claims", "email_verified"):
            self.email_verified = True


def load_authentication_config(
    data: bytes, features: FeatureSet, disallowed: Sequence[str] = ()
) -> AuthenticationConfig:
    """The configuration in a file; raises ConfigurationError. `disallowed` are the issuers of
    service account tokens.
    """
    if not features.enabled(_GATE):
        raise ConfigurationError(
            f"set --feature-gates={_GATE}=true to use authentication-config file"
        )
    obj = decode_configuration(data, KIND, features.release)
    return read_authentication_config(obj, features, disallowed)


def read_authentication_config(
    obj: Object, features: FeatureSet, disallowed: Sequence[str] = ()
) -> AuthenticationConfig:
    """Raises ConfigurationError with all errors of the object."""
    authenticators = obj.get("jwt") or []
    errors: list[FieldError] = []
    made: list[JwtConfig] = []
    if len(authenticators) > _MOST:
        errors.append(too_many("jwt", len(authenticators), _MOST))
        authenticators = []
    issuers: set[str] = set()
    discoveries: set[str] = set()
    for i, given in enumerate(authenticators):
        path = f"jwt[{i}]"
        one, found = _jwt(given or {}, path, features, disallowed)
        errors += found
        if one.issuer in issuers:
            errors.append(duplicate(f"{path}.issuer.url", one.issuer))
        issuers.add(one.issuer)
        if one.discovery_url and one.discovery_url in discoveries:
            errors.append(duplicate(f"{path}.issuer.discoveryURL", one.discovery_url))
        discoveries.add(one.discovery_url)
        made.append(one)
    anonymous = _anonymous(obj.get("anonymous"), features, errors)
    if errors:
        raise ConfigurationError(aggregate_text(errors))
    return AuthenticationConfig(tuple(made), anonymous)


def _anonymous(
    given: Object | None, features: FeatureSet, errors: list[FieldError]
) -> AnonymousConfig | None:
    if given is None:
        return None
    gate = "AnonymousAuthConfigurableEndpoints"
    if not features.enabled(gate):
        errors.append(
            forbidden(
                "anonymous",
                f"anonymous is not supported when {gate} feature gate is disabled",
            )
        )
    conditions = given.get("conditions") or []
    if conditions and not given.get("enabled"):
        errors.append(
            invalid(
                "anonymous.conditions",
                [{"Path": condition.get("path", "")} for condition in conditions],
                "enabled should be set to true when conditions are defined",
            )
        )
    paths = frozenset(condition.get("path", "") for condition in conditions)
    return AnonymousConfig(bool(given.get("enabled")), paths if conditions else None)


def _jwt(
    given: Object, path: str, features: FeatureSet, disallowed: Sequence[str]
) -> tuple[JwtConfig, list[FieldError]]:
    compile_claims = _Compiler(features)
    issuer = given.get("issuer") or {}
    errors = _issuer_errors(issuer, f"{path}.issuer", features, disallowed)
    claims, claim_rules = _claim_rules(
        given.get("claimValidationRules") or [], f"{path}.claimValidationRules", compile_claims
    )
    mappings = _mappings(given.get("claimMappings") or {}, f"{path}.claimMappings", compile_claims)
    user_rules = _user_rules(
        given.get("userValidationRules") or [], f"{path}.userValidationRules", compile_claims
    )
    made = JwtConfig(
        issuer.get("url") or "",
        tuple(issuer.get("audiences") or ()),
        issuer.get("discoveryURL") or "",
        issuer.get("certificateAuthority") or "",
        tuple(issuer.get("algorithms") or SIGNING_ALGORITHMS),
        *mappings,
        claims,
        claim_rules,
        user_rules,
    )
    return made, errors + compile_claims.errors


def _issuer_errors(
    issuer: Object, path: str, features: FeatureSet, disallowed: Sequence[str]
) -> list[FieldError]:
    url, discovery = issuer.get("url") or "", issuer.get("discoveryURL") or ""
    errors = _url_errors(url, disallowed, f"{path}.url") if url else [required(f"{path}.url")]
    if discovery:
        if url and url.rstrip("/") == discovery.rstrip("/"):
            errors.append(
                invalid(
                    f"{path}.discoveryURL", discovery, "discoveryURL must be different from URL"
                )
            )
        errors += _url_errors(discovery, (), f"{path}.discoveryURL")
    errors += _audience_errors(issuer, path)
    ca = issuer.get("certificateAuthority") or ""
    if ca:
        problem = _certificate_problem(ca.encode())
        if problem:
            errors.append(invalid(f"{path}.certificateAuthority", "<omitted>", problem))
    egress = issuer.get("egressSelectorType") or ""
    if egress:
        at, gate = f"{path}.egressSelectorType", f"{_GATE}EgressSelector"
        if not features.enabled(gate):
            text = f"egress selector is not supported when {gate} feature gate is disabled"
            errors.append(invalid(at, egress, text))
        if egress not in ("controlplane", "cluster"):
            text = "egress selector must be either controlplane or cluster"
            errors.append(invalid(at, egress, text))
    return errors


def _certificate_problem(pem: bytes) -> str:
    if b"-----BEGIN CERTIFICATE-----" not in pem:
        return "data does not contain any valid RSA or ECDSA certificates"
    try:
        x509.load_pem_x509_certificates(pem)
    except ValueError as problem:
        return str(problem)
    return ""


def _url_errors(url: str, disallowed: Sequence[str], path: str) -> list[FieldError]:
    errors = []
    if url in disallowed:
        listed = " ".join(sorted(disallowed))
        text = f"URL must not overlap with disallowed issuers: [{listed}]"
        errors.append(invalid(path, url, text))
    try:
        parts = urlsplit(url)
    except ValueError as problem:
        return [*errors, invalid(path, url, f'parse "{url}": {problem}')]
    wrong = (
        (parts.scheme != "https", "URL scheme must be https"),
        ("@" in parts.netloc, "URL must not contain a username or password"),
        (bool(parts.query), "URL must not contain a query"),
        (bool(parts.fragment), "URL must not contain a fragment"),
    )
    return errors + [invalid(path, url, text) for is_wrong, text in wrong if is_wrong]


def _audience_errors(issuer: Object, path: str) -> list[FieldError]:
    audiences, policy = issuer.get("audiences") or [], issuer.get("audienceMatchPolicy") or ""
    at = f"{path}.audiences"
    if not audiences:
        return [required(at, f"at least one {at} is required")]
    errors, seen = [], set()
    for i, audience in enumerate(audiences):
        if not audience:
            errors.append(required(f"{at}[{i}]"))
        if audience in seen:
            errors.append(duplicate(f"{at}[{i}]", audience))
        seen.add(audience)
    if len(audiences) > 1 and policy != "MatchAny":
        text = "audienceMatchPolicy must be MatchAny for multiple audiences"
        errors.append(invalid(f"{path}.audienceMatchPolicy", policy, text))
    if len(audiences) == 1 and policy not in ("", "MatchAny"):
        text = "audienceMatchPolicy must be empty or MatchAny for single audience"
        errors.append(invalid(f"{path}.audienceMatchPolicy", policy, text))
    return errors


def _claim_rules(
    rules: Sequence[Object], path: str, compile_claims: _Compiler
) -> tuple[dict[str, str], tuple[ValidationRule, ...]]:
    claims: dict[str, str] = {}
    made: list[ValidationRule] = []
    seen: set[str] = set()
    for i, rule in enumerate(rules):
        at, add = f"{path}[{i}]", compile_claims.errors.append
        claim, expression = rule.get("claim") or "", rule.get("expression") or ""
        if claim and expression:
            add(invalid(at, claim, _BOTH))
        elif not claim and not expression:
            add(required(at, "claim or expression is required"))
        elif claim:
            if rule.get("message"):
                text = "may not be specified when claim is set"
                add(invalid(f"{at}.message", rule["message"], text))
            if claim in claims:
                add(duplicate(f"{at}.claim", claim))
            claims[claim] = rule.get("requiredValue") or ""
        else:
            if rule.get("requiredValue"):
                text = "may not be specified when expression is set"
                add(invalid(f"{at}.requiredValue", rule["requiredValue"], text))
            if expression in seen:
                add(duplicate(f"{at}.expression", expression))
                continue
            seen.add(expression)
            compiled = compile_claims(expression, f"{at}.expression", boolean=True)
            compile_claims.note_email_verified(compiled)
            if compiled is not None:
                made.append(ValidationRule(compiled, rule.get("message") or ""))
    return claims, tuple(made)


def _mappings(
    given: Object, path: str, compile_claims: _Compiler
) -> tuple[ClaimMapping, ClaimMapping, ClaimMapping, tuple[tuple[str, IdentityExpression], ...]]:
    add = compile_claims.errors.append
    username = _prefixed(
        given.get("username") or {}, f"{path}.username", compile_claims, needed=True
    )
    groups = _prefixed(given.get("groups") or {}, f"{path}.groups", compile_claims, needed=False)
    compile_claims.note_email_verified(username.expression)
    uid = given.get("uid") or {}
    claim, expression = uid.get("claim") or "", uid.get("expression") or ""
    compiled = None
    if claim and expression:
        add(invalid(f"{path}.uid", "", _BOTH))
    elif expression:
        compiled = compile_claims(expression, f"{path}.uid.expression")
    extra = _extra(given.get("extra") or [], f"{path}.extra", compile_claims)
    uses_email = username.expression is not None and username.expression.compiled.selects(
        "claims", "email"
    )
    if uses_email and not compile_claims.email_verified:
        assert username.expression is not None
        add(invalid(f"{path}.username.expression", username.expression.source, _EMAIL))
    return username, groups, ClaimMapping(claim, "", compiled), extra


def _prefixed(given: Object, path: str, compile_claims: _Compiler, *, needed: bool) -> ClaimMapping:
    add = compile_claims.errors.append
    claim, expression = given.get("claim") or "", given.get("expression") or ""
    prefix = given.get("prefix")
    if claim and expression:
        add(invalid(path, "", _BOTH))
    elif expression:
        if prefix is not None:
            text = "may not be specified when expression is set"
            add(invalid(f"{path}.prefix", prefix, text))
        return ClaimMapping("", "", compile_claims(expression, f"{path}.expression"))
    elif claim:
        if prefix is None:
            add(
                required(
                    f"{path}.prefix",
                    "prefix is required when claim is set. It can be set to an empty string to "
                    "disable prefixing",
                )
            )
        return ClaimMapping(claim, prefix or "")
    elif needed:
        add(required(path, "claim or expression is required"))
    return ClaimMapping()


def _extra(
    given: Sequence[Object], path: str, compile_claims: _Compiler
) -> tuple[tuple[str, IdentityExpression], ...]:
    made = []
    seen: set[str] = set()
    for i, mapping in enumerate(given):
        at, key = f"{path}[{i}]", mapping.get("key") or ""
        errors = compile_claims.errors
        errors += _key_errors(key, f"{at}.key")
        if key in seen:
            errors.append(duplicate(f"{at}.key", key))
            continue
        seen.add(key)
        expression = mapping.get("valueExpression") or ""
        if not expression:
            errors.append(required(f"{at}.valueExpression"))
            continue
        compiled = compile_claims(expression, f"{at}.valueExpression")
        compile_claims.note_email_verified(compiled)
        if compiled is not None:
            made.append((key, compiled))
    return tuple(made)


def _key_errors(key: str, path: str) -> list[FieldError]:
    if not key:
        return [required(path)]
    errors = [invalid(path, part, text) for part, text in domain_prefixed_path(key)]
    if key != key.lower():
        errors.append(invalid(path, key, "must be lowercase"))
    domain = key.partition("/")[0] if "/" in key else ""
    if any(domain == own or domain.endswith(f".{own}") for own in _RESERVED):
        text = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"
        errors.append(invalid(path, key, text))
    return errors


def _user_rules(
    rules: Sequence[Object], path: str, compile_user: _Compiler
) -> tuple[ValidationRule, ...]:
    made = []
    seen: set[str] = set()
    for i, rule in enumerate(rules):
        at, expression = f"{path}[{i}].expression", rule.get("expression") or ""
        if not expression:
            compile_user.errors.append(required(at))
        elif expression in seen:
            compile_user.errors.append(duplicate(at, expression))
        else:
            seen.add(expression)
            compiled = compile_user(expression, at, variable="user", boolean=True)
            if compiled is not None:
                made.append(ValidationRule(compiled, rule.get("message") or ""))
    return tuple(made)


# --- the flags --oidc-* ----------


def oidc_configuration(
    flags: Mapping[str, Sequence[str]], read_ca: Callable[[str], str]
) -> Object | None:
    """The flags --oidc-* as a configuration; None without any. Keys are the names without
    `oidc-`. Raises ConfigurationError.
    """
    if not flags:
        return None

    def last(name: str, default: str = "") -> str:
        return flags[name][-1] if flags.get(name) else default

    issuer, client = last("issuer-url"), last("client-id")
    if not issuer or not client:
        raise ConfigurationError(
            "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags "
            "are set"
        )
    claim, prefix = last("username-claim", "sub"), last("username-prefix")
    if not prefix and claim != "email":
        prefix = f"{issuer}#"
    elif prefix == "-":
        prefix = ""
    algorithms = [
        word for text in flags.get("signing-algs", ("RS256",)) for word in text.split(",") if word
    ]
    for algorithm in algorithms:
        if algorithm not in SIGNING_ALGORITHMS:
            raise ConfigurationError(f"oidc: unsupported signing alg: {algorithm!r}")
    rules: list[dict[str, Any]] = []
    for text in flags.get("required-claim", ()):
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigurationError(f"malformed pair, expect string=string: {text}")
        rules.append({"claim": name, "requiredValue": value})
    mappings: Object = {"username": {"claim": claim, "prefix": prefix}}
    if last("groups-claim"):
        mappings["groups"] = {"claim": last("groups-claim"), "prefix": last("groups-prefix")}
    found: Object = {"url": issuer, "audiences": [client], "algorithms": algorithms}
    if last("ca-file"):
        found["certificateAuthority"] = read_ca(last("ca-file"))
    return {"jwt": [{"issuer": found, "claimMappings": mappings, "claimValidationRules": rules}]}
