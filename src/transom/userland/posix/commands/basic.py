"""Basic commands: echo, printf, test, sleep, kill, env and others."""

from __future__ import annotations

import posixpath
import re
from collections import deque
from collections.abc import Callable, Sequence

from transom.machines.api import Stat
from transom.userland.limits import check_size
from transom.userland.posix.commands.options import parse_seconds
from transom.userland.posix.escapes import unescape
from transom.userland.posix.scripts import DEFAULT_PATH, find_in_path
from transom.userland.preemption import check_slice
from transom.userland.process import SIGNAL_NUMBERS, Command, Process
from transom.userland.regex import compile_pattern


def true(process: Process) -> int:
    return 0


def false(process: Process) -> int:
    return 1


def linux_echo(process: Process) -> int:
    arguments = process.argv[1:]
    newline, escapes = "\n", False
    while arguments and re.fullmatch(r"-[neE]+", arguments[0]):
        option = arguments.pop(0)
        if "n" in option:
            newline = ""
        escapes = "e" in option
    text = " ".join(arguments)
    if escapes:
        text, stop, _ = text.partition("\\c")
        text = unescape(text)
        if stop:
            newline = ""
    process.write(text + newline)
    return 0


_FORMAT = re.compile(r"%([-+ #0]*+)(\*|\d++)?(?:\.(\*|\d++))?([diouxXfFeEgGcsbq%])")


def printf(process: Process) -> int:
    if len(process.argv) < 2:
        process.complain(
            "printf: usage: printf format [arguments]" if process.gnu else "printf: missing operand"
        )
        return 2
    arguments = process.argv[2:] if process.argv[1] != "--" else process.argv[3:]
    shape = process.argv[1] if process.argv[1] != "--" else process.argv[2]
    text, code = format_printf(shape, arguments, process.complain)
    process.write(text)
    return code


def format_printf(
    shape: str, arguments: Sequence[str], complain: Callable[[str], None]
) -> tuple[str, int]:
    """The output and exit code of printf."""
    remaining = deque(arguments)
    code = 0

    def one(match: re.Match[str]) -> str:
        nonlocal code
        check_slice()
        flags, width, precision, kind = match.groups()
        if kind == "%":
            return "%"
        if width == "*":
            width = remaining.popleft() if remaining else "0"
        if precision == "*":
            precision = remaining.popleft() if remaining else "0"
        for given in (width, precision):
            if given is not None and given.lstrip("+-").isdigit():
                check_size(abs(float(given)))
        value = remaining.popleft() if remaining else None
        prefix = f"%{flags}{width or ''}" + (f".{precision}" if precision is not None else "")
        if kind in "sbqc":
            shown = value or ""
            if kind == "b":
                shown = unescape(shown)
            elif kind == "c":
                shown = shown[:1]
            elif kind == "q":
                shown = (
                    shown
                    if re.fullmatch(r"[\w./:=@%+,-]+", shown)
                    else "'" + shown.replace("'", "'\\''") + "'"
                )
            return (prefix + "s") % shown
        try:
            number = _number(value)
        except ValueError:
            complain(f"printf: {value}: invalid number")
            code = 1
            number = 0
        if kind in "feEgGF":
            return (prefix + kind) % float(number)
        return (prefix + {"i": "d", "u": "d"}.get(kind, kind)) % int(number)

    shape = unescape(shape)
    out: list[str] = []
    size = 0
    while True:
        before = len(remaining)
        out.append(_FORMAT.sub(one, shape))
        size += len(out[-1])
        check_size(size)
        if not remaining or len(remaining) == before:
            break
    return "".join(out), code


def _number(text: str | None) -> float | int:
    if not text:
        return 0
    if text[0] in "'\"":
        return ord(text[1]) if len(text) > 1 else 0
    try:
        return int(text, 0)
    except ValueError:
        if re.fullmatch(r"0[0-7]+", text):
            return int(text, 8)
        return float(text)


