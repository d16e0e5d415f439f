"""How a cmdlet is called: its parameters are bound by name, by prefix of the name, or by position."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from transom.runtime.sim.programs.powershell.lexer import Node
from transom.runtime.sim.programs.powershell.values import PowerShellError, ScriptBlock, text

if TYPE_CHECKING:
    from transom.runtime.sim.programs.powershell.evaluator import Evaluator


class Cmdlet(NamedTuple):
    name: str
    run: Callable[[Call], Any]
    positional: tuple[str, ...] = ()
    switches: frozenset[str] = frozenset()
    named: tuple[str, ...] = ()


def row(name: str, run: Callable[[Call], Any], positional: str = "", switches: str = "", named: str = "") -> Cmdlet:
    """Words separated by spaces. A positional parameter with `*` takes all that is left."""
    return Cmdlet(name, run, tuple(positional.split()), frozenset(switches.split()), tuple(named.split()))


_COMMON_SWITCHES = frozenset(("Verbose", "Debug", "Confirm", "WhatIf"))
_COMMON = ("ErrorAction", "EA", "ErrorVariable", "OutVariable", "WarningAction", "InformationAction", "OutBuffer")


class Call:
    """One call of a cmdlet."""

    def __init__(self, evaluator: Evaluator, cmdlet: Cmdlet, name: str, given: list[Any] | None) -> None:
        self.evaluator = evaluator
        self.cmdlet = cmdlet
        self.name = name
        self.input = given
        self.values: dict[str, Any] = {}
        self.rest: list[Any] = []

    @property
    def process(self) -> Any:
        return self.evaluator.process

    def has(self, name: str) -> bool:
        return name in self.values

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def text(self, name: str, default: str = "") -> str:
        return text(self.values[name]) if name in self.values else default

    def emit(self, value: Any) -> None:
        self.evaluator.emit(value)

    def fail(self, message: str, category: str, identity: str) -> None:
        """An error after which things go on, unless somebody wants it otherwise. A cmdlet that is not PowerShell's own
        says whose it is in `identity`, after a comma."""
        own = f"{identity},Microsoft.PowerShell.Commands.{self.cmdlet.name.replace('-', '')}Command"
        full = identity if "," in identity else own
        error = PowerShellError(message, category, full, where=self.cmdlet.name)
        action = self.text("ErrorAction", self.text("EA")).lower()
        if action in ("silentlycontinue", "ignore", "0"):
            self.evaluator.success = False
            self.evaluator.errors.insert(0, error)
        elif action == "stop":
            from transom.runtime.sim.programs.powershell.evaluator import Thrown

            raise Thrown(error.message, error.category, error.identity, where=error.where)
        else:
            self.evaluator.write_error(error)

    def _parameter(self, name: str) -> str | None:
        known = (
            *self.cmdlet.switches,
            *(p.rstrip("*") for p in self.cmdlet.positional),
            *self.cmdlet.named,
            *_COMMON,
            *_COMMON_SWITCHES,
        )
        lower = name.lower()
        exact = next((one for one in known if one.lower() == lower), None)
        return exact or next((one for one in known if one.lower().startswith(lower)), None)

    async def bind(self, arguments: Sequence[Node]) -> None:
        loose: list[Any] = []
        waiting: str | None = None
        for argument in arguments:
            if argument[0] == "parameter":
                if waiting is not None:
                    self.values[waiting] = True
                waiting = None
                name = self._parameter(argument[1])
                if name is None:
                    raise PowerShellError(
                        f"A parameter cannot be found that matches parameter name '{argument[1]}'.",
                        f"InvalidArgument: (:) [{self.cmdlet.name}], ParameterBindingException",
                        f"NamedParameterNotFound,Microsoft.PowerShell.Commands.{self.cmdlet.name.replace('-', '')}Command",
                        where=self.cmdlet.name,
                    )
                if name in self.cmdlet.switches or name in _COMMON_SWITCHES:
                    self.values[name] = True
                else:
                    waiting = name
                continue
            if argument[0] == "named":
                name = self._parameter(argument[1])
                if name is not None:
                    self.values[name] = await self.evaluator.value(argument[2])
                continue
            value = await self.evaluator.value(argument)
            if waiting is not None:
                self.values[waiting] = value
                waiting = None
            else:
                loose.append(value)
        if waiting is not None:
            self.values[waiting] = True
        for parameter in self.cmdlet.positional:
            bare = parameter.rstrip("*")
            if bare in self.values or not loose:
                continue
            if parameter.endswith("*"):
                self.values[bare] = loose if len(loose) > 1 else loose[0]
                loose = []
            else:
                self.values[bare] = loose.pop(0)
        self.rest = loose

    async def run(self) -> None:
        try:
            result = self.cmdlet.run(self)
            if inspect.isawaitable(result):
                await result
        except PowerShellError as error:
            action = self.text("ErrorAction", self.text("EA")).lower()
            if action in ("silentlycontinue", "ignore", "0"):
                self.evaluator.success = False
                return
            if not error.where:
                error.where = self.cmdlet.name
            raise

    async def each(self, block: ScriptBlock, item: Any) -> None:
        """Runs a block for an item; its output goes where the cmdlet's goes."""
        await self.evaluator.call_block(block, [], item)


