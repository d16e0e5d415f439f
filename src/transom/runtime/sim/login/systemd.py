"""systemctl, journalctl and service on a simulated Linux machine, for its real services."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from transom.kit.clock import rfc3339_micro
from transom.kit.regexp import compile_regexp
from transom.runtime.sim.login.linux_power import POWER_VERBS, power_verb
from transom.runtime.sim.login.units import CONTAINERD, LinuxMachine, UnitState
from transom.userland.process import Process

_MONTHS: Final = (
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
)
_NOT_FOUND: Final = 4  # of status
_NOT_LOADED: Final = 5  # of start, stop and the like
_INACTIVE: Final = 3
_SUB: Final = {
    "active": "running",
    "activating": "auto-restart",
    "inactive": "dead",
    "failed": "failed",
}
_DESCRIPTIONS: Final = {
    CONTAINERD: "containerd container runtime",
    "kubelet": "kubelet: The Kubernetes Node Agent",
    "kube-proxy": "kube-proxy: The Kubernetes Network Proxy",
    "flanneld": "flanneld: The overlay network of pods",
}
_CONTAINERD_UNIT: Final = "/usr/lib/systemd/system/containerd.service"
_STATUS_LINES: Final = 10


class _Systemctl:
    def __init__(self, machine: LinuxMachine, process: Process) -> None:
        self._machine = machine
        self._process = process
        self._now = False
        self._quiet = False
        self._lines = _STATUS_LINES
        self._properties: list[str] = []
        self._value = False
        self._failed = False

    async def run(self) -> int:
        words = self._options()
        if words is None:
            return 1
        verb, names = (words[0], words[1:]) if words else ("list-units", [])
        if verb == "list-units":
            return self._list_units()
        if verb == "list-unit-files":
            return self._list_unit_files()
        if verb in POWER_VERBS:
            return power_verb(self._machine, verb)
        if verb in ("daemon-reload", "daemon-reexec", "reset-failed"):
            return 0
        verbs: dict[str, Callable[[str], Awaitable[int]]] = {
            "status": self._status,
            "start": self._start,
            "stop": self._stop,
            "restart": self._restart,
            "reload-or-restart": self._restart,
            "try-restart": self._try_restart,
            "kill": self._stop,
            "enable": self._enable,
            "disable": self._disable,
            "is-active": self._is_active,
            "is-enabled": self._is_enabled,
            "is-failed": self._is_failed,
            "cat": self._cat,
            "show": self._show,
        }
        if verb not in verbs:
            self._process.complain(f"Unknown operation {verb}.")
            return 1
        if not names:
            if verb == "status":
                return self._list_units()
            self._process.complain("Too few arguments.")
            return 1
        code = 0
        for name in names:
            code = await verbs[verb](_stem(name)) or code
        return code

    def _options(self) -> list[str] | None:
        words: list[str] = []
        rest = [*self._process.argv[1:]]
        while rest:
            word = rest.pop(0)
            option, sign, value = word.partition("=")
            if not word.startswith("-"):
                words.append(word)
            elif option in ("-n", "--lines", "-p", "--property", "-t", "--type", "--state", "-o"):
                value = value if sign else rest.pop(0) if rest else ""
                if option in ("-n", "--lines") and value.isdigit():
                    self._lines = int(value)
                elif option in ("-p", "--property"):
                    self._properties += value.split(",")
                elif option == "--state":
                    self._failed = value == "failed"
            elif word in ("--now", "--quiet", "-q", "--value", "--failed"):
                self._now |= word == "--now"
                self._quiet |= word in ("-q", "--quiet")
                self._value |= word == "--value"
                self._failed |= word == "--failed"
            elif word not in ("--no-pager", "-l", "--full", "-a", "--all", "--no-legend", "-f"):
                self._process.complain(f"systemctl: unrecognized option '{word}'")
                return None
        return words

    def _known(self, name: str) -> bool:
        return name in self._machine.services

    def _missing(self, verb: str, name: str) -> int:
        text = f"Failed to {verb} {name}.service: Unit {name}.service not found."
        self._process.complain(text)
        return _NOT_LOADED

    # ---- changes ----

    async def _start(self, name: str) -> int:
        if not self._known(name):
            return self._missing("start", name)
        if await self._machine.start(name):
            return 0
        self._process.complain(
            f"Job for {name}.service failed because the control process exited with error code.\n"
            f'See "systemctl status {name}.service" and "journalctl -xe" for details.'
        )
        return 1

    async def _stop(self, name: str) -> int:
        if not self._known(name):
            return self._missing("stop", name)
        await self._machine.stop(name)
        return 0

    async def _restart(self, name: str) -> int:
        if not self._known(name):
            return self._missing("restart", name)
        await self._machine.stop(name)
        return await self._start(name)

    async def _try_restart(self, name: str) -> int:
        if self._known(name) and self._machine.state(name).state == "inactive":
            return 0
        return await self._restart(name)

    async def _enable(self, name: str) -> int:
        if not self._known(name):
            return self._no_file("enable", name)
        self._print_change(name, on=True)
        return await self._start(name) if self._now else 0

    async def _disable(self, name: str) -> int:
        if not self._known(name):
            return self._no_file("disable", name)
        self._print_change(name, on=False)
        return await self._stop(name) if self._now else 0

    def _no_file(self, verb: str, name: str) -> int:
        self._process.complain(f"Failed to {verb} unit: Unit file {name}.service does not exist.")
        return 1

    def _print_change(self, name: str, *, on: bool) -> None:
        text = "" if name == CONTAINERD else self._machine.units.enable(name, on)
        if text:
            self._process.complain(text)

    # ---- state ----

    def _enabled(self, name: str) -> str:
        on = name == CONTAINERD or self._machine.units.enabled(name)
        return "enabled" if on else "disabled"

    def _files(self, name: str) -> list[tuple[str, str]]:
        if name == CONTAINERD:
            return [(_CONTAINERD_UNIT, "")]
        return self._machine.units.unit_paths(name)

    async def _status(self, name: str) -> int:
        process, machine = self._process, self._machine
        if not self._known(name):
            process.complain(f"Unit {name}.service could not be found.")
            return _NOT_FOUND
        found = machine.state(name)
        mark = "\N{BLACK CIRCLE}"
        files = self._files(name)
        process.print_line(f"{mark} {name}.service - {_DESCRIPTIONS.get(name, name)}")
        path = files[0][0] if files else "n/a"
        process.print_line(
            f"     Loaded: loaded ({path}; {self._enabled(name)}; vendor preset: enabled)"
        )
        drop_ins = [path for path, _ in files[1:]]
        if drop_ins:
            process.print_line(f"    Drop-In: {', '.join(drop_ins)}")
        process.print_line(f"     Active: {self._active(found)}")
        command = " ".join((machine.path(name), *found.argv))
        if found.state in ("active", "activating"):
            process.print_line(f"   Main PID: {found.pid} ({name[:15]})")
            process.print_line(f"     CGroup: /system.slice/{name}.service")
            process.print_line(
                f"             \N{BOX DRAWINGS LIGHT UP AND RIGHT}\N{BOX DRAWINGS LIGHT HORIZONTAL}{found.pid} {command}"
            )
        elif found.pid:
            how = f"code=exited, status={found.code}" + (
                "/SUCCESS" if not found.code else "/FAILURE"
            )
            process.print_line(f"    Process: {found.pid} ExecStart={command} ({how})")
            process.print_line(f"   Main PID: {found.pid} ({how})")
        lines = await journal_lines(machine, (name,))
        if lines and self._lines:
            process.print_line()
            for line in lines[-self._lines :]:
                process.print_line(line)
        return 0 if found.state in ("active", "activating") else _INACTIVE

    def _active(self, found: UnitState) -> str:
        now = self._machine.core.host.time()
        since = ""
        if found.since:
            ago = _span(now - found.since)
            since = f" since {_long_date(found.since)}; {ago} ago"
        failed = " (Result: exit-code)" if found.state in ("failed", "activating") else ""
        sub = "" if found.state == "failed" else f" ({_SUB[found.state]})"
        return f"{found.state}{sub}{failed}{since}"

    async def _is_active(self, name: str) -> int:
        state = self._machine.state(name).state if self._known(name) else "inactive"
        if not self._quiet:
            self._process.print_line(state)
        return 0 if state == "active" else _INACTIVE

    async def _is_failed(self, name: str) -> int:
        state = self._machine.state(name).state if self._known(name) else "inactive"
        if not self._quiet:
            self._process.print_line(state)
        return 0 if state == "failed" else 1

    async def _is_enabled(self, name: str) -> int:
        if not self._known(name):
            text = f"Failed to get unit file state for {name}.service: No such file or directory"
            self._process.complain(text)
            return 1
        if not self._quiet:
            self._process.print_line(self._enabled(name))
        return 0 if self._enabled(name) == "enabled" else 1

    async def _cat(self, name: str) -> int:
        found = self._files(name) if self._known(name) and name != CONTAINERD else []
        if not found:
            self._process.complain(f"No files found for {name}.service.")
            return 1
        self._process.write("\n".join(f"# {path}\n{text}" for path, text in found))
        return 0

    async def _show(self, name: str) -> int:
        known = self._known(name)
        found = self._machine.state(name) if known else UnitState("inactive")
        values = {
            "Id": f"{name}.service",
            "LoadState": "loaded" if known else "not-found",
            "ActiveState": found.state,
            "SubState": _SUB[found.state],
            "MainPID": str(found.pid if found.state == "active" else 0),
            "ExecMainStatus": str(found.code),
            "UnitFileState": self._enabled(name) if known else "",
        }
        for key in self._properties or values:
            if key in values:
                self._process.print_line(values[key] if self._value else f"{key}={values[key]}")
        return 0

    def _list_units(self) -> int:
        rows = [
            (f"{name}.service", "loaded", state, _SUB[state], _DESCRIPTIONS.get(name, name))
            for name in self._machine.services
            if (state := self._machine.state(name).state) != "inactive"
            and (not self._failed or state == "failed")
        ]
        head = ("UNIT", "LOAD", "ACTIVE", "SUB", "DESCRIPTION")
        widths = [max(len(row[at]) for row in (head, *rows)) for at in range(4)]
        for row in (head, *rows):
            cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
            self._process.print_line(f"  {' '.join((*cells, row[4]))}")
        self._process.print_line(f"\n{len(rows)} loaded units listed.")
        return 0

    def _list_unit_files(self) -> int:
        self._process.print_line(f"{'UNIT FILE':<20} {'STATE':<8} VENDOR PRESET")
        for name in self._machine.services:
            self._process.print_line(f"{name + '.service':<20} {self._enabled(name):<8} enabled")
        self._process.print_line(f"\n{len(self._machine.services)} unit files listed.")
        return 0


def _stem(name: str) -> str:
    return name.removesuffix(".service")


def _long_date(moment: float) -> str:
    text = rfc3339_micro(moment)
    return f"{text[:10]} {text[11:19]} UTC"


def _span(seconds: float) -> str:
    left = max(0, int(seconds))
    parts = []
    for size, unit in ((86400, "day"), (3600, "h"), (60, "min"), (1, "s")):
        number, left = divmod(left, size)
        if number:
            plural = "s" if unit == "day" and number > 1 else ""
            parts.append(f"{number} {unit}{plural}" if unit == "day" else f"{number}{unit}")
    return " ".join(parts[:2]) or "0s"


def systemctl(machine: LinuxMachine, process: Process) -> Awaitable[int]:
    return _Systemctl(machine, process).run()


async def service(machine: LinuxMachine, process: Process) -> int:
    """`service NAME start|stop|restart|status`, which calls systemctl."""
    words = process.argv[1:]
    if len(words) < 2:
        process.complain(
            "Usage: service < option > | --status-all | [ service_name [ command | --full-restart ] ]"
        )
        return 1
    process.argv = ["systemctl", words[1], words[0]]
    return await _Systemctl(machine, process).run()


# ---- journalctl ----

_AGO: Final = re.compile(r"-?\s*(\d+)\s*(s|sec|second|m|min|minute|h|hour|d|day)s?(?:\s+ago)?")
_AT: Final = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2})(?::(\d{1,2}))?)?")
_FLAGS: Final = re.compile(
    r"-[xefabkql]*u?|--no-pager|--boot|--all|--quiet|--catalog|--pager-end|--utc"
)
_VALUED: Final = (
    *("-u", "--unit", "-n", "--lines", "-o", "--output", "-S", "--since", "-U", "--until"),
    *("-t", "-p", "-g", "--grep", "-F", "--field"),
)
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


async def journal_lines(
    machine: LinuxMachine,
    services: Sequence[str],
    since: float = 0.0,
    output: str = "short",
    until: float = 0.0,
) -> list[str]:
    """In chronological order."""
    entries: list[tuple[float, str]] = []
    host = machine.core.host.name
    for name in services:
        for moment, pid, data in await machine.journal(name) if name in machine.services else ():
            if moment < since or (until and moment > until):
                continue
            for text in data.decode(errors="replace").splitlines():
                stamp = rfc3339_micro(moment)
                digits = 26 if output == "short-precise" else 19
                date = f"{_MONTHS[int(stamp[5:7]) - 1]} {stamp[8:10]} {stamp[11:digits]}"
                line = text if output == "cat" else f"{date} {host} {name}[{pid}]: {text}"
                entries.append((moment, line))
    entries.sort(key=lambda entry: entry[0])
    return [line for _, line in entries]


class _JournalQuery:
    """The options of journalctl. Raises ValueError with the message for an invalid one."""

    def __init__(self, words: Sequence[str], now: float) -> None:
        self.services: list[str] = []
        self.lines = 0
        self.since = 0.0
        self.until = 0.0
        self.pattern = ""
        self.field = ""
        self.output = "short"
        self.reverse = self.follow = False
        rest = [*words]
        while rest:
            word = rest.pop(0)
            option, sign, value = word.partition("=")
            if re.fullmatch(r"-[nuoS][^-].*", word):
                option, sign, value = word[:2], "=", word[2:].removeprefix("=")
            if word in ("-b", "--boot") and rest and re.fullmatch(r"-?\d{1,9}", rest[0]):
                self._select_boot(int(rest.pop(0)))
            elif option in _VALUED:
                self._set(option, value if sign else rest.pop(0) if rest else "", now)
            else:
                self._flag(word)
                if re.fullmatch(r"-\w+u", word) and rest:
                    self.services.append(_stem(rest.pop(0)))

    def _set(self, option: str, value: str, now: float) -> None:
        if option in ("-u", "--unit", "-t"):
            self.services.append(_stem(value))
        elif option in ("-n", "--lines"):
            self.lines = int(value) if value.isdigit() else 10
        elif option in ("-o", "--output"):
            self.output = value
        elif option in ("-S", "--since"):
            self.since = _moment(value, now)
        elif option in ("-U", "--until"):
            self.until = _moment(value, now)
        elif option in ("-g", "--grep"):
            self.pattern = value
        elif option in ("-F", "--field"):
            self.field = value

    def _select_boot(self, boot: int) -> None:
        """Only the journal of this boot is kept."""
        if boot:
            raise ValueError(
                f"Data from the specified boot ({boot:+}) is not available: No such boot ID in "
                "journal"
            )

    def _flag(self, word: str) -> None:
        if word == "--reverse" or re.fullmatch(r"-\w*r\w*", word):
            self.reverse = True
        elif word == "--follow" or re.fullmatch(r"-\w*f\w*", word):
            self.follow = True
        elif not _FLAGS.fullmatch(word):
            problem = "unrecognized option" if word.startswith("-") else "Failed to add match"
            raise ValueError(f"journalctl: {problem} '{word}'")


def _moment(value: str, now: float) -> float:
    """Raises ValueError."""
    if value == "today":
        return now - now % 86400
    if found := _AGO.fullmatch(value.strip()):
        return now - int(found[1]) * _UNITS[found[2][0]]
    if found := _AT.fullmatch(value.strip()):
        parts = [int(part or 0) for part in found.groups()]
        return datetime(*parts[:6], tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc]
    raise ValueError(f"Failed to parse timestamp: {value}")


def _matching(lines: Sequence[str], pattern: str) -> list[str]:
    """The lines whose message matches; a pattern in lower case matches both cases."""
    found = compile_regexp(pattern if pattern != pattern.lower() else f"(?i){pattern}")
    return [line for line in lines if found.match_string(line.partition("]: ")[2] or line)]


async def journalctl(machine: LinuxMachine, process: Process) -> int:
    try:
        query = _JournalQuery(process.argv[1:], machine.core.host.time())
        if query.pattern:
            compile_regexp(query.pattern)
    except ValueError as problem:
        process.complain(str(problem))
        return 1
    if query.field:
        for name in machine.services if query.field == "_SYSTEMD_UNIT" else ():
            process.print_line(f"{name}.service")
        return 0
    names = query.services or machine.services
    every = await journal_lines(machine, names, query.since, query.output, query.until)
    if query.pattern:
        every = _matching(every, query.pattern)
    shown = every[-(query.lines or 10) :] if query.lines or query.follow else every
    if not shown and not query.follow:
        process.print_line("-- No entries --")
    for line in reversed(shown) if query.reverse else shown:
        process.print_line(line)
    while query.follow:
        await machine.core.clock.sleep(1)
        found = await journal_lines(machine, names, query.since, query.output)
        for line in found[found.index(every[-1]) + 1 if every and every[-1] in found else 0 :]:
            process.print_line(line)
        every = found
    return 0
