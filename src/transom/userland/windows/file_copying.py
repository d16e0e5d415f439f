"""xcopy and robocopy."""

from __future__ import annotations

import calendar
import ntpath
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.machines.api import Stat
from transom.machines.styles import windows_error_code
from transom.userland.process import Command, Process
from transom.userland.windows import texts

_RULE: Final = "-" * 79


# ---- xcopy ----


class _XcopyPlan(NamedTuple):
    process: Process
    directory: str
    mask: str
    target: str
    into: bool  # the target is a directory
    switches: frozenset[str]
    newer_than: float  # seconds; files from before are skipped
    excluded: tuple[str, ...]  # parts of paths, in lower case
    relative: bool  # the source was given as a relative path


class _XcopyError(Exception):
    """What xcopy prints before it ends."""


async def xcopy(process: Process) -> int:
    words = process.argv[1:]
    switches = [word[1:].lower() for word in words if word.startswith("/")]
    operands = [word for word in words if not word.startswith("/")]
    files = process.files
    if not operands or len(operands) > 2:
        process.complain("Invalid number of parameters\r\n0 File(s) copied")
        return 4
    source = operands[0].rstrip("\\") if len(operands[0]) > 3 else operands[0]
    target = operands[1] if len(operands) > 1 else "."
    directory, mask = (
        (source, "*") if files.is_directory(source) else ntpath.split(files.absolute(source))
    )
    mask = "*" if mask == "*.*" else mask.lower()
    into = (
        files.is_directory(target)
        or target.endswith("\\")
        or "i" in switches
        or "*" in mask
        or files.is_directory(source)
    )
    try:
        plan = _XcopyPlan(
            *(process, directory, mask, target, into, frozenset(switches)),
            *(_xcopy_date(switches), _xcopy_excluded(process, words)),
            not ntpath.isabs(operands[0]),
        )
        copied = await _xcopy_files(plan)
    except FileNotFoundError:
        copied = 0
    except _XcopyError as error:
        process.complain(f"{error}\r\n0 File(s) copied")
        return 4
    except OSError as error:
        process.complain(texts.windows_message(error))
        return 4
    deep = bool(plan.switches & {"s", "e", "t"})
    skips = any(one.partition(":")[0] in ("d", "u", "exclude") for one in switches)
    if not copied and not deep and not skips:
        process.complain(f"File not found - {files.base(source)}")
        process.print_line("0 File(s) copied")
        return 4
    process.print_line(f"{copied} File(s)" + ("" if "l" in plan.switches else " copied"))
    return 0


def _xcopy_date(switches: Sequence[str]) -> float:
    """/D:month-day-year"""
    given = next((one[2:] for one in switches if one.startswith("d:")), "")
    if not given:
        return float("-inf")
    try:
        month, day, year = map(int, given.split("-"))
        return calendar.timegm((year, month, day, 0, 0, 0))
    except (ValueError, OverflowError) as error:
        raise _XcopyError("Invalid date") from error


def _xcopy_excluded(process: Process, words: Sequence[str]) -> tuple[str, ...]:
    """/EXCLUDE:file1[+file2]: each line is a part of a path."""
    names = next((word[9:] for word in words if word.lower().startswith("/exclude:")), "")
    found: list[str] = []
    for name in filter(None, names.split("+")):
        try:
            found += process.files.text(name).lower().split("\n")
        except OSError as error:
            raise _XcopyError(f"Can't read file: {name}\r\n") from error
    return tuple(line.strip() for line in found if line.strip())


async def _xcopy_files(plan: _XcopyPlan) -> int:
    files, switches = plan.process.files, plan.switches
    if switches & {"s", "e", "t"}:
        paths = [path for path, state in files.walk(plan.directory) if state.kind == "file"]
    else:
        names = [files.join(plan.directory, name) for name in files.listdir(plan.directory)]
        paths = [path for path in names if not files.is_directory(path)]
    copied = 0
    for path in paths:
        await plan.process.breathe()
        place = _xcopy_place(plan, path)
        if place is None or "t" in switches:
            continue
        if "l" not in switches and not _xcopy_file(plan, path, place):
            continue
        if "q" not in switches:
            shown = path if plan.relative else files.absolute(path)
            plan.process.print_line(
                f"{files.absolute(path)} -> {files.absolute(place)}" if "f" in switches else shown
            )
        copied += 1
    if switches & {"e", "t"} and "l" not in switches:
        _xcopy_folders(plan)
    return copied


