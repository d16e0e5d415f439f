"""Start-Process on a machine: a program in a window of its own, which stays when whoever opened it has logged out.

Nobody sees such a window here; what is written to it is lost, unless it is redirected to a file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from transom.runtime.sim.login.context import LoginContext
from transom.runtime.sim.login.machine import split
from transom.runtime.sim.login.session import detached
from transom.runtime.sim.programs.powershell import cmdlets_system
from transom.runtime.sim.programs.powershell.cmdlets import Call, row
from transom.runtime.sim.programs.powershell.values import PowerShellError, PsObject, items, text
from transom.runtime.sim.programs.win.launch import find


def _sink(call: Call) -> Callable[[bytes], None]:
    paths = {call.text(name).lower(): call.text(name) for name in ("RedirectStandardOutput", "RedirectStandardError")}
    files = call.process.files
    opened = [files.sink(path) for path in paths.values() if path]

    def write(data: bytes) -> None:
        for one in opened:
            one.write(data)

    return write


async def _start_process(call: Call) -> None:
    if call.has("NoNewWindow"):
        await cmdlets_system.start_process(call)
        return
    process, path = call.process, call.text("FilePath")
    arguments = split(" ".join(text(word) for word in items(call.get("ArgumentList"))))
    directory = process.files.absolute(call.text("WorkingDirectory", process.cwd))
    try:
        find(process.context, path, directory)
    except OSError:
        raise PowerShellError(
            "This command cannot be run due to the error: The system cannot find the file specified.",
            "InvalidOperation: (:) [Start-Process], InvalidOperationException",
            "InvalidOperationException,Microsoft.PowerShell.Commands.StartProcessCommand", where="Start-Process",
        ) from None  # fmt: skip
    context = cast(LoginContext, process.context)
    pid, client = detached(context, [path, *arguments], call.evaluator.env.plain(), directory, _sink(call))
    if call.has("Wait"):
        await client.wait()
    if call.has("PassThru"):
        name = path.rpartition("\\")[2].removesuffix(".exe")
        call.emit(PsObject("System.Diagnostics.Process", {"Id": pid, "ProcessName": name, "Name": name}))


CMDLETS = (
    row(
        "Start-Process", _start_process, "FilePath ArgumentList*", "Wait NoNewWindow PassThru",
        "WindowStyle WorkingDirectory Verb RedirectStandardOutput RedirectStandardError",
    ),
)  # fmt: skip
