"""Records which functions of Transom a process calls: Python imports this module at its start where the
folder is in PYTHONPATH.

The record is a line for each function: its file, its name and the times of its calls. A process
writes it at its end to a file in WALK_RECORDS; a running one begins again at SIGUSR1, and writes the
record at SIGUSR2.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

MOST_CALLS = 1000  # of one function
PACKAGE = f"{os.sep}src{os.sep}transom{os.sep}"


class Recorder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls: dict[CodeType, list[int]] = {}

    def profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            times = self._calls.setdefault(frame.f_code, [])
            if len(times) < MOST_CALLS:
                times.append(time.monotonic_ns())

    def begin(self, *_signal: Any) -> None:
        self._calls.clear()
        (self._folder / f"{os.getpid()}.begun").touch()

    def write(self, *_signal: Any) -> None:
        lines = [
            f"{code.co_filename.split(PACKAGE)[1]} {code.co_qualname} {' '.join(map(str, times))}\n"
            for code, times in self._calls.copy().items()
            if PACKAGE in code.co_filename
        ]
        path = self._folder / f"{os.getpid()}.part"
        path.write_text("".join(lines))
        path.rename(path.with_suffix(".record"))


if "WALK_RECORDS" in os.environ:
    recorder = Recorder(Path(os.environ["WALK_RECORDS"]))
    signal.signal(signal.SIGUSR1, recorder.begin)
    signal.signal(signal.SIGUSR2, recorder.write)
    atexit.register(recorder.write)
    threading.setprofile(recorder.profile)
    sys.setprofile(recorder.profile)
