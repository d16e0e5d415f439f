"""Commands that inspect files: ls, stat, find, du."""

from __future__ import annotations

import fnmatch
import time

from transom.machines.api import Stat
from transom.userland.files import error_text
from transom.userland.posix.commands.basic import run_child
from transom.userland.posix.commands.options import ParsedOptions, parse_options, parse_size
from transom.userland.preemption import sort_in_slices
from transom.userland.process import Command, Process

_KINDS = {
    "directory": "d",
    "symlink": "l",
    "pipe": "p",
    "socket": "s",
    "char": "c",
    "block": "b",
    "file": "-",
}


def mode_text(state: Stat) -> str:
    """`-rw-r--r--`"""
    bits = [
        letter if state.mode & (0o400 >> index) else "-" for index, letter in enumerate("rwxrwxrwx")
    ]
    for bit, place, letter in ((0o4000, 2, "s"), (0o2000, 5, "s"), (0o1000, 8, "t")):
        if state.mode & bit:
            bits[place] = letter if bits[place] == "x" else letter.upper()
    return _KINDS[state.kind] + "".join(bits)


def owner_name(process: Process, uid: int, path: str = "/etc/passwd") -> str:
    if process.windows:  # Windows has no numeric owners: busybox shows the current user
        return process.context.credentials.user
    try:
        lines = process.files.text(path).splitlines()
    except OSError:
        lines = []
    for line in lines:
        fields = line.split(":")
        if len(fields) > 2 and fields[2] == str(uid):
            return fields[0]
    return "root" if uid == 0 else str(uid)


def user_number(process: Process, name: str, path: str = "/etc/passwd") -> int | None:
    if name.isdigit():
        return int(name)
    try:
        lines = process.files.text(path).splitlines()
    except OSError:
        lines = []
    for line in lines:
        fields = line.split(":")
        if len(fields) > 2 and fields[0] == name:
            return int(fields[2])
    return 0 if name == "root" else None


def human(value: float) -> str:
    for unit in ("", "K", "M", "G", "T"):
        if value < 1024:
            return f"{value:.1f}{unit}" if unit and value < 10 else f"{value:.0f}{unit}"
        value /= 1024
    return f"{value:.0f}P"


def fault(process: Process, busybox: str, gnu: str, error: OSError) -> int:
    process.complain(f"{process.name}: {gnu if process.gnu else busybox}: {error_text(error)}")
    return 1


async def ls(process: Process) -> int:
    options = parse_options(process)
    targets = options.operands or ["."]
    files = process.files
    code = 0
    plain: list[tuple[str, Stat]] = []
    directories: list[str] = []
    for target in targets:
        try:
            state = files.stat(target, follow="l" not in options and "d" not in options)
            if state.kind == "symlink" and target.endswith("/"):
                state = files.stat(target)
        except OSError as error:
            if not process.gnu:
                process.complain(f"ls: {target}: {error_text(error)}")
            else:
                process.complain(f"ls: cannot access '{target}': {error_text(error)}")
            code = 2 if process.gnu else 1
            continue
        if state.kind == "directory" and "d" not in options:
            directories.append(target)
        else:
            plain.append((target, state))
    _list(process, options, plain)
    headed = len(targets) > 1 or "R" in options
    for number, directory in enumerate(directories):
        todo = [(directory, headed, bool(number or plain))]
        while todo:
            failed, below = _list_directory(process, options, *todo.pop())
            code |= failed
            todo += [(name, True, True) for name in reversed(below)]
            await process.take_turn()
    return code


def _list_directory(
    process: Process, options: ParsedOptions, directory: str, headed: bool, blank: bool
) -> tuple[int, list[str]]:
    """The exit code, and the directories to list next."""
    files = process.files
    try:
        names = files.listdir(directory)
    except OSError as error:
        if process.gnu:
            process.complain(f"ls: cannot open directory '{directory}': {error_text(error)}")
        else:
            process.complain(f"ls: can't open '{directory}': {error_text(error)}")
        return 2 if process.gnu else 1, []
    if "a" in options:
        names = [".", "..", *names]
    elif "A" not in options:
        names = [name for name in names if not name.startswith(".")]
    entries: list[tuple[str, Stat]] = []
    for name in names:
        try:
            entries.append((name, files.stat(files.join(directory, name), follow=False)))
        except OSError:
            continue
    if headed:
        process.write(("\n" if blank else "") + f"{directory}:\n")
    if "l" in options:
        blocks = sum(
            (entry.size + 4095) // 4096 * 4 for _, entry in entries if entry.kind != "symlink"
        )
        process.write(f"total {blocks}\n")
    _list(process, options, entries, directory)
    if "R" not in options:
        return 0, []
    return 0, [
        files.join(directory, name)
        for name, state in entries
        if state.kind == "directory" and name not in (".", "..")
    ]


