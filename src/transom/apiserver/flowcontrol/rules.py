"""Finds the FlowSchema of a request: subjects, resource rules and path rules, in order of
precedence.

Pure functions on the stored objects; callers cache the results, because most requests repeat.
"""

from __future__ import annotations

from collections.abc import Iterable

from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.requestinfo import RequestInfo
from transom.machinery import serviceaccounts
from transom.machinery.objects import Object

_LONG_VERBS = frozenset(("watch", "proxy"))
_LONG_SUBRESOURCES = frozenset(("attach", "exec", "proxy", "log", "portforward"))


def is_long_running(info: RequestInfo) -> bool:
    """Long-running requests do not count as in flight."""
    return info.verb in _LONG_VERBS or (info.is_resource and info.subresource in _LONG_SUBRESOURCES)


def sorted_flow_schemas(schemas: Iterable[Object]) -> list[Object]:
    """The lowest number first, then by name."""
    return sorted(
        schemas, key=lambda fs: (fs["spec"].get("matchingPrecedence", 1000), fs["metadata"]["name"])
    )


def matches_flow_schema(schema: Object, user: UserInfo, info: RequestInfo) -> bool:
    return any(_rule_matches(rule, user, info) for rule in schema["spec"].get("rules") or ())


def flow_distinguisher(schema: Object, user: UserInfo, info: RequestInfo) -> str:
    """The distinguisher of a schema's flows."""
    method = (schema["spec"].get("distinguisherMethod") or {}).get("type")
    return user.name if method == "ByUser" else info.namespace if method == "ByNamespace" else ""


def _rule_matches(rule: Object, user: UserInfo, info: RequestInfo) -> bool:
    if not any(_subject_matches(subject, user) for subject in rule.get("subjects") or ()):
        return False
    if info.is_resource:
        return any(_resource_matches(r, info) for r in rule.get("resourceRules") or ())
    return any(
        _listed(info.verb, r.get("verbs"))
        and any(_path_matches(path, info.path) for path in r.get("nonResourceURLs") or ())
        for r in rule.get("nonResourceRules") or ()
    )


def _subject_matches(subject: Object, user: UserInfo) -> bool:
    kind = subject.get("kind")
    if kind == "User":
        return (subject.get("user") or {}).get("name") in ("*", user.name)
    if kind == "Group":
        name = (subject.get("group") or {}).get("name")
        return name == "*" or name in user.groups
    if kind == "ServiceAccount":
        wanted = subject.get("serviceAccount") or {}
        account = serviceaccounts.split_user_name(user.name)
        return (
            account is not None
            and account[0] == wanted.get("namespace")
            and wanted.get("name") in ("*", account[1])
        )
    return False


def _resource_matches(rule: Object, info: RequestInfo) -> bool:
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    if not (
        _listed(info.verb, rule.get("verbs"))
        and _listed(resource, rule.get("resources"))
        and _listed(info.group, rule.get("apiGroups"))
    ):
        return False
    return (
        _listed(info.namespace, rule.get("namespaces"))
        if info.namespace
        else bool(rule.get("clusterScope"))
    )


def _listed(value: str, allowed: list[str] | None) -> bool:
    return bool(allowed) and (allowed == ["*"] or value in allowed)  # type: ignore[operator]


def _path_matches(rule: str, path: str) -> bool:
    """A path pattern also matches all paths below it, with or without a star."""
    if rule in ("*", path):
        return True
    prefix = rule.removesuffix("*")
    return path.startswith(prefix if prefix.endswith("/") else prefix + "/")
