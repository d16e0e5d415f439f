"""Registry drives in PowerShell (`HKLM:`, `HKCU:`, `Registry::`), and Get-PSDrive."""

from __future__ import annotations

import ntpath
from typing import Any, Final

from transom.machines.windows.registry import ExpandString, Qword, RegistryFullError, Value
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.registry_keys import REGISTRY_VALUE_KINDS
from transom.userland.powershell.values import (
    PowerShellError,
    PsObject,
    to_items,
    to_number,
    to_text,
)
from transom.userland.windows.registry import (
    RegError,
    full_key_name,
    may_write,
    registry_key_of,
    value_type_name,
)

_DRIVES: Final = ("hklm:", "hkcu:")
KEY_KIND: Final = "Microsoft.Win32.RegistryKey"
_TYPES: Final = {
    "string": "REG_SZ",
    "expandstring": "REG_EXPAND_SZ",
    "dword": "REG_DWORD",
    "qword": "REG_QWORD",
    "binary": "REG_BINARY",
    "multistring": "REG_MULTI_SZ",
}


def registry_key_path(call: CmdletCall, path: str) -> str | None:
    r"""`HKLM\SOFTWARE` for a path of a key; None for other paths. Relative to the location if that
    is a key.
    """
    lower = path.lower()
    for prefix in ("registry::", "microsoft.powershell.core\\registry::"):
        if lower.startswith(prefix):
            return path[len(prefix) :].strip("\\")
    for drive in _DRIVES:
        if lower.startswith(drive):
            return ntpath.normpath(
                drive[:-1].upper() + "\\" + path[len(drive) :].strip("\\/").replace("/", "\\")
            ).rstrip("\\.")
    here: str = call.evaluator.location
    if here and path[1:2] != ":" and not path.startswith("\\\\") and not lower.startswith("env:"):
        return ntpath.normpath(ntpath.join(here, path.replace("/", "\\"))).rstrip("\\.")
    return None


def drive_path(written: str) -> str:
    r"""`HKLM:\SOFTWARE`."""
    root, _, rest = written.partition("\\")
    return f"{root}:\\{rest}"


def _key(call: CmdletCall, written: str) -> str:
    try:
        return registry_key_of(call.process.context, written)
    except RegError:
        raise missing_path_error(call, written) from None


def missing_path_error(call: CmdletCall, written: str) -> PowerShellError:
    shown = drive_path(written)
    return PowerShellError(
        f"Cannot find path '{shown}' because it does not exist.",
        f"ObjectNotFound: ({shown}:String) [{call.cmdlet.name}], ItemNotFoundException",
        f"PathNotFound,Microsoft.PowerShell.Commands.{call.cmdlet.name.replace('-', '')}Command",
        where=call.cmdlet.name,
    )


def _writable(call: CmdletCall, written: str) -> str:
    key = _key(call, written)
    if not may_write(call.process.context, key):
        raise PowerShellError(
            "Requested registry access is not allowed.",
            (
                f"PermissionDenied: ({full_key_name(written)}:String) [{call.cmdlet.name}], "
                "SecurityException"
            ),
            f"System.Security.SecurityException,Microsoft.PowerShell.Commands.{call.cmdlet.name.replace('-', '')}Command",
            where=call.cmdlet.name,
        )
    return key


def plain_value(value: Value) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, bytes):
        return list(value)
    return int(value) if isinstance(value, int) else str(value)


def key_object(call: CmdletCall, written: str) -> PsObject:
    registry, key = call.process.context.windows.system.registry, _key(call, written)
    values = registry.values(key) or {}
    name = full_key_name(written)
    return PsObject(
        KEY_KIND,
        {
            "Name": name,
            "Property": list(values),
            "PSChildName": name.rpartition("\\")[2],
            "PSPath": f"Microsoft.PowerShell.Core\\Registry::{name}",
            "PSParentPath": f"Microsoft.PowerShell.Core\\Registry::{ntpath.dirname(name)}",
            "SubKeyCount": len(registry.keys(key)),
            "ValueCount": len(values),
            "FullName": drive_path(written),
            "Values": {known: plain_value(value) for known, value in values.items()},
        },
        name,
    )


def exists(call: CmdletCall, written: str) -> bool:
    try:
        return call.process.context.windows.system.registry.exists(
            registry_key_of(call.process.context, written)
        )
    except RegError:
        return False