def _xcopy_place(plan: _XcopyPlan, path: str) -> str | None:
    """Where a file is copied to; None if it is not."""
    files, switches = plan.process.files, plan.switches
    if not fnmatchcase(files.base(path).lower(), plan.mask):
        return None
    if any(part in files.absolute(path).lower() for part in plan.excluded):
        return None
    if "h" not in switches and set(files.attributes(path)) & {"H", "S"}:
        return None
    inner = path[len(plan.directory) :].lstrip("\\")
    place = files.join(plan.target.rstrip("\\"), inner) if plan.into else plan.target
    exists, modified = files.exists(place), files.stat(path).mtime
    if "u" in switches and not exists:
        return None
    if "d" in switches and exists and modified <= files.stat(place).mtime:
        return None
    return place if modified >= plan.newer_than else None


def _xcopy_file(plan: _XcopyPlan, path: str, place: str) -> bool:
    """False after an error that /C ignores."""
    files, switches = plan.process.files, plan.switches
    files.mkdir(files.parent(files.absolute(place)), parents=True)
    try:
        if "r" in switches and files.exists(place):
            files.set_attributes(place, off="R")
        files.copy(path, place)
        if "k" not in switches:
            files.set_attributes(place, off="R")
        return True
    except OSError as error:
        if "c" not in switches:
            raise
        plan.process.complain(texts.windows_message(error))
        return False


def _xcopy_folders(plan: _XcopyPlan) -> None:
    """/E: also empty ones; /T without /E: those that are not."""
    files = plan.process.files
    for path, state in list(files.walk(plan.directory)):
        empty = state.kind == "directory" and not files.listdir(path)
        if state.kind == "directory" and ("e" in plan.switches or not empty):
            inner = path[len(plan.directory) :].lstrip("\\")
            files.mkdir(files.join(plan.target.rstrip("\\"), inner), parents=True)


# ---- robocopy ----


class _RobocopyPlan(NamedTuple):
    source: str
    target: str
    masks: Sequence[str]
    excluded_files: Sequence[str]
    excluded_folders: Sequence[str]
    switches: frozenset[str]


