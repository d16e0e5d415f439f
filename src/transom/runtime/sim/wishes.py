"""Wishes that a pod's annotations express: `sim.transom.dev/KEY`, or `sim.transom.dev/CONTAINER.KEY` for one container.

Pure. Which keys there are is told in docs/simulated-runtime.md. A value that cannot be read counts as not given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from transom.machinery import goduration
from transom.machinery.quantity import parse as parse_quantity

PREFIX = "sim.transom.dev/"
_NONE: Mapping[str, str] = {}
T = TypeVar("T")


class Failing(NamedTuple):
    """`times` 0: always."""

    times: int
    text: str  # "" for the usual one

    def applies(self, attempt: int) -> bool:
        return not self.times or attempt < self.times


class Point(NamedTuple):
    """From so many seconds on there is so much."""

    after: float
    value: float


class Plan(NamedTuple):
    run_time: float | None = None
    exit_code: int | None = None
    ready_delay: float = 0.0
    log: str = ""
    log_lines: int = 0
    log_interval: float = 1.0
    cpu: tuple[Point, ...] = ()
    memory: tuple[Point, ...] = ()
    fail_start: Failing | None = None


NO_PLAN = Plan()


def of_container(annotations: Mapping[str, str], container: str) -> Mapping[str, str]:
    """What applies to a container, by key."""
    if not any(name.startswith(PREFIX) for name in annotations):
        return _NONE
    wishes: dict[str, str] = {}
    own: dict[str, str] = {}
    for name, value in annotations.items():
        if name.startswith(PREFIX):
            owner, dot, key = name[len(PREFIX) :].partition(".")
            if not dot:
                wishes[owner] = value
            elif owner == container:
                own[key] = value
    return wishes | own


def make_plan(wishes: Mapping[str, str], attempt: int) -> Plan:
    """`attempt` is how many times the container has been started before."""
    if not wishes:
        return NO_PLAN
    run_time, exit_code = _read(_seconds, wishes, "run-time"), _read(int, wishes, "exit-code")
    crash, times = _read(_seconds, wishes, "crash"), _read(int, wishes, "times")
    if crash is not None:
        run_time, exit_code = crash, 1 if exit_code is None else exit_code
    elif run_time is None and exit_code is not None:
        run_time = 0.0
    if times is not None and attempt >= times:
        run_time = exit_code = None
    return Plan(
        run_time=run_time,
        exit_code=exit_code,
        ready_delay=_read(_seconds, wishes, "ready-delay") or 0.0,
        log=wishes.get("log", ""),
        log_lines=_read(int, wishes, "log-lines") or 0,
        log_interval=_interval(wishes),
        cpu=_read(_curve, wishes, "cpu") or (),
        memory=_read(_curve, wishes, "memory") or (),
        fail_start=failing(wishes, "fail-start"),
    )


def failing(wishes: Mapping[str, str], key: str) -> Failing | None:
    """`true`, a number (only so many times), or the text of the failure."""
    value = wishes.get(key, "")
    if value in ("", "false", "0"):
        return None
    if value == "true":
        return Failing(0, "")
    return Failing(int(value), "") if value.isdigit() else Failing(0, value)


def stalled(wishes: Mapping[str, str]) -> float:
    """For how many seconds a pull makes no progress."""
    return _read(_seconds, wishes, "stall-pull") or 0.0


def _interval(wishes: Mapping[str, str]) -> float:
    interval = _read(_seconds, wishes, "log-interval")
    return 1.0 if interval is None else max(interval, 0.001)


def _read(reader: Callable[[str], T], wishes: Mapping[str, str], key: str) -> T | None:
    value = wishes.get(key)
    if value is None:
        return None
    try:
        return reader(value.strip())
    except ValueError:
        return None


def _seconds(text: str) -> float:
    seconds = float(text) if text.replace(".", "", 1).isdigit() else goduration.parse(text)
    if seconds < 0:
        raise ValueError(text)
    return seconds


def _curve(text: str) -> tuple[Point, ...]:
    """`0s=50Mi,60s=300Mi`, or one value for all the time."""
    points = []
    for part in text.split(","):
        when, _, value = part.rpartition("=")
        points.append(Point(_seconds(when.strip()) if when else 0.0, float(parse_quantity(value.strip()).to_float())))
    return tuple(sorted(points))
