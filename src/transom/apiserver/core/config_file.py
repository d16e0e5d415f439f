"""A configuration file that is read again when it changes. A new version is used only if it is
valid; otherwise the server keeps the one before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from transom.kit.clock import Clock
from transom.kit.prometheus import Family, Sample
from transom.machinery.apiserver_config import ConfigurationError

log = logging.getLogger("transom.apiserver")

_POLL_SECONDS: Final = 1.0
_MOST_BYTES: Final = 1 << 20


def read_config_file(path: str) -> bytes:
    """Raises ConfigurationError."""
    try:
        with Path(path).open("rb") as opened:
            data = opened.read(_MOST_BYTES + 1)
    except OSError as problem:
        text = (problem.strerror or str(problem)).lower()
        raise ConfigurationError(f"open {path}: {text}") from None
    if len(data) > _MOST_BYTES:
        raise ConfigurationError(f"{path} is larger than {_MOST_BYTES} bytes")
    return data


class ConfigFile:
    """`apply` uses the content of the file, or raises ConfigurationError. `kind` is authentication
    or authorization, as in the names of the metrics.
    """

    def __init__(self, path: str, kind: str, apply: Callable[[bytes], None], clock: Clock) -> None:
        self._path, self._kind, self._apply, self._clock = path, kind, apply, clock
        self._last = read_config_file(path)
        self._apply(self._last)
        self._reloads = {"success": 0, "failure": 0}
        self._times: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._poll())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _poll(self) -> None:
        while True:
            await self._clock.sleep(_POLL_SECONDS)
            try:
                data = await asyncio.to_thread(read_config_file, self._path)
            except ConfigurationError as problem:
                data, missing = b"", str(problem)
            else:
                missing = ""
            self.reload(data, missing)

    def reload(self, data: bytes, missing: str = "") -> None:
        """Uses new content. `missing` says why there is none."""
        if data == self._last:
            return
        self._last = data
        try:
            if missing:
                raise ConfigurationError(missing)
            self._apply(data)
        except ConfigurationError as problem:
            log.error("reloading %s config: %s", self._kind, problem)
            self._count("failure")
            return
        log.info("reloaded %s config %s", self._kind, self._path)
        self._count("success")

    def _count(self, status: str) -> None:
        self._reloads[status] += 1
        self._times[status] = self._clock.time()

    def collect_metrics(self) -> list[Family]:
        prefix = f"apiserver_{self._kind}_config_controller_automatic_reload"
        return [
            Family(
                f"{prefix}s_total",
                "counter",
                f"[BETA] Total number of automatic reloads of {self._kind} configuration split by "
                "status and apiserver identity.",
                [Sample((("status", k),), v) for k, v in self._reloads.items() if v],
            ),
            Family(
                f"{prefix}_last_timestamp_seconds",
                "gauge",
                f"[BETA] Timestamp of the last automatic reload of {self._kind} configuration split by "
                "status and apiserver identity.",
                [Sample((("status", k),), v) for k, v in self._times.items()],
            ),
        ]