class _Robocopy:
    """One run: what was copied, and what was printed."""

    def __init__(self, process: Process, plan: _RobocopyPlan, log: str) -> None:
        self._process = process
        self._files = process.files
        self._plan = plan
        self._log = log
        self._lines: list[str] = []
        self.copied = self.skipped = self.size = 0
        self.skipped_size = self.made = 0
        self.extras = self.folders = self.failed = 0

    def say(self, line: str) -> None:
        if self._log:
            self._lines.append(line)
        else:
            self._process.print_line(line)

    def close(self) -> None:
        if self._log:
            self._files.write(self._log, "".join(f"{one}\r\n" for one in self._lines).encode())

    def _is_excluded_folder(self, path: str) -> bool:
        files, full = self._files, self._files.absolute(path).lower()
        return any(
            full == files.absolute(one).lower() if "\\" in one else fnmatchcase(name, one)
            for one in self._plan.excluded_folders
            for name in full.split("\\")[len(files.absolute(self._plan.source).split("\\")) :]
        )

    def _is_wanted(self, path: str) -> bool:
        name = self._files.base(path).lower()
        full = self._files.absolute(path).lower()
        return any(fnmatchcase(name, one) for one in self._plan.masks) and not any(
            fnmatchcase(name, one) or full == one for one in self._plan.excluded_files
        )

    async def copy(self) -> None:
        plan, files = self._plan, self._files
        deep = bool(plan.switches & {"s", "e", "mir"})
        for path, state in list(files.walk(plan.source)):
            await self._process.breathe()
            inner = path[len(plan.source) :].lstrip("\\")
            if not deep and ("\\" in inner or (state.kind == "directory" and inner)):
                continue
            folder = path if state.kind == "directory" else files.parent(path)
            if inner and self._is_excluded_folder(folder):
                continue
            place = files.join(plan.target, inner) if inner else plan.target
            if state.kind == "directory":
                self._make_folder(path, place)
            elif self._is_wanted(path):
                self._copy_file(path, place, state)

    def _make_folder(self, path: str, place: str) -> None:
        """/S leaves out empty directories."""
        self.folders += 1
        self.made += not self._files.is_directory(place)
        keeps_empty = bool(self._plan.switches & {"e", "mir"}) or path == self._plan.source
        if "l" not in self._plan.switches and (keeps_empty or self._files.listdir(path)):
            self._files.mkdir(place, parents=True)

    def _copy_file(self, path: str, place: str, state: Stat) -> None:
        files, switches = self._files, self._plan.switches
        try:
            data = files.read(path)
            older = files.exists(place) and state.mtime < files.stat(place).mtime
            same = files.exists(place) and files.read(place) == data
            if same or ("xo" in switches and older):
                self.skipped, self.skipped_size = self.skipped + 1, self.skipped_size + len(data)
            else:
                if "l" not in switches:
                    files.copy(path, place)
                    files.set_times(place, created=state.created)
                self.copied, self.size = self.copied + 1, self.size + len(data)
                if "nfl" not in switches:
                    kind = "" if "nc" in switches else "    New File  "
                    length = "" if "ns" in switches else f"{len(data):>8}"
                    self.say(f"\t{kind}\t\t{length}\t{files.base(path)}")
            if switches & {"mov", "move"} and "l" not in switches:
                files.remove(path)
        except OSError as error:
            self.failed += 1
            self._process.complain(
                f"ERROR {windows_error_code(error, 5)} Copying File "
                f"{path}\r\n{texts.windows_message(error)}"
            )

    def remove_moved_folders(self) -> None:
        """/MOVE: the directories that are empty now, the source itself last."""
        files = self._files
        folders = [p for p, state in files.walk(self._plan.source) if state.kind == "directory"]
        for path in reversed(folders):
            if not files.listdir(path):
                files.remove(path, recursive=True)

    def find_extras(self) -> None:
        """What only the target has; /PURGE and /MIR delete it."""
        plan, files = self._plan, self._files
        for path, state in list(files.walk(plan.target)):
            inner = path[len(plan.target) :].lstrip("\\")
            if not inner or files.exists(files.join(plan.source, inner)) or not files.exists(path):
                continue
            self.extras += 1
            if plan.switches & {"mir", "purge"}:
                kind = "Dir" if state.kind == "directory" else "File"
                self.say(f"\t  *EXTRA {kind} \t\t\t{path}")
                if "l" not in plan.switches:
                    files.remove(path, recursive=True)

    def summarize(self) -> None:
        total, folders = self.copied + self.skipped + self.failed, self.folders
        self.say(
            f"\r\n{'-' * 78}\r\n\r\n               Total    Copied   Skipped  Mismatch    FAILED "
            "   Extras"
        )
        old = folders - self.made
        self.say(f"    Dirs : {folders:>9} {self.made:>9} {old:>9} {0:>9} {0:>9} {0:>9}")
        self.say(
            f"   Files : {total:>9} {self.copied:>9} {self.skipped:>9} {0:>9} {self.failed:>9} "
            f"{self.extras:>9}"
        )
        size = self.size + self.skipped_size
        skipped = self.skipped_size
        self.say(f"   Bytes : {size:>9} {self.size:>9} {skipped:>9} {0:>9} {0:>9} {0:>9}")
        zero = "0:00:00"
        self.say(f"   Times : {zero:>9} {zero:>9} {'':>9} {'':>9} {zero:>9} {zero:>9}")
        clock = time.gmtime(self._process.context.clock.time())
        ended = time.strftime("%A, %B %-d, %Y %-I:%M:%S %p", clock)
        self.say(f"   Ended : {ended}\r\n")


def _robocopy_plan(words: Sequence[str]) -> _RobocopyPlan | None:
    """/XF and /XD take all words up to the next switch."""
    switches: set[str] = set()
    operands: list[str] = []
    lists: dict[str, list[str]] = {"xf": [], "xd": []}
    current = operands
    for word in words:
        if word.startswith("/"):
            name = word[1:].partition(":")[0].lower()
            switches.add(name)
            current = lists.get(name, operands)
        else:
            current.append(word)
    if len(operands) < 2:
        return None
    masks = ["*" if mask == "*.*" else mask.lower() for mask in operands[2:]] or ["*"]
    return _RobocopyPlan(
        operands[0].rstrip("\\"),
        operands[1].rstrip("\\"),
        masks,
        [word.lower() for word in lists["xf"]],
        [word.lower() for word in lists["xd"]],
        frozenset(switches),
    )


