"""Lint in the browser gives what `transom lint` gives: findings, the fix, another release."""

from __future__ import annotations

import json

import pytest

from transom.machinery.errors import ApiError
from transom.web.pages.manifest_check import REPORT_FORMATS, check_manifest, render_report
from transom.web.pages.node_choice import NodeChoice, read_choice

PRIVILEGED = """\
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  nodeSelector:
    kubernetes.io/os: windows
  containers:
  - name: iis
    image: mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2019
    resources: {limits: {memory: 1Gi}}
    securityContext:
      privileged: true
"""
OLD = NodeChoice((1, 20), 17763, "docker", None)


def test_findings_have_lines_and_the_fix_is_a_diff() -> None:
    found = check_manifest(PRIVILEGED, OLD, None)
    assert [(one["id"], one["line"]) for one in found["findings"]] == [("WIN-SEC-001", 13)]
    assert "-      privileged: true\n" in found["diff"]
    assert "privileged" not in found["fixed"] and found["fixes"] == 1
    assert found["checked"].startswith("Checked against Kubernetes 1.20, Windows build 17763")
    assert "rehearsal" not in found


def test_clean_text_has_no_fix() -> None:
    found = check_manifest("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", OLD, None)
    assert (found["findings"], found["diff"], found["fixed"]) == ([], "", None)


def test_text_that_is_not_yaml_is_a_finding() -> None:
    found = check_manifest("a: [b\n", OLD, None)
    assert [one["id"] for one in found["findings"]] == ["WIN-LINT-000"]


def test_a_rehearsal_lists_what_another_release_changes() -> None:
    choice = OLD._replace(build=None, runtime=None)
    found = check_manifest(PRIVILEGED, choice, (1, 25))["rehearsal"]
    assert found["release"] == "1.25"
    assert [one["id"] for one in found["added"]] == ["WIN-LINT-004"]
    assert found["removed"] == []


@pytest.mark.parametrize("form", REPORT_FORMATS)
def test_a_report_can_be_saved(form: str) -> None:
    file = render_report(PRIVILEGED, OLD, form)
    assert "WIN-SEC-001" in file["text"]
    if form in ("json", "sarif"):
        json.loads(file["text"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"release": "1.5"}, "1.5"),
        ({"release": "<b>"}, "<b>"),
        ({"build": "2022x"}, "unknown Windows build '2022x'"),
        ({"runtime": "podman"}, "runtime is one of docker, containerd"),
        ({"network": "bus"}, "network is one of"),
    ],
)
def test_unknown_choices_are_refused(values: dict[str, str], message: str) -> None:
    with pytest.raises(ApiError) as problem:
        read_choice(lambda name: values.get(name, ""))
    assert problem.value.code == 400 and message in problem.value.message


def test_an_empty_choice_is_the_default_release_and_any_node() -> None:
    assert read_choice(lambda name: "") == NodeChoice((1, 20), None, None, None)
    assert read_choice(lambda name: "", "1.25").release == (1, 25)
