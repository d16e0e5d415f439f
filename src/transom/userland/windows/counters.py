"""Performance counters of a Windows system, and typeperf, which prints them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.machines.windows.system import SystemResources
from transom.userland.api import ProcessEntry, ProgramContext
from transom.userland.process import Command, Process
from transom.userland.windows import wmi
from transom.userland.windows.clock import wall_clock_time

Counter = Callable[[SystemResources, ProgramContext], list[tuple[str, float]]]


def _single(read: Callable[[SystemResources], float]) -> Counter:
    return lambda found, context: [("", read(found))]


def _of_processes(read: Callable[[ProcessEntry], float]) -> Counter:
    def counter(found: SystemResources, context: ProgramContext) -> list[tuple[str, float]]:
        rows = [
            (wmi.image_name(entry).removesuffix(".exe").lower(), read(entry))
            for entry in wmi.wmi_processes(context)[1:]
        ]
        return [*rows, ("_total", sum(value for _, value in rows))]

    return counter


def _of_disks(read: Callable[[int, int], float]) -> Counter:
    return lambda found, context: [
        (drive.lower(), read(size, free)) for drive, size, free in wmi.local_drives(context)
    ]


_COUNTERS: Final[dict[tuple[str, str], Counter]] = {
    ("memory", "available bytes"): _single(lambda r: r.free_memory),
    ("memory", "available kbytes"): _single(lambda r: r.free_memory >> 10),
    ("memory", "available mbytes"): _single(lambda r: r.free_memory >> 20),
    ("memory", "committed bytes"): _single(lambda r: r.committed),
    ("memory", "commit limit"): _single(lambda r: r.commit_limit),
    ("memory", "% committed bytes in use"): _single(
        lambda r: r.committed / r.commit_limit * 100 if r.commit_limit else 0.0
    ),
    ("paging file", "% usage"): lambda r, c: [
        ("_total", r.page_file_used / r.page_file * 100 if r.page_file else 0.0)
    ],
    ("system", "processes"): lambda r, c: [("", float(len(wmi.wmi_processes(c))))],
    ("system", "system up time"): lambda r, c: [("", c.clock.time() - r.boot_time)],
    ("process", "working set"): _of_processes(lambda e: e.memory),
    ("process", "private bytes"): _of_processes(lambda e: e.memory),
    ("process", "handle count"): _of_processes(lambda e: e.handles),
    ("process", "id process"): _of_processes(lambda e: e.pid),
    ("logicaldisk", "free megabytes"): _of_disks(lambda size, free: free >> 20),
    ("logicaldisk", "% free space"): _of_disks(
        lambda size, free: free / size * 100 if size else 0.0
    ),
}
_PATH: Final = re.compile(r"\\?([^\\(]+)(?:\(([^)]*)\))?\\(.+)")
_PROCESSOR: Final = ("processor", "processor information")
_PROCESSOR_TIME: Final = "% processor time"


class CounterSample(NamedTuple):
    path: str
    instance: str
    value: float


class UnknownCounter(Exception):
    """The text is that of Get-Counter."""


def processor_share(before: SystemResources, now: SystemResources, seconds: float) -> float:
    """The busy share of all processors in an interval."""
    return (now.cpu_seconds - before.cpu_seconds) / max(1e-9, seconds * now.cpus)


def read_counter(
    context: ProgramContext, path: str, resources: SystemResources, share: float
) -> list[CounterSample]:
    """All instances of a counter that a path selects. Raises UnknownCounter."""
    match = _PATH.fullmatch(path)
    if match is None:
        raise UnknownCounter("Internal performance counter API call failed. Error: c0000bb8.")
    name, counter = match[1].lower(), match[3].lower()
    if name in _PROCESSOR and counter == _PROCESSOR_TIME:
        rows = [("_total", min(100.0, share * 100))]
    elif (name, counter) in _COUNTERS:
        rows = _COUNTERS[name, counter](resources, context)
    else:
        raise UnknownCounter("The specified object was not found on the computer.")
    instance = (match[2] or "*").lower()
    computer = context.windows.system.computer_name.lower()
    return [
        CounterSample(
            rf"\\{computer}\{name}" + (f"({one})" if one else "") + rf"\{counter}",
            one,
            float(value),
        )
        for one, value in rows
        if not one or fnmatchcase(one, instance)
    ]


def counter_paths() -> list[str]:
    """As `typeperf -q` lists them."""
    rows = [(name, _PROCESSOR_TIME) for name in _PROCESSOR] + list(_COUNTERS)
    single = ("memory", "system")
    return sorted(
        rf"\{name.title()}" + ("" if name in single else "(*)") + rf"\{counter.title()}"
        for name, counter in rows
    )


_USAGE: Final = (
    "\r\nMicrosoft r TypePerf.exe (10.0.17763.1)\r\n\r\nTypeperf writes performance data to the "
    "command window or to a log file. To\r\nstop Typeperf, press CTRL+C.\r\n\r\nUsage:\r\n"
    "typeperf { <counter [counter ...]>\r\n           | -cf <filename>\r\n"
    "           | -q [object]\r\n           | -qx [object]\r\n         } [options]\r\n"
)
_WITH_VALUE: Final = ("-sc", "-si", "-cf", "-o", "-f")


def _parse(words: list[str]) -> tuple[list[str], dict[str, str]]:
    counters: list[str] = []
    options: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name = word.lower().replace("/", "-", 1)
        if name in _WITH_VALUE and rest:
            options[name] = rest.pop(0)
        elif name.startswith("-"):
            options[name] = ""
        else:
            counters.append(word)
    return counters, options


async def typeperf(process: Process) -> int:
    requested, options = _parse(process.argv[1:])
    if "-q" in options or "-qx" in options:
        wanted = requested[0].lower() if requested else ""
        for path in counter_paths():
            if wanted in path.lower():
                process.print_line(path)
        process.print_line("\r\nThe command completed successfully.")
        return 0
    if "-cf" in options:
        requested += process.files.text(options["-cf"]).split("\n")
    requested = [path.strip() for path in requested if path.strip()]
    if not requested:
        process.print_line(_USAGE)
        return 1
    context = process.context
    before, began = context.windows.resources, context.clock.time()
    try:
        for path in requested:
            read_counter(context, path, before, 0.0)
    except UnknownCounter:
        process.complain("\r\nError: No valid counters.\r\n")
        return 1
    interval = _seconds(options.get("-si", "1"))
    count = int(options["-sc"]) if options.get("-sc", "").isdigit() else 0
    printed = 0
    while not count or printed < count:
        await process.sleep(interval)
        found = context.windows.resources
        share = processor_share(before, found, context.clock.time() - began)
        before, began = found, context.clock.time()
        rows = [one for path in requested for one in read_counter(context, path, found, share)]
        if not printed:
            process.print_line('\r\n"(PDH-CSV 4.0)",' + ",".join(f'"{one.path}"' for one in rows))
        local = wall_clock_time(context, began)
        when = (
            time.strftime("%m/%d/%Y %H:%M:%S", time.gmtime(local)) + f".{int(local % 1 * 1000):03d}"
        )
        process.print_line(f'"{when}",' + ",".join(f'"{one.value:.6f}"' for one in rows))
        printed += 1
    process.print_line("\r\nExiting, please wait...\r\nThe command completed successfully.")
    return 0


def _seconds(text: str) -> float:
    """`5` or `1:30`."""
    total = 0.0
    for part in text.split(":"):
        total = total * 60 + (int(part) if part.isdigit() else 0)
    return max(total, 1.0)


COMMANDS: Final[dict[str, Command]] = {"typeperf": typeperf}
