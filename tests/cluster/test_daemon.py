"""How long a client waits for a cluster that is starting."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from transom.cluster import daemon, kubeconfig, lifecycle
from transom.cluster.config import ClusterConfig
from transom.cluster.daemon import ClusterLock
from transom.cluster.options import UpOptions
from transom.kit import files
from transom.kit.user_errors import UserError
from transom.node.settings import name_option

SLOW = 25.0  # seconds between two pieces of news


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterConfig:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return ClusterConfig(name="slow")


def _wait(
    says: Sequence[bytes], config: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """What a cluster says to who waits 30 s; then it says nothing more."""
    reader, writer = os.pipe()
    now, news, recorded = [0.0], list(says), list[str]()

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
            daemon.wait_daemon_ready(reader, config, 30.0, recorded.append)
        finally:
            os.close(writer)
    return recorded


def test_a_slow_machine_is_waited_for_while_it_gets_on(
    config: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = [b"the control plane is up\n", b"node a is ready\n", daemon._READY]
    assert _wait(says, config, monkeypatch) == ["the control plane is up", "node a is ready"]


def test_why_it_cannot_start_is_reported_without_its_log(
    config: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = [b'error ["/data/x: No space left on device", "free space", 4]\n']
    with pytest.raises(UserError, match="No space left on device") as refused:
        _wait(says, config, monkeypatch)
    assert (refused.value.hint, refused.value.code) == ("free space", 4)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, 4),
        (errno.EDQUOT, 4),
        (errno.EROFS, 4),
        (errno.EACCES, 4),
        (errno.EIO, 4),
        (errno.ENOENT, 1),
    ],
)
def test_a_disk_that_cannot_be_written_is_one_line_and_a_next_step(
    config: ClusterConfig,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
    code: int,
) -> None:
    from transom.cli.main import main

    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number), "/data/x")

    monkeypatch.setattr(kubeconfig, "check_kubeconfig", lambda path: None)
    monkeypatch.setattr(daemon.os, "open", refuse)
    assert main(["up", "--name", "slow", "--no-nodes"]) == code
    printed = capsys.readouterr().err
    assert f"error: /data/x: {os.strerror(number)}\n" in printed and "Traceback" not in printed
    assert len(printed.splitlines()) == (2 if code == 4 else 1)


def test_a_file_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as refused:
        files.write_atomic(tmp_path / "a", b"x")
    assert refused.value.filename == str(tmp_path / "a") and not list(tmp_path.iterdir())


def test_one_that_says_nothing_is_not(
    config: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(daemon.NotReadyYet, match="has reported nothing for 30 s"):
        _wait([b"the control plane is up\n"], config, monkeypatch)


def test_a_cluster_that_starts_slowly_can_be_reached_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(
        config: ClusterConfig, lock: ClusterLock, sockets: list[socket.socket], serve: object
    ) -> int:
        lock.release()
        for sock in sockets:
            sock.close()
        return os.open(os.devnull, os.O_RDONLY)

    def wait(pipe: int, *_: object) -> None:
        os.close(pipe)
        raise daemon.NotReadyYet("not yet")

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(daemon, "start_daemon", start)
    monkeypatch.setattr(daemon, "wait_daemon_ready", wait)
    with pytest.raises(daemon.NotReadyYet):
        lifecycle.start_cluster(
            UpOptions(name="slow", nodes=False, kubeconfig=tmp_path / "kubeconfig"), print
        )
    assert "current-context: slow" in (tmp_path / "kubeconfig").read_text()


def test_hints_of_a_cluster_do_not_depend_on_the_shell_that_started_it(
    config: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSOM_NAME", config.name)

    def serve(report: Callable[[str], None]) -> None:
        report(f"transom status{name_option(config.name)}")
        report("")

    reader = daemon.start_daemon(config, ClusterLock(config), (), serve)
    recorded: list[str] = []
    daemon.wait_daemon_ready(reader, config, 30.0, recorded.append)
    assert recorded == ["transom status --name slow"]
