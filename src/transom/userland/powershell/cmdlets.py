"""How cmdlets are called: parameters are bound by name, by prefix of the name, or by position."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from transom.kit.named_tuple import NamedTuple
from transom.userland.powershell.confirmation import (
    TARGETS,
    describe_operation,
    supports_should_process,
)
from transom.userland.powershell.control import Thrown
from transom.userland.powershell.exceptions import error_record
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.tree import (
    BoundArgument,
    NamedArgument,
    ParameterArgument,
    ValueLiteral,
)
from transom.userland.powershell.unsupported_parameters import is_unsupported
from transom.userland.powershell.values import (
    PowerShellError,
    ScriptBlock,
    to_bool,
    to_items,
    to_text,
)
from transom.userland.powershell.wildcard_paths import expand_path
from transom.userland.process import Process

log = logging.getLogger("transom.runtime")

# Cmdlets with these verbs act once for each object of the pipeline: not at all if it is empty.
_PER_OBJECT = frozenset(
    (
        "Clear",
        "Copy",
        "Disable",
        "Enable",
        "Get",
        "Invoke",
        "Move",
        "Remove",
        "Rename",
        "Resolve",
        "Restart",
        "Start",
        "Stop",
        "Test",
        "Unregister",
    )
)


class Cmdlet(NamedTuple):
    name: str
    run: Callable[[CmdletCall], Any]
    positional: tuple[str, ...] = ()
    switches: frozenset[str] = frozenset()
    named: tuple[str, ...] = ()
    takes_rest: bool = False  # arguments beyond the positional ones are in `CmdletCall.rest`

    async def call(
        self,
        session: PowerShellSession,
        name: str,
        arguments: Sequence[BoundArgument],
        given: list[Any] | None,
    ) -> None:
        call = CmdletCall(session, self, name, given)
        try:
            await call.bind(arguments)
            call.check_supported()
            if given == [] and self.name.partition("-")[0] in _PER_OBJECT:
                return
            if await call.confirm():
                await call.run()
        except PowerShellError as error:
            if error.where == self.name:
                error.where = call.name
            raise


def cmdlet_row(
    name: str,
    run: Callable[[CmdletCall], Any],
    positional: str = "",
    switches: str = "",
    named: str = "",
    *,
    takes_rest: bool = False,
) -> Cmdlet:
    """Words separated by spaces. A positional parameter with `*` takes all remaining arguments."""
    return Cmdlet(
        name,
        run,
        tuple(positional.split()),
        frozenset(switches.split()),
        tuple(named.split()),
        takes_rest,
    )


# Values of -ErrorAction and -WarningAction; numbers are those of the enumeration.
_SILENT = ("silentlycontinue", "ignore", "0", "4")

_COMMON_SWITCHES = frozenset(("Verbose", "Debug"))
_SHOULD_PROCESS = frozenset(("Confirm", "WhatIf"))
# Cmdlets that print their objects by display name, and the ones that find the objects by name.
_FOUND_BY = {"Service": "Get-Service", "Process": "Get-Process"}
_COMMON_ALIASES = {
    "EA": "ErrorAction",
    "EV": "ErrorVariable",
    "OV": "OutVariable",
    "OB": "OutBuffer",
    "WA": "WarningAction",
    "WV": "WarningVariable",
    "INFA": "InformationAction",
    "IV": "InformationVariable",
    "PV": "PipelineVariable",
}
_COMMON = (*_COMMON_ALIASES.values(),)


class CmdletCall:
    """One call of a cmdlet."""

    def __init__(
        self, evaluator: PowerShellSession, cmdlet: Cmdlet, name: str, given: list[Any] | None
    ) -> None:
        self.evaluator = evaluator
        self.cmdlet = cmdlet
        # As the script wrote it, an alias for example: error messages begin with it.
        self.name = name or cmdlet.name
        self.input = given
        self.values: dict[str, Any] = {}
        self.rest: list[Any] = []
        self._recorded: set[str] = set()
        self._out: list[Any] = []

    @property
    def process(self) -> Process:
        return self.evaluator.process

    def has(self, name: str) -> bool:
        return name in self.values

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def text(self, name: str, default: str = "") -> str:
        return to_text(self.values[name]) if name in self.values else default

    def objects(self) -> list[Any]:
        """The objects from the pipeline, or those of -InputObject."""
        return self.input if self.input is not None else to_items(self.get("InputObject"))

    def emit(self, value: Any) -> None:
        if self.has("OutVariable"):
            name = self.text("OutVariable").lstrip("+").lower()
            self._out.append(value)
            self.evaluator.scopes[-1][name] = self._out
        self.evaluator.emit(value)

    def fail(self, message: str, category: str, identity: str) -> None:
        """Writes a non-terminating error, which -ErrorAction can make terminating or silent. A
        cmdlet that is not PowerShell's own has its module in `identity`, after a comma.
        """
        own = f"{identity},Microsoft.PowerShell.Commands.{self.cmdlet.name.replace('-', '')}Command"
        full = identity if "," in identity else own
        error = PowerShellError(message, category, full, where=self.name)
        error.extent = self.evaluator.extent
        self._add_to_variable("ErrorVariable", error_record(error))
        action = self.text("ErrorAction").lower()
        if action in _SILENT:
            self.evaluator.success = False
            self.evaluator.remember(error)
        elif action == "stop":
            raise Thrown(error.message, error.category, error.identity, where=error.where)
        else:
            self.evaluator.write_error(error)

    def warn(self, message: str) -> None:
        """Writes a warning, as -WarningAction, or else $WarningPreference, decides."""
        self._add_to_variable("WarningVariable", message)
        preference = to_text(self.evaluator.get("WarningPreference"))
        action = self.text("WarningAction", preference).lower()
        if action == "stop":
            raise Thrown(
                "The running command stopped because the preference variable "
                f'"WarningPreference" or common parameter is set to Stop: {message}',
                f"OperationStopped: (:) [{self.cmdlet.name}], ActionPreferenceStopException",
                "ActionPreferenceStop",
                where=self.cmdlet.name,
            )
        if action not in _SILENT:
            self.evaluator.write_stream("3", "WARNING: ", "Warning", message)

    def _add_to_variable(self, parameter: str, record: Any) -> None:
        """-ErrorVariable and -WarningVariable: `name`, or `+name` to add to it."""
        given = self.text(parameter)
        name = given.lstrip("+").lower()
        if name:
            known = self.evaluator.scopes[-1].get(name)
            more = given.startswith("+") or parameter in self._recorded
            before = to_items(known) if more and known is not None else []
            self.evaluator.scopes[-1][name] = [*before, record]
            self._recorded.add(parameter)

    def _common_switches(self) -> frozenset[str]:
        if supports_should_process(self.cmdlet.name):
            return _COMMON_SWITCHES | _SHOULD_PROCESS
        return _COMMON_SWITCHES

    def _parameter(self, name: str) -> str | None:
        known = (
            *self.cmdlet.switches,
            *(p.rstrip("*") for p in self.cmdlet.positional),
            *self.cmdlet.named,
            *_COMMON,
            *self._common_switches(),
        )
        lower = name.lower()
        exact = next((one for one in known if one.lower() == lower), None)
        exact = exact or _COMMON_ALIASES.get(name.upper())
        return exact or next((one for one in known if one.lower().startswith(lower)), None)

    async def bind(self, arguments: Sequence[BoundArgument]) -> None:
        loose: list[Any] = []
        waiting: str | None = None
        for argument in arguments:
            if isinstance(argument, ParameterArgument):
                if waiting is not None:
                    raise self._missing_argument(waiting)
                name = self._parameter(argument.name)
                if name is None:
                    raise self._unknown_parameter(argument.name)
                if name in self.cmdlet.switches or name in self._common_switches():
                    self.values[name] = True
                else:
                    waiting = name
                continue
            if isinstance(argument, NamedArgument):
                name = self._parameter(argument.name)
                if name is None:
                    raise self._unknown_parameter(argument.name)
                self.values[name] = await self.evaluator.value(argument.value)
                continue
            value = await self.evaluator.value(argument)
            if waiting is not None:
                self.values[waiting] = value
                waiting = None
            else:
                loose.append(value)
        if waiting is not None:
            raise self._missing_argument(waiting)
        for parameter in self.cmdlet.positional:
            bare = parameter.rstrip("*")
            if bare in self.values or not loose:
                continue
            if parameter.endswith("*"):
                self.values[bare] = loose if len(loose) > 1 else loose[0]
                loose = []
            else:
                self.values[bare] = loose.pop(0)
        if loose and not self.cmdlet.takes_rest:
            shown = to_text(loose[0])
            raise PowerShellError(
                f"A positional parameter cannot be found that accepts argument '{shown}'.",
                f"InvalidArgument: (:) [{self.cmdlet.name}], ParameterBindingException",
                f"PositionalParameterNotFound,{self._command_class()}",
                where=self.cmdlet.name,
            )
        self.rest = loose

    def _command_class(self) -> str:
        return f"Microsoft.PowerShell.Commands.{self.cmdlet.name.replace('-', '')}Command"

    def _missing_argument(self, name: str) -> PowerShellError:
        return PowerShellError(
            f"Missing an argument for parameter '{name}'. Specify a parameter of type "
            "'System.String' and try again.",
            f"InvalidArgument: (:) [{self.cmdlet.name}], ParameterBindingException",
            f"MissingArgument,{self._command_class()}",
            where=self.cmdlet.name,
        )

    def _unknown_parameter(self, name: str) -> PowerShellError:
        return PowerShellError(
            f"A parameter cannot be found that matches parameter name '{name}'.",
            f"InvalidArgument: (:) [{self.cmdlet.name}], ParameterBindingException",
            f"NamedParameterNotFound,{self._command_class()}",
            where=self.cmdlet.name,
        )

    def check_supported(self) -> None:
        """Raises PowerShellError for a parameter that is not simulated."""
        name = next((one for one in self.values if is_unsupported(self.cmdlet.name, one)), None)
        if name is None:
            return
        raise PowerShellError(
            f"The parameter '{name}' of {self.cmdlet.name} is not supported on simulated machines.",
            f"NotImplemented: (:) [{self.cmdlet.name}], PSNotImplementedException",
            f"NotImplemented,{self._command_class()}",
            where=self.cmdlet.name,
        )

    async def confirm(self) -> bool:
        """Handles -WhatIf and -Confirm. False: there is nothing left to do."""
        if not supports_should_process(self.cmdlet.name):
            return True
        what_if = to_bool(self.values.pop("WhatIf", self.evaluator.get("WhatIfPreference")))
        ask = to_bool(self.values.pop("Confirm", False))
        if not what_if and not ask:
            return True
        parameter, targets = await self._targets()
        kept: list[Any] = []
        answer = ""
        for target in targets:
            computer = self.process.env.get("COMPUTERNAME", "localhost")
            text = describe_operation(
                self.cmdlet.name, target, self.values, self.process.files, computer
            )
            self.evaluator.flush()
            if what_if:
                self.process.write(f"What if: {text}\r\n")
                continue
            if answer != "a":
                answer = await self.evaluator.ask(text)
            if answer == "l":
                break
            if answer != "n":
                kept.append(target)
        if parameter:
            self.values[parameter] = kept
        elif self.input is not None:
            self.input = kept
        return bool(kept)

    async def _targets(self) -> tuple[str, list[Any]]:
        """What the call acts on, and the parameter that names it ("" for the pipeline)."""
        parameter = next((one for one in TARGETS if one in self.values), "")
        if not parameter:
            return "", [""] if self.input is None else list(self.input)
        given = to_items(self.values[parameter])
        if parameter == "Path":
            return parameter, [
                path
                for one in given
                for path in expand_path(self.process.files, self.evaluator.resolved(to_text(one)))
            ]
        finder = _FOUND_BY.get(self.cmdlet.name.partition("-")[2])
        if finder is None or self.cmdlet.name == "New-Service":
            return parameter, given
        return "InputObject", await self._find(finder, parameter)

    async def _find(self, finder: str, parameter: str) -> list[Any]:
        """The objects that a parameter names, in place of the names."""
        row = self.evaluator.cmdlets.find(finder)
        if not isinstance(row, Cmdlet):
            return to_items(self.values[parameter])
        found: list[Any] = []
        value = self.values.pop(parameter)
        arguments: list[BoundArgument] = [NamedArgument(parameter, ValueLiteral(value))]
        if parameter == "InputObject":
            return to_items(value)
        saved, self.evaluator.emit = self.evaluator.emit, found.append
        own = row._replace(name=self.cmdlet.name)  # its errors are those of this cmdlet
        try:
            call = CmdletCall(self.evaluator, own, self.name, None)
            await call.bind(arguments)
            await call.run()
        finally:
            self.evaluator.emit = saved
        return found

    async def run(self) -> None:
        try:
            result = self.cmdlet.run(self)
            if inspect.isawaitable(result):
                await result
        except PowerShellError as error:
            self._add_to_variable("ErrorVariable", error_record(error))
            action = self.text("ErrorAction").lower()
            if action in _SILENT:
                self.evaluator.success = False
                return
            if not error.where:
                error.where = self.cmdlet.name
            raise
        except OSError as problem:  # that the cmdlet itself does not expect
            self.fail(
                problem.strerror or str(problem),
                f"WriteError: (:) [{self.cmdlet.name}], IOException",
                "IOException",
            )
        except (
            AttributeError,
            IndexError,
            KeyError,
            OverflowError,
            TypeError,
            ValueError,
        ) as problem:
            # Values that the cmdlet does not expect: it fails, the script goes on.
            log.exception("%s failed: %s", self.cmdlet.name, self.evaluator.script[:200])
            raise PowerShellError(
                "The parameter is incorrect.",
                f"InvalidArgument: (:) [{self.cmdlet.name}], ArgumentException",
                f"System.ArgumentException,{self._command_class()}",
                where=self.cmdlet.name,
            ) from problem

    async def each(self, block: ScriptBlock, item: Any) -> None:
        """Runs a block for an item; its output is output of the cmdlet."""
        await self.evaluator.call_block(block, [], item)


class CmdletTable:
    """Cmdlets by name and alias."""

    def __init__(self, rows: Mapping[str, Cmdlet], aliases: Mapping[str, str]) -> None:
        """`rows` are by lower-case name; `aliases` are names without regard to case, by alias."""
        known = {
            alias: rows[name.lower()] for alias, name in aliases.items() if name.lower() in rows
        }
        self._rows = {**rows, **known}
        self._named = rows
        self.aliases = aliases

    def find(self, name: str) -> Cmdlet | None:
        lower = name.lower()
        if lower.startswith("microsoft.powershell"):
            lower = lower.rpartition("\\")[2]
        return self._rows.get(lower)

    def all(self) -> list[Cmdlet]:
        return sorted(self._named.values(), key=lambda row: row.name)

    def extended(self, rows: Iterable[Cmdlet]) -> CmdletTable:
        """A table with more cmdlets; they replace those of the same name."""
        return CmdletTable({**self._named, **{row.name.lower(): row for row in rows}}, self.aliases)
