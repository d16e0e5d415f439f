"""Releases, features and ids that do not exist are errors of the command line, which list what
exists.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from transom.cli.main import main


@pytest.mark.parametrize(
    ("line", "listed"),
    [
        (("lint", "--release", "9.99"), "choose one from 1.14 to 1."),
        (("lint", "--release", "1.13"), "choose one from 1.14 to 1."),
        (
            ("lint", "--feature", "nope"),
            "choose from ContainerStopSignals, CRIContainerD, csi-proxy",
        ),
        (("lint", "--ignore", "WIN-NOPE-1"), "did you mean WIN-"),
        (("lint", "--ignore", "X*"), "ids begin with SUP-API"),
        (("matrix", "--release", "9.9"), "choose one from 1.14 to 1."),
        (("matrix", "--features", "dsr,nope"), "choose from ContainerStopSignals"),
        (("explain", "WIN-XXX-999"), "ids begin with SUP-API"),
        (("up", "--feature-gates", "Nope=true", "--name", "never-made"), "known are: "),
        (("up", "--reject-windows", "WIN-NOPE-1", "--name", "never-made"), "did you mean WIN-"),
        (("up", "--release", "9.9", "--name", "never-made"), "choose from '1.14'"),
    ],
)
def test_what_does_not_exist_is_refused(
    line: tuple[str, ...],
    listed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: []}\n"
    )
    arguments = [*line, "pod.yaml"] if line[0] == "lint" else [*line]
    if line[0] == "up":
        arguments += ["--kubeconfig", str(tmp_path / "kubeconfig")]
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert listed in capsys.readouterr().err
    assert not (tmp_path / "transom" / "never-made").exists()
