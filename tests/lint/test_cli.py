"""The verb: what is read, how it ends."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from tests.lint.helpers import pod

from transom.cli.main import main

LINUX = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: x}], "
    "hostPID: true}\n"
)
WARNS = pod("  hostPID: true\n")
INFORMS = pod("  dnsConfig: {options: [{name: ndots}]}\n")
FAILS = pod("  volumes: [{name: a, nfs: {server: a, path: /}}]\n")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()  # no other configuration file
    monkeypatch.chdir(tmp_path)


def lint(*arguments: str) -> int:
    return main(["lint", *arguments])


@pytest.mark.parametrize(
    ("text", "arguments", "code"),
    [
        (LINUX, (), 0),
        (WARNS, (), 1),
        (WARNS, ("--fail-on", "error"), 0),
        (WARNS, ("--fail-on", "none"), 0),
        (WARNS, ("--level", "error"), 1),
        (WARNS, ("--ignore", "WIN-POD-*"), 0),
        (INFORMS, (), 0),
        (INFORMS, ("--fail-on", "info"), 1),
        (FAILS, ("--fail-on", "error"), 1),
        (FAILS, ("--ignore", "WIN-RES-003,WIN-STO-010"), 0),
        ("a: [", (), 1),
        ("", (), 0),
    ],
)
def test_exit_codes(text: str, arguments: tuple[str, ...], code: int) -> None:
    Path("a.yaml").write_text(text)
    assert lint("a.yaml", *arguments) == code


@pytest.mark.parametrize(
    "arguments",
    [
        ("nowhere.yaml",),
        ("--build", "ltsc1999"),
        ("--release", "new"),
        ("--diff",),
        ("--config", "nowhere"),
        ("--kubeconfig", "nowhere"),
    ],
)
def test_what_cannot_be_done_ends_with_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert lint(*arguments) == 2
    assert "error: " in capsys.readouterr().err


def test_findings_are_reported_though_another_file_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("a.yaml").write_text(WARNS)
    assert lint("a.yaml", "nowhere.yaml") == 2
    assert "WIN-POD-004" in capsys.readouterr().out


def test_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in {
        "a.yaml": WARNS,
        "deep/b.yml": WARNS,
        "c.json": json.dumps({"apiVersion": "v1", "kind": "Pod"}),
        "d.txt": WARNS,
        ".hidden/e.yaml": WARNS,
        "node_modules/f.yaml": WARNS,
        "values.yaml": "image: {{ broken",
        "odd.yaml": "apiVersion: v1\nkind: {{ .Kind }}: x\n",
        "chart/Chart.yaml": "apiVersion: v2\nkind: x\nname: c\n",
        "chart/templates/g.yaml": WARNS.replace("name: a", "name: {{ .Values.name }}"),
        "chart/templates/plain.yaml": WARNS,
        "chart/crds/h.yaml": WARNS,
        "skip/i.yaml": WARNS,
    }.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    assert lint("--output", "json", "--exclude", "*skip/*") == 1
    done = json.loads(capsys.readouterr().out)
    assert sorted({finding["file"] for finding in done["findings"]}) == [
        "a.yaml",
        "chart/crds/h.yaml",
        "chart/templates/plain.yaml",
        "deep/b.yml",
    ]
    assert [note for note in done["notes"] if "helm template chart" in note]
    assert [
        note
        for note in done["notes"]
        if note.startswith("odd.yaml: left out, it looks like a template")
    ]


def test_a_template_of_a_chart_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """As pre-commit does."""
    Path("chart/templates").mkdir(parents=True)
    Path("chart/Chart.yaml").write_text("name: c")
    Path("chart/templates/a.yaml").write_text("kind: {{ broken")
    assert lint("chart/templates/a.yaml") == 0
    assert "1 template file of a chart left out" in capsys.readouterr().out


def test_standard_input_of_helm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        f"---\n# Source: shop/templates/a.yaml\n{LINUX}---\n# Source: "
        f"shop/templates/b.yaml\n{WARNS}"
    )
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert lint("-", "--output", "json") == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [(f["id"], f["origin"], f["line"]) for f in found if f["id"] == "WIN-POD-004"] == [
        ("WIN-POD-004", "shop/templates/b.yaml", 18)
    ]


def test_text_of_other_encodings() -> None:
    Path("a.yaml").write_bytes(b"\xef\xbb\xbf" + WARNS.encode())
    Path("b.yaml").write_text(WARNS, encoding="utf-16")
    assert lint("a.yaml", "--fix") == 0
    assert Path("a.yaml").read_bytes().startswith(b"\xef\xbb\xbfapiVersion")
    assert lint("b.yaml") == 1
    Path("c.yaml").write_bytes(b"apiVersion: v1\nkind: \xff")
    assert lint("c.yaml") == 2


def test_the_configuration_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    Path("deploy").mkdir()
    Path("deploy/a.yaml").write_text(FAILS)
    Path("other.yaml").write_text(WARNS)
    Path(".transom-lint.yaml").write_text(
        "paths: [deploy]\nfail-on: none\ntarget: {release: '1.24', build: 20348}\n"
    )
    assert lint("--output", "json") == 0
    done = json.loads(capsys.readouterr().out)
    assert [Path(finding["file"]).name for finding in done["findings"]] == ["a.yaml"]
    assert done["targets"][0]["release"] == "1.24"
    assert lint("other.yaml", "--no-config") == 1


def test_a_report_in_a_file() -> None:
    Path("a.yaml").write_text(WARNS)
    assert lint("a.yaml", "--output", "sarif", "--output-file", "report.sarif") == 1
    assert json.loads(Path("report.sarif").read_text())["runs"][0]["results"]


def test_json_that_is_not_valid_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    value = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "\U0001f600"},
        "spec": {
            "nodeSelector": {"kubernetes.io/os": "windows"},
            "hostPID": True,
            "containers": [],
        },
    }
    Path("a.json").write_text(json.dumps(value))  # with surrogates, as JSON escapes them
    assert lint("a.json", "--output", "json") == 1
    assert [f["id"] for f in json.loads(capsys.readouterr().out)["findings"]] == ["WIN-POD-004"]
    Path("b.json").write_text("{")
    assert lint("b.json") == 1
