"""Cmdlets about the session itself: commands and aliases, execution policy, drives of variables,
functions and aliases, and Get-Host.
"""

from __future__ import annotations

import ntpath
from collections.abc import Iterator
from typing import Any, Final

from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.execution_policy import (
    MACHINE_KEY,
    POLICIES,
    PROCESS_VARIABLE,
    execution_policy,
    scope_policy,
    user_policy_key,
)
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import PowerShellError, PsObject, to_items, to_text

SESSION_DRIVES: Final = ("variable", "function", "alias")
_SCOPES: Final = ("MachinePolicy", "UserPolicy", "Process", "CurrentUser", "LocalMachine")


def _command(kind: str, name: str, version: str, source: str, **more: Any) -> PsObject:
    types = {"Cmdlet": "CmdletInfo", "Function": "FunctionInfo", "Application": "ApplicationInfo"}
    return PsObject(
        f"System.Management.Automation.{types[kind]}",
        {"CommandType": kind, "Name": name, "Version": version, "Source": source, **more},
        name,
    )


def alias_object(alias: str, target: str) -> PsObject:
    return PsObject(
        "System.Management.Automation.AliasInfo",
        {
            "CommandType": "Alias",
            "Name": alias,
            "Version": "",
            "Source": "",
            "DisplayName": f"{alias} -> {target}",
            "Definition": target,
            "ResolvedCommandName": target,
        },
        alias,
    )


def session_aliases(call: CmdletCall) -> dict[str, str]:
    return {**call.evaluator.cmdlets.aliases, **call.evaluator.aliases}


def _application(call: CmdletCall, name: str) -> PsObject | None:
    process = call.process
    try:
        process.find_command(name)
    except OSError:
        return None
    shown = name if ntpath.splitext(name)[1] else name + ".exe"
    path = next((value for key, value in process.env.items() if key.lower() == "path"), "")
    for folder in path.split(";"):
        full = f"{folder.rstrip(chr(92))}\\{shown}"
        if folder and process.files.exists(full):
            break
    else:
        full = rf"C:\Windows\system32\{shown}"
    return _command("Application", shown, "", full, Definition=full, Path=full)


def _known(call: CmdletCall) -> Iterator[PsObject]:
    """Aliases, functions and cmdlets, in the order in which Get-Command lists them."""
    for alias, target in sorted(session_aliases(call).items()):
        yield alias_object(alias, target)
    for name in sorted(call.evaluator.functions):
        yield _command("Function", call.evaluator.function_names.get(name, name), "", "")
    for row in call.evaluator.cmdlets.all():
        yield _command("Cmdlet", row.name, "3.1.0.0", "Microsoft.PowerShell")


def _get_command(call: CmdletCall) -> None:
    kinds = [to_text(one).lower() for one in to_items(call.get("CommandType"))]
    verbs, nouns = to_items(call.get("Verb")), to_items(call.get("Noun"))
    wanted = [to_text(name) for name in to_items(call.get("Name"))]
    for name in wanted or ["*"]:
        listed = "*" in name or "?" in name
        found = [
            one
            for one in _known(call)
            if matches_wildcard(one.text, name)
            and (not kinds or "all" in kinds or to_text(one.get("CommandType")).lower() in kinds)
            and (not verbs or any(_part(one, 0, verb) for verb in verbs))
            and (not nouns or any(_part(one, 2, noun) for noun in nouns))
            and not (listed and not kinds and one.kind.endswith("AliasInfo") and (verbs or nouns))
        ]
        application = None if found or listed else _application(call, name)
        for one in [application] if application is not None else found if listed else found[:1]:
            call.emit(one)
        if not found and application is None and not listed:
            call.fail(
                f"The term '{name}' is not recognized as the name of a cmdlet, function, script "
                "file, or operable program. Check the spelling of the name, or if a path was "
                "included, verify that the path is correct and try again.",
                f"ObjectNotFound: ({name}:String) [Get-Command], CommandNotFoundException",
                "CommandNotFoundException",
            )


def _part(command: PsObject, index: int, wanted: Any) -> bool:
    parts = command.text.partition("-")
    return bool(parts[1]) and matches_wildcard(parts[index], to_text(wanted))


def _get_alias(call: CmdletCall) -> None:
    wanted = [to_text(one) for one in to_items(call.get("Name"))] or ["*"]
    known = session_aliases(call)
    for alias, name in sorted(known.items()):
        if any(matches_wildcard(alias, one) for one in wanted) and (
            not call.has("Definition") or matches_wildcard(name, call.text("Definition"))
        ):
            call.emit(alias_object(alias, name))
    for one in wanted:
        if "*" not in one and one.lower() not in known:
            call.fail(
                "This command cannot find a matching alias because an alias with the name "
                f"'{one}' does not exist.",
                f"ObjectNotFound: ({one}:String) [Get-Alias], ItemNotFoundException",
                "ItemNotFoundException",
            )


