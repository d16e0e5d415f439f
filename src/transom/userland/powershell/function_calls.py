"""Calls of functions and script blocks: which arguments belong to which parameters, and what
`[CmdletBinding()]` adds: common parameters, $PSCmdlet, -WhatIf and -Confirm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from transom.userland.powershell.control import call_depth_error
from transom.userland.powershell.parameters import SWITCHES
from transom.userland.powershell.script_cmdlet import SCRIPT_CMDLET
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.tree import (
    BoundArgument,
    NamedArgument,
    ParameterArgument,
)
from transom.userland.powershell.values import (
    PowerShellError,
    PsObject,
    ScriptBlock,
    to_bool,
    to_text,
)

# The preference variable that a common parameter sets in the function, and the value of a switch.
_PREFERENCES: Final = {
    "verbose": ("VerbosePreference", "Continue"),
    "debug": ("DebugPreference", "Inquire"),
    "erroraction": ("ErrorActionPreference", ""),
    "warningaction": ("WarningPreference", ""),
    "informationaction": ("InformationPreference", ""),
}
_ALIASES: Final = {
    "vb": "verbose",
    "db": "debug",
    "ea": "erroraction",
    "wa": "warningaction",
    "infa": "informationaction",
    "wi": "whatif",
    "cf": "confirm",
}
_CONFIRMATION: Final = {"whatif": "WhatIfPreference", "confirm": "ConfirmPreference"}
_SWITCHED: Final = ("verbose", "debug", "whatif", "confirm")
_MAXIMUM_DEPTH: Final = 1000
_CALLS_OF_A_TASK: Final = 12  # each takes some twenty frames of Python's limited stack


class _Binding:
    """The arguments of one call: those with a name, those without, and common parameters."""

    def __init__(self, name: str, function: ScriptBlock) -> None:
        self.name = name
        self.function = function
        self.positional: list[Any] = []
        self.named: dict[str, Any] = {}
        self.preferences: dict[str, Any] = {}  # variables of the function, by lower-case name
        self._own: dict[str, str] = {}
        for parameter in function.parameters:
            for one in (parameter.name, *parameter.aliases):
                self._own[one.lower()] = parameter.name.lower()
        self.known = {parameter.name.lower(): parameter for parameter in function.parameters}

    def _common(self, lower: str) -> str:
        """The common parameter with this name or alias; "" if there is none."""
        if not self.function.advanced:
            return ""
        lower = _ALIASES.get(lower, lower)
        confirms = "supportsshouldprocess" in self.function.binding.lower()
        names = (*_PREFERENCES, *(_CONFIRMATION if confirms else ()))
        if lower in names:
            return lower
        return next((one for one in names if len(lower) > 1 and one.startswith(lower)), "")

    def find(self, written: str) -> str:
        """The parameter with this name, alias, or beginning. Raises PowerShellError."""
        lower = written.lower()
        if lower in self._own:
            return self._own[lower]
        begun = next((self._own[one] for one in self._own if one.startswith(lower)), "")
        found = begun or self._common(lower)
        if found:
            return found
        if not self.function.advanced:
            return written
        raise self._error(
            f"A parameter cannot be found that matches parameter name '{written}'.",
            "NamedParameterNotFound",
        )

    def is_switch(self, name: str) -> bool:
        if name in self.known:
            return self.known[name].type in SWITCHES
        return name in _SWITCHED and self._common(name) == name

    def put(self, name: str, value: Any) -> None:
        if name in self.known or not self._common(name):
            self.named[name] = value
        elif name in _PREFERENCES:
            variable, switched = _PREFERENCES[name]
            if not switched:
                self.preferences[variable.lower()] = value
            elif to_bool(value):
                self.preferences[variable.lower()] = switched
        elif name == "whatif":
            self.preferences["whatifpreference"] = to_bool(value)
        else:
            self.preferences["confirmpreference"] = "Low" if to_bool(value) else "None"

    def check_positional(self) -> None:
        """A cmdlet takes no more arguments than it has parameters for."""
        if not self.function.advanced:
            return
        free = [
            one
            for one in self.function.parameters
            if one.name.lower() not in self.named and one.type not in SWITCHES
        ]
        if len(self.positional) > len(free):
            shown = to_text(self.positional[len(free)])
            raise self._error(
                f"A positional parameter cannot be found that accepts argument '{shown}'.",
                "PositionalParameterNotFound",
            )

    def _error(self, message: str, identity: str) -> PowerShellError:
        return PowerShellError(
            message,
            f"InvalidArgument: (:) [{self.name}], ParameterBindingException",
            f"{identity},{self.name}",
            where=self.name,
        )


async def call_function(
    evaluator: PowerShellSession,
    name: str,
    function: ScriptBlock,
    arguments: Sequence[BoundArgument],
    given: list[Any] | None,
    *,
    own_scope: bool = True,
) -> None:
    binding = _Binding(name, function)
    waiting = ""
    for argument in arguments:
        if isinstance(argument, ParameterArgument):
            if waiting:
                binding.put(waiting, True)
            waiting = binding.find(argument.name)
            if binding.is_switch(waiting):
                binding.put(waiting, True)
                waiting = ""
        elif isinstance(argument, NamedArgument):
            binding.put(binding.find(argument.name), await evaluator.value(argument.value))
        else:
            value = await evaluator.value(argument)
            if waiting:
                binding.put(waiting, value)
                waiting = ""
            else:
                binding.positional.append(value)
    if waiting:
        binding.put(waiting, True)
    binding.check_positional()
    variables: dict[str, Any] = dict(binding.preferences)
    if function.advanced:
        variables["pscmdlet"] = PsObject(
            SCRIPT_CMDLET, {"ParameterSetName": "__AllParameterSets"}, SCRIPT_CMDLET
        )
    if given is not None:
        evaluator.put("input", given)
    if len(evaluator.calls) >= _MAXIMUM_DEPTH:
        raise call_depth_error()
    evaluator.calls.append(name)
    evaluator.call_extents.append(evaluator.extent)
    try:
        body = evaluator.call_block(
            function,
            binding.positional,
            given[-1] if given else None,
            binding.named,
            own_scope=own_scope,
            variables=variables or None,
            items=given,
            name=name,
        )
        if len(evaluator.calls) % _CALLS_OF_A_TASK:
            await body
        else:
            await _in_own_task(evaluator, body)
    except RecursionError:
        raise call_depth_error() from None
    finally:
        evaluator.calls.pop()
        evaluator.call_extents.pop()


async def _in_own_task(evaluator: PowerShellSession, body: Coroutine[Any, Any, None]) -> None:
    """Runs a deeply nested call with a stack of its own."""

    async def run() -> Exception | None:
        try:
            await body
        except Exception as problem:
            return problem
        return None

    task = evaluator.process.program.spawn(run())
    try:
        problem = await task
    except asyncio.CancelledError:
        task.cancel()
        raise
    if problem is not None:
        raise problem