def expand_key(call: CmdletCall, written: str) -> list[str]:
    """The keys that a path with wildcards names; the path itself without any."""
    if not set("*?") & set(written):
        return [written]
    root, *names = written.split("\\")
    found = [root]
    for name in names:
        if not set("*?") & set(name):
            found = [rf"{above}\{name}" for above in found]
            continue
        found = [
            rf"{above}\{one}"
            for above in found
            for one in call.process.context.windows.system.registry.keys(_key(call, above))
            if matches_wildcard(one, name)
        ]
    return [key for key in found if exists(call, key)]


def copy_key(call: CmdletCall, written: str, target: str) -> None:
    """With -Recurse also the keys below. An existing target gets the copy as a key of its own."""
    registry, source = call.process.context.windows.system.registry, _key(call, written)
    if not exists(call, written):
        raise missing_path_error(call, written)
    if exists(call, target):
        target = rf"{target}\{ntpath.basename(written)}"
    place = _writable(call, target)
    todo = [(source, place)]
    while todo:
        old, new = todo.pop()
        registry.create(new)
        for name, value in (registry.values(old) or {}).items():
            registry.set(new, name, value)
        if call.has("Recurse"):
            todo += [(rf"{old}\{name}", rf"{new}\{name}") for name in registry.keys(old)]


def registry_children(call: CmdletCall, written: str) -> None:
    if set("*?") & set(written):
        for key in expand_key(call, written):
            call.emit(key_object(call, key))
        return
    if not exists(call, written):
        raise missing_path_error(call, written)
    for name in call.process.context.windows.system.registry.keys(_key(call, written)):
        below = rf"{written}\{name}"
        if matches_wildcard(name, call.text("Filter", "*")):
            call.emit(name if call.has("Name") else key_object(call, below))
        if call.has("Recurse"):
            registry_children(call, below)


def get_key(call: CmdletCall, written: str) -> None:
    for key in expand_key(call, written):
        if not exists(call, key):
            raise missing_path_error(call, key)
        call.emit(key_object(call, key))


def new_key(call: CmdletCall, written: str) -> None:
    key = _writable(call, written)
    registry = call.process.context.windows.system.registry
    if registry.exists(key) and not call.has("Force"):
        raise PowerShellError(
            "A key in this path already exists.",
            (
                "ResourceExists: (Microsoft.PowerShell...RegistryWrapper:RegistryWrapper) "
                f"[{call.cmdlet.name}], IOException"
            ),
            "System.IO.IOException,Microsoft.PowerShell.Commands.NewItemCommand",
            where=call.cmdlet.name,
        )
    above = ntpath.dirname(written)
    if "\\" in above and not exists(call, above) and not call.has("Force"):
        raise PowerShellError(
            "The registry key at the specified path does not exist.",
            f"InvalidArgument: ({full_key_name(written)}:String) [New-Item], ArgumentException",
            "System.ArgumentException,Microsoft.PowerShell.Commands.NewItemCommand",
        )
    if registry.exists(key):
        registry.delete(key)
    _set(call, key, "", call.get("Value")) if call.has("Value") else _create(call, key)
    call.emit(key_object(call, written))


def _create(call: CmdletCall, key: str) -> None:
    try:
        call.process.context.windows.system.registry.create(key)
    except RegistryFullError:
        raise _full() from None


def _full() -> PowerShellError:
    return PowerShellError("Insufficient system resources exist to complete the requested service.")


def _set(call: CmdletCall, key: str, name: str, value: Any, kind: str = "") -> None:
    try:
        call.process.context.windows.system.registry.set(key, name, typed(value, kind))
    except RegistryFullError:
        raise _full() from None


def typed(value: Any, kind: str) -> Value:
    """A value of a registry type; without a type, the value's own type decides."""
    shape = _TYPES.get(kind.lower(), "")
    if kind and not shape:
        raise PowerShellError(
            f"Cannot bind parameter 'PropertyType'. Cannot convert value \"{kind}\" to type "
            '"Microsoft.Win32.RegistryValueKind".'
        )
    if not shape:
        shape = (
            "REG_DWORD"
            if isinstance(value, int) and not isinstance(value, bool)
            else "REG_BINARY"
            if isinstance(value, bytes)
            else "REG_MULTI_SZ"
            if isinstance(value, list)
            else "REG_SZ"
        )
    match shape:
        case "REG_DWORD":
            return int(to_number(value)) & 0xFFFFFFFF
        case "REG_QWORD":
            return Qword(int(to_number(value)))
        case "REG_BINARY":
            return (
                bytes(int(to_number(one)) & 0xFF for one in to_items(value))
                if not isinstance(value, bytes)
                else value
            )
        case "REG_MULTI_SZ":
            return tuple(to_text(one) for one in to_items(value))
        case "REG_EXPAND_SZ":
            return ExpandString(to_text(value))
    return to_text(value)


