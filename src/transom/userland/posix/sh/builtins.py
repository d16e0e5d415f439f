"""Shell builtins: they change the shell's state, or are so common that they are not separate
processes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from transom.userland.files import error_text
from transom.userland.limits import bounded
from transom.userland.posix.commands import basic
from transom.userland.posix.commands.files import changed_mode, pwd
from transom.userland.posix.sh import arithmetic
from transom.userland.posix.sh.control import (
    ExpansionFault,
    FunctionReturn,
    LoopExit,
    ShellJob,
    trap_signal_name,
)
from transom.userland.posix.sh.state import ShellState
from transom.userland.preemption import check_slice
from transom.userland.process import SIGNAL_NUMBERS, Command, Exit

Builtin = Callable[[ShellState, list[str]], int | Awaitable[int]]


def _inline(body: Command) -> Builtin:
    def run(shell: ShellState, argv: list[str]) -> int | Awaitable[int]:
        process = shell.process.child(argv, shown=False)
        process.env = shell.environment()
        return body(process)

    return run


def _number(text: str, default: int) -> int:
    return int(text) if text.lstrip("-").isdigit() else default


def _exit(shell: ShellState, argv: list[str]) -> int:
    raise Exit((_number(argv[1], 2) if len(argv) > 1 else shell.status) & 0xFF)


def _return(shell: ShellState, argv: list[str]) -> int:
    raise FunctionReturn(_number(argv[1], 2) & 0xFF if len(argv) > 1 else shell.status)


def _break(shell: ShellState, argv: list[str]) -> int:
    raise LoopExit(max(1, _number(argv[1], 1)) if len(argv) > 1 else 1, argv[0] == "continue")


def _cd(shell: ShellState, argv: list[str]) -> int:
    arguments = [argument for argument in argv[1:] if argument not in ("-P", "-L", "--")]
    target = arguments[0] if arguments else shell.get("HOME") or "/"
    if target == "-":
        target = shell.get("OLDPWD") or "."
        shell.process.write(target + "\n")
    files = shell.process.files
    try:
        state = files.stat(target)
        if state.kind != "directory":
            raise NotADirectoryError(20, "Not a directory")
    except OSError as error:
        shell.complain(
            f"cd: {target}: {error_text(error)}"
            if shell.bash
            else f"cd: can't cd to {target}: {error_text(error)}"
        )
        return 1 if shell.bash else 2
    shell.variables["OLDPWD"] = shell.process.cwd
    shell.process.cwd = files.absolute(target)
    shell.variables["PWD"] = shell.process.cwd
    return 0


def _pwd(shell: ShellState, argv: list[str]) -> int:
    return pwd(shell.process)


def _export(shell: ShellState, argv: list[str]) -> int:
    arguments = [argument for argument in argv[1:] if argument not in ("-p", "--", "-x")]
    if not arguments:
        for name in sorted(shell.exported & shell.variables.keys()):
            shell.process.write(f"export {name}='{shell.variables[name]}'\n")
    if arguments and arguments[0] == "-n":
        shell.exported.difference_update(arguments[1:])
        return 0
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not name.replace("_", "a").isalnum() or name[0].isdigit():
            shell.complain(f"export: {name}: bad variable name")
            return 2
        if equals:
            shell.assign(name, value)
        shell.exported.add(name)
    return 0


def _readonly(shell: ShellState, argv: list[str]) -> int:
    for argument in argv[1:]:
        name, equals, value = argument.partition("=")
        if equals:
            shell.assign(name, value)
        shell.readonly.add(name)
    return 0


def _local(shell: ShellState, argv: list[str]) -> int:
    if not shell.scopes:
        shell.complain(f"{argv[0]}: not in a function")
        return 1
    for argument in argv[1:]:
        if argument.startswith("-"):
            continue
        name, equals, value = argument.partition("=")
        shell.scopes[-1].setdefault(name, shell.variables.get(name))
        if equals:
            shell.assign(name, value)
    return 0


def _declare(shell: ShellState, argv: list[str]) -> int:
    if shell.scopes and "-g" not in argv:
        return _local(shell, argv)
    exported = any(argument.startswith("-") and "x" in argument for argument in argv[1:])
    for argument in argv[1:]:
        name, equals, value = argument.partition("=")
        if argument.startswith("-"):
            continue
        if equals:
            shell.assign(name, value)
        if exported:
            shell.exported.add(name)
    return 0


def _unset(shell: ShellState, argv: list[str]) -> int:
    functions = "-f" in argv[1:2]
    for name in argv[1:]:
        if name.startswith("-"):
            continue
        if name in shell.readonly:
            shell.complain(f"unset: {name}: is read only")
            return 2
        if not functions:
            shell.variables.pop(name, None)
            shell.exported.discard(name)
        else:
            shell.functions.pop(name, None)
    return 0


def _shift(shell: ShellState, argv: list[str]) -> int:
    count = _number(argv[1], 1) if len(argv) > 1 else 1
    if count > len(shell.arguments):
        return 1
    del shell.arguments[:count]
    return 0


_LONG_OPTIONS = {
    "errexit": "e",
    "xtrace": "x",
    "nounset": "u",
    "noglob": "f",
    "allexport": "a",
    "verbose": "v",
    "noexec": "n",
    "monitor": "m",
    "pipefail": "pipefail",
}


def set_options(shell: ShellState, argv: list[str]) -> int:
    """The arguments of `set`: options, then positional parameters."""
    arguments = list(argv)
    while arguments:
        argument = arguments[0]
        if argument == "--":
            shell.arguments = arguments[1:]
            return 0
        if argument[:1] not in ("-", "+") or len(argument) == 1:
            shell.arguments = arguments
            return 0
        arguments.pop(0)
        value = argument[0] == "-"
        for letter in argument[1:]:
            if letter == "o":
                if arguments:
                    name = _LONG_OPTIONS.get(arguments.pop(0), "h")
                    shell.options[name] = value
            elif letter in shell.options:
                shell.options[letter] = value
            elif letter not in "bBCEHPT":
                shell.complain(f"set: illegal option {argument[0]}{letter}")
                raise Exit(2)
    return 0


def _set(shell: ShellState, argv: list[str]) -> int:
    if len(argv) == 1:
        for name in sorted(shell.variables):
            value = shell.variables[name].replace("'", "'\"'\"'")
            shell.process.write(f"{name}='{value}'\n")
        return 0
    return set_options(shell, argv[1:])


async def _eval(shell: ShellState, argv: list[str]) -> int:
    return await shell.run_text(" ".join(argv[1:]))


async def _source(shell: ShellState, argv: list[str]) -> int:
    if len(argv) < 2:
        shell.complain(f"{argv[0]}: filename argument required")
        return 2
    try:
        text = shell.process.files.text(argv[1])
    except OSError as error:
        shell.complain(
            f"{argv[0]}: {argv[1]}: {error_text(error)}"
            if shell.bash
            else f"{argv[0]}: can't open '{argv[1]}'"
        )
        if not shell.bash and not shell.interactive:
            raise Exit(2) from None
        return 1
    saved = shell.arguments
    if len(argv) > 2:
        shell.arguments = argv[2:]
    try:
        return await shell.run_text(text)
    except FunctionReturn as end:
        return end.code
    finally:
        shell.arguments = saved


async def _command(shell: ShellState, argv: list[str]) -> int:
    if len(argv) > 1 and argv[1] in ("-v", "-V"):
        code = 0
        for name in argv[2:]:
            code |= _describe(shell, name, argv[1] == "-V")
        return code
    return await shell.command(argv[1:], functions=False) if len(argv) > 1 else 0


def _describe(shell: ShellState, name: str, long: bool) -> int:
    if name in shell.functions:
        shell.process.write(f"{name} is a function\n" if long else f"{name}\n")
    elif name in BUILTINS:
        shell.process.write(f"{name} is a shell builtin\n" if long else f"{name}\n")
    else:
        path = basic.which(shell.process, name)
        if path is None:
            if long:
                shell.process.complain(f"{name}: not found")
            return 127 if long else 1
        shell.process.write(f"{name} is {path}\n" if long else f"{path}\n")
    return 0


def _type(shell: ShellState, argv: list[str]) -> int:
    code = 0
    for name in argv[1:]:
        code |= _describe(shell, name, True)
    return code


def _trap(shell: ShellState, argv: list[str]) -> int:
    arguments = [argument for argument in argv[1:] if argument != "--"]
    if not arguments or arguments[0] == "-p":
        for name, text in shell.traps.items():
            shell.process.write(f"trap -- '{text}' {name.removeprefix('SIG')}\n")
        return 0
    if arguments[0] == "-l":
        shell.process.write(" ".join(name.removeprefix("SIG") for name in SIGNAL_NUMBERS) + "\n")
        return 0
    action: str | None = arguments.pop(0)
    if action == "-" or not arguments:
        if not arguments and action is not None:
            arguments = [action]
        action = None
    for text in arguments:
        known = trap_signal_name(text)
        if known is None:
            if text in ("ERR", "DEBUG", "RETURN"):
                continue
            shell.complain(f"trap: {text}: invalid signal specification")
            return 1
        if action is None:
            shell.traps.pop(known, None)
        else:
            shell.traps[known] = action
    return 0


def _job(shell: ShellState, text: str) -> ShellJob | None:
    if text.startswith("%"):
        number = text[1:]
        for job in shell.jobs.values():
            if str(job.number) == number or number in ("", "%", "+"):
                return job
        return None
    return shell.jobs.get(_number(text, -1))


async def _wait(shell: ShellState, argv: list[str]) -> int:
    if len(argv) > 1 and argv[1] != "-n":
        jobs = [_job(shell, argument) for argument in argv[1:]]
        if any(job is None for job in jobs):
            return 127
    else:
        jobs = list(shell.jobs.values())
    code = 0
    shell.process.steps = 0
    for job in jobs:
        if job is None:
            continue
        while not job.done.done():
            shell.waiting = asyncio.get_running_loop().create_future()
            try:
                await asyncio.wait((job.done, shell.waiting), return_when=asyncio.FIRST_COMPLETED)
            finally:
                shell.waiting = None
            if shell.pending:
                return 128 + SIGNAL_NUMBERS[shell.pending[0]]
        shell.jobs.pop(job.process.pid, None)
        code = (job.process.killed or 0) if job.done.cancelled() else job.done.result()
    return code if len(argv) > 1 else 0


def _jobs(shell: ShellState, argv: list[str]) -> int:
    for job in list(shell.jobs.values()):
        state = "Done" if job.done.done() else "Running"
        shell.process.write(
            f"[{job.number}]+  {state:<22}{job.text}\n"
            if "-p" not in argv
            else f"{job.process.pid}\n"
        )
        if job.done.done():
            shell.jobs.pop(job.process.pid, None)
    return 0


async def _foreground(shell: ShellState, argv: list[str]) -> int:
    job = _job(shell, argv[1] if len(argv) > 1 else "%")
    if job is None:
        shell.complain(f"{argv[0]}: no current job")
        return 1
    return await _wait(shell, ["wait", str(job.process.pid)]) if argv[0] == "fg" else 0


async def _kill(shell: ShellState, argv: list[str]) -> int:
    replaced = []
    for argument in argv:
        job = _job(shell, argument) if argument.startswith("%") else None
        replaced.append(str(job.process.pid) if job is not None else argument)
    process = shell.process.child(replaced, shown=False)
    code = basic.linux_kill(process)
    await asyncio.sleep(0)  # a shell that kills itself ends here
    return code


async def _read(shell: ShellState, argv: list[str]) -> int:
    arguments = argv[1:]
    raw = False
    while arguments and arguments[0].startswith("-") and len(arguments[0]) > 1:
        option = arguments.pop(0)
        raw |= "r" in option
        if option[-1] in "pndutN" and arguments:
            value = arguments.pop(0)
            if option[-1] == "p" and shell.process.context.terminal.tty:
                shell.process.stderr.write(value.encode())
    data = bounded(await shell.process.stdin.readline())
    text = data.decode("utf-8", "surrogateescape")
    ended = text.endswith("\n")
    text = text.removesuffix("\n")
    if not raw:
        while text.endswith("\\") and ended:
            more = (await shell.process.stdin.readline()).decode("utf-8", "surrogateescape")
            ended = more.endswith("\n")
            text = bounded(text[:-1] + more.removesuffix("\n"))
        text = text.replace("\\\\", "\0").replace("\\", "").replace("\0", "\\")
    names = arguments or ["REPLY"]
    separators = shell.separators()
    values = _split_fields(text, separators, len(names))
    for name, value in zip(names, values + [""] * (len(names) - len(values)), strict=True):
        shell.assign(name, value)
    return 0 if ended else 1


def _split_fields(text: str, separators: str, count: int) -> list[str]:
    spaces = "".join(c for c in separators if c.isspace())
    values: list[str] = []
    rest = text.strip(spaces) if spaces else text
    separator = re.compile(f"[{re.escape(separators)}]") if separators else None
    while separator is not None and rest and len(values) < count - 1:
        check_slice()
        found = separator.search(rest)
        if found is None:
            break
        end = found.start()
        values.append(rest[:end])
        following = rest[end:]
        stripped = following.lstrip(spaces) if spaces else following
        if stripped[:1] and stripped[0] in separators:
            stripped = stripped[1:].lstrip(spaces) if spaces else stripped[1:]
        rest = stripped
    if rest or not values:
        values.append(rest)
    return values


def _getopts(shell: ShellState, argv: list[str]) -> int:
    specification, name = argv[1], argv[2]
    arguments = argv[3:] or shell.arguments
    index = int(shell.get("OPTIND") or 1)
    offset = int(shell.get("_OPTOFF") or 1)
    if (
        index > len(arguments)
        or not arguments[index - 1].startswith("-")
        or arguments[index - 1] in ("-", "--")
    ):
        shell.assign(name, "?")
        return 1
    argument = arguments[index - 1]
    letter = argument[offset]
    offset += 1
    shell.variables.pop("OPTARG", None)
    place = specification.find(letter)
    if place < 0 or letter == ":":
        shell.assign(name, "?")
        if not specification.startswith(":"):
            shell.complain(f"illegal option -{letter}")
    else:
        shell.assign(name, letter)
        if specification[place + 1 : place + 2] == ":":
            if offset < len(argument):
                shell.assign("OPTARG", argument[offset:])
            elif index < len(arguments):
                index += 1
                shell.assign("OPTARG", arguments[index - 1])
            else:
                shell.complain(f"no arg for -{letter} option")
                shell.assign(name, "?")
            offset = len(argument)
    if offset >= len(argument):
        index += 1
        offset = 1
    shell.variables["OPTIND"] = str(index)
    shell.variables["_OPTOFF"] = str(offset)
    return 0


def _umask(shell: ShellState, argv: list[str]) -> int:
    if len(argv) == 1:
        shell.process.write(f"{shell.process.umask:04o}\n")
    else:
        text, old = argv[1], shell.process.umask
        if text[:1].isdigit():
            mask, what = changed_mode(text, 0, False), "number"
        else:
            mode, what = changed_mode(text, 0o777 & ~old, False), "mode"
            mask = None if mode is None else 0o777 & ~mode
        if mask is None:
            shell.complain(f"umask: Illegal {what}: {text}")
            return 2
        shell.process.umask = mask & 0o777
    return 0


def _let(shell: ShellState, argv: list[str]) -> int:
    value = 0
    try:
        for expression in argv[1:]:
            value = arithmetic.evaluate(expression, shell.arithmetic_value, shell.assign)
    except arithmetic.ArithmeticFault as fault:
        raise ExpansionFault(str(fault)) from None
    return int(value == 0)


def _times(shell: ShellState, argv: list[str]) -> int:
    shell.process.write("0m0.000s 0m0.000s\n0m0.000s 0m0.000s\n")
    return 0


def _nothing(shell: ShellState, argv: list[str]) -> int:
    return 0


def _ulimit(shell: ShellState, argv: list[str]) -> int:
    if len(argv) <= 2:
        shell.process.write("1048576\n" if "-n" in argv else "unlimited\n")
    return 0


BUILTINS: dict[str, Builtin] = {
    ":": _nothing,
    ".": _source,
    "[": _inline(basic.test),
    "alias": _nothing,
    "bg": _foreground,
    "break": _break,
    "cd": _cd,
    "command": _command,
    "continue": _break,
    "declare": _declare,
    "echo": _inline(basic.linux_echo),
    "eval": _eval,
    "exit": _exit,
    "export": _export,
    "false": lambda shell, argv: 1,
    "fg": _foreground,
    "getopts": _getopts,
    "hash": _nothing,
    "jobs": _jobs,
    "kill": _kill,
    "let": _let,
    "local": _local,
    "logout": _exit,
    "printf": _inline(basic.printf),
    "pwd": _pwd,
    "read": _read,
    "readonly": _readonly,
    "return": _return,
    "set": _set,
    "shift": _shift,
    "shopt": _nothing,
    "source": _source,
    "test": _inline(basic.test),
    "times": _times,
    "trap": _trap,
    "true": _nothing,
    "type": _type,
    "typeset": _declare,
    "ulimit": _ulimit,
    "umask": _umask,
    "unalias": _nothing,
    "unset": _unset,
    "wait": _wait,
}
