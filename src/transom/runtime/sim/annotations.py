"""Simulation settings from a pod's annotations: `sim.transom.dev/KEY`, or
`sim.transom.dev/CONTAINER.KEY` for one container.

Pure. docs/simulated-runtime.md lists the keys. An invalid value is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from transom.kit.durations import parse_duration
from transom.kit.named_tuple import NamedTuple
from transom.machinery.quantity import parse_quantity

PREFIX = "sim.transom.dev/"
_NONE: Mapping[str, str] = {}
T = TypeVar("T")


class SimulatedFailure(NamedTuple):
    """`times` 0: always."""

    times: int
    text: str  # "" for the default text

    def applies(self, attempt: int) -> bool:
        return not self.times or attempt < self.times


class UsagePoint(NamedTuple):
    """Pairs of a time in seconds and the value from then on."""

    after: float
    value: float


class ContainerPlan(NamedTuple):
    run_time: float | None = None
    exit_code: int | None = None
    ready_delay: float = 0.0
    log: str = ""
    log_lines: int = 0
    log_interval: float = 1.0
    cpu: tuple[UsagePoint, ...] = ()
    memory: tuple[UsagePoint, ...] = ()
    fail_start: SimulatedFailure | None = None


NO_PLAN = ContainerPlan()


def annotations_of_container(annotations: Mapping[str, str], container: str) -> Mapping[str, str]:
    """The settings that apply to a container, by key."""
    if not any(name.startswith(PREFIX) for name in annotations):
        return _NONE
    settings: dict[str, str] = {}
    own: dict[str, str] = {}
    for name, value in annotations.items():
        if name.startswith(PREFIX):
            owner, dot, key = name[len(PREFIX) :].partition(".")
            if not dot:
                settings[owner] = value
            elif owner == container:
                own[key] = value
    return settings | own


def make_container_plan(settings: Mapping[str, str], attempt: int) -> ContainerPlan:
    """`attempt` is how many times the container has been started before."""
    if not settings:
        return NO_PLAN
    run_time, exit_code = _read(_seconds, settings, "run-time"), _read(int, settings, "exit-code")
    crash, times = _read(_seconds, settings, "crash"), _read(int, settings, "times")
    if crash is not None:
        run_time, exit_code = crash, 1 if exit_code is None else exit_code
    elif run_time is None and exit_code is not None:
        run_time = 0.0
    if times is not None and attempt >= times:
        run_time = exit_code = None
    return ContainerPlan(
        run_time=run_time,
        exit_code=exit_code,
        ready_delay=_read(_seconds, settings, "ready-delay") or 0.0,
        log=settings.get("log", ""),
        log_lines=_read(int, settings, "log-lines") or 0,
        log_interval=_interval(settings),
        cpu=_read(_curve, settings, "cpu") or (),
        memory=_read(_curve, settings, "memory") or (),
        fail_start=simulated_failure(settings, "fail-start"),
    )


def simulated_failure(settings: Mapping[str, str], key: str) -> SimulatedFailure | None:
    """`true`, a number (fail only this many times), or the error text."""
    value = settings.get(key, "")
    if value in ("", "false", "0"):
        return None
    if value == "true":
        return SimulatedFailure(0, "")
    return SimulatedFailure(int(value), "") if value.isdigit() else SimulatedFailure(0, value)


def pull_stall_seconds(settings: Mapping[str, str]) -> float:
    """For how many seconds a pull makes no progress."""
    return _read(_seconds, settings, "stall-pull") or 0.0


def _interval(settings: Mapping[str, str]) -> float:
    interval = _read(_seconds, settings, "log-interval")
    return 1.0 if interval is None else max(interval, 0.001)


def _read(reader: Callable[[str], T], settings: Mapping[str, str], key: str) -> T | None:
    value = settings.get(key)
    if value is None:
        return None
    try:
        return reader(value.strip())
    except ValueError:
        return None


def _seconds(text: str) -> float:
    seconds = float(text) if text.replace(".", "", 1).isdigit() else parse_duration(text)
    if seconds < 0:
        raise ValueError(text)
    return seconds


def _curve(text: str) -> tuple[UsagePoint, ...]:
    """`0s=50Mi,60s=300Mi`, or one constant value."""
    points = []
    for part in text.split(","):
        when, _, value = part.rpartition("=")
        points.append(
            UsagePoint(
                _seconds(when.strip()) if when else 0.0,
                float(parse_quantity(value.strip()).to_float()),
            )
        )
    return tuple(sorted(points))
