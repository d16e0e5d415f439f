"""`cmd.exe`: what its own command line asks for."""

from __future__ import annotations

import ntpath

from transom.runtime.sim.programs.cmd.interpreter import Goto, Interpreter
from transom.runtime.sim.programs.cmd.parser import incomplete
from transom.runtime.sim.programs.process import Exit, Process
from transom.runtime.sim.programs.win import texts

_SPECIAL = "&<>()@^|"


def quoted(argument: str) -> str:
    """As runtimes put an argument into a Windows command line."""
    if argument and not any(c in argument for c in ' \t\n"'):
        return argument
    out = ['"']
    backslashes = 0
    for c in argument:
        if c == "\\":
            backslashes += 1
            continue
        if c == '"':
            out.append("\\" * (backslashes * 2 + 1) + '"')
        else:
            out.append("\\" * backslashes + c)
        backslashes = 0
    return "".join(out) + "\\" * (backslashes * 2) + '"'


def line_of(arguments: list[str], strip: bool) -> str:
    """What is run of `cmd /c ARGUMENTS`, by cmd's rules for quotes."""
    # A command that is one argument reaches cmd as it was written; only several have to be told apart.
    line = arguments[0] if len(arguments) == 1 else " ".join(quoted(argument) for argument in arguments)
    if not line.startswith('"'):
        return line
    if not strip and line.count('"') == 2 and not any(c in line for c in _SPECIAL):
        inner = line[1 : line.index('"', 1)]
        if " " in inner and ntpath.splitext(inner)[1].lower() in (".exe", ".cmd", ".bat", ".com"):
            return line
    last = line.rfind('"')
    return line[1:last] + line[last + 1 :] if last > 0 else line[1:]


async def run(process: Process) -> int:
    shell = Interpreter(process)
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
            # "/cfoo": what is glued to the switch belongs to the command
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
            shell.say("Starts a new instance of the Windows command interpreter")
            return 0
    shell.say(texts.version_line(process.context.build))
    shell.say("(c) 2018 Microsoft Corporation. All rights reserved.")
    return await _converse(shell)


async def _once(shell: Interpreter, line: str) -> int:
    try:
        code = await shell.run_line(line)
    except Exit as end:
        return end.code
    except Goto:
        return shell.error_level
    return 1 if code == 9009 else code


async def _converse(shell: Interpreter) -> int:
    process = shell.process
    shell.interactive = True
    collected = ""
    while True:
        process.write("More? " if collected else ("\r\n" if shell.echo else "") + (shell.prompt_text() if shell.echo else ""))
        line = await process.stdin.readline()
        if not line:
            return shell.error_level
        text = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
        collected = f"{collected}\n{text}" if collected else text
        if incomplete(collected):
            continue
        if not process.context.tty:
            process.write(collected + "\r\n")
        line_text, collected = collected, ""
        try:
            await shell.run_line(line_text)
        except Exit as end:
            return end.code
        except Goto:
            continue
