"""`transom up --store etcd://...`: a cluster whose objects are in etcd."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.etcd_process import EtcdProcess, require_etcd


@pytest.fixture
def member(tmp_path: Path) -> Iterator[EtcdProcess]:
    require_etcd()
    member = EtcdProcess(tmp_path / "etcd").start()
    yield member
    member.kill()


class Shell:
    def __init__(self, folder: Path) -> None:
        self._env = os.environ | {"XDG_DATA_HOME": str(folder / "home"), "HOME": str(folder)}
        self._kubeconfig = folder / "kubeconfig"

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "transom.cli.main", *args]
        return subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=100)

    def up(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self.run("up", "--no-nodes", "--kubeconfig", str(self._kubeconfig), *args)

    def status(self) -> dict[str, object]:
        return json.loads(self.run("status", "-o", "json").stdout)


def test_a_cluster_on_etcd_restarts_with_its_objects(member: EtcdProcess, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    started = shell.up("--store", f"etcd://{member.address}")
    try:
        assert started.returncode == 0, started.stderr
        report = shell.status()
        assert report["ready"] is True and report["failedChecks"] == []
        revision = report["store"]["revision"]  # type: ignore[index]
        assert shell.run("snapshot", "save", str(tmp_path / "s.snapshot")).returncode == 0
        assert shell.run("down").returncode == 0
        stopped = shell.run("snapshot", "save", str(tmp_path / "t.snapshot"))
        assert stopped.returncode == 0, stopped.stderr
        assert shell.run("snapshot", "verify", str(tmp_path / "t.snapshot")).returncode == 0
        again = shell.up()  # remembers the store
        assert again.returncode == 0, again.stderr
        report = shell.status()
        assert report["ready"] is True
        assert report["store"]["revision"] >= revision  # type: ignore[index]
        assert not list((tmp_path / "home").rglob("store.db"))
        # A snapshot becomes a cluster of its own, with a file.
        assert (
            shell.run(
                "snapshot", "restore", str(tmp_path / "s.snapshot"), "--name", "copy"
            ).returncode
            == 0
        )
        assert list((tmp_path / "home").rglob("store.db"))
    finally:
        shell.run("delete")


def test_a_store_that_is_not_valid_or_does_not_answer_is_reported(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    wrong = shell.up("--store", "http://127.0.0.1:2379")
    assert wrong.returncode == 2
    assert "use etcd://HOST:PORT" in wrong.stderr
