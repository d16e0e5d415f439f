"""The faults of etcd members have the described effect."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.jepsen.members import EtcdMember, NamespacedEtcd, missing_for_namespaces

_WAIT_SECONDS = 30.0


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[NamespacedEtcd]:
    if missing := missing_for_namespaces():
        pytest.skip(f"members cannot have namespaces: {missing}")
    made = NamespacedEtcd(tmp_path / "members")
    try:
        made.start()
        yield made
    finally:
        made.stop()


def _wait(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _put(one: EtcdMember, size: int = 1) -> float | None:
    """How long a write took; None if it failed."""
    began = time.monotonic()
    command = ["etcdctl", f"--endpoints={one.client}", "--command-timeout=2s", "put", "k"]
    done = subprocess.run([*command, "x" * size], capture_output=True, timeout=30, check=False)
    return time.monotonic() - began if done.returncode == 0 else None


@pytest.mark.timeout(120)
def test_each_fault_of_a_member_shows_and_ends(etcd: NamespacedEtcd) -> None:
    leader = etcd.leader()
    assert leader is not None
    others = [one for one in etcd.members if one is not leader]
    assert etcd.move_leader(others[0])
    _wait(lambda: etcd.leader() is others[0])

    # A leader without the others loses its role, although clients reach it.
    etcd.partition(others[0], clients=False)
    _wait(lambda: etcd.leader() not in (None, others[0]) and _put(others[0]) is None)
    assert _put(others[1]) is not None
    etcd.heal()
    _wait(lambda: _put(others[0]) is not None)

    etcd.partition(others[0], clients=True)
    _wait(lambda: _put(others[0]) is None)
    etcd.heal()
    _wait(lambda: _put(others[0]) is not None)

    # A write is durable at a majority, of which a slow leader is one.
    leader = etcd.leader()
    assert leader is not None
    with etcd.slow_disk(leader, 0.4):
        _wait(lambda: (_put(leader) or 0.0) > 0.4)

    etcd.fill(leader)
    _wait(lambda: leader.pid is None or (_put(leader, 100_000) is None and leader.pid is None))
    etcd.free(leader)
    etcd.restart_ended()
    _wait(lambda: _put(leader) is not None)
