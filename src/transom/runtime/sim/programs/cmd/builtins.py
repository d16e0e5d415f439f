"""Commands that are cmd.exe itself. Each gets the text behind its name."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from transom.hosts.api import Stat
from transom.runtime.sim.programs.cmd.interpreter import Goto, Interpreter, split_arguments
from transom.runtime.sim.programs.process import Exit
from transom.runtime.sim.programs.sh import arithmetic
from transom.runtime.sim.programs.win import texts
from transom.runtime.sim.programs.win.variables import Variables

Builtin = Callable[[Interpreter, str], int | Awaitable[int]]


def _switches(rest: str) -> tuple[set[str], list[str]]:
    """Switches in lower case without the slash, and everything else."""
    switches: set[str] = set()
    operands: list[str] = []
    for word in re.findall(r'"[^"]*"|/[^\s/"]+|[^\s"]+', rest):
        if word.startswith("/"):
            switches.add(word[1:].lower())
        else:
            operands.append(word.strip('"').rstrip(","))
    return switches, operands


def _echo(shell: Interpreter, rest: str) -> int:
    if rest[:1] in (".", ",", ":", ";", "/", "\\", "(", "[", "]", "+", "="):
        shell.say(rest[1:])
        return 0
    word = rest.strip().lower()
    if word in ("on", "off"):
        shell.echo = word == "on"
    elif not word:
        shell.say(f"ECHO is {'on' if shell.echo else 'off'}.")
    else:
        shell.say(rest[1:] if rest[:1] in " \t" else rest)
    return 0


async def _set(shell: Interpreter, rest: str) -> int:
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
    text = (text[1:].rpartition('"')[0] if '"' in text[1:] else text[1:]) if text.startswith('"') else rest.lstrip()
    if not text.strip():
        for name, value in shell.variables.items():
            shell.say(f"{name}={value}")
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
    found = [(key, shown) for key, shown in shell.variables.items() if key.lower().startswith(name.strip().lower())]
    for key, shown in found:
        shell.say(f"{key}={shown}")
    if not found:
        return shell.fail(f"Environment variable {name.strip()} not defined")
    return 0


def _set_number(shell: Interpreter, text: str) -> int:
    def put(name: str, value: str) -> None:
        shell.variables[name] = value

    try:
        value = arithmetic.evaluate(text.strip('"').replace('"', ""), lambda name: shell.variable(name) or "0", put)
    except arithmetic.ArithmeticFault as fault:
        if "zero" in str(fault):
            return shell.fail("Divide by zero error.", 1073750993)
        return shell.fail("Missing operator.", 1073750991)
    if shell.batch is None:
        shell.process.write(str(value))
    return 0


def _type(shell: Interpreter, rest: str) -> int:
    _, paths = _switches(rest)
    if not paths:
        return shell.fail("The syntax of the command is incorrect.")
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
                shell.process.stdout.write(files.read(name))
            except OSError as error:
                parent = files.parent(files.absolute(name))
                code = shell.fail(texts.message(error) if files.is_directory(parent) else texts.NOT_FOUND_PATH)
        if not names:
            code = shell.fail(texts.NOT_FOUND_FILE)
    return code


def _cd(shell: Interpreter, rest: str) -> int:
    target = re.sub(r"(?i)^\s*/d\b", "", rest).strip().strip('"')
    if not target:
        shell.say(shell.process.cwd)
        return 0
    files = shell.process.files
    if not files.is_directory(target):
        return shell.fail(texts.NOT_FOUND_PATH if not files.exists(target) else "The directory name is invalid.")
    shell.process.cwd = files.absolute(target)
    return 0


def _make_directory(shell: Interpreter, rest: str) -> int:
    _, paths = _switches(rest)
    if not paths:
        return shell.fail("The syntax of the command is incorrect.")
    code = 0
    for path in paths:
        if shell.process.files.exists(path):
            code = shell.fail(f"A subdirectory or file {path} already exists.")
            continue
        try:
            shell.process.files.mkdir(path, parents=True)
        except OSError as error:
            code = shell.fail(texts.message(error))
    return code


def _remove_directory(shell: Interpreter, rest: str) -> int:
    switches, paths = _switches(rest)
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
            if "s" not in switches and files.listdir(path):
                code = shell.fail("The directory is not empty.", 145)
                continue
            files.remove(path, recursive="s" in switches)
        except OSError as error:
            code = shell.fail(texts.message(error), 5)
    return code


def _delete(shell: Interpreter, rest: str) -> int:
    _, paths = _switches(rest)
    files = shell.process.files
    for path in paths:
        wanted = f"{path}\\*" if files.is_directory(path) else path
        names = shell.names(wanted, directories=False) if "*" in wanted or "?" in wanted else [wanted]
        if not names or (len(names) == 1 and not files.exists(names[0])):
            shell.complain(f"Could Not Find {files.absolute(path)}")
            continue
        for name in names:
            try:
                files.remove(name)
            except OSError as error:
                shell.complain(f"{files.absolute(name)}\r\n{texts.message(error)}")
    return 0


def _copy(shell: Interpreter, rest: str) -> int:
    _, operands = _switches(rest.replace("+", " + "))
    files = shell.process.files
    sources = [operand for operand in operands if operand != "+"]
    if not sources:
        return shell.fail("The syntax of the command is incorrect.")
    joined = "+" in operands
    target = sources.pop() if len(sources) > 1 else "."
    names: list[str] = []
    for source in sources:
        pattern = f"{source}\\*" if files.is_directory(source) else source
        names.extend(shell.names(pattern, directories=False) if "*" in pattern or "?" in pattern else [pattern])
    copied = 0
    try:
        if joined:
            files.write(target, b"".join(files.read(name) for name in names))
            copied = 1
        else:
            for name in names:
                place = files.join(target, files.base(name)) if files.is_directory(target) else target
                data = files.read(name)
                if files.absolute(place).lower() == files.absolute(name).lower():
                    shell.say("The file cannot be copied onto itself.")
                    continue
                files.write(place, data)
                if len(sources) > 1 or "*" in sources[0]:
                    shell.say(name)
                copied += 1
    except OSError as error:
        parent_missing = not files.is_directory(files.parent(files.absolute(target)))
        shell.complain(texts.NOT_FOUND_PATH if parent_missing else texts.message(error))
        shell.say(f"{copied:>9} file(s) copied.")
        return 1
    if not names:
        return shell.fail(texts.NOT_FOUND_FILE)
    shell.say(f"{copied:>9} file(s) copied.")
    return 0


def _move(shell: Interpreter, rest: str) -> int:
    _, operands = _switches(rest)
    if len(operands) != 2:
        return shell.fail("The syntax of the command is incorrect.")
    files = shell.process.files
    names = shell.names(operands[0]) if "*" in operands[0] else [operands[0]]
    moved = 0
    for name in names:
        place = files.join(operands[1], files.base(name)) if files.is_directory(operands[1]) else operands[1]
        try:
            directory = files.is_directory(name)
            if files.exists(place) and not directory:
                files.remove(place)
            files.rename(name, place)
        except OSError as error:
            return shell.fail(texts.message(error))
        moved += 1
        shell.say(f"{moved:>9} {'dir(s)' if directory else 'file(s)'} moved.")
    return 0 if moved else shell.fail(texts.NOT_FOUND_FILE)


def _rename(shell: Interpreter, rest: str) -> int:
    _, operands = _switches(rest)
    if len(operands) != 2:
        return shell.fail("The syntax of the command is incorrect.")
    files = shell.process.files
    try:
        if files.exists(operands[1]):
            return shell.fail("A duplicate file name exists, or the file\r\ncannot be found.")
        files.rename(operands[0], files.join(files.parent(files.absolute(operands[0])), operands[1]))
    except OSError as error:
        return shell.fail(texts.message(error))
    return 0


def _entry(shell: Interpreter, name: str, path: str, state: Stat) -> str:
    files = shell.process.files
    kind = ""
    shown = name
    if state.kind == "symlink":
        kind = "<SYMLINKD>" if files.is_directory(path) else "<SYMLINK>"
        shown = f"{name} [{files.readlink(path)}]"
    elif state.kind == "directory":
        kind = "<DIR>"
    size = f"    {kind:<10}    " if kind else f"{state.size:>18,}"
    return f"{texts.date_time(state.mtime)}{size} {shown}"


def _dir(shell: Interpreter, rest: str) -> int:
    switches, operands = _switches(rest)
    attributes = next((switch[1:].lstrip(":") for switch in switches if switch.startswith("a")), "")
    code = 0
    for target in operands or ["."]:
        code |= _list(shell, target, switches, attributes)
    return code


def _list(shell: Interpreter, target: str, switches: set[str], attributes: str) -> int:
    files = shell.process.files
    full = files.absolute(target)
    bare = "b" in switches
    whole = files.is_directory(full)
    directory = full if whole else files.parent(full)
    if not bare:
        shell.say(" Volume in drive C has no label.\r\n Volume Serial Number is 22F1-1E4B\r\n")
    if not files.is_directory(directory):
        return shell.fail(texts.NOT_FOUND_PATH if bare else "File Not Found")
    code = _list_one(shell, directory, "*" if whole else files.base(full), switches, attributes)
    if "s" in switches:
        for name in files.listdir(directory):
            inner = files.join(directory, name)
            if files.stat(inner, follow=False).kind == "directory":
                _list(shell, inner if whole else files.join(inner, files.base(full)), switches | {"quiet"}, attributes)
    return code


def _list_one(shell: Interpreter, directory: str, mask: str, switches: set[str], attributes: str) -> int:
    files = shell.process.files
    bare = "b" in switches
    rows: list[tuple[str, Stat]] = []
    try:
        if len(directory.rstrip("\\")) > 2 and mask == "*" and not bare:
            here = files.stat(directory)
            rows += [(".", here), ("..", here)]
        for path in shell.names(f"{directory}\\{mask}"):
            rows.append((files.base(path), files.stat(files.join(directory, files.base(path)), follow=False)))
    except OSError as error:
        return shell.fail(texts.message(error))
    if attributes.startswith("d"):
        rows = [row for row in rows if row[1].kind == "directory"]
    elif attributes.startswith("-d"):
        rows = [row for row in rows if row[1].kind != "directory"]
    if not rows:
        if "s" not in switches:
            if not bare:
                shell.say(f" Directory of {directory}\r\n")
            return shell.fail("File Not Found")
        return 1
    if bare:
        for name, _ in rows:
            shell.say(files.join(directory, name) if "s" in switches else name)
        return 0
    shell.say(f" Directory of {directory}\r\n")
    total = count = directories = 0
    for name, state in rows:
        shell.say(_entry(shell, name, files.join(directory, name) if name not in (".", "..") else directory, state))
        if state.kind == "directory" or (state.kind == "symlink" and files.is_directory(files.join(directory, name))):
            directories += 1
        else:
            count += 1
            total += state.size
    shell.say(f"{count:>16} File(s) {total:>14,} bytes")
    shell.say(f"{directories:>16} Dir(s)  {21_302_341_632:,} bytes free")
    return 0


def _exit(shell: Interpreter, rest: str) -> int:
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
        raise Goto("eof")
    raise Exit(code)


async def _call(shell: Interpreter, rest: str) -> int:
    text = rest.strip()
    if text.startswith(":"):
        words = split_arguments(text[1:])
        return await shell.call_label(words[0].lower(), words[1:])
    return await shell.execute(shell.expand(text)) if text else 0


def _goto(shell: Interpreter, rest: str) -> int:
    raise Goto(rest.strip().lstrip(":").lower().split(" ")[0])


def _set_local(shell: Interpreter, rest: str) -> int:
    shell.saved.append((Variables(shell.variables.plain()), shell.process.cwd, shell.delayed))
    if "enabledelayedexpansion" in rest.lower():
        shell.delayed = True
    return 0


def _end_local(shell: Interpreter, rest: str) -> int:
    shell.restore()
    return 0


def _shift(shell: Interpreter, rest: str) -> int:
    if shell.batch is not None and len(shell.batch.arguments) > 1:
        del shell.batch.arguments[1]
    return 0


async def _pause(shell: Interpreter, rest: str) -> int:
    shell.process.write("Press any key to continue . . . ")
    await shell.process.stdin.read(1)
    shell.say()
    return 0


def _ver(shell: Interpreter, rest: str) -> int:
    shell.say()
    shell.say(texts.version_line(shell.process.context.build))
    return 0


def _vol(shell: Interpreter, rest: str) -> int:
    shell.say(" Volume in drive C has no label.\r\n Volume Serial Number is 22F1-1E4B")
    return 0


def _date(shell: Interpreter, rest: str) -> int:
    prefix = "" if "/t" in rest.lower() else "The current date is: "
    shell.say(prefix + texts.long_date(shell.process.context.clock.time()) + " ")
    return 0


def _time(shell: Interpreter, rest: str) -> int:
    moment = shell.process.context.clock.time()
    if "/t" in rest.lower():
        shell.say(texts.date_time(moment)[12:])
    else:
        shell.say("The current time is: " + texts.clock(moment))
    return 0


def _push(shell: Interpreter, rest: str) -> int:
    before = shell.process.cwd
    code = _cd(shell, rest)
    if code == 0:
        shell.directories.append(before)
    return code


def _pop(shell: Interpreter, rest: str) -> int:
    if shell.directories:
        shell.process.cwd = shell.directories.pop()
    return 0


async def _start(shell: Interpreter, rest: str) -> int:
    text = re.sub(r'^\s*"[^"]*"', "", rest)
    background = "/b" in text.lower() or "/wait" not in text.lower()
    text = re.sub(r"(?i)/(b|wait|min|max|i|low|normal|high|d\s+\S+)(?=\s)", "", text).strip()
    if not text:
        return 0
    inner = shell.fork()
    if background:
        shell.process.program.spawn(inner.process.run(lambda process: inner.execute(text)))
        return 0
    return await inner.execute(text)


def _path(shell: Interpreter, rest: str) -> int:
    value = rest.strip().lstrip("=")
    if not value:
        shell.say(f"PATH={shell.variable('path') or ''}")
    else:
        shell.variables["Path"] = value
    return 0


def _prompt(shell: Interpreter, rest: str) -> int:
    shell.prompt = rest.strip() or "$P$G"
    return 0


def _make_link(shell: Interpreter, rest: str) -> int:
    switches, operands = _switches(rest)
    if len(operands) != 2:
        return shell.fail("The syntax of the command is incorrect.")
    try:
        shell.process.files.symlink(operands[1], operands[0])
    except OSError as error:
        return shell.fail(texts.message(error))
    kind = "Junction" if "j" in switches else "symbolic link"
    shell.say(f"{kind} created for {operands[0]} <<===>> {operands[1]}")
    return 0


def _nothing(shell: Interpreter, rest: str) -> int:
    return 0


KEEPS_ERROR_LEVEL = frozenset(
    ("echo", "rem", "set", "setlocal", "endlocal", "cls", "title", "goto", "shift", "color", "break", "del")
)
BUILTINS: dict[str, Builtin] = {
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
