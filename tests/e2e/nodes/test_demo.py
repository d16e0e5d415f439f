"""`transom demo` on simulated nodes."""

from __future__ import annotations

import json
import urllib.request

import pytest
from tests.conftest import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def test_servers_that_call_each_other(mixed_cluster: Cluster) -> None:
    done = mixed_cluster.transom(
        "demo", "--name", mixed_cluster.name, "--timeout=40", "--output=json", check=False
    )
    assert done.returncode == 0, done.stderr
    for page in json.loads(done.stdout):
        other = {"linux": "windows", "windows": "linux"}[page["os"]]
        with urllib.request.urlopen(page["url"], timeout=20) as answer:
            assert json.loads(answer.read())["responses"][0].startswith(f"{other}-")
    removed = mixed_cluster.transom("demo", "--remove", "--name", mixed_cluster.name)
    assert removed.stdout == "The demo is removed.\n"
