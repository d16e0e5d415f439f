"""AuthorizationConfiguration: defaults, validation with Kubernetes' errors, and what the chain of
authorizers needs of it, with compiled match conditions. Authorizes nothing.
"""

from __future__ import annotations

import stat
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from transom.kit.durations import format_duration, parse_duration
from transom.kit.lazy_dataclass import dataclass
from transom.machinery.apiserver_config import ConfigurationError, decode_configuration
from transom.machinery.cel.identity import IdentityExpression, compile_identity
from transom.machinery.field import (
    FieldError,
    aggregate_text,
    duplicate,
    invalid,
    not_supported,
    required,
    too_many,
)
from transom.machinery.objects import Object
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation.names import is_dns1123_subdomain

KIND: Final = "AuthorizationConfiguration"
_GATE: Final = "StructuredAuthorizationConfiguration"
WEBHOOK, NODE, RBAC, ALWAYS_ALLOW, ALWAYS_DENY = (
    "Webhook",
    "Node",
    "RBAC",
    "AlwaysAllow",
    "AlwaysDeny",
)
# Kubernetes also has ABAC, which Transom does not implement.
MODES: Final = (ALWAYS_ALLOW, ALWAYS_DENY, NODE, RBAC, WEBHOOK)
_MOST_CONDITIONS: Final = 64
_CONNECTIONS: Final = ("InClusterConfig", "KubeConfigFile")
_DURATIONS: Final = {"authorizedTTL": "5m", "unauthorizedTTL": "30s", "timeout": "0s"}


@dataclass(frozen=True, slots=True)
class WebhookConfig:
    authorized_ttl: float  # 0: not cached
    unauthorized_ttl: float
    timeout: float
    version: str  # of the SubjectAccessReview
    denies_on_failure: bool
    kubeconfig: str  # "": the configuration of the cluster itself
    conditions: tuple[IdentityExpression, ...] = ()


@dataclass(frozen=True, slots=True)
class AuthorizerConfig:
    type: str
    name: str
    webhook: WebhookConfig | None = None


AuthorizationConfig = tuple[AuthorizerConfig, ...]


def load_authorization_config(
    data: bytes, features: FeatureSet, needed: Collection[str] = ()
) -> AuthorizationConfig:
    """The authorizers of a file; raises ConfigurationError. `needed` are the types, other than
    Webhook, of the configuration before it.
    """
    if not features.enabled(_GATE):
        raise ConfigurationError(
            f"--authorization-config cannot be used without enabling the {_GATE} feature gate"
        )
    try:
        obj = decode_configuration(data, KIND, features.release)
    except ConfigurationError as problem:
        raise ConfigurationError(
            f"failed to load AuthorizationConfiguration from file: {problem}"
        ) from None
    made = read_authorization_config(obj, features)
    wrong = [
        f"expected name {one.type.lower()} for authorizer {one.type} instead of {one.name}"
        for one in made
        if one.type != WEBHOOK and one.name != one.type.lower()
    ]
    missing = sorted(set(needed) - {one.type for one in made})
    if missing:
        wrong.append(f"missing required types: [{' '.join(missing)}]")
    if wrong:
        raise ConfigurationError(aggregate_text(wrong))
    return made


def read_authorization_config(obj: Object, features: FeatureSet) -> AuthorizationConfig:
    """Raises ConfigurationError with all errors of the object."""
    errors: list[FieldError] = []
    made: list[AuthorizerConfig] = []
    given = obj.get("authorizers") or []
    if not given:
        errors.append(required("authorizers", "at least one authorization mode must be defined"))
    types: set[str] = set()
    names: set[str] = set()
    for i, one in enumerate(given):
        path, kind, name = f"authorizers[{i}]", one.get("type") or "", one.get("name") or ""
        if not kind:
            errors.append(required(f"{path}.type"))
            continue
        if kind not in MODES:
            errors.append(not_supported(f"{path}.type", kind, MODES))
            continue
        if kind in types and kind != WEBHOOK:
            errors.append(duplicate(f"{path}.type", kind))
            continue
        types.add(kind)
        errors += _name_errors(name, names, f"{path}.name")
        names.add(name)
        webhook = None
        if kind == WEBHOOK:
            if one.get("webhook") is None:
                errors.append(required(f"{path}.webhook", "required when type=Webhook"))
                continue
            webhook = _webhook(one["webhook"], path, features, errors)
        elif one.get("webhook") is not None:
            text = "may only be specified when type=Webhook"
            errors.append(invalid(f"{path}.webhook", "non-null", text))
        made.append(AuthorizerConfig(kind, name, webhook))
    if errors:
        raise ConfigurationError(aggregate_text(errors))
    return tuple(made)


def _name_errors(name: str, names: set[str], path: str) -> list[FieldError]:
    if not name:
        return [required(path)]
    if name in names:
        return [duplicate(path, name)]
    wrong = is_dns1123_subdomain(name)
    if wrong:
        return [invalid(path, name, f"authorizer name is invalid: {', '.join(wrong)}")]
    return []


