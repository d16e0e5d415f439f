"""The recorded answers of a real 1.20 control plane: ours are the same, but for the differences we chose.

Runs where the recordings lie beside the project. `differences.txt` lists the answers that differ on purpose (or because
the part that makes them is not built yet), each with the reason; an answer that differs without being listed fails, and
so does a listed one that has become the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"
LISTED = Path(__file__).with_name("differences.txt")
# Cases whose parts (controllers, nodes) are all there.
CHECKED = ("api-*.yaml", "sec-*.yaml", "adm-*.yaml", "ext-*.yaml")


def listed() -> dict[str, str]:
    """Answer -> why it differs."""
    rows = (line.split(maxsplit=1) for line in LISTED.read_text().splitlines() if line and not line.startswith("#"))
    return dict(rows)  # type: ignore[arg-type]


def case_files() -> list[Path]:
    return sorted(f for pattern in CHECKED for f in (GOLDEN / "cases").glob(pattern))


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="no recorded answers beside the project")
@pytest.mark.parametrize("file", case_files(), ids=lambda f: f.stem)
def test_answers_are_kubernetes_own(cluster: Any, tmp_path: Path, file: Path) -> None:
    verdicts = tmp_path / "verdicts.json"
    done = subprocess.run(
        [sys.executable, GOLDEN / "replay.py", "check", "--kubeconfig", cluster.kubeconfig, "--against",
         GOLDEN / "expected" / "1.20", "--show", "10", "--json", verdicts, file],
        capture_output=True, text=True, timeout=600,
    )
    assert verdicts.exists(), done.stdout + done.stderr
    known = listed()
    results = json.loads(verdicts.read_text())
    unexpected = [name for name, verdict in results.items() if verdict != "same" and name not in known]
    mended = [name for name, verdict in results.items() if verdict == "same" and name in known]
    assert not unexpected, f"{unexpected}\n{done.stdout}"
    assert not mended, f"these are the same now: take them off {LISTED.name}: {mended}"
