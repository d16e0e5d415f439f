"""The recorded answers of a real 1.20 control plane: ours are the same, but for the differences we
chose.

Runs where the recordings lie beside the project. `differences.txt` lists the answers that differ on
purpose, each with the reason; an answer that differs without being listed fails, and so does a
listed one that has become the same. Those listed with a question mark depend on the day of the
test.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"
LISTED = Path(__file__).with_name("differences.txt")


def listed() -> dict[str, str]:
    """Answer -> why it differs."""
    lines = [line for line in LISTED.read_text().splitlines() if line and not line.startswith("#")]
    return {name: why for name, why in (line.split(maxsplit=1) for line in lines)}  # noqa: C416


def replay(
    cluster: Any, file: Path, folder: Path, cases: Collection[str] = ()
) -> tuple[dict[str, str], str]:
    """The verdict on each answer, and what was printed."""
    verdicts = folder / "verdicts.json"
    verdicts.unlink(missing_ok=True)
    command = [
        sys.executable,
        GOLDEN / "replay.py",
        "check",
        "--kubeconfig",
        cluster.kubeconfig,
        "--against",
        GOLDEN / "expected" / "1.20",
        "--show",
        "10",
        "--json",
        verdicts,
        file,
    ]
    if cases:
        command += ["--only", "|".join(f"^{re.escape(case)}$" for case in cases)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert verdicts.exists(), done.stdout + done.stderr
    return json.loads(verdicts.read_text()), done.stdout


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="no recorded answers beside the project")
@pytest.mark.parametrize("file", sorted((GOLDEN / "cases").glob("*.yaml")), ids=lambda f: f.stem)
def test_answers_are_kubernetes_own(fresh_cluster: Any, tmp_path: Path, file: Path) -> None:
    known = listed()
    results, output = replay(fresh_cluster, file, tmp_path)
    mended = [name for name, verdict in results.items() if verdict == "same" and name in known]
    assert not mended, f"these are the same now: take them off {LISTED.name}: {mended}"
    excused = {name.lstrip("?") for name in known}
    wrong = {name for name, verdict in results.items() if verdict != "same"} - excused
    if wrong:
        # Cases about loops wait for things to happen; a second look tells a busy machine from a
        # wrong answer.
        results, output = replay(
            fresh_cluster, file, tmp_path, {name.rpartition(":")[0] for name in wrong}
        )
        wrong &= {name for name, verdict in results.items() if verdict != "same"}
    assert not wrong, f"{sorted(wrong)}\n{output}"