@cache
def _table() -> dict[str, Cmdlet]:
    from transom.runtime.sim.programs.powershell import (
        cmdlets_files,
        cmdlets_names,
        cmdlets_objects,
        cmdlets_output,
        cmdlets_system,
    )

    rows: dict[str, Cmdlet] = {}
    for module in (cmdlets_files, cmdlets_names, cmdlets_objects, cmdlets_output, cmdlets_system):
        for cmdlet in module.CMDLETS:
            rows[cmdlet.name.lower()] = cmdlet
    for alias, name in _ALIASES.items():
        rows[alias] = rows[name.lower()]
    return rows


@cache
def _of_machine() -> dict[str, Cmdlet]:
    """Those of a machine beside the above, or instead of them: what a container cannot see."""
    from transom.runtime.sim.programs.powershell import cmdlets_hns, cmdlets_services, cmdlets_windows

    modules = (cmdlets_hns, cmdlets_services, cmdlets_windows)
    rows = {cmdlet.name.lower(): cmdlet for module in modules for cmdlet in module.CMDLETS}
    return rows | {alias: rows[name.lower()] for alias, name in _ALIASES.items() if name.lower() in rows}


def find(name: str, *, machine: bool = False) -> Cmdlet | None:
    lower = name.lower()
    if lower.startswith("microsoft.powershell"):
        lower = lower.rpartition("\\")[2]
    return (_of_machine().get(lower) if machine else None) or _table().get(lower)


_ALIASES = {
    "%": "ForEach-Object", "?": "Where-Object", "cat": "Get-Content", "cd": "Set-Location", "chdir": "Set-Location",
    "clear": "Clear-Host", "cls": "Clear-Host", "copy": "Copy-Item", "cp": "Copy-Item", "curl": "Invoke-WebRequest",
    "del": "Remove-Item",
    "dir": "Get-ChildItem", "echo": "Write-Output", "erase": "Remove-Item", "fl": "Format-List", "foreach": "ForEach-Object",
    "ft": "Format-Table", "gc": "Get-Content", "gci": "Get-ChildItem", "gi": "Get-Item", "gp": "Get-ItemProperty",
    "gjb": "Get-Job",
    "group": "Group-Object", "gsv": "Get-Service", "gps": "Get-Process", "iex": "Invoke-Expression",
    "irm": "Invoke-RestMethod", "iwr": "Invoke-WebRequest",
    "kill": "Stop-Process", "ls": "Get-ChildItem", "measure": "Measure-Object", "mkdir": "New-Directory", "md": "New-Directory",
    "move": "Move-Item", "mv": "Move-Item", "ni": "New-Item", "ps": "Get-Process", "pwd": "Get-Location", "rd": "Remove-Item",
    "ren": "Rename-Item", "ri": "Remove-Item", "rm": "Remove-Item", "rmdir": "Remove-Item", "sajb": "Start-Job",
    "saps": "Start-Process",
    "select": "Select-Object", "set": "Set-Variable", "sl": "Set-Location", "sleep": "Start-Sleep", "sls": "Select-String",
    "sort": "Sort-Object", "start": "Start-Process", "tee": "Tee-Object", "tnc": "Test-NetConnection", "type": "Get-Content",
    "where": "Where-Object", "wget": "Invoke-WebRequest", "write": "Write-Output", "wjb": "Wait-Job", "rcjb": "Receive-Job",
}  # fmt: skip
