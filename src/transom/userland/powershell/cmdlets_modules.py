"""Cmdlets for what a session consists of: modules, types, providers and its strict mode."""

from __future__ import annotations

from typing import Final

from transom.kit.uuids import random_uuid
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.parser import parse_powershell
from transom.userland.powershell.values import PowerShellError, PsObject, to_items, to_text

# The modules of Windows PowerShell whose cmdlets exist here, with their version.
_MODULES: Final = {
    "CimCmdlets": "1.0.0.0",
    "Dism": "3.0",
    "DnsClient": "1.0.0.0",
    "HostNetworkingService": "1.0.0.0",
    "Hyper-V": "2.0.0.0",
    "Microsoft.PowerShell.Archive": "1.0.1.0",
    "Microsoft.PowerShell.Diagnostics": "3.0.0.0",
    "Microsoft.PowerShell.LocalAccounts": "1.0.0.0",
    "Microsoft.PowerShell.Management": "3.1.0.0",
    "Microsoft.PowerShell.Security": "3.0.0.0",
    "Microsoft.PowerShell.Utility": "3.1.0.0",
    "NetAdapter": "2.0.0.0",
    "NetConnection": "1.0.0.0",
    "NetSecurity": "2.0.0.0",
    "NetTCPIP": "1.0.0.0",
    "PKI": "1.0.0.0",
    "ScheduledTasks": "1.0.0.0",
    "ServerManager": "2.0.0.0",
    "SmbShare": "2.0.0.0",
    "Storage": "2.0.0.0",
}
_LOADED: Final = ("Microsoft.PowerShell.Management", "Microsoft.PowerShell.Utility")
_ASSEMBLIES: Final = ("system", "microsoft", "presentation", "windowsbase", "mscorlib")
_PROVIDERS: Final = (
    ("Registry", "ShouldProcess, Transactions", ("HKLM", "HKCU")),
    ("Alias", "ShouldProcess", ("Alias",)),
    ("Environment", "ShouldProcess", ("Env",)),
    ("FileSystem", "Filter, ShouldProcess, Credentials", ("C",)),
    ("Function", "ShouldProcess", ("Function",)),
    ("Variable", "ShouldProcess", ("Variable",)),
    ("Certificate", "ShouldProcess", ("Cert",)),
)


def _module_object(name: str) -> PsObject:
    return PsObject(
        "System.Management.Automation.PSModuleInfo",
        {"ModuleType": "Manifest", "Version": _MODULES[name], "Name": name},
        name,
    )


def _get_module(call: CmdletCall) -> None:
    wanted = [to_text(one) for one in to_items(call.get("Name"))] or ["*"]
    known = _MODULES if call.has("ListAvailable") else call.evaluator.modules or _LOADED
    for name in sorted({*known, *(() if call.has("ListAvailable") else _LOADED)}):
        if any(matches_wildcard(name, one) for one in wanted):
            call.emit(_module_object(name))


async def _import_module(call: CmdletCall) -> None:
    """A module of Windows, or a script module: its functions are then known."""
    for given in to_items(call.get("Name")):
        name = to_text(given)
        if name.lower().endswith((".psm1", ".ps1", ".dll", ".psd1")) or "\\" in name:
            await _import_file(call, name)
            continue
        known = next((one for one in _MODULES if one.lower() == name.lower()), None)
        if known is None:
            _not_found(call, name)
        else:
            call.evaluator.modules.add(known)


async def _import_file(call: CmdletCall, path: str) -> None:
    files = call.process.files
    if not files.exists(path) or files.is_directory(path):
        _not_found(call, path)
    elif not path.lower().endswith((".psm1", ".ps1")):
        raise PowerShellError(
            f"The module '{path}' cannot be imported: only script modules (.psm1, .ps1) can be "
            "loaded here.",
            f"InvalidOperation: ({path}:String) [Import-Module], InvalidOperationException",
            "Modules_InvalidModule,Microsoft.PowerShell.Commands.ImportModuleCommand",
        )
    else:
        module = parse_powershell(files.text(path), call.evaluator.core)
        await call.evaluator.block(module)


def _not_found(call: CmdletCall, name: str) -> None:
    call.fail(
        f"The specified module '{name}' was not loaded because no valid module file was found in "
        "any module directory.",
        f"ResourceUnavailable: ({name}:String) [Import-Module], FileNotFoundException",
        "Modules_ModuleNotFound",
    )


def _remove_module(call: CmdletCall) -> None:
    for given in to_items(call.get("Name")) or call.input or []:
        name = to_text(given).lower()
        call.evaluator.modules -= {one for one in call.evaluator.modules if one.lower() == name}


def _add_type(call: CmdletCall) -> None:
    """Assemblies of .NET are there; there is no compiler for new types."""
    for given in to_items(call.get("AssemblyName")):
        name = to_text(given)
        if not name.lower().startswith(_ASSEMBLIES):
            raise PowerShellError(
                "Cannot add type. One or more required assemblies are missing.",
                f"ObjectNotFound: ({name}:String) [Add-Type], Exception",
                "ASSEMBLY_NOT_FOUND,Microsoft.PowerShell.Commands.AddTypeCommand",
            )
    for parameter in ("TypeDefinition", "MemberDefinition", "Path", "LiteralPath"):
        if call.has(parameter):
            raise PowerShellError(
                "Cannot add type. Compilation errors occurred: simulated machines and containers "
                "have no C# compiler.",
                "InvalidData: (:) [Add-Type], InvalidOperationException",
                "COMPILER_ERRORS,Microsoft.PowerShell.Commands.AddTypeCommand",
            )


def _set_strict_mode(call: CmdletCall) -> None:
    version = call.text("Version").lower()
    call.evaluator.strict = 0 if call.has("Off") else 1 if version.startswith("1") else 3


def _get_provider(call: CmdletCall) -> None:
    for name, capabilities, drives in _PROVIDERS:
        if not call.has("PSProvider") or matches_wildcard(name, call.text("PSProvider")):
            call.emit(
                PsObject(
                    "System.Management.Automation.ProviderInfo",
                    {"Name": name, "Capabilities": capabilities, "Drives": list(drives)},
                    name,
                )
            )


def _new_guid(call: CmdletCall) -> None:
    made = random_uuid(call.process.context.rng)
    call.emit(PsObject("System.Guid", {"Guid": made}, made))


CMDLETS = (
    cmdlet_row("Get-Module", _get_module, "Name", "ListAvailable All"),
    cmdlet_row("Import-Module", _import_module, "Name*", "Force DisableNameChecking Global"),
    cmdlet_row("Remove-Module", _remove_module, "Name*", "Force"),
    cmdlet_row(
        "Add-Type",
        _add_type,
        "TypeDefinition",
        "PassThru",
        "AssemblyName Path LiteralPath MemberDefinition Name Namespace Language UsingNamespace "
        "ReferencedAssemblies",
    ),
    cmdlet_row("Set-StrictMode", _set_strict_mode, "", "Off", "Version"),
    cmdlet_row("Get-PSProvider", _get_provider, "PSProvider"),
    cmdlet_row("New-Guid", _new_guid),
)
