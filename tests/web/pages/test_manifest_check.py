"""Lint in the browser gives what `transom lint` gives: findings, the fix, another release."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from transom.cli.main import main
from transom.machinery.errors import ApiError
from transom.web.pages.manifest_check import REPORT_FORMATS, check_manifest, render_report
from transom.web.pages.node_choice import NodeChoice, read_choice, read_rehearsal, server_release
from transom.web.routing import PageRequest

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


UPGRADED = NodeChoice((1, 36), 20348, "containerd", None)


def test_a_rehearsal_is_that_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        PRIVILEGED
        + "---\napiVersion: policy/v1beta1\nkind: PodSecurityPolicy\nmetadata: {name: a}\n"
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "manifest.yaml").write_text(text)
    command = ["lint", "manifest.yaml", "--no-config", "--from", "1.20/17763/docker"]
    main([*command, "--to", "1.36/20348/containerd", "--output", "json"])
    expected = json.loads(capsys.readouterr().out)
    assert {"breaks", "changes"} <= {one["outcome"] for one in expected["items"]}
    assert check_manifest(text, OLD, UPGRADED)["rehearsal"] == {**expected, "more": 0}
    assert json.loads(render_report(text, OLD, "json", UPGRADED)["text"]) == expected
    assert "Breaks:" in render_report(text, OLD, "text", UPGRADED)["text"]


def test_a_rehearsal_has_no_sarif_report() -> None:
    with pytest.raises(ApiError, match="text or JSON"):
        render_report(PRIVILEGED, OLD, "sarif", UPGRADED)


def test_the_nodes_after_an_upgrade_are_optional_and_checked() -> None:
    values = {"to-release": "1.36", "to-build": "20348", "to-runtime": "containerd"}
    assert read_rehearsal(lambda name: values.get(name, ""), OLD) == UPGRADED
    assert read_rehearsal(lambda name: "", OLD) is None
    with pytest.raises(ApiError):
        read_rehearsal(lambda name: "<b>" if name == "to-release" else "", OLD)


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


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ({"major": "1", "minor": "36"}, "1.36"),
        ({"major": "1", "minor": "27+"}, "1.27"),
        ({"major": "1", "minor": "99"}, ""),
        ({}, ""),
    ],
)
async def test_the_release_of_the_cluster_is_chosen(version: dict[str, str], release: str) -> None:
    async def get_json(path: str) -> dict[str, str]:
        return {"/version": version}[path]

    services = SimpleNamespace(api=SimpleNamespace(get_json=get_json))
    request = cast(PageRequest, SimpleNamespace(services=services, query=lambda name: ""))
    assert await server_release(request) == release