def _webhook(
    given: Object, path: str, features: FeatureSet, errors: list[FieldError]
) -> WebhookConfig:
    """Errors of a webhook have the path of its authorizer, as in Kubernetes."""
    seconds = {name: parse_duration(given.get(name) or text) for name, text in _DURATIONS.items()}
    errors += _duration_errors(seconds, path)
    version = given.get("subjectAccessReviewVersion") or ""
    errors += _choice_errors(
        f"{path}.subjectAccessReviewVersion", version, ("v1", "v1beta1"), needed=True
    )
    matched = given.get("matchConditionSubjectAccessReviewVersion") or ""
    conditions = given.get("matchConditions") or []
    at = f"{path}.matchConditionSubjectAccessReviewVersion"
    if conditions and not matched:
        errors.append(required(at, "required if match conditions are specified"))
    errors += _choice_errors(at, matched, ("v1",), needed=False)
    policy = given.get("failurePolicy") or ""
    errors += _choice_errors(f"{path}.failurePolicy", policy, ("NoOpinion", "Deny"), needed=True)
    connection = given.get("connectionInfo") or {}
    errors += _connection_errors(connection, f"{path}.connectionInfo")
    compiled = _conditions(conditions, f"{path}.matchConditions", features, errors)
    authorized, unauthorized = (
        0.0 if given.get(switch) is False else seconds[name]
        for name, switch in (
            ("authorizedTTL", "cacheAuthorizedRequests"),
            ("unauthorizedTTL", "cacheUnauthorizedRequests"),
        )
    )
    return WebhookConfig(
        authorized,
        unauthorized,
        seconds["timeout"],
        version,
        policy == "Deny",
        connection.get("kubeConfigFile") or "",
        compiled,
    )


def _duration_errors(seconds: dict[str, float], path: str) -> list[FieldError]:
    errors = []
    for name in ("timeout", "authorizedTTL", "unauthorizedTTL"):
        value, at = seconds[name], f"{path}.{name}"
        text = "must be > 0s and <= 30s" if name == "timeout" else "must be > 0s"
        if not value:
            errors.append(required(at))
        elif value < 0 or (name == "timeout" and value > 30):
            errors.append(invalid(at, format_duration(value), text))
    return errors


def _choice_errors(
    path: str, value: str, choices: Sequence[str], *, needed: bool
) -> list[FieldError]:
    if not value:
        return [required(path)] if needed else []
    return [] if value in choices else [not_supported(path, value, choices)]


def _connection_errors(given: Object, path: str) -> list[FieldError]:
    kind, file = given.get("type") or "", given.get("kubeConfigFile")
    at = f"{path}.kubeConfigFile"
    if not kind:
        return [required(f"{path}.type")]
    if kind not in _CONNECTIONS:
        return [not_supported(f"{path}.type", kind, _CONNECTIONS)]
    if kind == "InClusterConfig":
        if file is None:
            return []
        return [invalid(at, file, "can only be set when type=KubeConfigFile")]
    if not file:
        return [required(at)]
    if not Path(file).is_absolute():
        return [invalid(at, file, "must be an absolute path")]
    try:
        mode = Path(file).stat().st_mode
    except OSError as problem:
        text = (problem.strerror or str(problem)).lower()
        return [invalid(at, file, f"error loading file: stat {file}: {text}")]
    return [] if stat.S_ISREG(mode) else [invalid(at, file, "must be a regular file")]


def _conditions(
    given: Sequence[Object], path: str, features: FeatureSet, errors: list[FieldError]
) -> tuple[IdentityExpression, ...]:
    if len(given) > _MOST_CONDITIONS:
        errors.append(too_many(path, len(given), _MOST_CONDITIONS))
        return ()
    made = []
    seen: set[str] = set()
    for i, condition in enumerate(given):
        at, source = f"{path}[{i}].expression", condition.get("expression") or ""
        if not source.strip():
            errors.append(required(at))
        elif source in seen:
            errors.append(duplicate(at, source))
        else:
            seen.add(source)
            try:
                made.append(compile_identity(features.release, source, "request", boolean=True))
            except ValueError as problem:
                errors.append(invalid(at, source, str(problem)))
    return tuple(made)


# --- the flags --authorization-mode and --authorization-webhook-* ----------


def modes_configuration(
    modes: Sequence[str],
    webhook_file: str,
    version: str = "v1beta1",
    authorized_ttl: str = "5m",
    unauthorized_ttl: str = "30s",
) -> Object | None:
    """The flags as a configuration; None without any. Raises ConfigurationError."""
    if not modes and not webhook_file:
        return None
    wrong = [
        f'authorization-mode "{mode}" is not a valid mode' for mode in modes if mode not in MODES
    ]
    if WEBHOOK in modes and not webhook_file:
        wrong.append("authorization-mode Webhook's authorization config file not passed")
    if webhook_file and WEBHOOK not in modes:
        wrong.append("cannot specify --authorization-webhook-config-file without mode Webhook")
    if len(set(modes)) != len(modes):
        listed = " ".join(f'"{mode}"' for mode in modes)
        wrong.append(f"authorization-mode [{listed}] has mode specified more than once")
    if wrong:
        raise ConfigurationError(aggregate_text(wrong))
    webhook = {
        "authorizedTTL": authorized_ttl,
        "unauthorizedTTL": unauthorized_ttl,
        "timeout": "30s",
        "failurePolicy": "NoOpinion",
        "subjectAccessReviewVersion": version,
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": webhook_file},
    }
    return {
        "authorizers": [
            {"type": mode, "name": "default", "webhook": webhook}
            if mode == WEBHOOK
            else {"type": mode, "name": mode.lower()}
            for mode in modes
        ]
    }
