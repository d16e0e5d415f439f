"""Runs a test cluster in a thread of the test's own process: no second process, and a debugger or a
profiler of the test sees the cluster too.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from transom.cluster.temporary import ClusterOptions, kubeconfig_file
from transom.kit.lazy import lazy_import
from transom.kit.user_errors import UserError
from transom.testing.process import START_SECONDS, ClusterNotStarted

if TYPE_CHECKING:
    from transom.cluster import lifecycle
    from transom.kit import adjustable_clock, process
else:
    lifecycle = lazy_import("transom.cluster.lifecycle")
    adjustable_clock = lazy_import("transom.kit.adjustable_clock")
    process = lazy_import("transom.kit.process")

_LOG_LINES = 200


class _LastLines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: collections.deque[str] = collections.deque(maxlen=_LOG_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class ClusterThread:
    """A cluster with an event loop of its own."""

    def __init__(self, options: ClusterOptions, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._problem: BaseException | None = None
        self._started = threading.Event()
        self._log = _LastLines()
        self._thread = threading.Thread(target=self._run, name="transom-cluster", daemon=True)
        self.kubeconfig = kubeconfig_file(folder)

    def start(self) -> None:
        """Returns when the cluster is ready."""
        logging.getLogger("transom").addHandler(self._log)
        self._thread.start()
        if not self._started.wait(START_SECONDS):
            raise ClusterNotStarted(
                f"the cluster is not ready after {START_SECONDS:.0f} s; the end of its log:\n"
                f"{self.log_tail()}"
            )
        if isinstance(self._problem, UserError):
            hint = f"; {self._problem.hint}" if self._problem.hint else ""
            raise ClusterNotStarted(self._problem.message + hint) from self._problem
        if self._problem is not None:
            raise ClusterNotStarted(f"the cluster failed: {self._problem}") from self._problem

    def log_tail(self) -> str:
        return "\n".join(self._log.lines)

    def stop(self) -> None:
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None and self._thread.is_alive():
            loop.call_soon_threadsafe(stopping.set)
        self._thread.join()
        logging.getLogger("transom").removeHandler(self._log)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self) -> None:
        factory = (
            adjustable_clock.IdleDetectingLoop
            if self._options.virtual_time
            else process.new_event_loop
        )
        try:
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(self._serve())
        except BaseException as problem:
            self._problem = problem
        finally:
            self._loop = None
            self._started.set()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        await lifecycle.serve_in_event_loop(
            self._options.up_options(self._folder), self._started.set, self._stopping
        )


def start_cluster_thread(options: ClusterOptions) -> ClusterThread:
    """Returns when the cluster is ready."""
    cluster = ClusterThread(options, Path(tempfile.mkdtemp(prefix="transom-test-")))
    try:
        cluster.start()
    except BaseException:
        cluster.stop()
        raise
    return cluster