_FILE_TESTS: dict[str, Callable[[Stat], bool]] = {
    "-f": lambda state: state.kind == "file",
    "-d": lambda state: state.kind == "directory",
    "-s": lambda state: state.size > 0,
    "-p": lambda state: state.kind == "pipe",
    "-S": lambda state: state.kind == "socket",
    "-b": lambda state: state.kind == "block",
    "-c": lambda state: state.kind == "char",
    "-u": lambda state: bool(state.mode & 0o4000),
    "-g": lambda state: bool(state.mode & 0o2000),
    "-k": lambda state: bool(state.mode & 0o1000),
    "-e": lambda state: True,
}
_ACCESS_TESTS = {"-r": 4, "-w": 2, "-x": 1}
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
_TEXT_COMPARE: dict[str, Callable[[str, str], bool]] = {
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
}


class TestFault(Exception):
    """Its text follows the command's name."""


def test(process: Process) -> int:
    arguments = process.argv[1:]
    if process.argv[0].endswith("["):
        if not arguments or arguments[-1] != "]":
            process.complain("[: missing ]")
            return 2
        arguments = arguments[:-1]
    try:
        parser = _TestParser(process, arguments)
        result = parser.either() if arguments else False
        if parser.position < len(arguments):
            raise TestFault(f"{arguments[parser.position]}: unknown operand")
    except TestFault as fault:
        process.complain(f"{process.argv[0]}: {fault}")
        return 2
    return int(not result)


def unary_test(process: Process, operator: str, operand: str) -> bool | None:
    """None if it is not an operator."""
    if operator == "-n":
        return operand != ""
    if operator == "-z":
        return operand == ""
    if operator == "-t":
        return process.context.terminal.tty
    if operator in ("-h", "-L"):
        try:
            return process.files.stat(operand, follow=False).kind == "symlink"
        except OSError:
            return False
    if operator in _ACCESS_TESTS:
        return process.files.may(operand, _ACCESS_TESTS[operator])
    check = _FILE_TESTS.get(operator)
    if check is not None:
        try:
            return check(process.files.stat(operand))
        except OSError:
            return False
    if operator in ("-O", "-G"):
        return process.files.exists(operand)
    return None


def binary_test(process: Process, left: str, operator: str, right: str) -> bool | None:
    compare_text = _TEXT_COMPARE.get(operator)
    if compare_text is not None:
        return compare_text(left, right)
    compare = _COMPARE.get(operator)
    if compare is not None:
        return compare(_integer(left), _integer(right))
    if operator in ("-nt", "-ot", "-ef"):
        try:
            first, second = process.files.stat(left), process.files.stat(right)
        except OSError:
            return False
        if operator == "-ef":
            return process.files.absolute(left) == process.files.absolute(right)
        return first.mtime > second.mtime if operator == "-nt" else first.mtime < second.mtime
    return None


