"""Commands that change files: cp, mv, rm, mkdir, chmod and others."""

from __future__ import annotations

import calendar
import posixpath
import re
import time

from transom.userland.files import error_text
from transom.userland.posix.commands.dates import parse_date
from transom.userland.posix.commands.look import fault, user_number
from transom.userland.posix.commands.options import (
    ParsedOptions,
    option_number,
    parse_options,
    parse_size,
)
from transom.userland.process import Command, Process


def mkdir(process: Process) -> int:
    options = parse_options(process, "m", long_names={"parents": "p", "mode": "m"})
    code = 0
    for path in options.operands:
        try:
            mode = option_number(process, options.value("m", "777"), "invalid mode '{}'", base=8)
            process.files.mkdir(path, mode, parents="p" in options)
        except OSError as error:
            code = fault(
                process,
                f"can't create directory '{path}'",
                f"cannot create directory '{path}'",
                error,
            )
    return code


def rmdir(process: Process) -> int:
    options = parse_options(process)
    code = 0
    for path in options.operands:
        try:
            if process.files.stat(path, follow=False).kind != "directory":
                raise NotADirectoryError(20, "Not a directory")
            process.files.remove(path)
        except OSError as error:
            code = fault(process, f"'{path}'", f"failed to remove '{path}'", error)
    return code


def rm(process: Process) -> int:
    options = parse_options(process, long_names={"recursive": "r", "force": "f"})
    recursive = "r" in options or "R" in options
    code = 0
    for path in options.operands:
        try:
            state = process.files.stat(path, follow=False)
            if state.kind == "directory" and not recursive:
                raise IsADirectoryError(21, "Is a directory")
            process.files.remove(path, recursive=recursive)
        except FileNotFoundError as error:
            if "f" not in options:
                code = fault(process, f"can't remove '{path}'", f"cannot remove '{path}'", error)
        except IsADirectoryError as error:
            code = fault(process, f"'{path}' is a directory", f"cannot remove '{path}'", error)
        except OSError as error:
            code = fault(process, f"can't remove '{path}'", f"cannot remove '{path}'", error)
    return code


def _touched(process: Process, options: ParsedOptions) -> float:
    """The time that files get. Raises ValueError, or OSError for the file of -r."""
    if "r" in options:
        return float(process.files.stat(options.value("r")).mtime)
    now = process.context.clock.time()
    if "t" in options:
        text, _, seconds = options.value("t").partition(".")
        year = "" if len(text) > 8 else str(time.gmtime(now).tm_year)
        text = year[:2] + text if len(text) == 10 else year + text
        return float(calendar.timegm(time.strptime(text + (seconds or "00"), "%Y%m%d%H%M%S")))
    moment = parse_date(options.value("d"), now) if "d" in options else now
    if moment is None:
        raise ValueError
    return moment


def touch(process: Process) -> int:
    """-d, -r and -t say which time; -a and -m which of the two times changes."""
    options = parse_options(process, "drt", long_names={"date": "d", "reference": "r"})
    code = 0
    try:
        moment = _touched(process, options)
    except ValueError:
        process.complain(f"touch: invalid date '{options.value('d') or options.value('t')}'")
        return 1
    except OSError as error:
        name = options.value("r")
        return fault(process, name, f"failed to get attributes of '{name}'", error)
    both = "a" in options and "m" in options
    for path in options.operands:
        try:
            if not process.files.exists(path):
                if "c" in options:
                    continue
                process.files.write(path, b"")
            written = moment if both or "a" not in options else None
            accessed = moment if both or "m" not in options else None
            process.files.set_times(path, written, accessed)
        except OSError as error:
            code = fault(process, path, f"cannot touch '{path}'", error)
    return code


def _targets(process: Process, options: ParsedOptions) -> tuple[list[str], str, bool] | None:
    """The sources, the target and whether it is a directory. None after an error."""
    operands = list(options.operands)
    directory = options.value("t")
    if directory:
        return operands, directory, True
    if len(operands) < 2:
        process.complain(
            f"{process.name}: missing file operand"
            if process.gnu
            else f"{process.name}: missing operand"
        )
        return None
    target = operands.pop()
    into = process.files.is_directory(target) and "T" not in options
    if len(operands) > 1 and not into:
        process.complain(f"{process.name}: target '{target}': No such file or directory")
        return None
    return operands, target, into


