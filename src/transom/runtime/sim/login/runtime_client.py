"""The common part of docker and crictl on a node: records, logs, flags and tables of output."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from transom.runtime.sim import commands
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.login.machine import WindowsMachine
from transom.runtime.sim.login.node_runtime import NodeRuntime
from transom.runtime.sim.login.units import LinuxMachine
from transom.runtime.sim.records import SimContainer, SimSandbox
from transom.userland.process import Process


class RuntimeClient:
    """The client of a node's container runtime: its process, and the machine whose containers
    it shows.
    """

    __slots__ = ("machine", "process")

    def __init__(self, process: Process, machine: WindowsMachine | LinuxMachine) -> None:
        self.process = process
        self.machine = machine

    @property
    def engine(self) -> NodeRuntime:
        engine = self.machine.engine
        assert engine is not None, "a machine has a runtime"
        return engine

    @property
    def core(self) -> SimCore:
        return self.engine.core

    def print_line(self, text: str = "") -> None:
        self.process.write(text + "\n")


# flags without values, as in `docker ps -aq` and `docker exec -it`
_COMBINED: Final = re.compile("-[aqlsfit]{2,}")


def elapsed_text(seconds: float, suffix: str = "") -> str:
    """A duration in the format of docker and crictl."""
    for size, name in (
        (86400 * 365, "year"),
        (86400 * 30, "month"),
        (86400 * 7, "week"),
        (86400, "day"),
    ):
        if seconds >= size * (2 if name in ("month", "week", "day") else 1):
            number = int(seconds // size)
            return f"{number} {name}{'s' if number != 1 else ''}{suffix}"
    hours, minutes = int(seconds // 3600), int(seconds // 60)
    if hours >= 2:
        return f"{hours} hours{suffix}"
    if hours == 1 or minutes >= 60:
        return f"About an hour{suffix}"
    if minutes >= 2:
        return f"{minutes} minutes{suffix}"
    if minutes == 1:
        return f"About a minute{suffix}"
    return (
        f"{max(int(seconds), 0)} seconds{suffix}" if seconds >= 1 else f"Less than a second{suffix}"
    )


def print_columns(client: RuntimeClient, rows: Sequence[Sequence[str]], gap: int = 3) -> None:
    widths = [max(len(row[column]) for row in rows) + gap for column in range(len(rows[0]))]
    for row in rows:
        client.print_line(
            "".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip(),
        )


def parse_flags(
    words: Sequence[str], valued: Sequence[str]
) -> tuple[list[str], dict[str, list[str]]]:
    """The remaining arguments of a command line, and its options with their values."""
    plain: list[str] = []
    found: dict[str, list[str]] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if _COMBINED.fullmatch(word):
            rest[:0] = [f"-{letter}" for letter in word[1:]]
            continue
        if not word.startswith("-") or word == "-":
            plain.append(word)
            if len(plain) > 1:  # for exec: the command's own
                plain += rest
                break
            continue
        name, has, value = word.partition("=")
        if not has and name in valued and rest:
            value = rest.pop(0)
        found.setdefault(name, []).append(value)
    return plain, found


Either = SimSandbox | SimContainer


def _lines(content: bytes) -> Iterator[tuple[str, str]]:
    """The stream and the text of each record of a container's log, in docker's format or in
    CRI's.
    """
    for line in content.decode("utf-8", "replace").splitlines():
        if line.startswith("{"):
            record = json.loads(line)
            yield record.get("stream", "stdout"), record.get("log", "").rstrip("\r\n")
        else:
            parts = line.split(" ", 3)
            if len(parts) == 4:
                yield parts[1], parts[3].rstrip("\r")


def print_log(client: RuntimeClient, one: Either, tail: str) -> int:
    if isinstance(one, SimSandbox) or not one.log.path:
        return 0
    try:
        lines = list(_lines(client.core.host.files.read(one.log.path)))
    except OSError:
        lines = []
    for stream, text in (
        lines[-int(tail) :] if tail.isdigit() and int(tail) else [] if tail == "0" else lines
    ):
        (client.process.stderr if stream == "stderr" else client.process.stdout).write(
            f"{text}\n".encode()
        )
    return 0


async def exec_in_container(
    client: RuntimeClient, one: SimContainer, command: Sequence[str]
) -> int:
    def output(stream: str, data: bytes) -> None:
        (client.process.stderr if stream == "stderr" else client.process.stdout).write(data)

    return await commands.exec_sim(client.core, one, command, output).wait()
