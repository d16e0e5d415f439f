"""`powershell.exe` and `pwsh`: what their own command lines ask for."""

from __future__ import annotations

import asyncio
import base64

from transom.runtime.sim.programs.powershell.evaluator import Break, Continue, Evaluator, Return, Thrown
from transom.runtime.sim.programs.powershell.lexer import IncompleteScript, ParseFault
from transom.runtime.sim.programs.powershell.parser import parse
from transom.runtime.sim.programs.powershell.values import PowerShellError
from transom.runtime.sim.programs.process import Exit, Process
from transom.runtime.sim.programs.streams import CallSink, Sink

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


async def run(process: Process) -> int:
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
                return await _converse(Evaluator(process))
            return await _script(process, " ".join(arguments), stay)
        elif name in ("file", "f"):
            return await _file(process, arguments)
        elif name in ("encodedcommand", "e", "ec", "enc"):
            try:
                return await _script(process, base64.b64decode(arguments[0]).decode("utf-16-le"), stay)
            except (IndexError, ValueError):
                process.complain(
                    "Cannot process the command because the value specified with -EncodedCommand is not properly encoded."
                )
                return 1
    if arguments:
        if core:
            return await _file(process, arguments)
        return await _script(process, " ".join(arguments), stay)
    if process.context.tty:
        banner = (
            f"{_CORE}\r\nCopyright (c) Microsoft Corporation.\r\n"
            if core
            else "Windows PowerShell \r\nCopyright (C) Microsoft Corporation. All rights reserved."
        )
        note = process.context.image.options.get("note", "")
        process.write(banner + (f"\r\n({note})" if note else "") + "\r\n\r\n")
    return await _converse(Evaluator(process))


def _unix(sink: Sink) -> Sink:
    """Lines end as they do on Linux."""
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
    evaluator = Evaluator(process)
    code = await _run(evaluator, f"& '{path}' {words}")
    return code if evaluator.exited is None else evaluator.exited


async def _script(process: Process, source: str, stay: bool) -> int:
    evaluator = Evaluator(process)
    code = await _run(evaluator, source)
    return await _converse(evaluator) if stay and process.killed is None else code


async def line(process: Process, source: str) -> int:
    """One line of somebody who has logged in. Unlike with -Command, a program's own exit code is the answer."""
    evaluator = Evaluator(process)
    code = await _run(evaluator, source)
    return evaluator.last_exit if code == 1 and evaluator.last_exit else code


async def _run(evaluator: Evaluator, source: str) -> int:
    try:
        await evaluator.run_script(source)
    except Exit as end:
        return end.code
    except ParseFault as fault:
        evaluator.script = source
        evaluator.tell(
            PowerShellError(str(fault), "ParserError: (:) [], ParentContainsErrorRecordException", "UnexpectedToken")
        )
        return 1
    except Thrown as error:
        evaluator.errors.insert(0, error)
        evaluator.tell(error)
        return 1
    except PowerShellError as error:
        evaluator.tell(error)
        return 1
    except (Return, Break, Continue):
        evaluator.flush()
    evaluator.flush()
    return 0 if evaluator.success else 1


async def _converse(evaluator: Evaluator) -> int:
    process = evaluator.process
    collected = ""
    code = 0
    interrupt = _Interrupt(process)
    while True:
        if process.context.tty:
            process.write(">> " if collected else f"PS {process.cwd}> ")
        line = await process.stdin.readline()
        if not line:
            return code
        collected += line.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
        if _goes_on(collected):
            continue
        source, collected = collected, ""
        try:
            evaluator.script = source
            with interrupt:
                await evaluator.run_script(source)
            code = 0
        except Exit as end:
            return end.code
        except ParseFault as fault:
            evaluator.tell(
                PowerShellError(str(fault), "ParserError: (:) [], ParentContainsErrorRecordException", "UnexpectedToken")
            )
            code = 1
        except PowerShellError as error:
            evaluator.tell(error)
            code = 1
        except (Return, Break, Continue):
            continue


class _Interrupt:
    """While a command runs at a terminal, Control-C ends it and not the shell."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._runs = self._pressed = False
        if process.context.tty:
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


def _goes_on(source: str) -> bool:
    try:
        parse(source)
    except IncompleteScript:
        return True
    except ParseFault:
        return False
    return False