def _robocopy_options(words: Sequence[str], plan: _RobocopyPlan) -> str:
    """The part of the header that shows what is copied and how."""
    switches, given = plan.switches, {word.lower().partition(":")[0]: word for word in words}
    masks = [mask if mask != "*" else "*.*" for mask in plan.masks]
    shown = [mask for mask in masks if mask == "*.*"]
    shown += [f"/{name.upper()}" for name in ("ndl", "nfl", "tee", "l") if name in switches]
    if switches & {"s", "e", "mir"}:
        shown.append("/S")
    if switches & {"e", "mir"}:
        shown.append("/E")
    shown.append(given.get("/dcopy", "/DCOPY:DA").upper())
    shown.append("/COPYALL" if "copyall" in switches else given.get("/copy", "/COPY:DAT").upper())
    if switches & {"purge", "mir"}:
        shown.append("/PURGE")
    known = ("mir", "mov", "move", "b", "z", "njh", "njs", "np", "xo", "xc", "xn")
    shown += [f"/{name.upper()}" for name in known if name in switches]
    defaults = {"/mt": "/MT:8", "/r": "/R:1000000", "/w": "/W:30"}
    for name, default in defaults.items():
        if name != "/mt" or name in given:
            word = given.get(name, default)
            shown.append(word.upper() if ":" in word else default)
    parts = ["    Files : " + "\r\n\t    ".join(masks)]
    for title, excluded in (
        ("Exc Files", plan.excluded_files),
        (" Exc Dirs", plan.excluded_folders),
    ):
        if excluded:
            parts.append(f"{title} : " + "\r\n\t    ".join(excluded))
    parts.append(f"  Options : {' '.join(shown)} \r\n\r\n{_RULE[1:]}\r\n")
    return "\r\n\t    \r\n".join(parts)


async def robocopy(process: Process) -> int:
    """Exit codes: 1 files were copied, 2 there are extra files, 8 some copies failed, 16 it could
    not start.
    """
    plan, files = _robocopy_plan(process.argv[1:]), process.files
    if plan is None:
        process.complain("ERROR : Invalid Parameter")
        return 16
    log = next((word[5:] for word in process.argv[1:] if word.lower().startswith("/log:")), "")
    run = _Robocopy(process, plan, log)
    clock = time.gmtime(process.context.clock.time())
    if "njh" not in plan.switches:
        now = time.strftime("%A, %B %-d, %Y %-I:%M:%S %p", clock)
        run.say(
            f"\r\n{_RULE}\r\n   ROBOCOPY     ::     Robust File Copy for Windows{' ' * 30}\r\n"
            f"{_RULE}\r\n\r\n  Started : {now}"
        )
        run.say(
            f"   Source : {files.absolute(plan.source)}\\\r\n"
            f"     Dest : {files.absolute(plan.target)}\\\r\n"
        )
        run.say(_robocopy_options(process.argv[1:], plan))
    if not files.is_directory(plan.source):
        process.complain(
            f"{time.strftime('%Y/%m/%d %H:%M:%S', clock)} ERROR 2 (0x00000002) Accessing Source "
            f"Directory {files.absolute(plan.source)}\\\r\n"
            "The system cannot find the file specified."
        )
        return 16
    extras_first = bool(plan.switches & {"mov", "move"})  # later the source has no files
    if extras_first:
        run.find_extras()
    await run.copy()
    if not extras_first:
        run.find_extras()
    elif "move" in plan.switches and "l" not in plan.switches:
        run.remove_moved_folders()
    if "njs" not in plan.switches:
        run.summarize()
    run.close()
    return (1 if run.copied else 0) | (2 if run.extras else 0) | (8 if run.failed else 0)


COMMANDS: Final[dict[str, Command]] = {"robocopy": robocopy, "xcopy": xcopy}
