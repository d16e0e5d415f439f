"""RBAC policy rules as pure functions: matching, coverage, printing and aggregation.

A rule is the plain dict of the API (`verbs`, `apiGroups`, `resources`, `resourceNames`,
`nonResourceURLs`). Bindings are handled elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from transom.kit.goquote import go_quote
from transom.machinery import selectors
from transom.machinery.objects import Object

Rule = Mapping[str, Sequence[str]]
GROUP = "rbac.authorization.k8s.io"
# The field manager of the controller of aggregated roles, since it uses server-side apply.
AGGREGATION_MANAGER = "clusterrole-aggregation-controller"
EVERYTHING: tuple[Rule, ...] = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)
# The fields of a rule in the order in which it is printed.
_FIELDS = (
    ("apiGroups", "APIGroups"),
    ("resources", "Resources"),
    ("nonResourceURLs", "NonResourceURLs"),
    ("resourceNames", "ResourceNames"),
    ("verbs", "Verbs"),
)


def go_strings(values: Iterable[str]) -> str:
    """Go's %q of a slice of strings."""
    return "[" + " ".join(go_quote(v) for v in values) + "]"


def describe_rule(rule: Rule) -> str:
    return (
        "{"
        + ", ".join(f"{label}:{go_strings(rule[key])}" for key, label in _FIELDS if rule.get(key))
        + "}"
    )


# ---- matching ----


def matches_resource(rule: Rule, verb: str, group: str, resource: str, subresource: str) -> bool:
    """Whether the rule matches this verb and resource, ignoring `resourceNames`."""
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


class IndexedRules:
    """The rules of a role, indexed by verb and resource: a role may have thousands of them."""

    __slots__ = ("_by_field", "rules")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        self._by_field: dict[str, dict[str, set[int]]] | None = None

    def about(self, verb: str, group: str, resource: str, subresource: str) -> Iterator[Rule]:
        """The rules for which `matches_resource` holds, in their order."""
        if len(self.rules) <= _FEW_RULES and not any(map(_is_wide, self.rules)):
            for rule in self.rules:
                if matches_resource(rule, verb, group, resource, subresource):
                    yield rule
            return
        names = (f"{resource}/{subresource}", f"*/{subresource}") if subresource else (resource,)
        wanted = (("verbs", (verb,)), ("apiGroups", (group,)), ("resources", names))
        numbers = [self._numbers(field, values) for field, values in wanted]
        numbers.sort(key=lambda sets: sum(map(len, sets)))
        fewest, *others = numbers
        found = {
            number
            for one in fewest
            for number in one
            if all(any(number in each for each in sets) for sets in others)
        }
        for number in sorted(found):
            yield self.rules[number]

    def _numbers(self, field: str, values: tuple[str, ...]) -> list[set[int]]:
        """The rules that contain one of the values, or the wildcard."""
        if self._by_field is None:
            self._by_field = {field: {} for field in _RESOURCE_FIELDS}
            for number, rule in enumerate(self.rules):
                for name, by_value in self._by_field.items():
                    for value in rule.get(name) or ():
                        by_value.setdefault(value, set()).add(number)
        by_value = self._by_field[field]
        return [by_value[value] for value in ("*", *values) if value in by_value]


_RESOURCE_FIELDS = ("verbs", "apiGroups", "resources")
_FEW_RULES = 16
_FEW_VALUES = 100


def _is_wide(rule: Rule) -> bool:
    return any(len(rule.get(field) or ()) > _FEW_VALUES for field in _RESOURCE_FIELDS)


# ---- coverage of rules ----


