"""`cmd.exe`: its command line."""

from __future__ import annotations

import ntpath

from transom.kit.argv import quote_argument
from transom.userland.cmd.control import BatchGoto
from transom.userland.cmd.interpreter import CmdInterpreter
from transom.userland.cmd.parser import incomplete
from transom.userland.process import Exit, Process
from transom.userland.windows import texts

_SPECIAL = "&<>()@^|"
_QUOTED = ' \t\n"'  # characters of an argument that runtimes put in quotes


def line_of(arguments: list[str], strip: bool) -> str:
    """The line that `cmd /c ARGUMENTS` runs, by cmd's rules for quotes."""
    # A single argument reaches cmd as it was written; several arguments must be separated again.
    line = (
        arguments[0]
        if len(arguments) == 1
        else " ".join(quote_argument(argument, _QUOTED) for argument in arguments)
    )
    if not line.startswith('"'):
        return line
    if not strip and line.count('"') == 2 and not any(c in line for c in _SPECIAL):
        inner = line[1 : line.index('"', 1)]
        if " " in inner and ntpath.splitext(inner)[1].lower() in (".exe", ".cmd", ".bat", ".com"):
            return line
    last = line.rfind('"')
    return line[1:last] + line[last + 1 :] if last > 0 else line[1:]


async def run_cmd(process: Process) -> int:
    shell = CmdInterpreter(process)
    arguments = process.argv[1:]
    strip = False
    while arguments:
        word = arguments[0]
        switch = word.lower()
        if not switch.startswith("/"):
            break
        arguments.pop(0)
        letter = switch[1:2]
        if letter in ("c", "k"):
            # "/cfoo": text that follows the switch directly belongs to the command
            rest = [word[2:], *arguments] if len(word) > 2 else arguments
            code = await _once(shell, line_of(rest, strip))
            if letter == "c" or shell.process.killed is not None:
                return code
            return await _converse(shell)
        if letter == "s":
            strip = True
        elif letter == "v":
            shell.delayed = not switch.endswith("off")
        elif letter == "?":
            shell.print_line("Starts a new instance of the Windows command interpreter")
            return 0
    shell.print_line(texts.version_line(process.context.platform.build))
    shell.print_line("(c) 2018 Microsoft Corporation. All rights reserved.")
    return await _converse(shell)


async def _once(shell: CmdInterpreter, line: str) -> int:
    try:
        code = await shell.run_line(line)
    except Exit as end:
        return end.code
    except BatchGoto:
        return shell.error_level
    return 1 if code == 9009 else code


async def _converse(shell: CmdInterpreter) -> int:
    process = shell.process
    shell.interactive = True
    collected = ""
    while True:
        process.write(
            "More? "
            if collected
            else ("\r\n" if shell.echo else "") + (shell.prompt_text() if shell.echo else "")
        )
        line = await process.stdin.readline()
        if not line:
            return shell.error_level
        text = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
        collected = f"{collected}\n{text}" if collected else text
        if incomplete(collected):
            continue
        if not process.context.terminal.tty:
            process.write(collected + "\r\n")
        line_text, collected = collected, ""
        try:
            await shell.run_line(line_text)
        except Exit as end:
            return end.code
        except BatchGoto:
            continue