async def copy_tree(
    process: Process, source: str, target: str, *, follow: bool, preserve: bool
) -> None:
    """Copies links in the tree as links; `follow` applies to the source itself. Yields to other
    programs in between.
    """
    files = process.files
    todo = [(source, target, follow)]
    while todo:
        source, target, follow = todo.pop()
        if files.stat(source, follow=follow).kind != "directory":
            _copy_entry(process, source, target, follow, preserve)
        else:
            if not files.is_directory(target):
                files.mkdir(target, files.stat(source, follow=follow).mode)
            names = files.listdir(source)
            todo += [
                (files.join(source, name), files.join(target, name), False)
                for name in reversed(names)
            ]
        await process.take_turn()


def _copy_entry(process: Process, source: str, target: str, follow: bool, preserve: bool) -> None:
    files = process.files
    state = files.stat(source, follow=follow)
    if state.kind == "symlink":
        if files.exists(target):
            files.remove(target)
        files.symlink(files.readlink(source), target)
        return
    if process.windows:
        files.copy(source, target)
        return
    files.write(target, files.read(source), state.mode)
    if preserve:
        files.chmod(target, state.mode)
        files.set_times(target, state.mtime, state.accessed)
        if process.context.credentials.uid == 0:
            files.chown(target, state.uid, state.gid)


async def cp(process: Process) -> int:
    options = parse_options(
        process, "t", long_names={"recursive": "r", "archive": "a", "verbose": "v"}
    )
    found = _targets(process, options)
    if found is None:
        return 1
    sources, target, into = found
    recursive = bool({"r", "R", "a"} & options.given)
    code = 0
    for source in sources:
        place = (
            process.files.join(target, process.files.base(process.files.absolute(source)))
            if into
            else target
        )
        try:
            if process.files.stat(source).kind == "directory" and not recursive:
                message = (
                    f"-r not specified; omitting directory '{source}'"
                    if process.gnu
                    else f"omitting directory '{source}'"
                )
                process.complain(f"cp: {message}")
                code = 1
                continue
            links = bool({"a", "d", "P"} & options.given)
            await copy_tree(
                process, source, place, follow=not links, preserve=bool({"a", "p"} & options.given)
            )
            if "v" in options:
                process.write(f"'{source}' -> '{place}'\n")
        except FileNotFoundError as error:
            if process.files.exists(source):
                code = fault(
                    process,
                    f"can't create '{place}'",
                    f"cannot create regular file '{place}'",
                    error,
                )
            else:
                code = fault(process, f"can't stat '{source}'", f"cannot stat '{source}'", error)
        except OSError as error:
            code = fault(
                process, f"can't create '{place}'", f"cannot create regular file '{place}'", error
            )
    return code


async def mv(process: Process) -> int:
    options = parse_options(process, "t", long_names={"verbose": "v"})
    found = _targets(process, options)
    if found is None:
        return 1
    sources, target, into = found
    code = 0
    for source in sources:
        place = (
            process.files.join(target, process.files.base(process.files.absolute(source)))
            if into
            else target
        )
        try:
            process.files.stat(source, follow=False)
        except OSError as error:
            code = fault(process, f"can't rename '{source}'", f"cannot stat '{source}'", error)
            continue
        try:
            try:
                process.files.rename(source, place)
            except OSError as error:
                if error.errno != 18:  # another file system: copy, then remove the original
                    raise
                await copy_tree(process, source, place, follow=False, preserve=True)
                process.files.remove(source, recursive=True)
            if "v" in options:
                process.write(f"{'renamed ' if process.gnu else ''}'{source}' -> '{place}'\n")
        except OSError as error:
            code = fault(
                process, f"can't rename '{source}'", f"cannot move '{source}' to '{place}'", error
            )
    return code