def _set_alias(call: CmdletCall) -> None:
    name = call.text("Name").lower()
    if call.cmdlet.name == "New-Alias" and name in session_aliases(call) and not call.has("Force"):
        call.fail(
            f"The alias is not allowed, because an alias with the name '{name}' already exists.",
            f"ResourceExists: ({name}:String) [New-Alias], SessionStateException",
            "AliasAlreadyExists",
        )
        return
    call.evaluator.aliases[name] = call.text("Value")
    if call.has("PassThru"):
        call.emit(alias_object(name, call.text("Value")))


def _get_host(call: CmdletCall) -> None:
    call.emit(call.evaluator.get("host"))


def _get_policy(call: CmdletCall) -> None:
    if call.has("List"):
        for scope in _SCOPES:
            call.emit(
                PsObject(
                    "System.Management.Automation.PSCustomObject",
                    {"Scope": scope, "ExecutionPolicy": scope_policy(call.evaluator, scope)},
                )
            )
        return
    scope = call.text("Scope")
    call.emit(scope_policy(call.evaluator, scope) if scope else execution_policy(call.evaluator))


def _set_policy(call: CmdletCall) -> None:
    given = call.text("ExecutionPolicy")
    policy = next((one for one in POLICIES if one.lower() == given.lower()), None)
    if policy is None:
        raise PowerShellError(
            f"Cannot bind parameter 'ExecutionPolicy'. Cannot convert value \"{given}\" to type "
            '"Microsoft.PowerShell.ExecutionPolicy".',
            "InvalidArgument: (:) [Set-ExecutionPolicy], ParameterBindingException",
            "CannotConvertArgumentNoMessage,Microsoft.PowerShell.Commands.SetExecutionPolicyCommand",
        )
    scope = call.text("Scope", "LocalMachine").lower()
    windows = call.process.context.windows
    if scope == "process":
        call.evaluator.put(f"env:{PROCESS_VARIABLE}", policy)
        return
    if scope == "localmachine" and not windows.account.administrator:
        call.fail(
            "Access to the registry key 'HKEY_LOCAL_MACHINE\\SOFTWARE\\Microsoft\\PowerShell\\1"
            "\\ShellIds\\Microsoft.PowerShell' is denied.",
            "PermissionDenied: (:) [Set-ExecutionPolicy], UnauthorizedAccessException",
            "System.UnauthorizedAccessException",
        )
        return
    key = MACHINE_KEY if scope == "localmachine" else user_policy_key(call.evaluator)
    windows.system.registry.set(key, "ExecutionPolicy", policy)


def drive_items(call: CmdletCall, path: str) -> list[PsObject] | None:
    """The items of `Variable:`, `Function:` or `Alias:`; None for another path."""
    drive, colon, rest = path.partition(":")
    if not colon or drive.lower() not in SESSION_DRIVES:
        return None
    wanted = rest.strip("\\/") or "*"
    evaluator = call.evaluator
    rows: list[PsObject] = []
    if drive.lower() == "variable":
        values = {name: value for scope in evaluator.scopes for name, value in scope.items()}
        rows = [
            PsObject(
                "System.Management.Automation.PSVariable", {"Name": name, "Value": value}, name
            )
            for name, value in sorted(values.items())
        ]
    elif drive.lower() == "function":
        shown = evaluator.function_names
        rows = [
            _command("Function", shown.get(name, name), "", "")
            for name in sorted(evaluator.functions)
        ]
    else:
        rows = [alias_object(*pair) for pair in sorted(session_aliases(call).items())]
    return [row for row in rows if matches_wildcard(row.text, wanted)]


CMDLETS = (
    cmdlet_row("Get-Command", _get_command, "Name*", "All", "CommandType Verb Noun Module"),
    cmdlet_row("Get-Alias", _get_alias, "Name*", "", "Definition"),
    cmdlet_row("Set-Alias", _set_alias, "Name Value", "Force PassThru", "Scope Option"),
    cmdlet_row("New-Alias", _set_alias, "Name Value", "Force PassThru", "Scope Option"),
    cmdlet_row("Get-Host", _get_host),
    cmdlet_row("Get-ExecutionPolicy", _get_policy, "Scope", "List"),
    cmdlet_row("Set-ExecutionPolicy", _set_policy, "ExecutionPolicy Scope", "Force"),
)
