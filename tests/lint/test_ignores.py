from __future__ import annotations

import pytest
from tests.lint.helpers import report

POD = """\
{head}apiVersion: v1
kind: Pod
metadata: {{name: a}}
spec:{spec}
{above}  hostPID: true{line}
  nodeSelector: {{kubernetes.io/os: windows}}
  containers:
  - name: a{container}
    image: x
    securityContext:
      privileged: true
"""
EMPTY = {"head": "", "spec": "", "above": "", "line": "", "container": ""}
ALL = ["WIN-POD-004", "WIN-RES-003", "WIN-SEC-001"]


def found(**comments: str) -> list[str]:
    return sorted(finding.id for finding in report(POD.format(**{**EMPTY, **comments})).findings)


@pytest.mark.parametrize(
    ("comments", "left"),
    [
        ({}, ALL),
        ({"line": "  # transom: ignore WIN-POD-004"}, ALL[1:]),
        ({"line": "  # needed. transom: ignore WIN-POD-004"}, ALL),
        ({"line": "  # transom: ignore WIN-POD-004, WIN-SEC-001 -- only here"}, ALL[1:]),
        ({"line": "  # transom: ignore"}, ALL[1:]),
        ({"line": "  # transom: ignore WIN-SEC-001"}, ALL),
        ({"above": "  # transom: ignore WIN-POD-*\n"}, ALL[1:]),
        ({"above": "  # transom: ignore WIN-POD-004\n  # for the agent\n\n"}, ALL[1:]),
        ({"container": "  # transom: ignore WIN-SEC-001 WIN-RES-003"}, ALL[:1]),
        ({"spec": "  # transom: ignore WIN-SEC-001"}, ALL[:2]),
        ({"head": "# transom: ignore\n"}, []),
        ({"head": "---\n# transom: ignore WIN-RES-003\n"}, ["WIN-POD-004", "WIN-SEC-001"]),
        ({"line": "\n# transom: ignore-file WIN-RES-003 WIN-SEC-001"}, ["WIN-POD-004"]),
        ({"line": "\n# transom: ignore-file"}, []),
    ],
)
def test_comments(comments: dict[str, str], left: list[str]) -> None:
    assert found(**comments) == left


def test_silenced_findings_are_counted() -> None:
    assert report(POD.format(**{**EMPTY, "head": "# transom: ignore\n"})).silenced == 3


def test_a_comment_stays_in_its_document() -> None:
    text = POD.format(**{**EMPTY, "head": "# transom: ignore\n"}) + "---\n" + POD.format(**EMPTY)
    assert sorted(finding.id for finding in report(text).findings) == ALL
