"""Manifests and their findings: each `cases/NAME.yaml` has its `NAME.expected`.

A line of those is `LINE:COLUMN-LINE:COLUMN severity id name: path`, with `(fix)` where lint can
correct it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from transom.cli.main import main

CASES = Path(__file__).parent / "cases"
NAMES = sorted(path.stem for path in CASES.glob("*.yaml"))


def arguments(path: Path) -> list[str]:
    first = path.read_text().split("\n", 1)[0]
    return first.removeprefix("# args:").split() if first.startswith("# args:") else []


@pytest.mark.parametrize("name", NAMES)
def test_findings_of_a_manifest(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = CASES / f"{name}.yaml"
    main(["lint", "--no-config", "--output", "json", *arguments(path), str(path)])
    found = [
        (
            f"{f['line']}:{f['column']}-{f['endLine']}:{f['endColumn']} {f['severity']} "
            f"{f['id']} {f['name']}: {f['path']}"
        )
        + (" (fix)" if f["fixable"] else "")
        for f in json.loads(capsys.readouterr().out)["findings"]
    ]
    assert found == (CASES / f"{name}.expected").read_text().splitlines()


def test_a_windows_sign_in_one_folder_says_nothing_about_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loose = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: "
        "x}]}\n"
    )
    for folder in ("linux", "windows"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "pod.yaml").write_text(loose)
    windows = loose.replace("spec: {", "spec: {nodeSelector: {kubernetes.io/os: windows}, ")
    (tmp_path / "windows" / "other.yaml").write_text(windows)
    main(["lint", "--no-config", "--output", "json", str(tmp_path)])
    found = {
        (Path(f["file"]).parent.name, f["id"])
        for f in json.loads(capsys.readouterr().out)["findings"]
    }
    assert found == {("windows", "WIN-POD-010"), ("windows", "WIN-RES-003")}
