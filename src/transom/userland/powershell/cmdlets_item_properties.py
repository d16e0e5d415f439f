"""Get-ItemProperty and Set-ItemProperty, for files and the registry."""

from __future__ import annotations

from typing import Any

from transom.userland.powershell import cmdlets_registry
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.cmdlets_files import (
    ATTRIBUTE_NAMES,
    directory_entry,
    expand_wildcards,
    fail_missing_path,
    path_arguments,
)
from transom.userland.powershell.file_times import set_time_property
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.statics import io_message
from transom.userland.powershell.values import (
    PowerShellError,
    PsObject,
    to_bool,
    to_text,
)


def _item_property(call: CmdletCall) -> None:
    for given in path_arguments(call) or ["."]:
        key = cmdlets_registry.registry_key_path(call, given)
        if key is None:
            for path in expand_wildcards(call, given):
                try:
                    call.emit(directory_entry(call, path, call.process.files.stat(path)))
                except OSError:
                    fail_missing_path(call, path)
            continue
        for one in cmdlets_registry.expand_key(call, key):
            picked = cmdlets_registry.properties(call, one)
            if call.cmdlet.name == "Get-ItemPropertyValue":
                for value in picked.values():
                    call.emit(value)
            else:
                call.emit(cmdlets_registry.with_place(one, picked))


def _set_item_property(call: CmdletCall) -> None:
    for given in path_arguments(call):
        key = cmdlets_registry.registry_key_path(call, given)
        if key is not None:
            cmdlets_registry.set_property(call, key)
            continue
        name = call.text("Name").lower()
        for path in expand_wildcards(call, given):
            if not call.process.files.exists(path):
                fail_missing_path(call, path)
                continue
            item = directory_entry(call, path, call.process.files.stat(path))
            if not set_file_property(call.evaluator, item, name, call.get("Value")):
                full = call.process.files.absolute(path)
                call.fail(
                    f"The property {call.text('Name')} does not exist on {full}.",
                    f"InvalidArgument: ({full}:String) [Set-ItemProperty], PSArgumentException",
                    "SetPropertyError",
                )


def _attribute_letters(shown: str) -> str:
    words = [word.strip().lower() for word in shown.split(",")]
    return "".join(letter for letter, name in ATTRIBUTE_NAMES.items() if name.lower() in words)


def set_file_property(
    evaluator: PowerShellSession, target: PsObject, name: str, value: Any
) -> bool:
    """`$file.IsReadOnly = $true`; False for properties that files do not have."""
    try:
        return _set_file_property(evaluator, target, name, value)
    except OSError as problem:
        path = to_text(target.get("FullName"))
        raise PowerShellError(
            f'Exception setting "{name}": "{io_message(path, path, problem)}"',
            "NotSpecified: (:) [], SetValueInvocationException",
            "ExceptionWhenSetting",
        ) from None


def _set_file_property(
    evaluator: PowerShellSession, target: PsObject, name: str, value: Any
) -> bool:
    path = to_text(target.get("FullName"))
    if name.lower() == "isreadonly":
        evaluator.process.files.set_attributes(
            path, "R" if to_bool(value) else "", "" if to_bool(value) else "R"
        )
    elif name.lower() == "attributes":
        letters = _attribute_letters(to_text(value))
        evaluator.process.files.set_attributes(
            path, letters, "".join(c for c in "RASH" if c not in letters)
        )
    else:
        return set_time_property(evaluator, target, name, value)
    return True


_PROPERTY_CHANGES = {
    "Clear-ItemProperty": cmdlets_registry.clear_property,
    "Remove-ItemProperty": cmdlets_registry.remove_property,
    "Rename-ItemProperty": cmdlets_registry.rename_property,
}


def _change_item_property(call: CmdletCall) -> None:
    for given in path_arguments(call):
        key = cmdlets_registry.registry_key_path(call, given)
        if key is not None:
            _PROPERTY_CHANGES[call.cmdlet.name](call, key)


CMDLETS = (
    cmdlet_row("Get-ItemProperty", _item_property, "Path Name", "", "LiteralPath"),
    cmdlet_row("Get-ItemPropertyValue", _item_property, "Path Name", "", "LiteralPath"),
    cmdlet_row(
        "Set-ItemProperty",
        _set_item_property,
        "Path Name Value",
        "PassThru Force",
        "LiteralPath Type PropertyType",
    ),
    cmdlet_row(
        "New-ItemProperty",
        _set_item_property,
        "Path Name",
        "Force",
        "LiteralPath PropertyType Type Value",
    ),
    cmdlet_row("Clear-ItemProperty", _change_item_property, "Path Name", "Force", "LiteralPath"),
    cmdlet_row("Remove-ItemProperty", _change_item_property, "Path Name", "Force", "LiteralPath"),
    cmdlet_row(
        "Rename-ItemProperty",
        _change_item_property,
        "Path Name NewName",
        "PassThru Force",
        "LiteralPath",
    ),
)
