"""Configuration files of the API server (apiserver.config.k8s.io): decoding with the strictness of
Kubernetes, and the versions that a release accepts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from transom.kit.durations import DurationError, parse_duration
from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_import
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import Behaviour, has_behaviour

# YAML is slow to load.
if TYPE_CHECKING:
    from transom.machinery import goyaml
else:
    goyaml = lazy_import("transom.machinery.goyaml")

GROUP: Final = "apiserver.config.k8s.io"
STRING, BOOL, DURATION = "string", "bool", "duration"
# A type: one of the above, a dict of fields, or a list with the type of its items.
Shape = str | Mapping[str, Any] | list[Any]

_CEL_CLAIM = {"claim": STRING, "expression": STRING}
_PREFIXED = {**_CEL_CLAIM, "prefix": STRING}
AUTHENTICATION_SHAPE: Final[Mapping[str, Shape]] = {
    "jwt": [
        {
            "issuer": {
                "url": STRING,
                "discoveryURL": STRING,
                "certificateAuthority": STRING,
                "audiences": [STRING],
                "audienceMatchPolicy": STRING,
                "egressSelectorType": STRING,
            },
            "claimValidationRules": [
                {
                    "claim": STRING,
                    "requiredValue": STRING,
                    "expression": STRING,
                    "message": STRING,
                }
            ],
            "claimMappings": {
                "username": _PREFIXED,
                "groups": _PREFIXED,
                "uid": _CEL_CLAIM,
                "extra": [{"key": STRING, "valueExpression": STRING}],
            },
            "userValidationRules": [{"expression": STRING, "message": STRING}],
        }
    ],
    "anonymous": {"enabled": BOOL, "conditions": [{"path": STRING}]},
}
AUTHORIZATION_SHAPE: Final[Mapping[str, Shape]] = {
    "authorizers": [
        {
            "type": STRING,
            "name": STRING,
            "webhook": {
                "authorizedTTL": DURATION,
                "cacheAuthorizedRequests": BOOL,
                "unauthorizedTTL": DURATION,
                "cacheUnauthorizedRequests": BOOL,
                "timeout": DURATION,
                "subjectAccessReviewVersion": STRING,
                "matchConditionSubjectAccessReviewVersion": STRING,
                "failurePolicy": STRING,
                "connectionInfo": {"type": STRING, "kubeConfigFile": STRING},
                "matchConditions": [{"expression": STRING}],
            },
        }
    ]
}
_SHAPES = {
    "AuthenticationConfiguration": AUTHENTICATION_SHAPE,
    "AuthorizationConfiguration": AUTHORIZATION_SHAPE,
}
_VERSIONS: Final[Mapping[tuple[str, str], Behaviour]] = {
    ("AuthenticationConfiguration", "v1alpha1"): "StructuredAuthenticationV1alpha1",
    ("AuthenticationConfiguration", "v1beta1"): "StructuredAuthenticationV1beta1",
    ("AuthenticationConfiguration", "v1"): "StructuredAuthenticationV1",
    ("AuthorizationConfiguration", "v1alpha1"): "StructuredAuthorizationV1alpha1",
    ("AuthorizationConfiguration", "v1beta1"): "StructuredAuthorizationV1beta1",
    ("AuthorizationConfiguration", "v1"): "StructuredAuthorizationV1",
}


class ConfigurationError(Exception):
    """The file is not a valid configuration; the message is Kubernetes'."""


def decode_configuration(data: bytes, kind: str, release: Release) -> Object:
    """The configuration in a file. Raises ConfigurationError."""
    if not data.strip():
        raise ConfigurationError("empty config data")
    try:
        value = goyaml.load_yaml(data)
    except ValueError as problem:
        text = f"couldn't get version/kind; json parse error: {problem}"
        raise ConfigurationError(text) from None
    if not isinstance(value, dict):
        raise ConfigurationError(
            "couldn't get version/kind; json parse error: json: cannot unmarshal "
            f"{_json_type(value)} into Go value of type struct"
        )
    found, version = value.get("kind") or "", value.get("apiVersion") or ""
    if not found or not version:
        missing = "Kind" if not found else "apiVersion"
        shown = goyaml.to_json(data).decode(errors="replace").strip()
        raise ConfigurationError(f"Object '{missing}' is missing in '{shown}'")
    group, _, number = str(version).rpartition("/")
    behaviour = _VERSIONS.get((found, number)) if group == GROUP else None
    if behaviour is None or not has_behaviour(release, behaviour):
        raise ConfigurationError(
            f'no kind "{found}" is registered for version "{version}" in scheme '
            '"pkg/api/legacyscheme/scheme.go:30"'
        )
    if found != kind:
        raise ConfigurationError(f"expected {kind}, got *apiserver.{found}")
    rest = {k: v for k, v in value.items() if k not in ("kind", "apiVersion")}
    problems = [
        *(f"yaml: unmarshal errors:\n  {line}" for line in goyaml.duplicate_keys(data)),
        *(f"unknown field {go_quote(path)}" for path in _unknown(_SHAPES[kind], rest, "")),
    ]
    wrong = next(_mistyped(_SHAPES[kind], rest, ""), None)
    if wrong is not None:
        raise ConfigurationError(wrong)
    if problems:
        raise ConfigurationError(f"strict decoding error: {', '.join(problems)}")
    return rest


def _unknown(shape: Shape, value: Any, path: str) -> Iterator[str]:
    if isinstance(shape, list) and isinstance(value, list):
        for i, item in enumerate(value):
            yield from _unknown(shape[0], item, f"{path}[{i}]")
    elif isinstance(shape, Mapping) and isinstance(value, dict):
        for key, item in value.items():
            at = f"{path}.{key}" if path else str(key)
            if key in shape:
                yield from _unknown(shape[key], item, at)
            else:
                yield at


def _mistyped(shape: Shape, value: Any, path: str) -> Iterator[str]:
    """Go's errors for values of the wrong type."""
    if value is None:
        return
    if isinstance(shape, str):
        if not isinstance(value, bool if shape == BOOL else str):
            yield _wrong_type(value, path, "string" if shape == DURATION else shape)
        elif shape == DURATION:
            try:
                parse_duration(str(value))
            except DurationError as problem:
                yield str(problem)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield _wrong_type(value, path, "[]struct")
            return
        for i, item in enumerate(value):
            yield from _mistyped(shape[0], item, f"{path}[{i}]")
    elif not isinstance(value, dict):
        yield _wrong_type(value, path, "struct")
    else:
        for key, item in value.items():
            if key in shape:
                yield from _mistyped(shape[key], item, f"{path}.{key}" if path else key)


def _wrong_type(value: Any, path: str, wanted: str) -> str:
    return (
        f"json: cannot unmarshal {_json_type(value)} into Go struct field {path} of type {wanted}"
    )


def _json_type(value: Any) -> str:
    for kind, name in (
        (bool, "bool"),
        (str, "string"),
        (int, "number"),
        (float, "number"),
        (list, "array"),
    ):
        if isinstance(value, kind):
            return name
    return "object"