def _list(
    process: Process, options: ParsedOptions, entries: list[tuple[str, Stat]], directory: str = ""
) -> None:
    if "S" in options:
        entries = sort_in_slices(entries, lambda entry: -entry[1].size)
    elif "t" in options:
        entries = sort_in_slices(entries, lambda entry: -entry[1].mtime)
    if "r" in options:
        entries.reverse()
    now = process.context.clock.time()
    rows: list[str] = []
    for name, state in entries:
        shown = name
        if state.kind == "symlink" and "l" in options:
            path = process.files.join(directory, name) if directory else name
            shown += f" -> {process.files.readlink(path)}"
        if ("F" in options or "p" in options) and state.kind == "directory":
            shown += "/"
        if "F" in options and state.kind == "symlink" and "l" not in options:
            shown += "@"
        if "F" in options and state.kind == "file" and state.mode & 0o111:
            shown += "*"
        if "l" not in options and "n" not in options:
            rows.append(shown)
            continue
        moment = time.gmtime(state.mtime)
        recent = abs(now - state.mtime) < 15552000
        when = time.strftime("%b %e %H:%M" if recent else "%b %e  %Y", moment)
        owner = str(state.uid) if "n" in options else owner_name(process, state.uid)
        group = str(state.gid) if "n" in options else owner_name(process, state.gid, "/etc/group")
        amount = human(state.size) if "h" in options else str(state.size)
        place = process.files.join(directory, name) if directory else name
        links = 2 if state.kind == "directory" else process.files.link_count(place)
        if process.gnu:
            rows.append(f"{mode_text(state)} {links} {owner} {group} {amount:>5} {when} {shown}")
        else:
            rows.append(
                f"{mode_text(state)} {links:>4} {owner:<8} {group:<8} {amount:>9} {when} {shown}"
            )
    if not rows:
        return
    columns = process.context.terminal.tty and not {"l", "n", "1"} & options.given
    process.write(("  ".join(rows) if columns else "\n".join(rows)) + "\n")


_STAT_KINDS = {
    "file": "regular file",
    "directory": "directory",
    "symlink": "symbolic link",
    "char": "character special file",
    "block": "block special file",
    "pipe": "fifo",
    "socket": "socket",
}


