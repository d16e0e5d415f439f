"""The event logs and scheduled tasks of a Windows system, which are on its disk and survive a
reboot. Independent of the rest of the system.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, field
from typing import Final

from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.machines.saving import Document

_MAX_EVENTS: Final = 2000


class LogEntry(NamedTuple):
    """An entry of an event log."""

    number: int
    log: str
    time: float
    level: str  # "Information", "Warning", "Error"
    source: str
    event_id: int
    message: str


@dataclass(slots=True)
class ScheduledTask:
    name: str
    command: str
    schedule: str
    user: str
    state: str = "Ready"
    enabled: bool = True
    next_run: float | None = None
    last_run: float | None = None
    last_result: int = 267011  # the task has not yet run
    every: float = 0.0  # seconds between two runs; 0: it is not repeated
    days: list[int] = field(default_factory=list)  # of a weekly task; 0 is Sunday
    run_level: str = "Limited"
    description: str = ""
    start: float | None = None  # the first moment at which it was due


@dataclass(slots=True)
class SystemJournal:
    events: deque[LogEntry] = field(default_factory=lambda: deque(maxlen=_MAX_EVENTS))
    tasks: dict[str, ScheduledTask] = field(default_factory=dict)  # by name in lower case
    entries: int = 0  # ever created

    def log(
        self, log: str, time: float, level: str, source: str, event_id: int, message: str
    ) -> None:
        self.entries += 1
        self.events.append(LogEntry(self.entries, log, time, level, source, event_id, message))

    def save(self) -> Document:
        return {
            "entries": self.entries,
            "events": [tuple(entry) for entry in self.events],
            "tasks": [asdict(task) for task in self.tasks.values()],
        }

    def restore(self, saved: Document) -> None:
        self.entries = saved["entries"]
        self.events.clear()
        self.events.extend(LogEntry(*row) for row in saved["events"])
        self.tasks.clear()
        for row in saved["tasks"]:
            task = ScheduledTask(**row)
            self.tasks[task.name.lower()] = task
