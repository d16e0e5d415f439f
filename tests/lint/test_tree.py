from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.lint.text import SourceText
from transom.lint.tree import BrokenDocument, YamlDocument, locate_path, parse_documents


def single(text: str) -> YamlDocument:
    (found,) = parse_documents(SourceText(text))
    assert isinstance(found, YamlDocument)
    return found


def at(text: str, *steps: str | int) -> str:
    document = single(text)
    span = document.span(locate_path(document.node, steps).value)
    return text[span.start : span.end]


@pytest.mark.parametrize(
    ("text", "steps", "found"),
    [
        ("a: {b: [1, 'two']}", ("a", "b", 1), "'two'"),
        ("é: 1\nä: ü", ("ä",), "ü"),
        ("a: &x {b: 1}\nc: *x", ("c", "b"), "1"),
        ("base: &x {b: 1}\nc: {<<: *x, d: 2}", ("c", "b"), "1"),
        ("a: 1\na: 2", ("a",), "2"),
        ("1: one\ntrue: two", ("1",), "one"),
        ("on: x", ("true",), "x"),
        ('a: "b: c"', ("a",), '"b: c"'),
    ],
)
def test_places(text: str, steps: tuple[str | int, ...], found: str) -> None:
    assert at(text, *steps) == found


def test_values_are_those_of_kubernetes() -> None:
    value = single(
        "a: 010\nb: yes\nc: 2020-01-01\nd: ~\ne: '5'\nf: 1_000\ng: !!str 5\nh: 12:30"
    ).value
    assert value == {
        "a": 8,
        "b": True,
        "c": "2020-01-01",
        "d": None,
        "e": "5",
        "f": 1000,
        "g": "5",
        "h": "12:30",
    }


def test_the_longest_part_of_a_path_that_is_there() -> None:
    place = locate_path(single("a: {b: 1}").node, ("a", "x", "y"))
    assert place.found == 1
    assert place.key is not None and place.key.value == "a"


def test_a_broken_document_hides_no_other() -> None:
    text = "a: 1\n---\nb: [\n---\nkind: Pod\nc: *x\n--- # last\nd: 4\n...\n"
    found = list(parse_documents(SourceText(text)))
    assert [f.value if isinstance(f, YamlDocument) else type(f) for f in found] == [
        {"a": 1},
        BrokenDocument,
        BrokenDocument,
        {"d": 4},
    ]
    broken = [f for f in found if isinstance(f, BrokenDocument)]
    assert [SourceText(text).place(b.at)[0] for b in broken] == [4, 6]
    assert broken[1].kind == "Pod"


@pytest.mark.parametrize(
    "text",
    ["&a [*a]", "a: \x07", "[" * 5000, "a: &a [*b]\nb: &b [*a]", "\ta: 1", "%YAML 9.9\n---\na: 1"],
)
def test_nothing_fails(text: str) -> None:
    assert all(isinstance(found, BrokenDocument) for found in parse_documents(SourceText(text)))


def test_aliases_cost_nothing() -> None:
    text = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
    assert len(single(text).value) == 60


def test_directives_belong_to_what_follows() -> None:
    assert single("%YAML 1.1\n---\na: 1\n").value == {"a": 1}


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**31), 2**31)
    | st.text("aäxß #:'\"-{\n", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab-./ü\"'", min_size=1), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(st.text("abz", min_size=1), json_values, min_size=1, max_size=4),
    st.booleans(),
    st.integers(0, 9),
)
@settings(max_examples=150, deadline=None)
def test_every_place_holds_its_value(value: dict[str, Any], flow: bool, lines: int) -> None:
    text = "\n" * lines + yaml.safe_dump(value, default_flow_style=flow, allow_unicode=True)
    document = single(text)
    assert document.value == value
    for steps, one in leaves(value, ()):
        place = locate_path(document.node, steps)
        assert place.found == len(steps)
        span = document.span(place.value)
        assert yaml.safe_load(text[span.start : span.end].lstrip()) == one or isinstance(one, str)


def leaves(value: Any, steps: tuple[str | int, ...]) -> Any:
    entries = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    if not isinstance(value, dict | list):
        yield steps, value
    for key, inner in entries:
        yield from leaves(inner, (*steps, key))


@pytest.mark.parametrize(
    "text",
    [
        "kind: Pod\nspec: " + "[" * 100_000,
        "a: " + "{a: " * 50_000,
        "- " * 100_000,
        "? " * 100_000,
        "\n".join(" " * level + "-" for level in range(600)),
    ],
    ids=["brackets", "braces", "items", "keys", "stairs"],
)
def test_deep_nesting_is_refused_before_it_overflows_the_stack(text: str) -> None:
    (found,) = parse_documents(SourceText(text))
    assert isinstance(found, BrokenDocument)
