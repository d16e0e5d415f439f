"""YAML in go-yaml's reading: the differences to PyYAML are what is tested."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.machinery import goyaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: y\nb: Off\nc: NO", {"a": True, "b": False, "c": False}),
        ("y: 1\n1: 2\n1.5: 3\n1000000.0: 4", {"true": 1, "1": 2, "1.5": 3, "1e+06": 4}),
        ("[010, 08, 0x1f, 0o17, 0b11, 1_000, -0b11]", [8, 8, 31, 15, 3, 1000, -3]),
        ("[1e3, 1.5, .5, 12:30:45, 2020-01-01, +1]", [1000, 1.5, 0.5, "12:30:45", "2020-01-01", 1]),
        ("[!!str 1, '1', !!float 1, \"y\", !custom z]", ["1", "1", 1, "y", "z"]),
        (
            "[18446744073709551615, 18446744073709551616]",
            [18446744073709551615, 18446744073709551616.0],
        ),
        ("b: &b {q: 1, r: 1}\nc: {<<: *b, r: 2}", {"b": {"q": 1, "r": 1}, "c": {"q": 1, "r": 2}}),
        ("a: 1\n---\nb: [", {"a": 1}),
        ("", None),
        ("a: !!binary YQ==", {"a": "a"}),
    ],
)
def test_reading(text: str, value: Any) -> None:
    assert goyaml.load_yaml(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [b", "yaml: line 1: did not find expected ',' or ']'"),
        ("a: b: c", "yaml: mapping values are not allowed in this context"),
        ("x: 1\na: b: c", "yaml: line 2: mapping values are not allowed in this context"),
        ("a:\n  - b\n c", "yaml: line 2: did not find expected key"),
        ("a: *x", "yaml: unknown anchor 'x' referenced"),
        ("a: &x [*x]", "yaml: anchor 'x' value contains itself"),
        ("a: .inf", "json: unsupported value: +Inf"),
        ("a: !!int x", "yaml: cannot decode !!str `x` as a !!int"),
        ("a: {<<: 1}", "yaml: map merge requires map or sequence of maps as the value"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(goyaml.YamlError) as caught:
        goyaml.load_yaml(text.encode())
    assert str(caught.value) == message


def test_an_alias_bomb_does_not_go_off() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10))
    with pytest.raises(goyaml.YamlError, match="excessive aliasing"):
        goyaml.load_yaml(bomb.encode())


def test_writing() -> None:
    value = {
        "b": {},
        "a10": [1, {"x": None}],
        "a9": [],
        "s": "true",
        "t": "2020-01-01T00:00:00Z",
        "m": "a\nb",
        "e": "",
        "f": 1234567.5,
        "q": "- x",
        "n": "1:30",
        "p": "plain text",
    }
    assert goyaml.dump_yaml(value) == (
        'a9: []\na10:\n- 1\n- x: null\nb: {}\ne: ""\nf: 1.2345675e+06\nm: |-\n  a\n  b\n"n": '
        '"1:30"\np: plain text\n'
        'q: \'- x\'\ns: "true"\nt: "2020-01-01T00:00:00Z"\n'
    )


_TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=10)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=12,
)


@given(_JSON)
def test_what_is_written_reads_the_same(value: Any) -> None:
    assert goyaml.load_yaml(goyaml.dump_yaml(value).encode()) == value


def test_only_this_module_constructs_values_from_yaml() -> None:
    """PyYAML's loaders raise KeyError, ValueError and RecursionError for some texts, and libyaml's
    ends the process when lists are nested deeply.
    """
    package = Path(goyaml.__file__).parents[1]
    # `testing` reads the manifests of a test suite, which may have several documents.
    exempt = {package / "machinery" / "goyaml.py", package / "testing" / "async_cluster.py"}
    loaders = re.compile(r"\byaml\.(safe_load|load|full_load|unsafe_load|compose)")
    found = [
        str(path)
        for path in package.rglob("*.py")
        if path not in exempt and loaders.search(path.read_text())
    ]
    assert not found


ODD = {
    "deep list": b"[" * 30000,
    "deep map": b"{a: " * 12000,
    "deep block": b"- " * 30000,
    "its own element": b"&a [*a]",
    "long integer": b"a: " + b"9" * 5000,
    "no date": b"a: 2026-99-99",
    "no integer": b"a: !!int x",
    "no boolean": b"a: !!bool x",
    "no number": b"a: !!float x",
    "no time": b"a: !!timestamp x",
    "an object": b"a: !!python/object:os.system x",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_odd_texts_are_errors_or_values(text: bytes) -> None:
    try:
        goyaml.load_yaml(text)
    except goyaml.YamlError:
        return
