"""From a name to what runs on Windows: executables by name, batch files in the container's files."""

from __future__ import annotations

import ntpath
from collections.abc import Sequence

from transom.runtime.sim.program_api import Program, ProgramContext, real
from transom.runtime.sim.programs import launch
from transom.runtime.sim.programs.fileview import FileView
from transom.runtime.sim.programs.launch import Command
from transom.runtime.sim.programs.process import CONTROL_C_EXIT, Process

_SYSTEM = ("c:\\windows\\system32", "c:\\windows", "c:\\windows\\syswow64", "c:\\windows\\system32\\windowspowershell\\v1.0")
_TOOLS = "c:\\bin"  # of images that bring busybox
_BINARY = b"MZ"


def find(context: ProgramContext, name: str, cwd: str) -> Command:
    """FileNotFoundError when the image has no such program."""
    own = real(context)
    if own is not None:
        return own.find(context, name, cwd)
    from transom.runtime.sim.programs.servers.table import program_for
    from transom.runtime.sim.programs.win import table

    files = FileView(context, cwd)
    bare = name.strip('"').replace("/", "\\")
    directory = ntpath.dirname(bare)
    base = ntpath.basename(bare).lower()
    found = ""
    for candidate in _candidates(context, bare, directory):
        try:
            if files.stat(candidate).kind != "file":
                continue
        except OSError:
            continue
        extension = ntpath.splitext(candidate)[1].lower()
        if extension in (".cmd", ".bat"):
            return _batch(files.absolute(candidate))
        if extension == ".ps1":
            continue
        if files.read(candidate)[:2] != _BINARY and extension != ".exe":
            raise PermissionError(name)  # not a valid Win32 application
        found = files.absolute(candidate)
        break
    factory = program_for(context, bare)
    if factory is not None:
        return launch.hosted(factory)
    stem = base.removesuffix(".exe").removesuffix(".com")
    if (
        directory
        and files.absolute(directory).lower() not in _SYSTEM
        and not files.exists(bare)
        and not files.exists(bare + ".exe")
    ):
        raise FileNotFoundError(name)
    command: Command | None = None
    if context.machine is not None:
        from transom.runtime.sim.programs.win.machine import find as find_there

        command = find_there(context.machine, stem, found)
    if command is None:
        command = table.tool(stem) if ntpath.dirname(found).lower() == _TOOLS else table.find(context, stem)
    if command is None:
        raise FileNotFoundError(name)
    return command


def _candidates(context: ProgramContext, name: str, directory: str) -> list[str]:
    names = [name] if ntpath.splitext(name)[1] else [name + extension for extension in (".com", ".exe", ".bat", ".cmd")]
    if directory:
        return names
    path = next((value for key, value in context.env.items() if key.lower() == "path"), "")
    folders = [folder.rstrip("\\") for folder in path.split(";") if folder]
    return names + [f"{folder}\\{candidate}" for folder in folders for candidate in names]


def _batch(path: str) -> Command:
    async def run(process: Process) -> int:
        from transom.runtime.sim.programs.cmd.interpreter import Interpreter

        return await Interpreter(process).run_file(path, process.argv[1:])

    return run


class Endless:
    """`ping -t` and its like: lines at a steady pace, from a timer."""

    __slots__ = ("_context", "_stopped", "_text")

    def __init__(self, context: ProgramContext, first: bytes, text: bytes) -> None:
        self._context = context
        self._text = text
        self._stopped = False
        context.out(first)
        self._tick()

    def _tick(self) -> None:
        if not self._stopped:
            self._context.out(self._text)
            self._context.clock.call_later(1.0, self._tick)

    def signal(self, name: str) -> None:
        self.kill()
        self._context.exit(CONTROL_C_EXIT)

    def kill(self) -> None:
        self._stopped = True


def idle_for(context: ProgramContext) -> Program | None:
    """`ping -t localhost`, alone or behind `cmd /c`: what a Windows container does that is to stay."""
    argv = _without_cmd(context.argv)
    stem = ntpath.basename(argv[0].replace("/", "\\")).lower().removesuffix(".exe") if argv else ""
    options = [argument.lower().replace("/", "-") for argument in argv[1:]]
    if stem != "ping" or "-t" not in options or len(options) != 2:
        return None
    host = options[1 - options.index("-t")]
    if host not in ("localhost", "127.0.0.1"):
        return None
    address = "127.0.0.1" if host == "127.0.0.1" else "::1"
    name = address if host == "127.0.0.1" else f"{context.hostname} [{address}]"
    first = f"\r\nPinging {name} with 32 bytes of data:\r\n".encode()
    reply = "Reply from 127.0.0.1: bytes=32 time<1ms TTL=128" if address == "127.0.0.1" else "Reply from ::1: time<1ms "
    return Endless(context, first, reply.encode() + b"\r\n")


def _without_cmd(argv: Sequence[str]) -> list[str]:
    words = list(argv)
    stem = ntpath.basename(words[0].replace("/", "\\")).lower().removesuffix(".exe")
    if stem != "cmd":
        return words
    for index, word in enumerate(words[1:], 1):
        if word.lower() in ("/c", "/k"):
            rest = words[index + 1 :]
            line = " ".join(rest)
            return [] if any(c in line for c in '&|<>()^%"') else line.split()
    return []
