"""The state of a PowerShell session: its variables, errors and console."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transom.userland.powershell import formatting
from transom.userland.powershell.automatic import AUTOMATIC
from transom.userland.powershell.cmdlets import CmdletTable
from transom.userland.powershell.control import Thrown
from transom.userland.powershell.defined_types import DefinedType
from transom.userland.powershell.exceptions import error_record
from transom.userland.powershell.values import (
    PowerShellError,
    PsObject,
    ScriptBlock,
    to_items,
    to_text,
)
from transom.userland.process import Process
from transom.userland.windows.variables import Variables

_MAXIMUM_ERROR_COUNT = 256  # the default of $MaximumErrorCount
Emit = Callable[[Any], None]


class PowerShellSession:
    def __init__(self, process: Process, cmdlets: CmdletTable) -> None:
        self.cmdlets = cmdlets
        self.process: Process = process
        self.env: Variables = Variables(process.env)
        self.scopes: list[dict[str, Any]] = [{}]
        self.functions: dict[str, ScriptBlock] = {}
        self.success: bool = True
        self.last_exit: int | None = None
        self.exited: int | None = (
            None  # the exit code of the last script file, if it ended by `exit`
        )
        self.errors: list[PowerShellError] = []
        self.trying = 0
        self.caught: PowerShellError | None = None  # by the `catch` block that runs
        self.label = ""  # of the next loop
        self.merging = False  # errors of the command that runs are its output
        self.types: dict[str, DefinedType] = {}  # classes and enums, by lower-case name
        self.static_values: dict[str, dict[str, Any]] = {}  # those that a script has set, by type
        self.aliases: dict[str, str] = {}  # by Set-Alias
        self.script = ""
        self.held: list[Any] = []  # objects for the console, held until one of another kind follows
        self.emit: Emit = self.show
        self.jobs: list[Any] = []
        self.location = ""  # a registry key, if it is the current location
        self.locations: list[tuple[str, str]] = []
        self.allocated = 0

    def show(self, value: Any) -> None:
        for item in to_items(value):
            if isinstance(item, PsObject):
                self.held.append(item)
            else:
                self.flush()
                self.process.write(formatting.format_objects([item]))

    def flush(self) -> None:
        if self.held:
            held, self.held = self.held, []
            self.process.write(formatting.format_objects(held))

    def write_error(self, error: PowerShellError) -> None:
        """Writes a non-terminating error."""
        self.success = False
        self.remember(error)
        preference = to_text(self.get("erroractionpreference")).lower()
        if preference == "stop":
            raise Thrown(
                error.message, error.category, error.identity, where=error.where, value=error.value
            )
        if preference not in ("silentlycontinue", "ignore"):
            self.print_error(error)

    def remember(self, error: PowerShellError) -> None:
        """Adds it to $Error, newest first."""
        self.errors.insert(0, error)
        del self.errors[_MAXIMUM_ERROR_COUNT:]

    def print_error(self, error: PowerShellError) -> None:
        if self.merging:  # 2>&1
            self.emit(error_record(error))
            return
        self.flush()
        where = f"{error.where} : " if error.where else ""
        lines = [f"{where}{error.message}"]
        if not error.where or error.identity == "CommandNotFoundException":
            first = next((line for line in self.script.splitlines() if line.strip()), "").strip()
            lines += ["At line:1 char:1", f"+ {first[:110]}", "+ " + "~" * min(len(first), 110)]
        lines += [
            f"    + CategoryInfo          : {error.category}",
            f"    + FullyQualifiedErrorId : {error.identity}",
            " ",
        ]
        self.process.stderr.write(
            "".join(line + "\r\n" for line in lines).encode("utf-8", "surrogateescape")
        )

    def get(self, name: str) -> Any:
        name = name.lower()
        scope, colon, rest = name.partition(":")
        if colon:
            if scope == "env":
                return self.env.get(rest)
            name = rest
        for variables in reversed(self.scopes):
            if name in variables:
                return variables[name]
        automatic = AUTOMATIC.get(name)
        return automatic(self) if automatic is not None else None

    def put(self, name: str, value: Any) -> None:
        written = name.partition(":")[2]
        name = name.lower()
        scope, colon, rest = name.partition(":")
        if colon:
            if scope == "env":
                if value is None or to_text(value) == "":
                    self.env.pop(written, None)
                else:
                    self.env[written] = to_text(value)
                return
            self.scopes[0 if scope in ("global", "script") else -1][rest] = value
            return
        self.scopes[-1][name] = value
