"""Cmdlets for the current location and for paths: Set-Location, Join-Path, Split-Path and others."""

from __future__ import annotations

import contextlib
import ntpath

from transom.userland.powershell import cmdlets_registry
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.cmdlets_files import (
    expand_wildcards,
    fail_missing_path,
    path_arguments,
)
from transom.userland.powershell.values import (
    PsObject,
)


def _get_location(call: CmdletCall) -> None:
    here = (
        cmdlets_registry.drive_path(call.evaluator.location)
        if call.evaluator.location
        else call.process.cwd
    )
    call.emit(
        PsObject(
            "System.Management.Automation.PathInfo", {"Path": here, "ProviderPath": here}, here
        )
    )


def _set_location(call: CmdletCall) -> None:
    evaluator = call.evaluator
    path = (
        path_arguments(call)
        or [evaluator.env.get("USERPROFILE", "C:\\") if call.cmdlet.name == "Set-Location" else "."]
    )[0]
    before = (evaluator.location, call.process.cwd)
    key = cmdlets_registry.registry_key_path(call, path)
    if key is not None:
        if not cmdlets_registry.exists(call, key):
            raise cmdlets_registry.missing_path_error(call, key)
        evaluator.location = key
    else:
        drive = path[:2] if path[1:2] == ":" else ""
        if drive and not call.process.files.is_directory(drive + "\\"):
            call.fail(
                f"Cannot find drive. A drive with the name '{drive[0]}' does not exist.",
                f"ObjectNotFound: ({drive[0]}:String) [{call.cmdlet.name}], DriveNotFoundException",
                "DriveNotFound",
            )
            return
        if not call.process.files.is_directory(path):
            fail_missing_path(call, path)
            return
        full = call.process.files.absolute(drive + "\\" if path == drive and drive else path)
        with contextlib.suppress(OSError):
            full = call.process.files.real_path(full)
        call.process.cwd, evaluator.location = full, ""
    if call.cmdlet.name == "Push-Location":
        evaluator.locations.append(before)
    if call.has("PassThru"):
        _get_location(call)


def _pop_location(call: CmdletCall) -> None:
    if call.evaluator.locations:
        call.evaluator.location, call.process.cwd = call.evaluator.locations.pop()
    if call.has("PassThru"):
        _get_location(call)


def _join_path(call: CmdletCall) -> None:
    for path in path_arguments(call):
        call.emit(ntpath.join(path, call.text("ChildPath").lstrip("\\")))


def _split_path(call: CmdletCall) -> None:
    for path in path_arguments(call):
        if call.has("Qualifier"):
            call.emit(path.partition(":")[0] + ":")
        elif call.has("IsAbsolute"):
            call.emit(ntpath.isabs(path) and path[1:2] == ":")
        elif call.has("NoQualifier"):
            call.emit(path.partition(":")[2] if ":" in path else path)
        else:
            bare = path.rstrip("\\/") if len(path) > 3 else path
            call.emit(ntpath.basename(bare) if call.has("Leaf") else ntpath.dirname(bare))


def _resolve_path(call: CmdletCall) -> None:
    for path in [one for given in path_arguments(call) for one in expand_wildcards(call, given)]:
        if not call.process.files.exists(path):
            fail_missing_path(call, path)
            continue
        full = call.process.files.absolute(path)
        call.emit(PsObject("System.Management.Automation.PathInfo", {"Path": full}, full))


CMDLETS = (
    cmdlet_row("Get-Location", _get_location),
    cmdlet_row("Set-Location", _set_location, "Path", "PassThru", "LiteralPath"),
    cmdlet_row("Push-Location", _set_location, "Path", "PassThru", "LiteralPath"),
    cmdlet_row("Pop-Location", _pop_location, "", "PassThru"),
    cmdlet_row("Join-Path", _join_path, "Path ChildPath"),
    cmdlet_row("Split-Path", _split_path, "Path", "Leaf Parent Qualifier NoQualifier IsAbsolute"),
    cmdlet_row("Resolve-Path", _resolve_path, "Path", "", "LiteralPath"),
)
