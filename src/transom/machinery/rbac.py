"""Policy rules of RBAC as pure functions: what a rule allows, what covers what, how rules are printed and gathered.

A rule is the plain dict of the API (`verbs`, `apiGroups`, `resources`, `resourceNames`, `nonResourceURLs`). Who is
bound to which rule is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from transom.machinery import selectors
from transom.machinery.field import go_quote
from transom.machinery.objects import Object

Rule = Mapping[str, Sequence[str]]
GROUP = "rbac.authorization.k8s.io"
EVERYTHING: tuple[Rule, ...] = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)
# The fields of a rule in the order in which it is printed.
_FIELDS = (
    ("apiGroups", "APIGroups"), ("resources", "Resources"), ("nonResourceURLs", "NonResourceURLs"),
    ("resourceNames", "ResourceNames"), ("verbs", "Verbs"),
)


def go_strings(values: Iterable[str]) -> str:
    """Go's %q of a slice of strings."""
    return "[" + " ".join(go_quote(v) for v in values) + "]"


def describe(rule: Rule) -> str:
    return "{" + ", ".join(f"{label}:{go_strings(rule[key])}" for key, label in _FIELDS if rule.get(key)) + "}"


# ---- what a rule allows ----------------------------------------------------------------------------------------------


def matches_resource(rule: Rule, verb: str, group: str, resource: str, subresource: str) -> bool:
    """Whether the rule is about this verb and resource, leaving `resourceNames` aside."""
    verbs = rule.get("verbs") or ()
    if verb not in verbs and "*" not in verbs:
        return False
    groups = rule.get("apiGroups") or ()
    if group not in groups and "*" not in groups:
        return False
    resources = rule.get("resources") or ()
    if "*" in resources:
        return True
    if not subresource:
        return resource in resources
    return f"{resource}/{subresource}" in resources or f"*/{subresource}" in resources


def matches_path(rule: Rule, verb: str, path: str) -> bool:
    verbs = rule.get("verbs") or ()
    if verb not in verbs and "*" not in verbs:
        return False
    return any(_path_covers(url, path) for url in rule.get("nonResourceURLs") or ())


def _path_covers(pattern: str, path: str) -> bool:
    return pattern == path or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


# ---- what covers what ------------------------------------------------------------------------------------------------


def break_down(rule: Rule) -> list[Rule]:
    """The rule as rules of one verb on one thing each."""
    out: list[Rule] = []
    names = rule.get("resourceNames") or ()
    verbs = rule.get("verbs") or ()
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in verbs:
                part: Rule = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
                out += [{**part, "resourceNames": [name]} for name in names] if names else [part]
    out += [{"nonResourceURLs": [url], "verbs": [verb]} for url in rule.get("nonResourceURLs") or () for verb in verbs]
    return out


def missing(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """What of `wanted`, broken down, no single rule of `held` covers."""
    return [part for rule in wanted for part in break_down(rule) if not any(_covers(own, part) for own in held)]


def _covers(own: Rule, part: Rule) -> bool:
    verbs = own.get("verbs") or ()
    if part["verbs"][0] not in verbs and "*" not in verbs:
        return False
    if "nonResourceURLs" in part:
        return any(_path_covers(url, part["nonResourceURLs"][0]) for url in own.get("nonResourceURLs") or ())
    groups = own.get("apiGroups") or ()
    if part["apiGroups"][0] not in groups and "*" not in groups:
        return False
    names = own.get("resourceNames")
    if names and ("resourceNames" not in part or part["resourceNames"][0] not in names):
        return False
    resource = part["resources"][0]
    resources = own.get("resources") or ()
    if resource in resources or "*" in resources:
        return True
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"*/{subresource}" in resources


def compact(rules: Iterable[Rule]) -> list[Rule]:
    """Rules on one resource (and one name) joined into one with all their verbs."""
    out: list[Rule] = []
    simple: dict[tuple[str, str, str | None], dict[str, Sequence[str]]] = {}
    for rule in rules:
        names = rule.get("resourceNames") or ()
        lone = len(rule.get("apiGroups") or ()) == 1 and len(rule.get("resources") or ()) == 1
        if not lone or len(names) > 1 or rule.get("nonResourceURLs"):
            out.append(rule)
            continue
        key = (rule["apiGroups"][0], rule["resources"][0], names[0] if names else None)
        known = simple.get(key)
        if known is None:
            simple[key] = dict(rule)
        else:
            known["verbs"] = [*known["verbs"], *rule["verbs"]]
    return out + list(simple.values())


# ---- aggregation -----------------------------------------------------------------------------------------------------


def aggregated(role: Object, roles: Iterable[Object]) -> list[Object]:
    """The rules that an aggregated cluster role gathers from the others, each once, in the order of their names."""
    out: list[Object] = []
    others = sorted(
        (r for r in roles if r["metadata"]["name"] != role["metadata"]["name"]), key=lambda r: r["metadata"]["name"]
    )
    for selector in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
        chosen = selectors.from_object(selector)
        for other in others:
            if chosen.matches(other["metadata"].get("labels") or {}):
                out += [rule for rule in other.get("rules") or () if rule not in out]
    return out
