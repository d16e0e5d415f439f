"""What Kubernetes would decide about a request: an independent model for the matrix.

Written from Kubernetes' rules (RequestInfoFactory, RBAC, the Node authorizer), and deliberately
without any code of the server under test: the two must come to the same decision by different ways.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote, unquote_plus

VERBS = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
DISCOVERY = (
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
)


@dataclass(frozen=True)
class Attributes:
    verb: str
    path: str
    resource_request: bool = False
    group: str = ""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""


class NoRequestInfo(Exception):
    """Kubernetes answers 500 before it authenticates."""


def split_target(target: str) -> tuple[str, dict[str, list[str]]]:
    """The decoded path, and the query as Go 1.15 reads it."""
    if "://" in target.partition("?")[0]:
        target = "/" + target.partition("://")[2].partition("/")[2]
    path, _, query = target.partition("?")
    values: dict[str, list[str]] = {}
    for pair in query.replace(";", "&").split("&"):
        if pair:
            key, _, value = pair.partition("=")
            values.setdefault(unquote_plus(key), []).append(unquote_plus(value))
    return unquote(path), values


Term = tuple[str, str, str]


def field_terms(text: str) -> list[Term] | None:
    """(field, operator, value) of each requirement, sorted as Go sorts them; None when it cannot be
    parsed.
    """
    out: list[Term] = []
    for part in sorted(text.split(",")):
        if not part:
            continue
        for operator in ("!=", "==", "="):
            if operator in part:
                name, _, value = part.partition(operator)
                out.append((name, "!=" if operator == "!=" else "=", value))
                break
        else:
            return None
    return out


def exact_name(terms: Iterable[Term]) -> str | None:
    return next(
        (value for name, operator, value in terms if (name, operator) == ("metadata.name", "=")),
        None,
    )


def matches(terms: Iterable[Term], namespace: str, name: str) -> bool:
    actual = {"metadata.name": name, "metadata.namespace": namespace}
    return all((actual[label] == value) == (operator == "=") for label, operator, value in terms)


def _integer(text: str) -> bool:
    return re.fullmatch("[+-]?[0-9]+", text) is not None


def attributes(method: str, target: str) -> Attributes:
    path, query = split_target(target)
    segments = path.strip("/").split("/") if path.strip("/") else []
    plain = Attributes(method.lower(), path)
    if len(segments) < 3 or segments[0] not in ("api", "apis"):
        return plain
    prefix, *rest = segments
    group = ""
    if prefix == "apis":
        if len(rest) < 3:
            return plain
        group, *rest = rest
    _version, *rest = rest
    verb = VERBS.get(method, "")
    if rest[0] in ("watch", "proxy"):
        if len(rest) < 2:
            raise NoRequestInfo
        verb, *rest = rest
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in ("status", "finalize"):
            rest = rest[2:]
    resource, name, subresource = (*rest, "", "")[:3]
    if verb == "proxy":
        subresource = ""
    if not name and verb == "get":
        watch = query.get("watch", ["false"])[0].lower() not in ("false", "0")
        verb = "watch" if watch else "list"
        terms = field_terms(query.get("fieldSelector", [""])[0])
        decodable = terms is not None and all(
            _integer(query[k][0]) for k in ("limit", "timeoutSeconds") if k in query
        )
        if decodable and terms is not None:
            chosen = exact_name(terms) or ""
            if chosen not in (".", "..") and "/" not in chosen and "%" not in chosen:
                name = chosen
    elif not name and verb == "delete":
        verb = "deletecollection"
    return Attributes(verb, path, True, group, namespace, resource, subresource, name)


# ---- RBAC ----


@dataclass(frozen=True)
class Rule:
    verbs: str
    resources: str = ""
    groups: str = "*"
    names: str = ""
    urls: str = ""

    def as_object(self) -> dict[str, list[str]]:
        if self.urls:
            return {"verbs": self.verbs.split(), "nonResourceURLs": self.urls.split()}
        out = {
            "verbs": self.verbs.split(),
            "resources": self.resources.split(),
            "apiGroups": ["" if g == "core" else g for g in self.groups.split()],
        }
        return out | ({"resourceNames": self.names.split()} if self.names else {})

    def allows(self, requested: Attributes) -> bool:
        if not {"*", requested.verb} & set(self.verbs.split()):
            return False
        if not requested.resource_request:
            return any(
                url == "*"
                or url == requested.path
                or (url.endswith("*") and requested.path.startswith(url[:-1].rstrip("*")))
                for url in self.urls.split()
            )
        if self.urls or not {"*", requested.group or "core"} & set(self.groups.split()):
            return False
        wanted = {
            "*",
            f"{requested.resource}/{requested.subresource}"
            if requested.subresource
            else requested.resource,
        }
        if requested.subresource:
            wanted.add(f"*/{requested.subresource}")
        if not wanted & set(self.resources.split()):
            return False
        return not self.names or requested.name in self.names.split()


@dataclass(frozen=True)
class Identity:
    """A user with the rules that are bound to it: in the whole cluster, and in namespaces."""

    name: str
    groups: tuple[str, ...] = ()
    cluster: tuple[Rule, ...] = ()
    namespaced: dict[str, tuple[Rule, ...]] = field(default_factory=dict, hash=False)

    @property
    def node(self) -> str:
        return self.name.removeprefix("system:node:") if "system:nodes" in self.groups else ""


_DISCOVERY_RULE = Rule("get", urls=" ".join(DISCOVERY))
_BASIC_RULE = Rule(
    "create", "selfsubjectaccessreviews selfsubjectrulesreviews", "authorization.k8s.io"
)


@dataclass(frozen=True)
class Decision:
    allowed: bool
    reason: str = ""


def decide(
    who: Identity, requested: Attributes, related: frozenset[tuple[str, str, str]]
) -> Decision:
    """`related`: what pods of the node of a kubelet refer to, as (resource, namespace, name)."""
    if "system:masters" in who.groups:
        return Decision(True)
    reason = ""
    if (
        who.node
        and requested.resource_request
        and (requested.group, requested.resource) in (("", "secrets"), ("", "configmaps"))
    ):
        reason = _why_not_for_a_node(who.node, requested, related)
        if not reason:
            return Decision(True)
    rules = [_DISCOVERY_RULE, _BASIC_RULE, *who.cluster]
    if requested.resource_request and requested.namespace:
        rules += who.namespaced.get(requested.namespace, ())
    return Decision(any(rule.allows(requested) for rule in rules), reason)


def _why_not_for_a_node(
    node: str, requested: Attributes, related: frozenset[tuple[str, str, str]]
) -> str:
    if requested.verb not in ("get", "list", "watch"):
        return "can only read resources of this type"
    if requested.subresource:
        return "cannot read subresource"
    if not requested.namespace:
        return "can only read namespaced object of this type"
    if not requested.name:
        return "No Object name found"
    if (requested.resource, requested.namespace, requested.name) in related:
        return ""
    return f"no relationship found between node '{node}' and this object"


def quoted(text: str) -> str:
    """Go's %q, for what the matrix has."""
    return '"' + "".join(f"\\x{ord(c):02x}" if c < " " else c for c in text) + '"'


def forbidden(who: Identity, requested: Attributes, reason: str = "") -> str:
    """The message of the 403."""
    if requested.resource_request:
        what = (
            f"{requested.resource}/{requested.subresource}"
            if requested.subresource
            else requested.resource
        )
        where = (
            f"in the namespace {quoted(requested.namespace)}"
            if requested.namespace
            else "at the cluster scope"
        )
        text = (
            f"User {quoted(who.name)} cannot {requested.verb} resource {quoted(what)} in API group "
            f"{quoted(requested.group)} {where}"
        )
    else:
        text = f"User {quoted(who.name)} cannot {requested.verb} path {quoted(requested.path)}"
    if reason:
        text += f": {reason}"
    if not requested.resource and not requested.group:
        return f"forbidden: {text}"
    full = f"{requested.resource}.{requested.group}" if requested.group else requested.resource
    return (
        f"{full} {quoted(requested.name)} is forbidden: {text}"
        if requested.name
        else f"{full} is forbidden: {text}"
    )
