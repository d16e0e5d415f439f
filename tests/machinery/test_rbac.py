"""Laws of policy rules."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from transom.machinery import rbac

_words = st.lists(st.sampled_from(["*", "a", "b", "pods", "pods/log", "*/log", "x/log"]), min_size=1, max_size=3)
_rules = st.one_of(
    st.builds(
        lambda v, g, r, n: {"verbs": v, "apiGroups": g, "resources": r, **({"resourceNames": n} if n else {})},
        _words, _words, _words, st.lists(st.sampled_from("xyz"), max_size=2),
    ),
    st.builds(lambda v, u: {"verbs": v, "nonResourceURLs": u}, _words,
              st.lists(st.sampled_from(["*", "/a", "/a/*", "/a/b", "/a*"]), min_size=1, max_size=3)),
)  # fmt: skip


@given(st.lists(_rules, max_size=4))
def test_everything_covers_all_and_rules_cover_themselves(rules: list[Any]) -> None:
    assert rbac.missing(rbac.EVERYTHING, rules) == []
    assert rbac.missing(rules, rules) == []


@given(st.lists(_rules, max_size=3), st.lists(_rules, max_size=3))
def test_adding_what_is_missing_covers(held: list[Any], wanted: list[Any]) -> None:
    assert rbac.missing([*held, *rbac.missing(held, wanted)], wanted) == []


@given(_rules, _rules, st.sampled_from(["a", "b", "c"]), st.sampled_from(["a", "q"]), st.sampled_from(["pods", "x"]),
       st.sampled_from(["", "log", "exec"]))  # fmt: skip
def test_what_covers_a_rule_allows_what_it_allows(
    held: Any, wanted: Any, verb: str, group: str, resource: str, subresource: str
) -> None:
    if not rbac.missing([held], [wanted]) and rbac.matches_resource(wanted, verb, group, resource, subresource):
        assert rbac.matches_resource(held, verb, group, resource, subresource)


@given(st.lists(_rules, max_size=4))
def test_compacting_changes_nothing_but_the_form(rules: list[Any]) -> None:
    parts = [part for rule in rules for part in rbac.break_down(rule)]
    compacted = rbac.compact(parts)
    assert rbac.missing(compacted, rules) == [] and rbac.missing(rules, compacted) == []


def test_gathering_takes_each_rule_once_by_name_of_the_role() -> None:
    def role(name: str, *rules: str, **labels: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "labels": labels}, "rules": [{"verbs": [r]} for r in rules]}

    own = role("own", "self", to="x")
    own["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {"to": "x"}}, {"matchLabels": {"to": "y"}}]}
    others = [role("b", "get", "list", to="x"), role("a", "list", "watch", to="x"), role("c", "get", "put", to="y"),
              role("d", "no", to="z")]  # fmt: skip
    gathered = rbac.aggregated(own, [own, *others])
    assert [r["verbs"][0] for r in gathered] == ["list", "watch", "get", "put"]
