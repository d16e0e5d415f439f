"""`powershell.exe` and `pwsh`: their command lines."""

from __future__ import annotations

import asyncio
import base64

from transom.userland.powershell.cmdlet_table import container_cmdlets, node_cmdlets
from transom.userland.powershell.control import Break, Continue, Return, Thrown, call_depth_error
from transom.userland.powershell.evaluator import PowerShellEvaluator
from transom.userland.powershell.lexer import IncompleteScript, ParseFault
from transom.userland.powershell.parser import parse_powershell
from transom.userland.powershell.values import PowerShellError
from transom.userland.process import Exit, Process
from transom.userland.streams import ByteSink, CallSink

_CORE = "PowerShell 7.1.1"
_TAKES_VALUE = (
    "executionpolicy",
    "ep",
    "ex",
    "outputformat",
    "inputformat",
    "version",
    "windowstyle",
    "w",
    "workingdirectory",
    "wd",
    "configurationname",
)


def _session(process: Process) -> PowerShellEvaluator:
    on_node = process.context.node is not None
    return PowerShellEvaluator(process, node_cmdlets() if on_node else container_cmdlets())


async def run_powershell(process: Process) -> int:
    arguments = process.argv[1:]
    if not process.windows:
        process.stdout, process.stderr = _unix(process.stdout), _unix(process.stderr)
    core = process.name.startswith("pwsh")
    stay = False
    while arguments:
        word = arguments[0]
        if word[:1] not in ("-", "/") or len(word) == 1:
            break
        arguments.pop(0)
        name = word[1:].lower().lstrip("-")
        if name in ("noexit", "noe"):
            stay = True
        elif core and name in ("version", "v"):
            note = process.context.image.options.get("note", "")
            process.write(_CORE + (f" ({note})" if note else "") + "\r\n")
            return 0
        elif name in _TAKES_VALUE:
            if arguments:
                arguments.pop(0)
        elif "command".startswith(name) and name:
            if arguments == ["-"]:
                return await _converse(_session(process))
            return await _script(process, " ".join(arguments), stay)
        elif name in ("file", "f"):
            return await _file(process, arguments)
        elif name in ("encodedcommand", "e", "ec", "enc"):
            return await _encoded_command(process, arguments, stay)
    if arguments:
        if core:
            return await _file(process, arguments)
        return await _script(process, " ".join(arguments), stay)
    if process.context.terminal.tty:
        _print_banner(process, core)
    return await _converse(_session(process))


async def _encoded_command(process: Process, arguments: list[str], stay: bool) -> int:
    try:
        return await _script(process, base64.b64decode(arguments[0]).decode("utf-16-le"), stay)
    except (IndexError, ValueError):
        process.complain(
            "Cannot process the command because the value specified with "
            "-EncodedCommand is not properly encoded."
        )
        return 1


def _print_banner(process: Process, core: bool) -> None:
    banner = (
        f"{_CORE}\r\nCopyright (c) Microsoft Corporation.\r\n"
        if core
        else "Windows PowerShell \r\nCopyright (C) Microsoft Corporation. All rights reserved."
    )
    note = process.context.image.options.get("note", "")
    process.write(banner + (f"\r\n({note})" if note else "") + "\r\n\r\n")


def _unix(sink: ByteSink) -> ByteSink:
    """Uses line ends of Linux."""
    return CallSink(lambda data: sink.write(data.replace(b"\r\n", b"\n")), sink.drain)


async def _file(process: Process, arguments: list[str]) -> int:
    if not arguments:
        return 0
    path = arguments[0]
    if not process.files.exists(path):
        process.complain(
            f"The argument '{path}' to the -File parameter does not exist. Provide the path to an "
            f"existing '.ps1' file as an argument to the -File parameter."
        )
        return 0xFFFD0000
    words = " ".join(f"'{word}'" if not word.startswith("-") else word for word in arguments[1:])
    evaluator = _session(process)
    code = await _run(evaluator, f"& '{path}' {words}")
    return code if evaluator.exited is None else evaluator.exited


async def _script(process: Process, source: str, stay: bool) -> int:
    evaluator = _session(process)
    code = await _run(evaluator, source)
    return await _converse(evaluator) if stay and process.killed is None else code


async def run_powershell_line(process: Process, source: str) -> int:
    """Runs one line of a login session. Unlike with -Command, a program's exit code is the result."""
    evaluator = _session(process)
    code = await _run(evaluator, source)
    return evaluator.last_exit if code == 1 and evaluator.last_exit else code


async def _run(evaluator: PowerShellEvaluator, source: str) -> int:
    try:
        await evaluator.run_script(source)
    except Exit as end:
        return end.code
    except RecursionError:
        evaluator.print_error(call_depth_error())
        return 1
    except ParseFault as fault:
        evaluator.script = source
        evaluator.print_parse_fault(fault)
        return 1
    except Thrown as error:
        evaluator.errors.insert(0, error)
        evaluator.print_error(error)
        return 1
    except PowerShellError as error:
        evaluator.print_error(error)
        return 1
    except (Return, Break, Continue):
        evaluator.flush()
    evaluator.flush()
    return 0 if evaluator.success else 1


async def _converse(evaluator: PowerShellEvaluator) -> int:
    process = evaluator.process
    collected = ""
    code = 0
    interrupt = _Interrupt(process)
    while True:
        if process.context.terminal.tty:
            process.write(">> " if collected else f"PS {process.cwd}> ")
        line = await process.stdin.readline()
        if not line:
            return code
        collected += line.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
        if _is_incomplete(collected, evaluator.core):
            continue
        source, collected = collected, ""
        try:
            evaluator.script = source
            with interrupt:
                await evaluator.run_script(source)
            code = 0
        except Exit as end:
            return end.code
        except RecursionError:
            evaluator.print_error(call_depth_error())
            code = 1
        except ParseFault as fault:
            evaluator.print_parse_fault(fault)
            code = 1
        except PowerShellError as error:
            evaluator.print_error(error)
            code = 1
        except (Return, Break, Continue):
            continue


class _Interrupt:
    """While a command runs on a terminal, Ctrl+C ends the command and not the shell."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._runs = self._pressed = False
        if process.context.terminal.tty:
            process.handler = self._signal

    def _signal(self, name: str) -> bool:
        if name != "CTRL_C_EVENT":
            return False
        if self._runs and not self._pressed and self._process.task is not None:
            self._pressed = True
            self._process.task.cancel()
        return True

    def __enter__(self) -> None:
        self._runs, self._pressed = True, False

    def __exit__(self, _kind: object, problem: BaseException | None, _where: object) -> bool:
        self._runs = False
        if not self._pressed:
            return False
        if self._process.task is not None:
            self._process.task.uncancel()
        self._process.write("\r\n")
        return isinstance(problem, asyncio.CancelledError)


def _is_incomplete(source: str, chains: bool) -> bool:
    try:
        parse_powershell(source, chains)
    except IncompleteScript:
        return True
    except ParseFault:
        return False
    return False
