"""Start-Process: an independent program, which keeps running when its parent ends.

It has no visible window; its output is lost unless it is redirected to a file.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from transom.kit.argv import parse_command_line
from transom.machines.windows.accounts import WindowsUser
from transom.userland.api import LaunchedProcess
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.tree import CommandNode, ValueLiteral
from transom.userland.powershell.values import (
    PowerShellError,
    PsObject,
    SecretObject,
    to_items,
    to_number,
    to_text,
)
from transom.userland.streams import BytesSource
from transom.userland.windows.accounts import create_profile

KIND = "System.Diagnostics.Process"


class StartedProcess(PsObject):
    """A process that this script has started; its properties are read when they are used."""

    __slots__ = ("code", "launched")

    def __init__(self, name: str, launched: LaunchedProcess) -> None:
        super().__init__(
            KIND, {"Id": launched.pid, "ProcessName": name, "Name": name}, f"{KIND} ({name})"
        )
        self.launched = launched
        self.code: int | None = None

    def get(self, name: str) -> Any:
        match name.lower():
            case "hasexited":
                return self.code is not None
            case "exitcode":
                return None if self.code is None else _signed(self.code)
        return super().get(name)

    async def follow(self) -> None:
        self.code = await self.launched.wait()


def _signed(code: int) -> int:
    """.NET has exit codes as Int32: Stop-Process ends a process with -1."""
    return code - (1 << 32) if code > 0x7FFFFFFF else code


def _failed(text_: str) -> PowerShellError:
    return PowerShellError(
        f"This command cannot be run due to the error: {text_}",
        "InvalidOperation: (:) [Start-Process], InvalidOperationException",
        "InvalidOperationException,Microsoft.PowerShell.Commands.StartProcessCommand",
        where="Start-Process",
    )


def _sink(call: CmdletCall) -> Callable[[bytes], None]:
    paths = {
        call.text(name).lower(): call.text(name)
        for name in ("RedirectStandardOutput", "RedirectStandardError")
    }
    files = call.process.files
    opened = [files.sink(path) for path in paths.values() if path]
    console = call.process.stdout if call.has("NoNewWindow") and not opened else None

    def write(data: bytes) -> None:
        for one in opened:
            one.write(data)
        if console is not None:
            console.write(data)

    return write


def _input(call: CmdletCall) -> BytesSource | None:
    """The file of -RedirectStandardInput. Raises PowerShellError."""
    path, files = call.text("RedirectStandardInput"), call.process.files
    if not path:
        return None
    try:
        return BytesSource(files.read(path))
    except OSError:
        raise _failed(f"Could not find file '{files.absolute(path)}'.") from None


def _account(call: CmdletCall) -> WindowsUser:
    """The account to run as. Raises PowerShellError."""
    context, given = call.process.context, call.get("Credential")
    if not isinstance(given, SecretObject):
        own: WindowsUser = context.windows.account
        return own
    database = context.windows.system.accounts
    account: WindowsUser | None = database.identity(to_text(given.get("UserName")))
    local = next(
        (user for user in database.users() if account is not None and user.sid == account.sid), None
    )
    if account is None or local is None or local.password != given.secret:
        raise _failed("The user name or password is incorrect.")
    if not local.enabled:
        raise _failed("This user can't sign in because this account is currently disabled.")
    create_profile(context, account)
    return account


async def _in_the_shell(call: CmdletCall) -> None:
    """In a container with real Win32 processes: Wine starts the program."""
    evaluator = call.evaluator
    words = [to_text(word) for word in to_items(call.get("ArgumentList"))]
    arguments = tuple(ValueLiteral(word) for word in words)
    node = CommandNode(ValueLiteral(call.text("FilePath")), arguments, (), "&")
    if call.has("Wait") or call.has("NoNewWindow"):
        await evaluator.command(node, None)
        if call.has("PassThru"):
            ended = {"HasExited": True, "ExitCode": evaluator.last_exit}
            call.emit(PsObject(KIND, {"Name": call.text("FilePath"), **ended}))
    else:
        call.process.program.spawn(evaluator.command(node, None))


async def _start_process(call: CmdletCall) -> None:
    if call.process.context.native is not None:
        await _in_the_shell(call)
        return
    process, path = call.process, call.text("FilePath")
    words = parse_command_line(
        " ".join(to_text(word) for word in to_items(call.get("ArgumentList"))), " \t"
    )
    directory = process.files.absolute(call.text("WorkingDirectory", process.cwd))
    stdin = _input(call)
    account = _account(call)
    env = call.evaluator.env.plain()
    if call.has("Credential"):
        env |= {
            "USERNAME": account.name,
            "USERDOMAIN": account.domain,
            "USERPROFILE": account.profile,
        }
    try:
        process.program.find_command(process.context, path, directory)
        launched = process.context.windows.launch(
            [path, *words], account, env, directory, _sink(call), stdin
        )
    except PermissionError:
        raise _failed("Access is denied.") from None
    except OSError as error:
        full = error.errno == errno.EAGAIN
        raise _failed(
            str(error.strerror) if full else "The system cannot find the file specified."
        ) from None
    started = StartedProcess(path.rpartition("\\")[2].removesuffix(".exe"), launched)
    call.evaluator.flush()
    if call.has("Wait"):
        await started.follow()
    else:
        process.program.spawn(started.follow())
    if call.has("PassThru"):
        call.emit(started)


async def _wait_process(call: CmdletCall) -> None:
    """Waits for processes by id, by name or from the pipeline."""
    context = call.process.context
    given = [*(call.input or []), *to_items(call.get("InputObject"))]
    wanted = {int(to_number(one)) for one in to_items(call.get("Id"))}
    wanted |= {int(to_number(one.get("Id"))) for one in given if isinstance(one, PsObject)}
    names = [to_text(one).lower() for one in to_items(call.get("Name"))]
    limit = float(to_number(call.get("Timeout", 0)))
    waited = 0.0
    while any(
        entry.pid in wanted
        or entry.argv[0].rpartition("\\")[2].lower().removesuffix(".exe") in names
        for entry in context.processes.list()
    ):
        if limit and waited >= limit:
            call.fail(
                (
                    "This command stopped operation because the process is not stopped in the "
                    "specified time-out."
                ),
                "CloseError: (:) [Wait-Process], TimeoutException",
                "ProcessNotTerminated",
            )
            return
        await call.process.sleep(0.25)
        waited += 0.25


def _credential(call: CmdletCall) -> None:
    call.emit(
        SecretObject(
            "System.Management.Automation.PSCredential", {"UserName": call.text("UserName")}, ""
        )
    )


CMDLETS = (
    cmdlet_row(
        "Start-Process",
        _start_process,
        "FilePath ArgumentList*",
        "Wait NoNewWindow PassThru LoadUserProfile UseNewEnvironment",
        (
            "WindowStyle WorkingDirectory Verb RedirectStandardOutput RedirectStandardError "
            "RedirectStandardInput Credential"
        ),
    ),
    cmdlet_row("Wait-Process", _wait_process, "Name", "", "Id InputObject Timeout"),
    cmdlet_row("Get-Credential", _credential, "UserName", "", "Message"),
)
