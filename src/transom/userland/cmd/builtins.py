"""The builtin commands of cmd.exe. Each receives the text after its name."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import Final

from transom.machines.styles import device_name
from transom.userland.cmd import associations, listing
from transom.userland.cmd.control import BatchGoto, split_arguments
from transom.userland.cmd.state import CmdState
from transom.userland.files import FileView, decode_text
from transom.userland.posix.sh import arithmetic
from transom.userland.process import Exit
from transom.userland.windows import texts
from transom.userland.windows.help_texts import help_list, help_text
from transom.userland.windows.variables import Variables

CmdBuiltin = Callable[[CmdState, str], int | Awaitable[int]]


def _switches(rest: str) -> tuple[set[str], list[str]]:
    """Switches in lower case without the slash, and the other words. A slash begins a switch unless
    it is quoted.
    """
    switches: set[str] = set()
    operands: list[str] = []
    for word in re.findall(r'"[^"]*"|/[^\s/"]*|[^\s"/]+', rest):
        if word.startswith("/"):
            switches.add(word[1:].lower())
        else:
            operands.append(word.strip('"').rstrip(","))
    return switches, operands


def _in_order(rest: str) -> list[str]:
    """Switches in the order in which they were written."""
    return [
        word[1:].lower()
        for word in re.findall(r'"[^"]*"|/[^\s/"]*|[^\s"/]+', rest)
        if word.startswith("/")
    ]


def _echo(shell: CmdState, rest: str) -> int:
    if rest[:1] in (".", ",", ":", ";", "/", "\\", "(", "[", "]", "+", "="):
        shell.print_line(rest[1:])
        return 0
    word = rest.strip().lower()
    if word in ("on", "off"):
        shell.echo = word == "on"
    elif not word:
        shell.print_line(f"ECHO is {'on' if shell.echo else 'off'}.")
    else:
        shell.print_line(rest[1:] if rest[:1] in " \t" else rest)
    return 0


async def _set(shell: CmdState, rest: str) -> int:
    text = rest.strip()
    if text.lower().startswith("/a"):
        return _set_number(shell, text[2:].strip())
    if text.lower().startswith("/p"):
        name, _, prompt = text[2:].strip().strip('"').partition("=")
        shell.process.write(prompt)
        line = await shell.process.stdin.readline()
        if not line:
            return 1
        shell.variables[name] = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
        return 0
    text = (
        (text[1:].rpartition('"')[0] if '"' in text[1:] else text[1:])
        if text.startswith('"')
        else rest.lstrip()
    )
    if not text.strip():
        for name, value in shell.variables.items():
            shell.print_line(f"{name}={value}")
        return 0
    name, equals, value = text.partition("=")
    if equals:
        if value:
            shell.variables[name] = value
        elif name in shell.variables:
            del shell.variables[name]
        else:
            return 1
        return 0
    found = [
        (key, shown)
        for key, shown in shell.variables.items()
        if key.lower().startswith(name.strip().lower())
    ]
    for key, shown in found:
        shell.print_line(f"{key}={shown}")
    if not found:
        return shell.fail(f"Environment variable {name.strip()} not defined")
    return 0


def _set_number(shell: CmdState, text: str) -> int:
    def put(name: str, value: str) -> None:
        shell.variables[name] = value

    try:
        value = arithmetic.evaluate(
            text.strip('"').replace('"', ""), lambda name: shell.variable(name) or "0", put
        )
    except arithmetic.ArithmeticFault as fault:
        if "zero" in str(fault):
            return shell.fail("Divide by zero error.", 1073750993)
        return shell.fail("Missing operator.", 1073750991)
    if shell.batch is None:
        shell.process.write(str(value))
    return 0


_SYNTAX = "The syntax of the command is incorrect."


def _type(shell: CmdState, rest: str) -> int:
    switches, paths = _switches(rest)
    if not paths or switches:
        return shell.fail(_SYNTAX)
    code = 0
    files = shell.process.files
    for path in paths:
        names = shell.names(path) if "*" in path or "?" in path else [path]
        for name in names:
            try:
                if files.is_directory(name):
                    code = shell.fail(texts.DENIED)
                    continue
                if len(names) > 1 or len(paths) > 1:
                    shell.complain(f"\r\n{name}\r\n\r\n")
                data = files.read(name)
                wide = data[:2] == b"\xff\xfe"  # only such text is converted
                shell.process.stdout.write(decode_text(data).encode() if wide else data)
            except OSError as error:
                parent = files.parent(files.absolute(name))
                code = shell.fail(
                    texts.windows_message(error)
                    if files.is_directory(parent)
                    else texts.NOT_FOUND_PATH
                )
        if not names:
            code = shell.fail(texts.NOT_FOUND_FILE)
    return code


def _cd(shell: CmdState, rest: str) -> int:
    target = re.sub(r"(?i)^\s*/d\b", "", rest).strip().strip('"')
    if not target:
        shell.print_line(shell.process.cwd)
        return 0
    files = shell.process.files
    if not files.is_directory(target):
        return shell.fail(
            texts.NOT_FOUND_PATH if not files.exists(target) else "The directory name is invalid."
        )
    full = files.absolute(target)
    with contextlib.suppress(OSError):
        full = files.real_path(full)
    shell.process.cwd = full
    return 0


def _make_directory(shell: CmdState, rest: str) -> int:
    switches, paths = _switches(rest)
    if not paths or switches:
        return shell.fail(_SYNTAX)
    code = 0
    for path in paths:
        if shell.process.files.is_directory(path) or (
            shell.process.files.exists(path) and not device_name(shell.process.files.base(path))
        ):
            code = shell.fail(f"A subdirectory or file {path} already exists.")
            continue
        if device_name(shell.process.files.base(path)) and not path.startswith("\\\\?\\"):
            code = shell.fail("The directory name is invalid.")
            continue
        try:
            shell.process.files.mkdir(path, parents=True)
        except OSError as error:
            code = shell.fail(texts.windows_message(error))
    return code


def _remove_directory(shell: CmdState, rest: str) -> int:
    switches, paths = _switches(rest)
    wrong = [one for one in _in_order(rest) if one not in ("s", "q")]
    if wrong:
        return shell.fail(f'Invalid switch - "{wrong[0]}".')
    if not paths:
        return shell.fail(_SYNTAX)
    code = 0
    files = shell.process.files
    for path in paths:
        try:
            if not files.exists(path):
                code = shell.fail(texts.NOT_FOUND_FILE, 2)
                continue
            if not files.is_directory(path):
                code = shell.fail("The directory name is invalid.", 267)
                continue
            link = files.stat(path, follow=False).kind == "symlink"
            if "s" not in switches and not link and files.listdir(path):
                code = shell.fail("The directory is not empty.", 145)
                continue
            files.remove(path, recursive="s" in switches)
        except OSError as error:
            code = shell.fail(texts.windows_message(error), 5)
    return code


def _is_there(files: FileView, name: str) -> bool:
    """A link is there, too, if what it points to is not."""
    try:
        files.stat(name, follow=False)
    except OSError:
        return False
    return True


def _delete(shell: CmdState, rest: str) -> int:
    switches, paths = _switches(rest)
    wrong = [
        one
        for one in _in_order(rest)
        if one not in ("p", "f", "s", "q") and not one.startswith("a")
    ]
    if wrong:
        return shell.fail(f'Invalid switch - "{wrong[0]}".')
    if not paths:
        return shell.fail(_SYNTAX)
    files = shell.process.files
    for path in paths:
        wanted = f"{path}\\*" if files.is_directory(path) else path
        names = (
            shell.names(wanted, directories=False) if "*" in wanted or "?" in wanted else [wanted]
        )
        if "s" in switches:
            top, mask = files.parent(files.absolute(wanted)), files.base(wanted)
            tops = [place for place, state in files.walk(top) if state.kind == "directory"]
            names = [
                name
                for place in tops
                for name in shell.names(f"{place}\\{mask}", directories=False)
            ]
        wanted_hidden = any(one.startswith("a") and "-h" not in one for one in switches)
        names = [
            name
            for name in names
            if _is_there(files, name)
            and (wanted_hidden or "H" not in files.attributes(name, follow=False))
        ]
        if not names:
            shell.complain(f"Could Not Find {files.absolute(path)}")
            continue
        for name in names:
            try:
                attributes = files.attributes(name, follow=False)
                if "R" in attributes:
                    if "f" not in switches:
                        shell.complain(f"{files.absolute(name)}\r\n{texts.DENIED}")
                        continue
                    files.set_attributes(name, off="R")
                files.remove(name)
                if "s" in switches:
                    shell.print_line(f"Deleted file - {files.absolute(name)}")
            except OSError as error:
                shell.complain(f"{files.absolute(name)}\r\n{texts.windows_message(error)}")
    return 0


def _copy(shell: CmdState, rest: str) -> int:
    switches, operands = _switches(rest.replace("+", " + "))
    files = shell.process.files
    sources = [operand for operand in operands if operand != "+"]
    if not sources or switches - {"y", "-y", "a", "b", "v", "n", "z", "d", "l"}:
        return shell.fail(_SYNTAX)
    joined = "+" in operands
    target = sources.pop() if len(sources) > 1 else "."
    names: list[str] = []
    for source in sources:
        pattern = f"{source}\\*" if files.is_directory(source) else source
        names.extend(
            shell.names(pattern, directories=False)
            if "*" in pattern or "?" in pattern
            else [pattern]
        )
    copied = 0
    try:
        if joined:
            files.write(target, b"".join(files.read(name) for name in names))
            copied = 1
        else:
            for name in names:
                place = (
                    files.join(target, files.base(name)) if files.is_directory(target) else target
                )
                files.stat(name)
                if files.absolute(place).lower() == files.absolute(name).lower():
                    shell.print_line("The file cannot be copied onto itself.")
                    continue
                files.copy(name, place)
                if len(sources) > 1 or "*" in sources[0]:
                    shell.print_line(name)
                copied += 1
    except OSError as error:
        parent_missing = not files.is_directory(files.parent(files.absolute(target)))
        shell.complain(texts.NOT_FOUND_PATH if parent_missing else texts.windows_message(error))
        shell.print_line(f"{copied:>9} file(s) copied.")
        return 1
    if not names:
        return shell.fail(texts.NOT_FOUND_FILE)
    shell.print_line(f"{copied:>9} file(s) copied.")
    return 0


def _move(shell: CmdState, rest: str) -> int:
    switches, operands = _switches(rest)
    if len(operands) != 2 or switches - {"y", "-y"}:
        return shell.fail(_SYNTAX)
    files = shell.process.files
    names = shell.names(operands[0]) if "*" in operands[0] else [operands[0]]
    moved = 0
    for name in names:
        place = (
            files.join(operands[1], files.base(name))
            if files.is_directory(operands[1])
            else operands[1]
        )
        try:
            directory = files.is_directory(name)
            if files.exists(place) and not directory:
                files.remove(place)
            files.rename(name, place)
        except OSError as error:
            return shell.fail(texts.windows_message(error))
        moved += 1
        shell.print_line(f"{moved:>9} {'dir(s)' if directory else 'file(s)'} moved.")
    return 0 if moved else shell.fail(texts.NOT_FOUND_FILE)


def _rename(shell: CmdState, rest: str) -> int:
    switches, operands = _switches(rest)
    if len(operands) != 2 or switches:
        return shell.fail(_SYNTAX)
    files = shell.process.files
    try:
        if files.exists(operands[1]):
            return shell.fail("A duplicate file name exists, or the file\r\ncannot be found.")
        files.rename(
            operands[0], files.join(files.parent(files.absolute(operands[0])), operands[1])
        )
    except OSError as error:
        return shell.fail(texts.windows_message(error))
    return 0


_DIR_SWITCHES = frozenset("abcdlnopqrstwx4-")
"""/P never waits, /R finds no streams, /C, /N and /4 are what dir does anyway."""
_DIR_COLUMNS = ("d", "w")  # not performed
_DIR_TIMES = frozenset(
    ("t", *(f"t{colon}{letter}" for colon in ("", ":") for letter in "acw"), "t:")
)


def _dir(shell: CmdState, rest: str) -> int:
    switches, operands = _switches(rest)
    for one in _in_order(rest):
        if one[:1] not in _DIR_SWITCHES or one in _DIR_COLUMNS:
            return shell.fail(f'Invalid switch - "{one}".')
        if len(one) > 1 and one[0] not in "aot-" and one.replace("-", "") not in ("od",):
            return shell.fail(f'Parameter format not correct - "{one}".')
        if one[0] == "t" and one not in _DIR_TIMES:
            return shell.fail(f'Parameter format not correct - "{one[1:].lstrip(":")}".')
    code = 0
    for target in operands or ["."]:
        code |= listing.show_dir(shell, target, switches)
    return code


def _exit(shell: CmdState, rest: str) -> int:
    words = rest.split()
    batch_only = bool(words) and words[0].lower() == "/b"
    if batch_only:
        words = words[1:]
    code = shell.error_level
    if words:
        try:
            code = int(words[0]) & 0xFFFFFFFF
        except ValueError:
            code = 0
    if batch_only and shell.batch is not None:
        shell.error_level = code
        raise BatchGoto("eof")
    raise Exit(code)


async def _call(shell: CmdState, rest: str) -> int:
    text = rest.strip()
    if text.startswith(":"):
        words = split_arguments(text[1:])
        return await shell.call_label(words[0].lower(), words[1:])
    return await shell.execute(shell.expand(text)) if text else 0


def _goto(shell: CmdState, rest: str) -> int:
    raise BatchGoto(rest.strip().lstrip(":").lower().split(" ")[0])


def _set_local(shell: CmdState, rest: str) -> int:
    shell.saved.append((Variables(shell.variables.plain()), shell.process.cwd, shell.delayed))
    if "enabledelayedexpansion" in rest.lower():
        shell.delayed = True
    return 0


def _end_local(shell: CmdState, rest: str) -> int:
    shell.restore()
    return 0


def _shift(shell: CmdState, rest: str) -> int:
    if shell.batch is not None and len(shell.batch.arguments) > 1:
        del shell.batch.arguments[1]
    return 0


async def _pause(shell: CmdState, rest: str) -> int:
    shell.process.write("Press any key to continue . . . ")
    await shell.process.stdin.read(1)
    shell.print_line()
    return 0


def _ver(shell: CmdState, rest: str) -> int:
    shell.print_line()
    shell.print_line(texts.version_line(shell.process.context.platform.build))
    return 0


def _vol(shell: CmdState, rest: str) -> int:
    listing.volume_header(shell, rest.strip() or shell.process.cwd)
    return 0


def _assoc(shell: CmdState, rest: str) -> int:
    """Shows or sets the file type of an extension."""
    return associations.assoc(shell, rest.strip())


def _ftype(shell: CmdState, rest: str) -> int:
    """Shows or sets the command that opens a file type."""
    return associations.ftype(shell, rest.strip())


def _date(shell: CmdState, rest: str) -> int:
    prefix = "" if "/t" in rest.lower() else "The current date is: "
    shell.print_line(prefix + texts.long_date(shell.now()) + " ")
    return 0


def _time(shell: CmdState, rest: str) -> int:
    moment = shell.now()
    if "/t" in rest.lower():
        shell.print_line(texts.date_time(moment)[12:])
    else:
        shell.print_line("The current time is: " + texts.clock(moment))
    return 0


def _push(shell: CmdState, rest: str) -> int:
    before = shell.process.cwd
    code = _cd(shell, rest)
    if code == 0:
        shell.directories.append(before)
    return code


def _pop(shell: CmdState, rest: str) -> int:
    if shell.directories:
        shell.process.cwd = shell.directories.pop()
    return 0


_NOT_STARTED: Final = 9059


async def _start(shell: CmdState, rest: str) -> int:
    text = re.sub(r'^\s*"[^"]*"', "", rest)
    background = re.search(r"(?i)/w(ait)?(?=\s)", text) is None
    text = re.sub(r"(?i)/(b|wait|w|min|max|i|low|normal|high|d\s+\S+)(?=\s)", "", text).strip()
    if not text:
        return 0
    inner = shell.fork()
    if not inner.finds(text):
        # Windows also opens a message box, which nothing in a container shows
        return shell.fail(f"The system cannot find the file {text.split()[0]}.", _NOT_STARTED)
    if background:
        shell.process.program.spawn(inner.process.run(lambda process: inner.execute(text)))
        return 0
    return await inner.execute(text)


def _path(shell: CmdState, rest: str) -> int:
    value = rest.strip().lstrip("=")
    if not value:
        shell.print_line(f"PATH={shell.variable('path') or ''}")
    else:
        shell.variables["Path"] = value
    return 0


def _prompt(shell: CmdState, rest: str) -> int:
    shell.prompt = rest.strip() or "$P$G"
    return 0


def _make_link(shell: CmdState, rest: str) -> int:
    switches, operands = _switches(rest)
    if len(operands) != 2 or switches - {"d", "h", "j"} or len(switches) > 1:
        return shell.fail(_SYNTAX)
    link, target = operands
    files, switch = shell.process.files, next(iter(switches), "")
    if switch == "j" and target.startswith("\\\\"):
        return shell.fail("Local volumes are required to complete the operation.")
    account = shell.process.context.windows.account
    if switch not in ("h", "j") and not account.administrator:
        return shell.fail("You do not have sufficient privilege to perform this operation.")
    try:
        if switch == "h":
            files.link(target, link)
        elif switch == "j":
            files.junction(target, link)
        else:
            files.symlink(target, link)
    except OSError as error:
        return shell.fail(texts.windows_message(error))
    shell.print_line(f"{_LINK_KINDS[switch]} created for {link} <<===>> {target}")
    return 0


_LINK_KINDS = {
    "": "symbolic link",
    "d": "symbolic link",
    "h": "Hardlink",
    "j": "Junction",
}


def _nothing(shell: CmdState, rest: str) -> int:
    return 0


KEEPS_ERROR_LEVEL = frozenset(
    (
        "echo",
        "rem",
        "set",
        "setlocal",
        "endlocal",
        "cls",
        "title",
        "goto",
        "shift",
        "color",
        "break",
        "del",
    )
)


def _help(shell: CmdState, rest: str) -> int:
    name = rest.strip().lower()
    shown = help_text(name) if name else help_list()
    if shown is None:
        shell.print_line(f'This command is not supported by the help utility.  Try "{name} /?".')
        return 1
    shell.process.write(shown)
    return 1 if not name else 0


BUILTINS: dict[str, CmdBuiltin] = {
    "help": _help,
    "assoc": _assoc,
    "break": _nothing,
    "call": _call,
    "cd": _cd,
    "chdir": _cd,
    "cls": _nothing,
    "color": _nothing,
    "copy": _copy,
    "date": _date,
    "del": _delete,
    "dir": _dir,
    "echo": _echo,
    "endlocal": _end_local,
    "erase": _delete,
    "exit": _exit,
    "ftype": _ftype,
    "goto": _goto,
    "md": _make_directory,
    "mkdir": _make_directory,
    "mklink": _make_link,
    "move": _move,
    "path": _path,
    "pause": _pause,
    "popd": _pop,
    "prompt": _prompt,
    "pushd": _push,
    "rd": _remove_directory,
    "rem": _nothing,
    "ren": _rename,
    "rename": _rename,
    "rmdir": _remove_directory,
    "set": _set,
    "setlocal": _set_local,
    "shift": _shift,
    "start": _start,
    "time": _time,
    "title": _nothing,
    "type": _type,
    "ver": _ver,
    "verify": _nothing,
    "vol": _vol,
}
