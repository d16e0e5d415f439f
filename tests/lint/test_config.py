from __future__ import annotations

from pathlib import Path

import pytest
from tests.lint.helpers import pod, report

from transom.lint.config import (
    LintConfig,
    LintConfigError,
    TargetConfig,
    find_lint_config,
    load_lint_config,
)

FILE = """\
target: {release: "v1.25.3", build: ltsc2022, runtime: containerd, network: overlay, mixed: false, features: [dsr]}
paths: [deploy]
exclude: ["*/testdata/*"]
ignore:
- WIN-RES-003
- {ids: [WIN-SEC-*], paths: ["legacy/*"], reason: until they are gone}
severities: {WIN-POD-004: error, WIN-POD-005: none}
fail-on: error
"""


def written(folder: Path, text: str) -> Path:
    path = folder / ".transom-lint.yaml"
    path.write_text(text)
    return path


def test_a_file_says_everything(tmp_path: Path) -> None:
    config = load_lint_config(written(tmp_path, FILE))
    assert config.target == TargetConfig((1, 25), 20348, "containerd", "overlay", False, ("dsr",))
    assert config.paths == (str(tmp_path / "deploy"),)
    assert config.ignore == ((("WIN-RES-003",), ()), (("WIN-SEC-*",), ("legacy/*",)))
    assert config.severities == {"WIN-POD-004": "error", "WIN-POD-005": "none"}
    assert (config.exclude, config.fail_on) == (("*/testdata/*",), "error")


def test_nothing_is_fine(tmp_path: Path) -> None:
    assert load_lint_config(written(tmp_path, "")).target == TargetConfig()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("targets: {}", "has no 'targets'"),
        ("target: {realease: 1}", "has no 'realease'"),
        ("target: {runtime: podman}", "docker, containerd"),
        ("target: {network: vxlan}", "overlay"),
        ("target: {build: ltsc2000}", "not a Windows build"),
        ("target: {release: new}", "not a Kubernetes release"),
        ("target: {mixed: perhaps}", "true or false"),
        ("severities: {WIN-POD-004: fatal}", "error, warning"),
        ("fail-on: never", "fail-on"),
        ("ignore: [{id: x}]", "has no 'id'"),
        ("paths: {a: b}", "list of texts"),
        ("[]", "not a map"),
        ("a: [", "cannot be read"),
    ],
)
def test_mistakes_are_named(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(LintConfigError) as error:
        load_lint_config(written(tmp_path, text))
    assert problem in str(error.value) and str(tmp_path) in str(error.value)


def test_the_file_of_a_folder_above(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    path = written(tmp_path, "")
    assert find_lint_config(inner) == path
    (tmp_path / "a" / ".git").mkdir()
    assert find_lint_config(inner) is None, "a repository ends the search"


def test_severities_and_ignores() -> None:
    text = pod("  hostPID: true\n  hostIPC: true\n  shareProcessNamespace: true\n")
    config = LintConfig(
        severities={"WIN-POD-004": "error", "WIN-POD-005": "none"},
        ignore=((("WIN-POD-006",), ("a.*",)), (("WIN-POD-004",), ("b",))),
    )
    done = report(text, config)
    assert [(finding.id, finding.severity) for finding in done.findings] == [
        ("WIN-POD-004", "error")
    ]
    assert done.silenced == 2