def linux_stat(process: Process) -> int:
    options = parse_options(process, "c", long_names={"format": "c"})
    code = 0
    for path in options.operands:
        try:
            state = process.files.stat(path, follow="L" in options)
        except OSError as error:
            code = fault(process, f"can't stat '{path}'", f"cannot stat '{path}'", error)
            continue
        kind = (
            _STAT_KINDS[state.kind] if state.size or state.kind != "file" else "regular empty file"
        )
        when = time.strftime("%Y-%m-%d %H:%M:%S.000000000 +0000", time.gmtime(state.mtime))
        values = {
            "a": f"{state.mode:o}",
            "A": mode_text(state),
            "u": str(state.uid),
            "g": str(state.gid),
            "s": str(state.size),
            "U": owner_name(process, state.uid),
            "G": owner_name(process, state.gid, "/etc/group"),
            "n": path,
            "F": kind,
            "Y": str(int(state.mtime)),
            "X": str(int(state.accessed)),
            "Z": str(int(state.mtime)),
            "y": when,
            "x": when,
            "z": when,
            "h": str(process.files.link_count(path)) if state.kind == "file" else "1",
            "i": "1",
            "b": str((state.size + 511) // 512),
            "B": "512",
            "d": "2049",
            "N": f"'{path}'",
        }
        shape = options.value("c")
        if shape:
            out = shape
            for letter, value in values.items():
                out = out.replace(f"%{letter}", value)
            process.write(out + "\n")
            continue
        process.write(
            f"  File: {path}\n  Size: {state.size:<10}\tBlocks: {values['b']:<10} IO Block: "
            f"4096   {kind}\n"
            f"Device: 801h/2049d\tInode: 1           Links: {values['h']}\n"
            f"Access: ({state.mode:04o}/{mode_text(state)})  Uid: "
            f"({state.uid:5d}/{values['U']:>8})   "
            f"Gid: ({state.gid:5d}/{values['G']:>8})\nAccess: {when}\nModify: "
            f"{when}\nChange: {when}\n"
        )
    return code


async def linux_find(process: Process) -> int:
    arguments = process.argv[1:]
    paths: list[str] = []
    while arguments and not arguments[0].startswith(("-", "!", "(")):
        paths.append(arguments.pop(0))
    files = process.files
    code = 0
    now = process.context.clock.time()
    for path in paths or ["."]:
        try:
            entries = list(files.walk(path))
        except OSError as error:
            process.complain(
                f"find: {path}: {error_text(error)}"
                if not process.gnu
                else f"find: '{path}': {error_text(error)}"
            )
            code = 1
            continue
        for place, state in entries:
            shown = place.replace("\\", "/") if process.windows else place
            code |= await _examine(process, arguments, path, shown, state, now)
    return code


async def _examine(
    process: Process, tests: list[str], base: str, place: str, state: Stat, now: float
) -> int:
    depth = place[len(base) :].count("/") if base != "/" else place.count("/") - (place == "/")
    position = 0
    negate = False
    acted = False
    while position < len(tests):
        test = tests[position]
        position += 1
        value = tests[position] if position < len(tests) else ""
        if test in ("!", "-not"):
            negate = not negate
            continue
        if test in ("-a", "-follow", "-xdev", "-depth", "(", ")"):
            continue
        if test in ("-print", "-print0"):
            process.write(place + ("\n" if test == "-print" else "\0"))
            acted = True
            continue
        if test == "-delete":
            process.files.remove(place, recursive=True)
            acted = True
            continue
        if test == "-empty":
            result = (
                state.size == 0
                if state.kind == "file"
                else state.kind == "directory" and not process.files.listdir(place)
            )
        elif test in ("-exec", "-ok"):
            end = next(
                (i for i in range(position, len(tests)) if tests[i] in (";", "+")), len(tests)
            )
            command = [
                place if argument == "{}" else argument.replace("{}", place)
                for argument in tests[position:end]
            ]
            position = end + 1
            acted = True
            result = await run_child(process, command) == 0
        elif test in ("-maxdepth", "-mindepth"):
            position += 1
            result = depth <= int(value) if test == "-maxdepth" else depth >= int(value)
        else:
            position += 1
            tested = _test_with_value(process, test, value, place, state, now)
            if tested is None:
                process.complain(
                    f"find: unrecognized: {test}"
                    if not process.gnu
                    else f"find: unknown predicate '{test}'"
                )
                return 1
            result = tested
        if result == negate:
            return 0
        negate = False
    if not acted:
        process.write(place + "\n")
    return 0


def _test_with_value(
    process: Process, test: str, value: str, place: str, state: Stat, now: float
) -> bool | None:
    """The result of a test of `find` that has an argument; None if there is no such test."""
    if test == "-name":
        return fnmatch.fnmatchcase(process.files.base(place) or place, value)
    if test == "-iname":
        return fnmatch.fnmatchcase(process.files.base(place).lower(), value.lower())
    if test in ("-path", "-wholename"):
        return fnmatch.fnmatchcase(place, value)
    if test == "-type":
        return _KINDS[state.kind].replace("-", "f") in value.split(",")
    if test == "-size":
        wanted = value.lstrip("+-")
        amount = parse_size(wanted) if not wanted.isdigit() else int(wanted) * 512
        return (
            state.size > amount
            if value[0] == "+"
            else state.size < amount
            if value[0] == "-"
            else state.size == amount
        )
    if test in ("-mtime", "-mmin"):
        age = (now - state.mtime) / (86400 if test == "-mtime" else 60)
        wanted_age = float(value.lstrip("+-"))
        return (
            age > wanted_age
            if value[0] == "+"
            else age < wanted_age
            if value[0] == "-"
            else int(age) == int(wanted_age)
        )
    if test == "-perm":
        bits = int(value.lstrip("-/"), 8)
        return (
            state.mode & bits == bits
            if value[0] == "-"
            else bool(state.mode & bits)
            if value[0] == "/"
            else state.mode & 0o7777 == bits
        )
    if test == "-user":
        return owner_name(process, state.uid) == value or str(state.uid) == value
    return None


def du(process: Process) -> int:
    options = parse_options(process, "d")
    code = 0
    for path in options.operands or ["."]:
        try:
            entries = list(process.files.walk(path))
        except OSError as error:
            code = fault(process, path, f"cannot access '{path}'", error)
            continue
        directories = [place for place, state in entries if state.kind == "directory"] or [path]
        if "s" in options:
            directories = [path]
        for directory in reversed(directories):
            used = process.files.usage(directory)[0]
            amount = (
                human(used)
                if "h" in options
                else str((used + 1023) // 1024)
                if "b" not in options
                else str(used)
            )
            process.write(f"{amount}\t{directory}\n")
    return code


COMMANDS: dict[str, Command] = {"du": du, "find": linux_find, "ls": ls, "stat": linux_stat}
