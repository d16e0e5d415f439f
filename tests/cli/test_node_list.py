"""What `transom node list` shows of nodes that cannot start."""

from __future__ import annotations

import argparse

import pytest

from transom.cli import node


def test_a_node_that_cannot_start_is_listed_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = {
        "name": "linux-1",
        "os": "linux",
        "build": None,
        "state": "not started",
        "ready": False,
        "address": "172.20.0.2",
        "cpus": 4,
        "memory": "8Gi",
        "runtime": None,
        "kubelet": "v1.20.15",
        "pods": 0,
        "problem": "too many symbolic links: /opt",
    }
    well = {**row, "name": "linux-2", "state": "running", "ready": True, "problem": None}
    args = argparse.Namespace(output="text", name="dev")
    assert node._list(lambda _verb, _path: {"items": [row, {**well, "runtime": "sim"}]}, args) == 0
    _, first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("linux-1") and "not started" in first
    assert second.startswith("linux-2") and "ready" in second
    assert last == (
        "linux-1 cannot start: too many symbolic links: /opt; see transom doctor --name dev linux-1"
    )
