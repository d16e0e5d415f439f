"""How long somebody waits for a cluster that is starting."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from transom.cluster import daemon, lifecycle
from transom.cluster.config import ClusterConfig
from transom.cluster.daemon import Lock

SLOW = 25.0  # seconds between two pieces of news


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterConfig:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return ClusterConfig(name="slow")


def _wait(says: Sequence[bytes], config: ClusterConfig, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a cluster says to who waits 30 s; then it says nothing more."""
    reader, writer = os.pipe()
    now, news, told = [0.0], list(says), list[str]()

    def wait(readers: list[int], _: object, __: object, seconds: float) -> tuple[list[int], ...]:
        if not news:
            now[0] += seconds
            return [], [], []
        now[0] += SLOW
        os.write(writer, news.pop(0))
        return readers, [], []

    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", lambda: now[0])
        patched.setattr(select, "select", wait)
        try:
            daemon.wait_ready(reader, config, 30.0, told.append)
        finally:
            os.close(writer)
    return told


def test_a_slow_machine_is_waited_for_while_it_gets_on(config: ClusterConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    says = [b"the control plane is up\n", b"node a is ready\n", daemon._READY]
    assert _wait(says, config, monkeypatch) == ["the control plane is up", "node a is ready"]


def test_one_that_says_nothing_is_not(config: ClusterConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(daemon.NotReadyYet, match="has said nothing for 30 s"):
        _wait([b"the control plane is up\n"], config, monkeypatch)


def test_one_that_goes_on_starting_can_be_reached_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(config: ClusterConfig, lock: Lock, sockets: list[socket.socket], serve: object) -> int:
        lock.release()
        for sock in sockets:
            sock.close()
        return os.open(os.devnull, os.O_RDONLY)

    def wait(pipe: int, *_: object) -> None:
        os.close(pipe)
        raise daemon.NotReadyYet("not yet")

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(daemon, "start", start)
    monkeypatch.setattr(daemon, "wait_ready", wait)
    with pytest.raises(daemon.NotReadyYet):
        lifecycle.up(lifecycle.Wanted(name="slow", nodes=False, kubeconfig=tmp_path / "kubeconfig"), print)
    assert "current-context: slow" in (tmp_path / "kubeconfig").read_text()