def remove_key(call: CmdletCall, written: str) -> None:
    key = _writable(call, written)
    registry = call.process.context.windows.system.registry
    if not registry.exists(key):
        raise missing_path_error(call, written)
    registry.delete(key)


def properties(call: CmdletCall, written: str) -> dict[str, Any]:
    """The requested values of a key."""
    registry = call.process.context.windows.system.registry
    key = _key(call, written)
    if not registry.exists(key):
        raise missing_path_error(call, written)
    values = registry.values(key) or {}
    names = [to_text(name) for name in to_items(call.get("Name"))]
    picked = {
        known or "(default)": plain_value(value)
        for known, value in values.items()
        if not names or any(matches_wildcard(known or "(default)", name) for name in names)
    }
    for name in names:
        if "*" not in name and name.lower() not in (known.lower() for known in picked):
            raise PowerShellError(
                f"Property {name} does not exist at path {full_key_name(written)}.",
                f"InvalidArgument: ({name}:String) [{call.cmdlet.name}], PSArgumentException",
                f"System.Management.Automation.PSArgumentException,Microsoft.PowerShell.Commands."
                f"{call.cmdlet.name.replace('-', '')}Command",
                where=call.cmdlet.name,
            )
    return picked


def with_place(written: str, picked: dict[str, Any]) -> PsObject:
    name = full_key_name(written)
    place = {
        "PSPath": f"Microsoft.PowerShell.Core\\Registry::{name}",
        "PSParentPath": f"Microsoft.PowerShell.Core\\Registry::{ntpath.dirname(name)}",
        "PSChildName": ntpath.basename(name),
        "PSDrive": name[5:6] and written.partition("\\")[0],
        "PSProvider": "Microsoft.PowerShell.Core\\Registry",
    }
    return PsObject("System.Management.Automation.PSCustomObject", {**picked, **place})


def set_property(call: CmdletCall, written: str) -> None:
    key, registry = _writable(call, written), call.process.context.windows.system.registry
    new = call.cmdlet.name == "New-ItemProperty"
    if not registry.exists(key):
        raise missing_path_error(call, written)
    name = to_text(call.get("Name"))
    name = "" if name.lower() == "(default)" else name
    old = registry.get(key, name)
    if new and old is not None and not call.has("Force"):
        raise PowerShellError(
            "The property already exists.",
            f"ResourceExists: ({full_key_name(written)}:String) [New-ItemProperty], IOException",
            "System.IO.IOException,Microsoft.PowerShell.Commands.NewItemPropertyCommand",
            where="New-ItemProperty",
        )
    kind = call.text("PropertyType", call.text("Type"))
    if not kind and old is not None:  # a value keeps its type
        kind = REGISTRY_VALUE_KINDS[value_type_name(old)]
    _set(call, key, name, call.get("Value"), kind)
    if new or call.has("PassThru"):
        call.emit(with_place(written, {name: plain_value(registry.get(key, name) or "")}))


def remove_property(call: CmdletCall, written: str) -> None:
    key = _writable(call, written)
    for name in to_items(call.get("Name")):
        if not call.process.context.windows.system.registry.delete(key, to_text(name)):
            raise PowerShellError(
                f"Property {to_text(name)} does not exist at path {full_key_name(written)}.",
                f"InvalidArgument: ({to_text(name)}:String) [{call.cmdlet.name}], PSArgumentException",
                "System.Management.Automation.PSArgumentException,Microsoft.PowerShell.Commands.RemoveItemPropertyCommand",
                where=call.cmdlet.name,
            )


def clear_property(call: CmdletCall, written: str) -> None:
    """The value stays, with no content."""
    key, registry = _writable(call, written), call.process.context.windows.system.registry
    old = registry.get(key, call.text("Name"))
    if old is not None:
        empty: Value = "" if isinstance(old, str) else 0
        if isinstance(old, bytes | tuple):
            empty = old[:0]
        registry.set(key, call.text("Name"), empty)


def rename_property(call: CmdletCall, written: str) -> None:
    key, registry = _writable(call, written), call.process.context.windows.system.registry
    value = registry.get(key, call.text("Name"))
    if value is not None:
        registry.set(key, call.text("NewName"), value)
        registry.delete(key, call.text("Name"))