async def ln(process: Process) -> int:
    options = parse_options(process, long_names={"symbolic": "s", "force": "f"})
    operands = options.operands
    if not operands:
        return process.fail("missing operand")
    target = operands[0]
    place = operands[1] if len(operands) > 1 else process.files.base(target)
    if process.files.is_directory(place) and "n" not in options:
        place = process.files.join(place, process.files.base(target))
    try:
        if "f" in options:
            try:
                process.files.stat(place, follow=False)
                process.files.remove(place)
            except FileNotFoundError:
                pass
        if "s" in options:
            process.files.symlink(target, place)
        else:
            process.files.link(target, place)
    except OSError as error:
        return _link_fault(process, target, place, "s" in options, error)
    return 0


def _link_fault(process: Process, target: str, place: str, symbolic: bool, error: OSError) -> int:
    if symbolic:
        return fault(process, place, f"failed to create symbolic link '{place}'", error)
    if process.files.is_directory(target):
        if process.gnu:
            process.complain(f"ln: {target}: hard link not allowed for directory")
            return 1
        return fault(process, place, "", error)
    missing = not process.files.exists(target)
    return fault(
        process,
        target if missing else place,
        f"failed to access '{target}'" if missing else f"failed to create hard link '{place}'",
        error,
    )


_OCTAL_MODE = re.compile("[0-7]+")
_LARGEST_MODE = 0o7777


def changed_mode(text: str, old: int, directory: bool) -> int | None:
    """Parses chmod's octal or symbolic notation."""
    if text.isdigit():
        octal = int(text, 8) if _OCTAL_MODE.fullmatch(text) else None
        return octal if octal is None or octal <= _LARGEST_MODE else None
    mode = old
    for clause in text.split(","):
        index = 0
        while index < len(clause) and clause[index] in "ugoa":
            index += 1
        who = clause[:index] or "a"
        if index >= len(clause) or clause[index] not in "+-=":
            return None
        operator, permissions = clause[index], clause[index + 1 :]
        bits = 0
        for letter, value in (("r", 4), ("w", 2), ("x", 1)):
            if letter in permissions:
                bits |= value
        if "X" in permissions and (directory or old & 0o111):
            bits |= 1
        mask = special = 0
        for person, shift, extra in (("u", 6, 0o4000), ("g", 3, 0o2000), ("o", 0, 0)):
            if person in who or "a" in who:
                mask |= bits << shift
                if "s" in permissions:
                    special |= extra
                if operator == "=":
                    mode &= ~(7 << shift)
        if "t" in permissions:
            special |= 0o1000
        mode = mode & ~(mask | special) if operator == "-" else mode | mask | special
    return mode


def chmod(process: Process) -> int:
    arguments = [
        argument
        for argument in process.argv[1:]
        if argument not in ("-R", "-v", "-f", "--recursive")
    ]
    recursive = len(arguments) != len(process.argv) - 1 and any(
        a in ("-R", "--recursive") for a in process.argv[1:]
    )
    if len(arguments) < 2:
        return process.fail("missing operand")
    code = 0
    for path in arguments[1:]:
        try:
            entries = (
                list(process.files.walk(path)) if recursive else [(path, process.files.stat(path))]
            )
            for place, state in entries:
                if state.kind == "symlink":
                    continue
                mode = changed_mode(arguments[0], state.mode, state.kind == "directory")
                if mode is None:
                    colon = ":" if process.gnu else ""
                    return process.fail(f"invalid mode{colon} '{arguments[0]}'")
                process.files.chmod(place, mode)
        except OSError as error:
            code = fault(process, path, f"cannot access '{path}'", error)
    return code


def chown(process: Process) -> int:
    options = parse_options(process, long_names={"recursive": "R"})
    if len(options.operands) < 2:
        return process.fail("missing operand")
    owner, _, group = options.operands[0].replace(".", ":", 1).partition(":")
    if process.name == "chgrp":
        owner, group = "", options.operands[0]
    uid = user_number(process, owner) if owner else -1
    gid = user_number(process, group, "/etc/group") if group else -1
    if uid is None or gid is None:
        unknown = owner if uid is None else group
        return process.fail(f"unknown {'user' if uid is None else 'group'} {unknown}")
    code = 0
    for path in options.operands[1:]:
        try:
            places = [place for place, _ in process.files.walk(path)] if "R" in options else [path]
            for place in places:
                process.files.chown(place, uid, gid)
        except OSError as error:
            code = fault(process, path, f"changing ownership of '{path}'", error)
    return code


