"""Starts and stops the process of a test cluster."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Timer
from typing import Protocol

from transom.cluster.temporary import ClusterOptions, kubeconfig_file

START_SECONDS = 60.0
STOP_SECONDS = 15.0
_SERVER = "transom.cluster.temporary"
_LOG_TAIL = 4000  # characters of the log in an error


class ClusterNotStarted(Exception):
    """The cluster could not be started; the message has the reason."""


class RunningCluster(Protocol):
    @property
    def kubeconfig(self) -> Path: ...

    def log_tail(self) -> str: ...

    def stop(self) -> None: ...


class ClusterProcess:
    """A cluster in a child process, with its state in a temporary directory."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self._folder = folder
        self._process = process
        self.kubeconfig = kubeconfig_file(folder)

    def wait_ready(self) -> None:
        assert self._process.stdout is not None
        deadline = Timer(START_SECONDS, self._process.kill)
        deadline.daemon = True
        deadline.start()
        try:
            for line in self._process.stdout:
                message = json.loads(line)
                if "error" in message:
                    hint = f"; {message['hint']}" if message["hint"] else ""
                    raise ClusterNotStarted(message["error"] + hint)
                if message.get("ready"):
                    return
        finally:
            deadline.cancel()
        raise ClusterNotStarted(
            f"the process of the cluster ended; the end of its log:\n{self.log_tail()}"
        )

    def log_tail(self) -> str:
        """The end of what the cluster logged."""
        return _log(self._folder).read_text(errors="replace")[-_LOG_TAIL:]

    def stop(self) -> None:
        """Stops the process and removes its files; safe to call twice."""
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def start_cluster_process(options: ClusterOptions) -> ClusterProcess:
    """Returns when the cluster is ready."""
    folder = Path(tempfile.mkdtemp(prefix="transom-test-"))
    with _log(folder).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", _SERVER, options.dump(), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,  # CTRL+C stops the tests, which then stop the cluster
        )
    cluster = ClusterProcess(folder, process)
    try:
        cluster.wait_ready()
    except BaseException:
        cluster.stop()
        raise
    return cluster


def _log(folder: Path) -> Path:
    return folder / "log"
