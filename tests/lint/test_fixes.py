"""Each `fixes/NAME` becomes `NAME.fixed`; and invariants for files of every layout."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lint.helpers import report, source
from tests.lint.test_cases import arguments

from transom.cli.main import main
from transom.lint.config import LintConfig
from transom.lint.engine import lint_sources
from transom.lint.findings import FixStep
from transom.lint.fixes.apply import apply_fixes
from transom.lint.fixes.edits import make_edit
from transom.lint.fixes.values import with_change
from transom.lint.sources import SourcesRead
from transom.lint.text import SourceText
from transom.lint.tree import YamlDocument, parse_documents
from transom.windows.target_nodes import target_nodes_from_options

FIXES = Path(__file__).parent / "fixes"
FILES = sorted(path for path in FIXES.iterdir() if ".fixed" not in path.name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_fixed(path: Path, ends: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / path.name
    copy.write_bytes(path.read_text().replace("\n", ends).encode())
    main(["lint", "--no-config", *arguments(path), "--fix", str(copy)])
    wanted = path.with_name(f"{path.stem}.fixed{path.suffix}").read_text()
    assert copy.read_bytes().decode() == wanted.replace("\n", ends)
    capsys.readouterr()
    main(["lint", "--no-config", *arguments(path), "--fix", str(copy)])
    assert copy.read_bytes().decode() == wanted.replace("\n", ends), "there is nothing more to fix"


def test_a_text_without_an_end() -> None:
    text = (
        "apiVersion: v1\nkind: Pod\nspec:\n  securityContext: {windowsOptions: {runAsUserName: "
        "a}}\n  hostname: x"
    )
    one = source(text)
    change = FixStep("set", ("spec", "nodeSelector", "a"), "b")
    (document,) = parse_documents(one.text)
    assert isinstance(document, YamlDocument)
    made = make_edit(document, (), change)
    assert made is not None
    assert text[: made.start] + made.text + text[made.end :] == text + "\n  nodeSelector:\n    a: b"


def test_a_diff_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "drop.yaml"
    path.write_bytes((FIXES / "drop.yaml").read_bytes())
    main(["lint", "--no-config", "--runtime", "containerd", "--fix", "--diff", str(path)])
    out = capsys.readouterr().out
    assert out.startswith("--- a/") and "-      hostPID: true\n" in out
    assert path.read_bytes() == (FIXES / "drop.yaml").read_bytes()


def test_standard_input_is_a_filter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (FIXES / "drop.yaml").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    main(["lint", "--no-config", "--runtime", "containerd", "--fix", "-"])
    assert capsys.readouterr().out == (FIXES / "drop.fixed.yaml").read_text()


def test_fields_stay_in_pods_that_may_run_elsewhere() -> None:
    """An image or a toleration says Windows, but not beyond doubt."""
    text = (
        "apiVersion: v1\nkind: Pod\nspec:\n  hostPID: true\n"
        "  containers: [{name: a, image: 'a:nanoserver', resources: {limits: {memory: 1Gi}}}]\n"
    )
    found = {finding.id: finding.fix for finding in report(text).findings}
    assert found["WIN-POD-004"] is None
    assert found["WIN-POD-010"] is not None


# ---- laws ----

names = st.sampled_from(["a", "b", "containers", "a.b/c", "x y"])
plain = st.integers(0, 9) | st.sampled_from(["text", "two words"])
odd = (
    plain | st.sampled_from(["multi\nline\n", "", "true", "# no comment", "a: b", "on"]) | st.none()
)


def trees(leaves: Any) -> Any:
    return st.dictionaries(
        names,
        st.recursive(
            leaves,
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
            max_leaves=10,
        ),
        min_size=1,
        max_size=3,
    )


def paths(value: Any, steps: tuple[str | int, ...] = ()) -> Any:
    entries = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in entries:
        yield (*steps, key)
        yield from paths(inner, (*steps, key))


def changes(value: Any) -> Any:
    steps = st.sampled_from(list(paths(value)))
    return st.one_of(
        steps.map(lambda one: FixStep("drop", one)),
        steps.map(lambda one: FixStep("set", (*one, "new", "deep"), "windows")),
        steps.map(lambda one: FixStep("add", one, {"key": "os"})),
        st.just(FixStep("set", ("new.key/x",), True)),
        st.just(FixStep("add", ("list",), {"key": "os", "value": "windows"})),
    )


def attempt(text: str, value: Any, change: FixStep) -> tuple[Any, str] | None:
    """What was meant and what came of it; None when there is nothing to change, or no safe change."""
    (document,) = parse_documents(SourceText(text))
    assert isinstance(document, YamlDocument) and document.value == value
    try:
        wanted = with_change(value, change)
    except (KeyError, IndexError, TypeError, AttributeError):
        return None
    made = make_edit(document, (), change)
    return (wanted, text[: made.start] + made.text + text[made.end :]) if made is not None else None


@given(trees(plain), st.booleans(), st.sampled_from([2, 4]), st.booleans(), st.data())
@settings(max_examples=300, deadline=None)
def test_an_edit_means_its_change(
    value: dict[str, Any], flow: bool, indent: int, comments: bool, data: Any
) -> None:
    text = yaml.safe_dump(
        value, default_flow_style=flow, indent=indent, sort_keys=False, width=10**6
    )
    if comments and not flow:
        text = "# above\n" + text.replace("\n", "  # beside\n  # below\n")
    change = data.draw(changes(value))
    done = attempt(text, value, change)
    if done is not None:
        wanted, after = done
        (document,) = parse_documents(SourceText(after))
        assert isinstance(document, YamlDocument) and document.value == wanted, (
            text,
            change,
            after,
        )
        if comments and not flow and change.verb != "drop":
            assert after.count("#") == text.count("#")


@given(trees(odd), st.sampled_from([None, True, False]), st.data())
@settings(max_examples=200, deadline=None)
def test_whatever_the_text_nothing_fails(
    value: dict[str, Any], flow: bool | None, data: Any
) -> None:
    """What comes out may be wrong here: who makes edits compares, and throws such away."""
    attempt(
        yaml.safe_dump(value, default_flow_style=flow, sort_keys=False),
        value,
        data.draw(changes(value)),
    )


@given(
    st.lists(
        st.sampled_from(
            ["hostPID: true", "hostIPC: true", "shareProcessNamespace: true", "hostname: x"]
        ),
        unique=True,
        max_size=4,
    ),
    st.booleans(),
)
def test_restarting_twice_changes_nothing_more(lines: list[str], comments: bool) -> None:
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n"
        + "".join(f"  {line}{' # c' if comments else ''}\n" for line in lines)
        + "  nodeSelector: {kubernetes.io/os: windows}\n  containers: []\n"
    )
    one = source(text)
    changed, rest = apply_fixes(
        [one],
        lambda: (
            lint_sources(SourcesRead([one]), target_nodes_from_options(), LintConfig()).findings
        ),
    )
    assert not [finding for finding in rest if finding.fix]
    kept = yaml.safe_load(one.text.text)["spec"]
    assert set(kept) == {
        "nodeSelector",
        "containers",
        *(["hostname"] if "hostname: x" in lines else []),
    }
    assert bool(changed) == (
        set(lines) > {"hostname: x"} or bool(lines and "hostname: x" not in lines)
    )


def test_json_stays_json() -> None:
    text = json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "a"},
            "spec": {
                "containers": [
                    {
                        "name": "a",
                        "image": "a:nanoserver",
                        "resources": {"limits": {"memory": "1Gi"}},
                    }
                ]
            },
        }
    )
    one = source(text, "a.json")
    apply_fixes(
        [one],
        lambda: (
            lint_sources(SourcesRead([one]), target_nodes_from_options(), LintConfig()).findings
        ),
    )
    assert json.loads(one.text.text)["spec"]["nodeSelector"] == {"kubernetes.io/os": "windows"}