def readlink(process: Process) -> int:
    options = parse_options(process)
    code = 0
    for path in options.operands:
        if "f" in options or process.name == "realpath":
            process.write(_real(process, path) + "\n")
            continue
        try:
            process.write(process.files.readlink(path) + "\n")
        except OSError:
            code = 1
    return code


def _real(process: Process, path: str, depth: int = 0) -> str:
    full = process.files.absolute(path)
    resolved = "/"
    for index, name in enumerate(pieces := [piece for piece in full.split("/") if piece]):
        resolved = posixpath.join(resolved, name)
        try:
            target = process.files.readlink(resolved)
        except OSError:
            continue
        if depth < 40:
            joined = posixpath.join(posixpath.dirname(resolved), target, *pieces[index + 1 :])
            return _real(process, joined, depth + 1)
    return resolved


def mktemp(process: Process) -> int:
    options = parse_options(process, "p")
    template = (
        options.operands[0]
        if options.operands
        else "tmp.XXXXXX"
        if not process.gnu
        else "tmp.XXXXXXXXXX"
    )
    base = options.value("p") or process.env.get("TMPDIR") or "/tmp"
    marks = len(template) - len(template.rstrip("X"))
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    name = template[: len(template) - marks] + "".join(
        process.context.rng.choices(letters, k=marks)
    )
    path = (
        name
        if "/" in name or (options.operands and "t" not in options and "p" not in options)
        else posixpath.join(base, name)
    )
    try:
        if "d" in options:
            process.files.mkdir(path, 0o700, parents=not process.files.is_directory(base))
        else:
            process.files.write(path, b"", 0o600)
    except OSError as error:
        return fault(process, path, f"failed to create file via template '{template}'", error)
    process.write(path + "\n")
    return 0


def basename(process: Process) -> int:
    if len(process.argv) < 2:
        return process.fail("missing operand")
    name = posixpath.basename(process.argv[1].rstrip("/")) or "/"
    if len(process.argv) > 2 and name != process.argv[2]:
        name = name.removesuffix(process.argv[2])
    process.write(name + "\n")
    return 0


def dirname(process: Process) -> int:
    if len(process.argv) < 2:
        return process.fail("missing operand")
    for path in process.argv[1:]:
        process.write(
            (posixpath.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")) + "\n"
        )
    return 0


def pwd(process: Process) -> int:
    process.write((process.cwd.replace("\\", "/") if process.windows else process.cwd) + "\n")
    return 0


def mkfifo(process: Process) -> int:
    for path in parse_options(process, "m").operands:
        try:
            process.files.make_pipe(path)
        except OSError as error:
            return fault(process, path, f"cannot create fifo '{path}'", error)
    return 0


def linux_truncate(process: Process) -> int:
    options = parse_options(process, "s")
    for path in options.operands:
        try:
            data = process.files.read(path) if process.files.exists(path) else b""
            wanted = parse_size(options.value("s", "0"))
            process.files.write(path, data[:wanted].ljust(wanted, b"\0"))
        except (OSError, ValueError) as error:
            return process.fail(
                f"{path}: {error_text(error) if isinstance(error, OSError) else 'invalid number'}"
            )
    return 0


def sync(process: Process) -> int:
    return 0


COMMANDS: dict[str, Command] = {
    "basename": basename,
    "chgrp": chown,
    "chmod": chmod,
    "chown": chown,
    "cp": cp,
    "dirname": dirname,
    "install": cp,
    "ln": ln,
    "mkdir": mkdir,
    "mkfifo": mkfifo,
    "mktemp": mktemp,
    "mv": mv,
    "pwd": pwd,
    "readlink": readlink,
    "realpath": readlink,
    "rm": rm,
    "rmdir": rmdir,
    "sync": sync,
    "touch": touch,
    "truncate": linux_truncate,
}
