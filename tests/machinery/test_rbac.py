"""Invariants of policy rules."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.machinery import rbac

_words = st.lists(
    st.sampled_from(["*", "a", "b", "pods", "pods/log", "*/log", "x/log"]), min_size=1, max_size=3
)
_rules = st.one_of(
    st.builds(
        lambda v, g, r, n: {
            "verbs": v,
            "apiGroups": g,
            "resources": r,
            **({"resourceNames": n} if n else {}),
        },
        _words,
        _words,
        _words,
        st.lists(st.sampled_from("xyz"), max_size=2),
    ),
    st.builds(
        lambda v, u: {"verbs": v, "nonResourceURLs": u},
        _words,
        st.lists(st.sampled_from(["*", "/a", "/a/*", "/a/b", "/a*"]), min_size=1, max_size=3),
    ),
)


def breakdown_rule(rule: rbac.Rule) -> list[rbac.Rule]:
    """The rule split into rules of one verb on one resource each."""
    out: list[rbac.Rule] = []
    names = rule.get("resourceNames") or ()
    verbs = rule.get("verbs") or ()
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in verbs:
                part: rbac.Rule = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
                out += [{**part, "resourceNames": [name]} for name in names] if names else [part]
    out += [
        {"nonResourceURLs": [url], "verbs": [verb]}
        for url in rule.get("nonResourceURLs") or ()
        for verb in verbs
    ]
    return out


@given(st.lists(_rules, max_size=4))
def test_everything_covers_all_and_rules_cover_themselves(rules: list[Any]) -> None:
    assert rbac.uncovered_rules(rbac.EVERYTHING, rules) == []
    assert rbac.uncovered_rules(rules, rules) == []


@given(st.lists(_rules, max_size=3), st.lists(_rules, max_size=3))
def test_adding_what_is_missing_covers(held: list[Any], wanted: list[Any]) -> None:
    assert rbac.uncovered_rules([*held, *rbac.uncovered_rules(held, wanted)], wanted) == []


@given(
    _rules,
    _rules,
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["a", "q"]),
    st.sampled_from(["pods", "x"]),
    st.sampled_from(["", "log", "exec"]),
)
def test_what_covers_a_rule_allows_what_it_allows(
    held: Any, wanted: Any, verb: str, group: str, resource: str, subresource: str
) -> None:
    if not rbac.uncovered_rules([held], [wanted]) and rbac.matches_resource(
        wanted, verb, group, resource, subresource
    ):
        assert rbac.matches_resource(held, verb, group, resource, subresource)


@given(st.lists(_rules, max_size=4))
def test_compacting_changes_nothing_but_the_form(rules: list[Any]) -> None:
    parts = [part for rule in rules for part in breakdown_rule(rule)]
    compacted = rbac.compact_rules(parts)
    assert (
        rbac.uncovered_rules(compacted, rules) == []
        and rbac.uncovered_rules(rules, compacted) == []
    )


@given(st.lists(_rules, max_size=5), st.lists(_rules, max_size=3))
def test_missing_is_every_part_that_no_held_rule_covers(held: list[Any], wanted: list[Any]) -> None:
    def covers(own: Any, part: Any) -> bool:
        verb = part["verbs"][0]
        if verb not in own["verbs"] and "*" not in own["verbs"]:
            return False
        if "nonResourceURLs" in part:
            return any(
                rbac._path_covers(url, part["nonResourceURLs"][0])
                for url in own.get("nonResourceURLs", ())
            )
        names = own.get("resourceNames")
        if names and part.get("resourceNames", [None])[0] not in names:
            return False
        resource, own_resources = part["resources"][0], own.get("resources", ())
        return bool({part["apiGroups"][0], "*"} & {*own.get("apiGroups", ())}) and (
            bool({resource, "*"} & {*own_resources})
            or ("/" in resource and f"*/{resource.partition('/')[2]}" in own_resources)
        )

    parts = [part for rule in wanted for part in breakdown_rule(rule)]
    assert rbac.uncovered_rules(held, wanted) == [
        part for part in parts if not any(covers(own, part) for own in held)
    ]


def _many(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


@pytest.mark.parametrize(
    "held",
    [
        [],
        [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        [{"verbs": [f"v{n}"], "apiGroups": ["*"], "resources": ["*"]} for n in range(3000)],
        [{"verbs": _many("v", 2999), "apiGroups": _many("g", 3000), "resources": _many("r", 3000)}],
        [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": [f"n{n}"]}
            for n in range(2999)
        ],
        [
            {
                "verbs": _many("v", 3000)[n % 7 :: 3],
                "apiGroups": _many("g", 3000)[n % 11 :: 2],
                "resources": _many("r", 3000)[n::5],
            }
            for n in range(60)
        ],
    ],
    ids=[
        "nothing",
        "everything",
        "a rule per verb",
        "all but one verb",
        "a rule per name",
        "overlapping",
    ],
)
def test_a_rule_that_stands_for_millions_is_checked_quickly(held: list[Any]) -> None:
    wanted: dict[str, list[str]] = {
        "verbs": _many("v", 3000),
        "apiGroups": _many("g", 3000),
        "resources": _many("r", 3000),
        "resourceNames": _many("n", 3000),
    }
    began = time.thread_time()
    found = list(itertools.islice(rbac.iterate_uncovered_rules(held, [wanted]), 1000))
    assert time.thread_time() - began < 0.5  # without the classes: days
    assert (found == []) == (len(held) in (1, 3000) and held[0]["verbs"] != _many("v", 2999))
    if not held:
        assert found[:2] == breakdown_rule({k: v[:2] for k, v in wanted.items()})[:2]


def test_gathering_takes_each_rule_once_by_name_of_the_role() -> None:
    def role(name: str, *rules: str, **labels: str) -> dict[str, Any]:
        return {
            "metadata": {"name": name, "labels": labels},
            "rules": [{"verbs": [r]} for r in rules],
        }

    own = role("own", "self", to="x")
    own["aggregationRule"] = {
        "clusterRoleSelectors": [{"matchLabels": {"to": "x"}}, {"matchLabels": {"to": "y"}}]
    }
    others = [
        role("b", "get", "list", to="x"),
        role("a", "list", "watch", to="x"),
        role("c", "get", "put", to="y"),
        role("d", "no", to="z"),
    ]
    gathered = rbac.aggregated_rules(own, [own, *others])
    assert [r["verbs"][0] for r in gathered] == ["list", "watch", "get", "put"]


@given(st.lists(_rules, max_size=6), _words, st.data())
def test_indexed_rules_are_those_that_match(
    rules: list[dict[str, Any]], words: list[str], data: st.DataObject
) -> None:
    verb, group, resource = (data.draw(st.sampled_from([*words, "other"])) for _ in range(3))
    subresource = data.draw(st.sampled_from(["", "log"]))
    many = rules * 4  # more than are compared one by one
    found = list(rbac.IndexedRules(many).about(verb, group, resource, subresource))
    assert found == [
        rule for rule in many if rbac.matches_resource(rule, verb, group, resource, subresource)
    ]


@given(st.lists(_rules, max_size=6), st.lists(_rules, max_size=4))
def test_many_held_rules_cover_the_same(
    held: list[dict[str, Any]], wanted: list[dict[str, Any]]
) -> None:
    unrelated = [
        {"verbs": ["get"], "apiGroups": ["u"], "resources": [f"u{n}"]} for n in range(2001)
    ]
    assert rbac.uncovered_rules([*held, *unrelated], wanted) == rbac.uncovered_rules(held, wanted)
