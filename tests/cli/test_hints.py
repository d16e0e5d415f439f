"""Commands that are suggested can be run exactly as printed, for a cluster that is not the default
one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import kubectl_binaries

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
Bash = Callable[[str], "subprocess.CompletedProcess[str]"]

_HINT = re.compile(
    r"transom (?:status|up|down|delete|logs|doctor|ps|node list|kubeconfig)\b(?: --[\w-]+(?: "
    r"[\w./-]+)?)*"
)


@pytest.fixture
def bash(tmp_path: Path, isolated_environment: dict[str, str]) -> Iterator[Bash]:
    binaries = kubectl_binaries()
    if not binaries:
        pytest.skip("no kubectl on this machine")
    path = f"{Path(sys.executable).parent}:{Path(binaries[0]).parent}:{os.environ['PATH']}"
    env = {**isolated_environment, "PATH": path}

    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120
        )

    yield run
    run("transom delete --all")


def follow(bash: Bash, command: str, *, code: int = 1) -> list[str]:
    """Runs a command that fails, then what its hint says; the commands of the hint."""
    failed = bash(command)
    assert failed.returncode == code, failed
    hints = _HINT.findall(failed.stderr + failed.stdout)
    assert hints, failed
    for hint in hints:
        if "OTHER" not in hint and not hint.startswith("transom down"):
            done = bash(hint)
            assert done.returncode == 0, (command, hint, done.stdout, done.stderr)
    return hints


def test_hints_of_up_and_of_errors(bash: Bash, tmp_path: Path) -> None:
    up = bash(
        f"transom up --name blue --kubeconfig '{tmp_path}/my config' --taint-windows --build "
        "20348 --linux 0 --windows 1"
    )
    assert up.returncode == 0, up.stderr
    block = up.stdout.partition("Try:\n")[2].partition("\n\n")[0].replace("\\\n", "")
    commands = [line.strip() for line in block.splitlines()]
    assert [c.split()[0] for c in commands] == [
        "kubectl",
        "transom",
        "kubectl",
        "kubectl",
        "kubectl",
        "transom",
    ]
    for command in commands:
        if command.startswith("transom demo"):
            assert command == "transom demo --name blue"  # tests/e2e/nodes/test_demo.py runs it
            continue
        done = bash(command)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        if "cmd /c ver" in command:
            assert "10.0.20348" in done.stdout
        if command.startswith("transom ps"):
            assert "iis:windowsservercore-ltsc2022" in done.stdout
    refused = bash("transom node delete control-plane --name blue")
    assert refused.returncode == 1 and "transom delete --name blue" in refused.stderr
    assert "control-plane" in bash("transom node list --name blue").stdout

    assert follow(bash, "transom up --name blue")[:3] == [
        "transom status --name blue",
        "transom kubeconfig --name blue",
        "transom down --name blue",
    ]
    assert (
        bash("transom down --name blue").stdout
        == "Cluster blue stopped; start it with: transom up --name blue\n"
    )
    assert follow(bash, "transom node list --name blue") == ["transom up --name blue"]
    assert bash("transom down --name blue").returncode == 0
    assert follow(bash, "transom status --name blue") == ["transom up --name blue"]
    assert follow(bash, "transom logs --name red") == ["transom up --name red"]
