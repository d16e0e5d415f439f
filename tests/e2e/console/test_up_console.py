"""`transom up --console --output json` prints one document and serves until a signal."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.conftest import Cluster, running_cluster

pytestmark = pytest.mark.e2e


@pytest.fixture
def stopped_cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path, "--no-nodes") as cluster:
        cluster.transom("down", "--name", cluster.name)
        yield cluster


def test_up_with_a_console_prints_one_document(stopped_cluster: Cluster) -> None:
    cluster = stopped_cluster
    command = [sys.executable, "-m", "transom.cli.main", "up", "--name", cluster.name]
    process = subprocess.Popen(
        [*command, "--console", "--output", "json"],
        env=cluster.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        text = ""
        while not text.endswith("\n}\n") and (line := process.stdout.readline()):
            text += line
        found = json.loads(text)
        assert found["name"] == cluster.name
        where = found["console"]
        assert where["loginLink"].startswith(f"{where['address']}/login?token=")
        with urlopen(f"{where['address']}/login", timeout=20) as answer:
            assert answer.status == 200
    finally:
        process.terminate()
        rest, _ = process.communicate(timeout=20)
    assert rest == ""