def uncovered_rules(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """The parts of `wanted`, broken down, that no single rule of `held` covers."""
    return list(iterate_uncovered_rules(held, wanted))


def iterate_uncovered_rules(held: Sequence[Rule], wanted: Iterable[Rule]) -> Iterator[Rule]:
    """Like `uncovered_rules`, one by one: a short rule can stand for millions of them."""
    if len(held) <= _MANY_RULES:
        coverage = _Coverage(held)
        for rule in wanted:
            yield from coverage.missing_resources(rule)
            yield from coverage.missing_paths(rule)
        return
    # Sets of this many rules are large: skip those that have nothing in common with a rule.
    index = _RuleIndex(held)
    for rule in wanted:
        coverage = _Coverage(index.related(rule))
        yield from coverage.missing_resources(rule)
        yield from coverage.missing_paths(rule)


# A set of held rules is an integer with a bit for each of them; values that the same rules cover
# form one class. Values of one class are all covered or all missing, so the work grows with the
# number of classes, not of combinations.
_MOST_STEPS = 100_000
_MANY_RULES = 2_000
# Held rules that are compared with one wanted rule. Omitting some denies, and never grants.
_MOST_RELATED = 20_000


class _RuleIndex:
    """Held rules, indexed by what they match."""

    def __init__(self, held: Sequence[Rule]) -> None:
        self._held = held
        self._by_thing: dict[str, list[int]] = {}
        self._prefixes: list[int] = []  # rules for paths with a wildcard
        for number, rule in enumerate(held):
            for resource in rule.get("resources") or ():
                self._by_thing.setdefault(resource, []).append(number)
            for url in rule.get("nonResourceURLs") or ():
                self._by_thing.setdefault(url, []).append(number)
                if url.endswith("*"):
                    self._prefixes.append(number)

    def related(self, rule: Rule) -> list[Rule]:
        """The held rules that may cover a part of this one."""
        things = {"*", *(rule.get("nonResourceURLs") or ())}
        for resource in rule.get("resources") or ():
            things |= {resource, f"*/{resource.partition('/')[2]}"}
        found: set[int] = set(self._prefixes) if rule.get("nonResourceURLs") else set()
        for thing in things:
            found.update(self._by_thing.get(thing, ()))
        verbs, groups = set(rule.get("verbs") or ()), set(rule.get("apiGroups") or ())
        out: list[Rule] = []
        for number in sorted(found):
            held = self._held[number]
            of_verbs, of_groups = held.get("verbs") or (), held.get("apiGroups") or ()
            if "*" not in of_verbs and verbs.isdisjoint(of_verbs):
                continue
            if groups and of_groups and "*" not in of_groups and groups.isdisjoint(of_groups):
                continue
            out.append(held)
            if len(out) == _MOST_RELATED:
                break
        return out


class _Coverage:
    """Which of the held rules cover a verb, a group, a resource, a name or a path."""

    def __init__(self, held: Sequence[Rule]) -> None:
        self._all = (1 << len(held)) - 1
        self._nameless = self._all
        self._by_field: dict[str, dict[str, int]] = {key: {} for key, _ in _FIELDS}
        for number, rule in enumerate(held):
            bit = 1 << number
            for field, masks in self._by_field.items():
                for value in rule.get(field) or ():
                    masks[value] = masks.get(value, 0) | bit
            if rule.get("resourceNames"):
                self._nameless &= ~bit
        self._prefixes: dict[str, int] = {}
        for url, mask in self._by_field["nonResourceURLs"].items():
            if url.endswith("*"):
                prefix = url.rstrip("*")
                self._prefixes[prefix] = self._prefixes.get(prefix, 0) | mask
        self._lengths = sorted({len(prefix) for prefix in self._prefixes})

    def _of(self, field: str, value: str) -> int:
        masks = self._by_field[field]
        return masks.get(value, 0) | masks.get("*", 0)

    def _of_resource(self, resource: str) -> int:
        _, slash, subresource = resource.partition("/")
        found = self._of("resources", resource)
        return found | self._by_field["resources"].get(f"*/{subresource}", 0) if slash else found

    def _of_path(self, path: str) -> int:
        found = self._by_field["nonResourceURLs"].get(path, 0)
        for length in self._lengths:
            if length > len(path):
                break
            found |= self._prefixes.get(path[:length], 0)
        return found

    def missing_paths(self, rule: Rule) -> Iterator[Rule]:
        verbs = [(verb, self._of("verbs", verb)) for verb in rule.get("verbs") or ()]
        masks = {mask for _, mask in verbs}
        for url in rule.get("nonResourceURLs") or ():
            mask = self._of_path(url)
            if all(mask & of_verb for of_verb in masks):
                continue
            for verb, of_verb in verbs:
                if not mask & of_verb:
                    yield {"nonResourceURLs": [url], "verbs": [verb]}

    def missing_resources(self, rule: Rule) -> Iterator[Rule]:
        groups = [(group, self._of("apiGroups", group)) for group in rule.get("apiGroups") or ()]
        resources = [
            (resource, self._of_resource(resource)) for resource in rule.get("resources") or ()
        ]
        verbs = [(verb, self._of("verbs", verb)) for verb in rule.get("verbs") or ()]
        # A rule without names covers every name; one with names covers no request for all of them.
        names = [
            (name, self._nameless | self._by_field["resourceNames"].get(name, 0))
            for name in rule.get("resourceNames") or ()
        ] or [("", self._nameless)]
        of_verbs, of_names = {mask for _, mask in verbs}, {mask for _, mask in names}
        steps = 0
        # class of groups -> classes of resources of which something is missing
        lacking: dict[int, set[int]] = {}
        for of_group in {mask for _, mask in groups}:
            for of_resource in {mask for _, mask in resources}:
                both = of_group & of_resource
                if both & self._nameless and all(
                    both & self._nameless & of_verb for of_verb in of_verbs
                ):
                    continue
                steps += len(of_verbs) * len(of_names)
                # A check that takes too long fails: that denies, and never grants.
                if steps > _MOST_STEPS or not all(both & v & n for v in of_verbs for n in of_names):
                    lacking.setdefault(of_group, set()).add(of_resource)
        if not lacking:
            return
        too_long = steps > _MOST_STEPS
        known: dict[int, list[str]] = {}  # remaining rules -> names that none of them covers
        for group, of_group in groups:
            of_resources = lacking.get(of_group)
            if not of_resources:
                continue
            for resource, of_resource in resources:
                if of_resource not in of_resources:
                    continue
                for verb, of_verb in verbs:
                    left = of_group & of_resource & of_verb
                    without = known.get(left)
                    if without is None:
                        without = known[left] = [
                            name for name, of_name in names if too_long or not left & of_name
                        ]
                    part: Rule = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
                    for name in without:
                        yield (
                            {**part, "resourceNames": [name]} if rule.get("resourceNames") else part
                        )


def compact_rules(rules: Iterable[Rule]) -> list[Rule]:
    """Merges rules on one resource (and one name) into one rule with all their verbs."""
    out: list[Rule] = []
    simple: dict[tuple[str, str, str | None], dict[str, Sequence[str]]] = {}
    verbs: dict[tuple[str, str, str | None], list[str]] = {}
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
            verbs.setdefault(key, list(known["verbs"])).extend(rule["verbs"])
    for key, all_verbs in verbs.items():
        simple[key]["verbs"] = all_verbs
    return out + list(simple.values())


# ---- aggregation ----


def aggregated_rules(role: Object, roles: Iterable[Object]) -> list[Object]:
    """The rules that an aggregated cluster role collects from the others, without duplicates, in
    the order of their names.
    """
    out: list[Object] = []
    seen: set[tuple[tuple[str, ...], ...]] = set()
    others = sorted(
        (r for r in roles if r["metadata"]["name"] != role["metadata"]["name"]),
        key=lambda r: r["metadata"]["name"],
    )
    for selector in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
        chosen = selectors.from_object(selector)
        for other in others:
            if not chosen.matches(other["metadata"].get("labels") or {}):
                continue
            for rule in other.get("rules") or ():
                key = tuple(tuple(rule.get(field) or ()) for field, _ in _FIELDS)
                if key not in seen:
                    seen.add(key)
                    out.append(rule)
    return out
