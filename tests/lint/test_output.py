from __future__ import annotations

import json
from xml.etree import ElementTree

from tests.lint.helpers import pod, report

from transom.lint.engine import LintReport
from transom.lint.output import MACHINE
from transom.lint.output.text import render_text

TEXT = pod("  hostPID: true  # 100%, really\n").replace(
    "    resources: {limits: {memory: 1Gi}}\n", ""
)
SHOWN = """\
a.yaml:7:5: warning WIN-RES-003: container a has no memory limit
  7 |   - name: a
    |     ^^^^^^^
  Pod a: spec.containers[0]
  Only a limit bounds the memory of a Windows container, and the kubelet does not evict it.
  fix: Set resources.limits.memory; the request defaults to it, and the scheduler counts it.
  see: https://v1-20.docs.kubernetes.io/docs/setup/production-environment/windows/intro-windows-in-kubernetes/

a.yaml:9:3: warning WIN-POD-004: hostPID is ignored
  9 |   hostPID: true  # 100%, really
    |   ^^^^^^^^^^^^^
  Pod a: spec.hostPID
  Windows has no process namespace to share with the node: a container sees only its own processes.
  fix: Remove hostPID; from 1.22, HostProcess containers can see the processes of the node.
  see: https://v1-20.docs.kubernetes.io/docs/setup/production-environment/windows/intro-windows-in-kubernetes/

2 warnings: 1 object in 1 file, 1 pod template for Windows.
1 fixable with --fix.
Checked against Kubernetes 1.20, Windows any build, any runtime, any network.
"""


def some() -> LintReport:
    return report(TEXT)


def test_findings_fit_a_narrow_terminal() -> None:
    """Except what a reader copies: the position, the page."""
    shown = render_text(some(), width=60).splitlines()
    assert len(shown) > len(render_text(some()).splitlines())
    assert all(len(line) <= 60 for line in shown if line.startswith("  ") and "https:" not in line)


def test_text() -> None:
    assert render_text(some()) == SHOWN


def test_colours_are_all_that_colours_add() -> None:
    import re

    coloured = render_text(some(), colours=True)
    assert "\x1b[33mwarning\x1b[0m" in coloured
    assert re.sub(r"\x1b\[[0-9]+m", "", coloured) == SHOWN


def test_nothing_to_say() -> None:
    assert render_text(report("kind: X\napiVersion: v1")).startswith(
        "No findings: 1 object in 1 file, 0 pod templates"
    )


def test_a_long_line_with_tabs() -> None:
    text = (
        '{\t"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "' + "a" * 300 + '"}, "spec": {'
        '"nodeSelector": {"kubernetes.io/os": "windows"}, "hostPID": true, "containers": []}}'
    )
    line, carets = render_text(report(text)).splitlines()[1:3]
    assert line[carets.index("^") : carets.rindex("^") + 1] == '"hostPID": true'


def test_json() -> None:
    done = json.loads(MACHINE["json"](some()))
    first, second = done["findings"]
    assert (first["id"], first["line"], first["column"], first["fixable"]) == (
        "WIN-RES-003",
        7,
        5,
        False,
    )
    assert second == {
        "id": "WIN-POD-004",
        "severity": "warning",
        "file": "a.yaml",
        "line": 9,
        "column": 3,
        "endLine": 9,
        "endColumn": 16,
        "kind": "Pod",
        "namespace": "",
        "name": "a",
        "path": "spec.hostPID",
        "origin": "",
        "title": "hostPID is ignored",
        "message": "hostPID is ignored",
        "effect": "ignored",
        "consequence": second["consequence"],
        "remedy": second["remedy"],
        "nodes": [],
        "fixable": True,
    }
    assert done["summary"]["warning"] == 2
    assert done["targets"] == [
        {
            "release": "1.20",
            "build": None,
            "runtime": None,
            "network": None,
            "features": [],
            "nodes": [],
        }
    ]


def test_sarif() -> None:
    done = json.loads(MACHINE["sarif"](some()))
    (run,) = done["runs"]
    assert (done["version"], run["tool"]["driver"]["name"]) == ("2.1.0", "transom-lint")
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["message"]["text"] and result["partialFingerprints"]
    region = run["results"][1]["locations"][0]["physicalLocation"]["region"]
    assert (region["startLine"], region["startColumn"], region["endColumn"]) == (9, 3, 16)
    levels = {"error": "error", "warning": "warning", "info": "note"}
    assert [levels[finding.severity] for finding in some().findings] == [
        result["level"] for result in run["results"]
    ]


def test_a_fingerprint_outlives_other_lines() -> None:
    def prints(text: str) -> list[str]:
        run = json.loads(MACHINE["sarif"](report(text)))["runs"][0]
        return [result["partialFingerprints"]["transom/v1"] for result in run["results"]]

    assert prints("# a line\n\n" + TEXT) == prints(TEXT)
    assert len(set(prints(TEXT))) == 2


def test_github() -> None:
    first, second = MACHINE["github"](some()).splitlines()
    assert second.startswith(
        "::warning file=a.yaml,line=9,col=3,endColumn=16,title=WIN-POD-004 hostPID is ignored::"
        "hostPID is ignored%0APod a: spec.hostPID%0A"
    )
    assert "\n" not in first


def test_junit() -> None:
    root = ElementTree.fromstring(MACHINE["junit"](some()))
    (suite,) = root
    assert (root.attrib["failures"], suite.attrib["tests"], suite.attrib["name"]) == (
        "2",
        "2",
        "a.yaml",
    )
    assert [case.find("failure").attrib["type"] for case in suite] == ["warning", "warning"]  # type: ignore[union-attr]
    clean = ElementTree.fromstring(MACHINE["junit"](report("a: 1")))
    assert [len(list(case)) for case in clean[0]] == [0]


def test_every_format_contains_all_findings() -> None:
    for name, form in MACHINE.items():
        text = form(some())
        assert "WIN-RES-003" in text and "WIN-POD-004" in text, name


def test_names_forge_no_lines() -> None:
    """Nor commands for GitHub, which reads them at the beginning of a line."""
    name = r'"a\n::stop-commands::x\r\e[31m\u202eb"'
    text = TEXT.replace("{name: a}", f"{{name: {name}}}", 1)
    shown = render_text(report(text))
    assert r"Pod a\n::stop-commands::x\r\x1b[31m\u202eb: spec.hostPID" in shown
    assert not any(line.lstrip().startswith("::") for line in shown.splitlines())
    assert "\x1b" not in shown and "\u202e" not in shown
