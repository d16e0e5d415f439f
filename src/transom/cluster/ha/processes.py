"""A child process that is restarted when it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from transom.kit.process import end_with_parent

log = logging.getLogger("transom.cluster")

_BACK_OFF: Final = (0.2, 10.0)  # seconds before a restart: the first, at most
_STEADY_SECONDS: Final = 30.0  # a process that ran this long restarts without delay again

ReportLine = Callable[[str], None]


class ManagedProcess:
    """`on_line` receives the lines that the process writes to standard output; its standard error
    goes to `log_file`, or to that of this process.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        on_line: ReportLine | None = None,
        on_start: Callable[[], Any] | None = None,
        log_file: int | None = None,
        parent_death_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name = name
        self._command = list(command)
        self._on_line = on_line
        self._on_start = on_start
        self._log_file = log_file
        self._parent_death_signal = parent_death_signal
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._planned = False  # the current end is a restart on request
        self.restarts = 0
        self._started = 0.0

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def status(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "pid": self.pid,
            "restarts": self.restarts,
            "uptimeSeconds": int(time.monotonic() - self._started) if self.pid else None,
        }

    async def start(self) -> None:
        """Returns when the process exists."""
        self._stopping = False
        await self._launch()
        self._task = asyncio.create_task(self._keep(), name=self.name)

    async def _launch(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if self._on_line is not None else self._log_file,
            stderr=self._log_file,
            preexec_fn=partial(end_with_parent, self._parent_death_signal),
        )
        self._started = time.monotonic()
        log.info("%s is process %d", self.name, self._process.pid)
        if self._on_start is not None:
            self._on_start()

    async def _keep(self) -> None:
        pause = _BACK_OFF[0]
        while True:
            process = self._process
            assert process is not None
            await self._read_lines(process)
            code = await process.wait()
            if self._stopping:
                return
            if not self._planned:
                why = f"signal {-code}" if code < 0 else f"exit code {code}"
                log.warning("%s has ended (%s); restarting it", self.name, why)
                self.restarts += 1
                steady = time.monotonic() - self._started > _STEADY_SECONDS
                pause = _BACK_OFF[0] if steady else min(pause * 2, _BACK_OFF[1])
                await asyncio.sleep(pause)
            self._planned = False
            if self._stopping:
                return
            await self._launch()

    async def _read_lines(self, process: asyncio.subprocess.Process) -> None:
        if process.stdout is None or self._on_line is None:
            return
        async for line in process.stdout:
            self._on_line(line.decode(errors="replace").rstrip("\n"))

    def signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)

    async def restart(self, seconds: float) -> None:
        """Ends the process, and returns when there is a new one."""
        before = self._process
        self._planned = True
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while self._process is before or self.pid is None:
            if time.monotonic() > deadline:
                log.warning("%s did not stop within %.0f s, killing it", self.name, seconds)
                self.signal(signal.SIGKILL)
                deadline += seconds
            await asyncio.sleep(0.02)

    async def stop(self, seconds: float) -> None:
        self._stopping = True
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        if self._task is None:
            return
        done, _ = await asyncio.wait((self._task,), timeout=seconds)
        if not done:
            log.info("%s did not stop within %.0f s, killing it", self.name, seconds)
            self.signal(signal.SIGKILL)
            await asyncio.wait((self._task,), timeout=seconds)
