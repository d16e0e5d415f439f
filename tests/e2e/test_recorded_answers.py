"""The recorded answers of real control planes of 1.20, 1.32 and 1.36: ours are the same, but for the
listed differences.

Runs where the recordings lie beside the project. `differences.txt` lists the answers of 1.20 that
differ on purpose, each with the reason; `differences-1.32.txt` and `differences-1.36.txt` list what
differs today. An answer that differs without being listed fails, and so does a listed one that has
become the same. Those listed with a question mark depend on the day of the test or on timing.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conftest import running_cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"
LISTS = {
    "1.20": Path(__file__).with_name("differences.txt"),
    "1.32": Path(__file__).with_name("differences-1.32.txt"),
    "1.36": Path(__file__).with_name("differences-1.36.txt"),
}
# Slow cases of 1.36 that wait for controllers, and do not disturb each other: they run at once.
_CONCURRENT = frozenset(
    (
        "loop-deployment",
        "loop-hpa-pdb-quota",
        "loop-job-cronjob",
        "loop-statefulset",
        "newloop-cronjob",
        "newloop-hpa",
        "newloop-job",
        "newloop-pdb",
        "newloop-services",
        "newloop-statefulset",
        "newloop-volumes",
    )
)
_AT_ONCE = 4


def recorded_files() -> list[Any]:
    """A release and a file of cases for which it has recorded answers."""
    out = []
    for release in LISTS:
        files = sorted((GOLDEN / "cases").glob("*.yaml"))
        if release == "1.36":
            files += sorted((GOLDEN / "cases-1.36").glob("*.yaml"))
        for file in files:
            answers = GOLDEN / "expected" / release / f"{file.stem}.json"
            if release == "1.20" or answers.exists():
                out.append(pytest.param(release, file, id=f"{release}-{file.stem}"))
    return out


def listed(release: str) -> dict[str, str]:
    """Answer -> why it differs."""
    text = LISTS[release].read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: why for name, _, why in (line.partition(" ") for line in lines)}


def replay(
    cluster: Any, release: str, file: Path, folder: Path, cases: Collection[str] = ()
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
        GOLDEN / "expected" / release,
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


def replay_at_once(
    cluster: Any, release: str, file: Path, folder: Path
) -> tuple[dict[str, str], str]:
    """Like `replay`, with several cases of the file at a time."""
    cases = [f"{file.stem}/{case['name']}" for case in yaml.safe_load(file.read_text())]
    folders = [folder / str(i) for i in range(len(cases))]
    for part in folders:
        part.mkdir()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        done = [
            *pool.map(
                lambda case, part: replay(cluster, release, file, part, (case,)), cases, folders
            )
        ]
    results = {name: verdict for found, _ in done for name, verdict in found.items()}
    return results, "".join(output for _, output in done)


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="no recorded answers beside the project")
@pytest.mark.parametrize(("release", "file"), recorded_files())
def test_answers_are_kubernetes_own(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, release: str, file: Path
) -> None:
    known = listed(release)
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, "--no-nodes", "--release", release) as cluster:
        at_once = release != "1.20" and file.stem in _CONCURRENT
        play = replay_at_once if at_once else replay
        results, output = play(cluster, release, file, tmp_path)
        same_now = [
            name for name, verdict in results.items() if verdict == "same" and name in known
        ]
        assert not same_now, (
            f"these are the same now: take them off {LISTS[release].name}: {same_now}"
        )
        excused = {name.lstrip("?") for name in known}
        wrong = {name for name, verdict in results.items() if verdict != "same"} - excused
        if wrong:
            # Cases about loops wait for things to happen; a second look tells a busy machine from a
            # wrong answer.
            cases = {name.rpartition(":")[0] for name in wrong}
            results, output = replay(cluster, release, file, tmp_path, cases)
            wrong &= {name for name, verdict in results.items() if verdict != "same"}
    assert not wrong, f"{sorted(wrong)}\n{output}"
