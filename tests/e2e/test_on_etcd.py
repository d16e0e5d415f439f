"""Some of the end-to-end tests and recorded answers again, with the objects in etcd. All of them run
there with TRANSOM_TEST_STORE=etcd://127.0.0.1:2379.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import running_cluster
from tests.e2e.test_recorded_answers import listed, replay
from tests.etcd_process import EtcdProcess, require_etcd
from tests.recorded_cases import GOLDEN

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
CHOSEN = {
    "kubectl": ["test_smoke.py", "test_kubectl.py"],
    "clients": ["test_client_libraries.py", "test_extension.py::test_life_of_a_definition"],
}
ANSWERS = [
    ("1.20", "cases/api-list-watch"),
    ("1.32", "cases/adm-quota"),
    ("1.36", "cases-1.36/new-list-watch"),
]


@pytest.fixture(scope="session")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    require_etcd()
    made = EtcdProcess(tmp_path_factory.mktemp("etcd"))
    yield made.start()
    made.kill()


def _revision(member: EtcdProcess) -> int:
    requested = urllib.request.Request(f"http://{member.address}/v3/kv/range", b'{"key": "AA=="}')
    with urllib.request.urlopen(requested, timeout=5) as answer:
        return int(json.load(answer)["header"]["revision"])


@pytest.mark.parametrize("tests", CHOSEN.values(), ids=CHOSEN)
def test_what_clients_see_is_the_same_on_etcd(
    member: EtcdProcess, tests: list[str], tmp_path: Path
) -> None:
    """In a pytest of its own: the clusters of a session are shared, and this one has others."""
    before = _revision(member)
    paths = [f"tests/e2e/{name}" for name in tests]
    options = ["-v", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={tmp_path / 'inner'}"]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *paths],
        cwd=ROOT,
        env={**inherited, "TRANSOM_TEST_STORE": f"etcd://{member.address}"},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if not re.search(r"\d+ passed", done.stdout):
        pytest.skip("kubectl or a client library is missing")
    assert _revision(member) > before + 50  # they did write to it


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="no recorded answers beside the project")
@pytest.mark.parametrize(("release", "file"), ANSWERS)
def test_answers_on_etcd_are_kubernetes_own(
    member: EtcdProcess, release: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSOM_TEST_STORE", f"etcd://{member.address}")
    before = _revision(member)
    with running_cluster(tmp_path, "--no-nodes", "--release", release) as cluster:
        results = replay(cluster, release, [GOLDEN / f"{file}.yaml"])
    excused = {name.lstrip("?") for name in listed(release)}
    wrong = {name: how for name, how in results.items() if how and name not in excused}
    assert results and not wrong, wrong
    assert _revision(member) > before + 50
