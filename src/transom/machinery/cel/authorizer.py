"""The authorizer library: expressions ask whether a user may do something
(k8s.io/apiserver/pkg/cel/library/authz.go).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transom.kit.cel.errors import CelError
from transom.kit.cel.functions import Function, Overload
from transom.kit.cel.types import CelType, struct_type
from transom.kit.cel.values import Opaque
from transom.machinery.cel.access import AccessDecision, AccessQuery, Authorize
from transom.machinery.validation.names import name_is_dns_label, name_is_dns_subdomain

AUTHORIZER_TYPE = struct_type("kubernetes.authorization.Authorizer")
PATH_CHECK_TYPE = struct_type("kubernetes.authorization.PathCheck")
GROUP_CHECK_TYPE = struct_type("kubernetes.authorization.GroupCheck")
RESOURCE_CHECK_TYPE = struct_type("kubernetes.authorization.ResourceCheck")
DECISION_TYPE = struct_type("kubernetes.authorization.Decision")


class _Check(Opaque):
    """One step of a question to the authorizer."""

    __slots__ = ("authorize", "query")

    def __init__(self, authorize: Authorize, query: AccessQuery) -> None:
        self.authorize, self.query = authorize, query

    def equals(self, other: Any) -> bool:
        return type(other) is type(self) and bool(other.query == self.query)


class AuthorizerValue(_Check):
    """The variable `authorizer`."""

    __slots__ = ()
    cel_type: CelType = AUTHORIZER_TYPE


class _PathCheck(_Check):
    __slots__ = ()
    cel_type: CelType = PATH_CHECK_TYPE


class _GroupCheck(_Check):
    __slots__ = ()
    cel_type: CelType = GROUP_CHECK_TYPE


class ResourceCheckValue(_Check):
    """The variable `authorizer.requestResource`."""

    __slots__ = ()
    cel_type: CelType = RESOURCE_CHECK_TYPE


class _DecisionValue(Opaque):
    __slots__ = ("decision",)
    cel_type: CelType = DECISION_TYPE

    def __init__(self, decision: AccessDecision) -> None:
        self.decision = decision

    def equals(self, other: Any) -> bool:
        return isinstance(other, _DecisionValue) and self.decision == other.decision


def _path(check: AuthorizerValue, path: str) -> _PathCheck:
    if not path.strip():
        raise CelError("path must not be empty")
    return _PathCheck(check.authorize, check.query._replace(path=path))


def _group(check: AuthorizerValue, group: str) -> _GroupCheck:
    return _GroupCheck(check.authorize, check.query._replace(group=group))


def _service_account(check: AuthorizerValue, namespace: str, name: str) -> AuthorizerValue:
    if name_is_dns_subdomain(name, False):
        raise CelError("Invalid service account name")
    if name_is_dns_label(namespace, False):
        raise CelError("Invalid service account namespace")
    return AuthorizerValue(check.authorize, AccessQuery(service_account=(namespace, name)))


def _resource(check: _GroupCheck, resource: str) -> ResourceCheckValue:
    if not resource.strip():
        raise CelError("resource must not be empty")
    return ResourceCheckValue(check.authorize, check.query._replace(resource=resource))


def _with(field: str) -> Callable[[ResourceCheckValue, str], ResourceCheckValue]:
    def run(check: ResourceCheckValue, value: str) -> ResourceCheckValue:
        changed: Any = {field: value}
        return ResourceCheckValue(check.authorize, check.query._replace(**changed))

    return run


def _check(check: _Check, verb: str) -> _DecisionValue:
    return _DecisionValue(check.authorize(check.query._replace(verb=verb)))


_AUTHZ = "kubernetes.authorization"
AUTHORIZER_FUNCTIONS: tuple[Function, ...] = (
    Function(
        "path",
        (
            Overload(
                "authorizer_path", f"{_AUTHZ}.Authorizer.(string) -> {_AUTHZ}.PathCheck", _path
            ),
        ),
    ),
    Function(
        "group",
        (
            Overload(
                "authorizer_group", f"{_AUTHZ}.Authorizer.(string) -> {_AUTHZ}.GroupCheck", _group
            ),
        ),
    ),
    Function(
        "serviceAccount",
        (
            Overload(
                "authorizer_serviceaccount",
                f"{_AUTHZ}.Authorizer.(string, string) -> {_AUTHZ}.Authorizer",
                _service_account,
            ),
        ),
    ),
    Function(
        "resource",
        (
            Overload(
                "groupcheck_resource",
                f"{_AUTHZ}.GroupCheck.(string) -> {_AUTHZ}.ResourceCheck",
                _resource,
            ),
        ),
    ),
    *(
        Function(
            field,
            (
                Overload(
                    f"resourcecheck_{field}",
                    f"{_AUTHZ}.ResourceCheck.(string) -> {_AUTHZ}.ResourceCheck",
                    _with(field),
                ),
            ),
        )
        for field in ("subresource", "namespace", "name")
    ),
    Function(
        "check",
        (
            Overload(
                "pathcheck_check", f"{_AUTHZ}.PathCheck.(string) -> {_AUTHZ}.Decision", _check
            ),
            Overload(
                "resourcecheck_check",
                f"{_AUTHZ}.ResourceCheck.(string) -> {_AUTHZ}.Decision",
                _check,
            ),
        ),
    ),
    Function(
        "errored",
        (
            Overload(
                "decision_errored",
                f"{_AUTHZ}.Decision.() -> bool",
                lambda value: bool(value.decision.error),
            ),
        ),
    ),
    Function(
        "error",
        (
            Overload(
                "decision_error",
                f"{_AUTHZ}.Decision.() -> string",
                lambda value: value.decision.error,
            ),
        ),
    ),
    Function(
        "allowed",
        (
            Overload(
                "decision_allowed",
                f"{_AUTHZ}.Decision.() -> bool",
                lambda value: value.decision.allowed,
            ),
        ),
    ),
    Function(
        "reason",
        (
            Overload(
                "decision_reason",
                f"{_AUTHZ}.Decision.() -> string",
                lambda value: value.decision.reason,
            ),
        ),
    ),
)
AUTHORIZER_SELECTOR_FUNCTIONS: tuple[Function, ...] = tuple(
    Function(
        name,
        (
            Overload(
                f"authorizer_{name.lower()}",
                f"{_AUTHZ}.ResourceCheck.(string) -> {_AUTHZ}.ResourceCheck",
                _with(field),
            ),
        ),
    )
    for name, field in (("fieldSelector", "field_selector"), ("labelSelector", "label_selector"))
)
