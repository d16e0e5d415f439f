"""The command line on Windows: what is supported works as on Linux, and the rest reports that it is
not supported.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtime.wine import winpython
from tests.runtime.wine.winpython import WindowsPython

from transom.cli import main as program

# a Python for Windows may have to be fetched, and a Windows to be made
pytestmark = pytest.mark.timeout(300)

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeSelector: {kubernetes.io/os: windows}
  hostNetwork: true
  containers:
  - name: web
    image: mcr.microsoft.com/windows/nanoserver:1809
    securityContext: {privileged: true}
"""


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WindowsPython]:
    with winpython.running(tmp_path_factory.getbasetemp().parent / "transom-wine") as made:
        yield made


def run(windows: WindowsPython, *words: str) -> tuple[int, str, str]:
    process = windows.start_script(
        Path(program.__file__),
        *words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = process.communicate(timeout=60)
    return (
        process.returncode,
        out.decode().replace("\r\n", "\n"),
        err.decode().replace("\r\n", "\n"),
    )


def test_lint(windows: WindowsPython, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(POD, newline="\r\n")
    there = winpython.path_of(file)
    assert program.main(["lint", str(file)]) == 1
    assert run(windows, "lint", there) == (1, capsys.readouterr().out.replace(str(file), there), "")
    run(windows, "lint", "--fix", there)
    assert b"privileged" not in file.read_bytes()
    assert file.read_bytes().count(b"\r\n") == file.read_bytes().count(b"\n") > 5


def test_records(
    windows: WindowsPython, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")  # as where there is no terminal
    assert program.main(["explain", "WIN-POD-002"]) == 0
    assert run(windows, "explain", "WIN-POD-002") == (0, capsys.readouterr().out, "")


def test_a_cluster_is_not_for_windows(windows: WindowsPython) -> None:
    code, out, err = run(windows, "up")
    assert (code, out) == (1, "")
    assert err == (
        "error: transom up needs fcntl, which Windows does not have\n"
        "lint, explain and matrix work on Windows; clusters need Linux, for example WSL\n"
    )
