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
from tests.etcd_process import EtcdProcess, require_etcd

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
ANSWERS = "test_recorded_answers.py::test_answers_are_kubernetes_own"
CHOSEN = {
    "kubectl": ["test_smoke.py", "test_kubectl.py"],
    "clients": ["test_client_libraries.py", "test_extension.py::test_life_of_a_definition"],
    "answers": [
        f"{ANSWERS}[{name}]"
        for name in ("1.20-api-list-watch", "1.32-adm-quota", "1.36-new-list-watch")
    ],
}


@pytest.fixture(scope="session")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    require_etcd()
    made = EtcdProcess(tmp_path_factory.mktemp("etcd"))
    yield made.start()
    made.kill()


def _revision(member: EtcdProcess) -> int:
    asked = urllib.request.Request(f"http://{member.address}/v3/kv/range", b'{"key": "AA=="}')
    with urllib.request.urlopen(asked, timeout=5) as answer:
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
        pytest.skip("kubectl, a client library or the recorded answers are missing")
    assert _revision(member) > before + 50  # they did write to it