def _integer(text: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise TestFault(f"{text}: bad number" if text else "'': bad number") from None


class _TestParser:
    def __init__(self, process: Process, arguments: list[str]) -> None:
        self.process = process
        self.arguments = arguments
        self.position = 0

    def either(self) -> bool:
        result = self.both()
        while self.position < len(self.arguments) and self.arguments[self.position] == "-o":
            self.position += 1
            result = self.both() or result
        return result

    def both(self) -> bool:
        check_slice()
        result = self.negation()
        while self.position < len(self.arguments) and self.arguments[self.position] == "-a":
            self.position += 1
            result = self.negation() and result
        return result

    def negation(self) -> bool:
        check_slice()
        if self.position < len(self.arguments) - 1 and self.arguments[self.position] == "!":
            self.position += 1
            return not self.negation()
        return self.primary()

    def primary(self) -> bool:
        rest = self.arguments[self.position : self.position + 3]
        if not rest:
            raise TestFault("argument expected")
        if len(rest) >= 3:
            result = binary_test(self.process, rest[0], rest[1], rest[2])
            if result is not None:
                self.position += 3
                return result
        if rest[0] == "(" and len(rest) > 1:
            self.position += 1
            result = self.either()
            if self.arguments[self.position : self.position + 1] != [")"]:
                raise TestFault("closing paren expected")
            self.position += 1
            return result
        if len(rest) >= 2:
            result = unary_test(self.process, rest[0], rest[1])
            if result is not None:
                self.position += 2
                return result
        self.position += 1
        return rest[0] != ""


async def sleep(process: Process) -> int:
    if len(process.argv) < 2:
        process.complain(
            "sleep: missing operand"
            if process.gnu
            else "BusyBox v1.31.1 () multi-call binary.\n\nUsage: sleep [N]..."
        )
        return 1
    total = 0.0
    for argument in process.argv[1:]:
        try:
            total += parse_seconds(argument)
        except ValueError:
            text = (
                f"sleep: invalid time interval '{argument}'"
                if process.gnu
                else f"sleep: invalid number '{argument}'"
            )
            process.complain(text)
            return 1
    await process.sleep(min(total, 10.0**9))
    return 0


def linux_kill(process: Process) -> int:
    arguments = process.argv[1:]
    name = "SIGTERM"
    if arguments and arguments[0] == "-l":
        process.write(" ".join(key.removeprefix("SIG") for key in SIGNAL_NUMBERS) + "\n")
        return 0
    if arguments and arguments[0].startswith("-") and len(arguments[0]) > 1:
        text = arguments.pop(0)[1:]
        if text == "s" and arguments:
            text = arguments.pop(0)
        if text != "-":
            known = signal_by_name(text)
            if known is None:
                return process.fail(f"bad signal name '{text}'")
            name = known
    if not arguments:
        return process.fail("you need to specify whom to kill")
    code = 0
    for argument in arguments:
        if not argument.lstrip("-").isdigit():
            process.complain(f"kill: invalid number '{argument}'")
            code = 1
            continue
        target = int(argument)
        if target in (0, -1) or target < 0:
            for entry in list(process.context.processes.list()):
                if entry.pid not in (1, process.pid):
                    process.context.processes.signal(entry.pid, name)
        elif name == "0":
            if all(entry.pid != target for entry in process.context.processes.list()):
                process.complain(f"sh: can't kill pid {target}: No such process")
                code = 1
        elif not process.context.processes.signal(target, name):
            process.complain(f"sh: can't kill pid {target}: No such process")
            code = 1
    return code


def signal_by_name(text: str) -> str | None:
    if text.isdigit():
        if text == "0":
            return "0"
        return next((name for name, number in SIGNAL_NUMBERS.items() if number == int(text)), None)
    name = "SIG" + text.upper().removeprefix("SIG")
    return name if name in SIGNAL_NUMBERS else None


def killall(process: Process) -> int:
    arguments = process.argv[1:]
    name = "SIGTERM"
    while arguments and arguments[0].startswith("-"):
        text = arguments.pop(0)[1:]
        name = signal_by_name(text.removeprefix("-")) or name
    code = 0
    for argument in arguments:
        found = False
        for entry in list(process.context.processes.list()):
            base = posixpath.basename(entry.argv[0])
            whole = " ".join(entry.argv)
            named = (
                base == argument
                if process.name == "killall"
                else compile_pattern(argument).search(base) is not None
            )
            hit = named or (process.name != "killall" and argument in whole)
            if hit and entry.pid != process.pid:
                found = True
                process.context.processes.signal(entry.pid, name)
        if not found:
            if process.name == "killall":
                process.complain(f"killall: {argument}: no process killed")
            code = 1
    return code


def which(process: Process, name: str) -> str | None:
    """The path of a command."""
    try:
        find_in_path(process, name)
    except OSError:
        return None
    if "/" in name:
        return name
    for directory in (process.env.get("PATH") or DEFAULT_PATH).split(":"):
        path = posixpath.join(directory, name)
        if process.files.exists(path):
            return path
    return f"/bin/{name}" if name in _IN_BIN else f"/usr/bin/{name}"


_IN_BIN = frozenset(
    [
        "sh",
        "ash",
        "bash",
        "cat",
        "chmod",
        "chown",
        "cp",
        "date",
        "dd",
        "df",
        "dmesg",
        "echo",
        "egrep",
        "false",
        "fgrep",
        "grep",
        "gunzip",
        "gzip",
        "hostname",
        "kill",
        "ln",
        "ls",
        "mkdir",
        "mknod",
        "mktemp",
        "mount",
        "mv",
        "ping",
        "ps",
        "pwd",
        "rm",
        "rmdir",
        "sed",
        "sleep",
        "stat",
        "sync",
        "tar",
        "touch",
        "true",
        "umount",
        "uname",
        "zcat",
    ]
)


def which_command(process: Process) -> int:
    code = 0
    for name in process.argv[1:]:
        if name.startswith("-"):
            continue
        path = which(process, name)
        if path is None:
            code = 1
        else:
            process.write(path + "\n")
    return code


async def env(process: Process) -> int:
    arguments = process.argv[1:]
    variables = dict(process.env)
    while arguments and arguments[0].startswith("-"):
        option = arguments.pop(0)
        if option in ("-i", "-", "--ignore-environment"):
            variables = {}
        elif option == "-u" and arguments:
            variables.pop(arguments.pop(0), None)
    while arguments and "=" in arguments[0]:
        name, _, value = arguments.pop(0).partition("=")
        variables[name] = value
    if not arguments:
        process.write("".join(f"{name}={value}\n" for name, value in variables.items()))
        return 0
    return await run_child(process, arguments, variables)


async def run_child(
    process: Process, argv: Sequence[str], env: dict[str, str] | None = None
) -> int:
    """Runs another command as a child of this one, with the same streams."""
    await process.take_turn()
    try:
        body = find_in_path(process, argv[0], process.env.get("PATH"))
    except FileNotFoundError:
        if process.gnu:
            return process.fail(
                f"'{argv[0]}': No such file or directory"
                if process.name != "xargs"
                else f"{argv[0]}: No such file or directory",
                127,
            )
        return process.fail(f"can't execute '{argv[0]}': No such file or directory", 127)
    except OSError:
        return process.fail(f"can't execute '{argv[0]}': Permission denied", 126)
    child = process.child(argv)
    if env is not None:
        child.env = env
    try:
        return await child.run(body)
    finally:
        child.ended()


def printenv(process: Process) -> int:
    names = [argument for argument in process.argv[1:] if not argument.startswith("-")]
    if not names:
        process.write("".join(f"{name}={value}\n" for name, value in process.env.items()))
        return 0
    missing = [name for name in names if name not in process.env]
    process.write("".join(process.env[name] + "\n" for name in names if name in process.env))
    return int(bool(missing))


async def linux_timeout(process: Process) -> int:
    arguments = process.argv[1:]
    signal = "SIGTERM"
    while arguments and arguments[0].startswith("-"):
        option = arguments.pop(0)
        if option in ("-s", "-k", "-t") and arguments:
            value = arguments.pop(0)
            if option == "-s":
                signal = signal_by_name(value) or signal
            elif option == "-t":
                arguments.insert(0, value)
    if len(arguments) < 2:
        return process.fail("missing operand", 125)
    try:
        limit = parse_seconds(arguments[0])
    except ValueError:
        return process.fail(f"invalid time interval '{arguments[0]}'", 125)
    try:
        body = find_in_path(process, arguments[1], process.env.get("PATH"))
    except OSError:
        return process.fail(
            f"failed to run command '{arguments[1]}': No such file or directory", 127
        )
    child = process.child(arguments[1:])
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = True
        child.signal(signal)

    timer = process.context.clock.call_later(limit, expire)
    try:
        code = await child.run(body)
    finally:
        timer.cancel()
        child.ended()
    if not expired:
        return code
    return 124 if process.gnu else 143


async def time(process: Process) -> int:
    start = process.context.clock.monotonic()
    code = await run_child(process, process.argv[1:]) if len(process.argv) > 1 else 0
    minutes, rest = divmod(process.context.clock.monotonic() - start, 60)
    process.complain(f"real\t{int(minutes)}m {rest:.2f}s\nuser\t0m 0.00s\nsys\t0m 0.00s")
    return code


async def nohup(process: Process) -> int:
    return await run_child(process, process.argv[1:]) if len(process.argv) > 1 else 127


COMMANDS: dict[str, Command] = {
    "[": test,
    "echo": linux_echo,
    "env": env,
    "false": false,
    "kill": linux_kill,
    "killall": killall,
    "nice": nohup,
    "nohup": nohup,
    "pkill": killall,
    "printenv": printenv,
    "printf": printf,
    "setsid": nohup,
    "sleep": sleep,
    "test": test,
    "time": time,
    "timeout": linux_timeout,
    "tini": nohup,
    "true": true,
    "which": which_command,
}
