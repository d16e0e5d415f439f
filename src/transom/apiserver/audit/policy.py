"""The audit policy: the first rule that matches a request determines how much of it is recorded.

One rule of our own: the content of Secrets is recorded only by a rule that names secrets, so that a
catch-all rule cannot leak them, and requests with tokens are never recorded above the Metadata
level.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.requestinfo import RequestInfo
from transom.kit.lazy import lazy_import
from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.machinery import field, goyaml
from transom.machinery.field import FieldError, aggregate_text
from transom.machinery.validation import names

if TYPE_CHECKING:
    import yaml
else:
    yaml = lazy_import("yaml")

NONE, METADATA, REQUEST, REQUEST_RESPONSE = range(4)
LEVELS = ("None", "Metadata", "Request", "RequestResponse")
STAGES = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")
_VERSIONS = ("audit.k8s.io/v1", "audit.k8s.io/v1beta1", "audit.k8s.io/v1alpha1")

_SECRETS = ("", "secrets")
# (group, resource/subresource) with tokens in the body.
_TOKENS = {("", "serviceaccounts/token"), ("authentication.k8s.io", "tokenreviews")}

_POLICY_FIELDS = {"apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"}
_RULE_FIELDS = {
    "level",
    "users",
    "userGroups",
    "verbs",
    "resources",
    "namespaces",
    "nonResourceURLs",
    "omitStages",
    "omitManagedFields",
}
_RESOURCE_FIELDS = {"group", "resources", "resourceNames"}


class AuditPolicyError(Exception):
    """The policy is invalid."""


class AuditDecision(NamedTuple):
    level: int
    omit: frozenset[str]  # stages
    omit_managed_fields: bool = False


@dataclass(frozen=True, slots=True)
class ResourceRule:
    group: str
    names: tuple[str, ...]  # of resources
    objects: frozenset[str]

    def match(self, info: RequestInfo) -> bool:
        if self.group != info.group:
            return False
        if not self.names:
            return True
        if self.objects and info.name not in self.objects:
            return False
        return any(_resource_matches(name, info) for name in self.names)

    def names_secrets(self) -> bool:
        return self.group == "" and any(name in ("secrets", "secrets/*") for name in self.names)


def _resource_matches(rule: str, info: RequestInfo) -> bool:
    full = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    if rule in ("*", full):
        return True
    if info.subresource and rule == f"*/{info.subresource}":
        return True
    return rule.endswith("/*") and rule[:-2] == info.resource


@dataclass(frozen=True, slots=True)
class AuditRule:
    level: int
    omit: frozenset[str]
    users: frozenset[str]
    groups: frozenset[str]
    verbs: frozenset[str]
    namespaces: frozenset[str]
    resources: tuple[ResourceRule, ...]
    paths: tuple[str, ...]
    omit_managed_fields: bool = False

    def match(self, user: UserInfo | None, info: RequestInfo) -> bool:
        if self.users and (user is None or user.name not in self.users):
            return False
        if self.groups and (user is None or self.groups.isdisjoint(user.groups)):
            return False
        if self.verbs and info.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            if not info.is_resource or (self.namespaces and info.namespace not in self.namespaces):
                return False
            return not self.resources or any(r.match(info) for r in self.resources)
        if self.paths:
            return not info.is_resource and any(
                _path_matches(path, info.path) for path in self.paths
            )
        return True


def _path_matches(rule: str, path: str) -> bool:
    return rule in ("*", path) or (rule.endswith("*") and path.startswith(rule.rstrip("*")))


class AuditPolicy:
    def __init__(self, rules: Sequence[AuditRule], omit: frozenset[str] = frozenset()) -> None:
        self._rules = tuple(rules)
        self._nothing = AuditDecision(NONE, omit)

    def evaluate(self, user: UserInfo | None, info: RequestInfo) -> AuditDecision:
        """`user` is None for a request without valid credentials."""
        for rule in self._rules:
            if rule.match(user, info):
                return AuditDecision(
                    min(rule.level, _ceiling(rule, info)), rule.omit, rule.omit_managed_fields
                )
        return self._nothing


def _ceiling(rule: AuditRule, info: RequestInfo) -> int:
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    if (info.group, resource) in _TOKENS:
        return METADATA
    if (info.group, info.resource) == _SECRETS and not any(
        r.names_secrets() for r in rule.resources
    ):
        return METADATA
    return REQUEST_RESPONSE


# ---- reading ----


def load_audit_policy(path: Path) -> AuditPolicy:
    try:
        content = goyaml.load_yaml(path.read_bytes())
    except OSError as error:
        raise AuditPolicyError(f"cannot read the audit policy {path}: {error.strerror}") from error
    except goyaml.YamlError as error:
        raise AuditPolicyError(f"the audit policy {path} is not YAML: {error}") from error
    try:
        return parse_audit_policy(content)
    except AuditPolicyError as error:
        raise AuditPolicyError(f"the audit policy {path} cannot be used: {error}") from error


def parse_audit_policy(content: Any) -> AuditPolicy:
    if (
        not isinstance(content, dict)
        or content.get("apiVersion") not in _VERSIONS
        or content.get("kind") != "Policy"
    ):
        raise AuditPolicyError("it must be an object of apiVersion audit.k8s.io/v1 and kind Policy")
    _known(content, _POLICY_FIELDS, "")
    rules = content.get("rules")
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise AuditPolicyError("rules must be a list of objects")
    if not rules:
        raise AuditPolicyError("loaded illegal policy with 0 rules")
    problems = _check_stages(_strings(content, "omitStages", ""), "omitStages")
    common = frozenset(_strings(content, "omitStages", ""))
    unmanaged = bool(content.get("omitManagedFields"))
    parsed = []
    for number, rule in enumerate(rules):
        at = f"rules[{number}]"
        _known(rule, _RULE_FIELDS, at)
        problems += _check_rule(rule, at)
        parsed.append(_rule(rule, common, unmanaged, at))
    if problems:
        raise AuditPolicyError(aggregate_text(problems))
    return AuditPolicy(parsed, common)


def _rule(rule: dict[str, Any], common: frozenset[str], unmanaged: bool, at: str) -> AuditRule:
    level = rule.get("level")
    return AuditRule(
        # an invalid one has already been reported
        LEVELS.index(level) if level in LEVELS else NONE,
        common | frozenset(_strings(rule, "omitStages", at)),
        frozenset(_strings(rule, "users", at)),
        frozenset(_strings(rule, "userGroups", at)),
        frozenset(_strings(rule, "verbs", at)),
        frozenset(_strings(rule, "namespaces", at)),
        tuple(
            ResourceRule(
                r.get("group") or "",
                tuple(_strings(r, "resources", f"{at}.resources[{n}]")),
                frozenset(_strings(r, "resourceNames", f"{at}.resources[{n}]")),
            )
            for n, r in enumerate(_objects(rule, "resources", at))
        ),
        tuple(_strings(rule, "nonResourceURLs", at)),
        bool(rule.get("omitManagedFields", unmanaged)),
    )


def _known(obj: dict[str, Any], fields: set[str], at: str) -> None:
    """Rejects unknown fields: a misspelt field would silently widen a rule."""
    unknown = sorted(str(key) for key in obj.keys() - fields)
    if unknown:
        raise AuditPolicyError(f"unknown field {unknown[0]!r}" + (f" in {at}" if at else ""))


def _strings(obj: dict[str, Any], name: str, at: str) -> list[str]:
    value = obj.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise AuditPolicyError(f"{at + '.' if at else ''}{name} must be a list of strings")
    return value


def _objects(obj: dict[str, Any], name: str, at: str) -> list[dict[str, Any]]:
    value = obj.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise AuditPolicyError(f"{at}.{name} must be a list of objects")
    for number, item in enumerate(value):
        _known(item, _RESOURCE_FIELDS, f"{at}.{name}[{number}]")
    return value


def _check_rule(rule: dict[str, Any], at: str) -> list[FieldError]:
    out: list[FieldError] = []
    level = rule.get("level")
    if not level:
        out.append(field.required(f"{at}.level", ""))
    elif level not in LEVELS:
        out.append(field.not_supported(f"{at}.level", level, list(LEVELS)))
    paths, resources = _strings(rule, "nonResourceURLs", at), _objects(rule, "resources", at)
    for number, path in enumerate(paths):
        here = f"{at}.nonResourceURLs[{number}]"
        if path != "*" and not path.startswith("/"):
            out.append(
                field.invalid(here, path, "non-resource URL rules must begin with a '/' character")
            )
        if path != "*" and "*" in path[:-1]:
            out.append(
                field.invalid(
                    here,
                    path,
                    "non-resource URL wildcards '*' must be the final character of the rule",
                )
            )
    for resource in resources:
        group = resource.get("group") or ""
        if group:
            out += [
                field.invalid(f"{at}.resources.group", group, text)
                for text in names.is_dns1123_subdomain(group)
            ]
        if resource.get("resourceNames") and not resource.get("resources"):
            out.append(
                field.invalid(
                    f"{at}.resources.resourceNames",
                    resource["resourceNames"],
                    "using resourceNames requires at least one resource",
                )
            )
    out += _check_stages(_strings(rule, "omitStages", at), f"{at}.omitStages")
    if paths and (resources or rule.get("namespaces")):
        out.append(
            field.invalid(
                f"{at}.nonResourceURLs",
                paths,
                "rules cannot apply to both regular resources and non-resource URLs",
            )
        )
    return out


def _check_stages(stages: list[str], at: str) -> list[FieldError]:
    return [
        field.invalid(f"{at}[{number}]", stage, "allowed stages are " + ",".join(STAGES))
        for number, stage in enumerate(stages)
        if stage not in STAGES
    ]