# ---- drives ----


def _drives(call: CmdletCall) -> None:
    process = call.process
    rows: list[tuple[str, str, str, int | None, int | None]] = [
        ("Alias", "Alias", "", None, None),
        ("Cert", "Certificate", "\\", None, None),
        ("Env", "Environment", "", None, None),
        ("Function", "Function", "", None, None),
        ("HKCU", "Registry", "HKEY_CURRENT_USER", None, None),
        ("HKLM", "Registry", "HKEY_LOCAL_MACHINE", None, None),
        ("Variable", "Variable", "", None, None),
        ("WSMan", "WSMan", "", None, None),
    ]
    for drive in process.files.drives():
        size, free = process.files.space(drive + "\\")
        rows.append((drive[0], "FileSystem", drive + "\\", size - free, free))
    for name, (provider, root) in call.evaluator.drives.items():
        shown = name.upper() if len(name) == 1 or provider == "Registry" else name
        rows.append((shown, provider, root, None, None))
    names = [to_text(name) for name in to_items(call.get("Name"))]
    wanted = call.text("PSProvider").lower()
    found = False
    for name, provider, root, used, free_ in sorted(rows, key=lambda one: one[0].lower()):
        if (names and not any(matches_wildcard(name, one) for one in names)) or (
            wanted and provider.lower() != wanted
        ):
            continue
        found = True
        at = (
            process.cwd[3:]
            if root and process.cwd.upper().startswith(root.upper()) and provider == "FileSystem"
            else ""
        )
        call.emit(
            PsObject(
                "System.Management.Automation.PSDriveInfo",
                {
                    "Name": name,
                    "Provider": provider,
                    "Root": root,
                    "CurrentLocation": at,
                    "Used": used,
                    "Free": free_,
                },
                name,
            )
        )
    if names and not found:
        call.fail(
            f"Cannot find drive. A drive with the name '{names[0]}' does not exist.",
            f"ObjectNotFound: ({names[0]}:String) [Get-PSDrive], DriveNotFoundException",
            "GetLocationNoMatchingDrive",
        )


_PROVIDERS = {"filesystem": "FileSystem", "registry": "Registry"}


def _new_drive(call: CmdletCall) -> None:
    """A drive of this session; with -Persist, a network drive of the machine."""
    name, root = call.text("Name").rstrip(":"), call.text("Root")
    provider = _PROVIDERS.get(call.text("PSProvider").lower())
    taken = [drive[0].lower() for drive in call.process.files.drives()]
    if provider is None:
        call.fail(
            f"Cannot find a provider with the name '{call.text('PSProvider')}'.",
            f"ObjectNotFound: ({call.text('PSProvider')}:String) [New-PSDrive], "
            "ProviderNotFoundException",
            "ProviderNotFound",
        )
    elif name.lower() in (*taken, *call.evaluator.drives, "hklm", "hkcu", "env", "cert"):
        call.fail(
            f"A drive with the name '{name}' already exists.",
            f"ResourceExists: ({name}:String) [New-PSDrive], SessionStateException",
            "DriveAlreadyExists",
        )
    elif provider == "FileSystem" and not call.process.files.is_directory(root):
        call.fail(
            f'The specified drive root "{root}" either does not exist, or it is not a folder.',
            f"ReadError: ({name}:PSDriveInfo) [New-PSDrive], IOException",
            "DriveRootError",
        )
    else:
        call.evaluator.drives[name.lower()] = (provider, root)
        call.values = {"Name": name}
        _drives(call)


def _remove_drive(call: CmdletCall) -> None:
    for given in to_items(call.get("Name")):
        name = to_text(given).rstrip(":")
        if call.evaluator.drives.pop(name.lower(), None) is None:
            call.fail(
                f"Cannot find drive. A drive with the name '{name}' does not exist.",
                f"ObjectNotFound: ({name}:String) [Remove-PSDrive], DriveNotFoundException",
                "DriveNotFound",
            )


CMDLETS = (
    cmdlet_row("Get-PSDrive", _drives, "Name", "", "PSProvider Scope"),
    cmdlet_row(
        "New-PSDrive", _new_drive, "Name PSProvider Root", "Persist", "Scope Credential Description"
    ),
    cmdlet_row("Remove-PSDrive", _remove_drive, "Name*", "Force", "PSProvider Scope"),
)
