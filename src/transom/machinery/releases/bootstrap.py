"""The bootstrap roles and bindings of releases from 1.21 on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

from transom.kit.named_tuple import NamedTuple
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.release import Release, in_range, table_lines

_FIELDS = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
Rule = dict[str, Any]
# The debugging pages of components, and their feature gates.
DEBUG_PAGES: Final = {"/flagz": "ComponentFlagz", "/statusz": "ComponentStatusz"}


class PolicyObject(NamedTuple):
    """A role or a binding of the bootstrap policy."""

    kind: str
    namespace: str
    name: str
    rules: tuple[Rule, ...] = ()
    labels: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()  # the labels of the roles that this one combines
    role: str = ""  # of a binding
    subjects: str = ""


@cache
def policy_objects(release: Release) -> tuple[PolicyObject, ...]:
    return tuple(_read(release))


def monitoring_rules(rules: Iterable[Rule], features: FeatureSet) -> list[Rule]:
    """The rules of `system:monitoring` with the debugging pages that feature gates enable."""
    out, granted = [], set[str]()
    for rule in rules:
        urls = rule.get("nonResourceURLs")
        if urls is not None:
            kept = [u for u in urls if u not in DEBUG_PAGES or features.enabled(DEBUG_PAGES[u])]
            granted.update(kept)
            rule = {**rule, "nonResourceURLs": kept}
        out.append(rule)
    out += [
        {"verbs": ["get"], "nonResourceURLs": [url]}
        for url, gate in DEBUG_PAGES.items()
        if url not in granted and features.enabled(gate)
    ]
    return out


def node_rules(release: Release) -> tuple[Rule, ...]:
    """The rules of kubelets."""
    return next(
        o.rules
        for o in policy_objects(release)
        if (o.kind, o.name) == ("ClusterRole", "system:node")
    )


def _read(release: Release) -> Iterator[PolicyObject]:
    head, lines = "", list[str]()
    for line in [*table_lines("bootstrap_policy.txt"), "end /end"]:
        if line.startswith(" "):
            lines.append(line[1:])
            continue
        text, at, where = head.partition(" @")
        if head and (not at or in_range(where, release)):
            yield _object(text, lines, release)
        head, lines = line, []


def _object(head: str, lines: list[str], release: Release) -> PolicyObject:
    kind, _, path = head.partition(" ")
    namespace, _, name = path.partition("/")
    rules, labels, aggregates = [], [], []
    role = subjects = ""
    for line in lines:
        line, at, where = line.partition(" @")
        if at and not in_range(where, release):
            continue
        if line.startswith("# "):
            labels.append(line[2:])
        elif line.startswith("+ "):
            aggregates.append(line[2:])
        elif line.startswith("-> "):
            role, _, subjects = line[3:].partition(";")
        else:
            rules.append(_rule(line))
    return PolicyObject(
        kind, namespace, name, tuple(rules), tuple(labels), tuple(aggregates), role, subjects
    )


def _rule(line: str) -> Rule:
    rule: Rule = {}
    for field, text in zip(_FIELDS, line.split(";"), strict=True):
        values = text.split()
        if field == "apiGroups":
            values = ["" if value == "core" else value for value in values]
        if values:
            rule[field] = values
    return rule
