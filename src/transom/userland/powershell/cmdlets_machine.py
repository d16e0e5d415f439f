"""Cmdlets for the features of a Windows system and the power of its machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from transom.machines.power import PowerAction
from transom.machines.windows.features import (
    FEATURES,
    Feature,
    change_feature,
    feature_state,
    find_feature,
)
from transom.machines.windows.registry import WindowsRegistry
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import PsObject, to_items, to_text
from transom.userland.windows.power import request_power

_DISM: Final = "Microsoft.Dism.Commands"
_INSTALL_STATES: Final = {
    "Enabled": "Installed",
    "Disabled": "Available",
    "Enable Pending": "InstallPending",
    "Disable Pending": "UninstallPending",
}


def _registry(call: CmdletCall) -> WindowsRegistry:
    return call.process.context.windows.system.registry


def _names(call: CmdletCall, parameter: str) -> list[str]:
    given = [one.get("Name") if isinstance(one, PsObject) else one for one in call.input or ()]
    return [to_text(name) for name in (*to_items(call.get(parameter)), *given)]


def _needs_administrator(call: CmdletCall) -> bool:
    if call.process.context.windows.account.administrator:
        return False
    call.fail(
        "The requested operation requires elevation.",
        f"NotSpecified: (:) [{call.cmdlet.name}], COMException",
        f"{_DISM}.{call.cmdlet.name.replace('-', '')}Command,{call.cmdlet.name}",
    )
    return True


# ---- DISM ----


def _optional_feature(call: CmdletCall) -> None:
    if _needs_administrator(call):
        return
    wanted = _names(call, "FeatureName")
    for one in FEATURES:
        state = feature_state(_registry(call), one).replace(" ", "")
        if wanted and not any(matches_wildcard(one.name, name) for name in wanted):
            continue
        values: dict[str, object] = {"FeatureName": one.name}
        if wanted:
            values |= {
                "DisplayName": one.display_name,
                "Description": one.description,
                "RestartRequired": "Possible" if one.restart else "No",
            }
        values["State"] = state
        call.emit(PsObject(f"{_DISM}.AdvancedFeatureObject", values, one.name))


def _change_optional(install: bool) -> Callable[[CmdletCall], None]:
    def change(call: CmdletCall) -> None:
        if _needs_administrator(call):
            return
        restart = False
        for name in _names(call, "FeatureName"):
            feature = find_feature(name)
            if feature is None:
                call.fail(
                    f"Feature name {name} is unknown.",
                    f"NotSpecified: (:) [{call.cmdlet.name}], COMException",
                    f"{_DISM}.{call.cmdlet.name.replace('-', '')}Command,{call.cmdlet.name}",
                )
                return
            restart |= change_feature(_registry(call), feature, install)
        values = {"Path": "", "Online": True, "RestartNeeded": restart}
        call.emit(PsObject(f"{_DISM}.ImageObject", values))

    return change


# ---- Server Manager ----


def _feature_row(registry: WindowsRegistry, feature: Feature) -> PsObject:
    state = _INSTALL_STATES[feature_state(registry, feature)]
    return PsObject(
        "Microsoft.Windows.ServerManager.Commands.Feature",
        {
            "Name": feature.role,
            "DisplayName": feature.display_name,
            "InstallState": state,
            "Installed": state == "Installed",
            "Description": feature.description,
        },
        feature.role,
    )


def _get_features(call: CmdletCall) -> None:
    wanted = _names(call, "Name")
    for one in FEATURES:
        if not wanted or any(matches_wildcard(one.role, name) for name in wanted):
            call.emit(_feature_row(_registry(call), one))


def _change_role(install: bool) -> Callable[[CmdletCall], None]:
    def change(call: CmdletCall) -> None:
        if _needs_administrator(call):
            return
        changed: list[str] = []
        restart = False
        for name in _names(call, "Name"):
            feature = find_feature(name)
            if feature is None:
                call.fail(
                    "ArgumentNotValid: The role, role service, or feature name is not valid: "
                    f"'{name}'. The name was not found.",
                    f"InvalidArgument: ({name}:String) [{call.cmdlet.name}], Exception",
                    "NameDoesNotExist,Microsoft.Windows.ServerManager.Commands."
                    f"{'Add' if install else 'Remove'}WindowsFeatureCommand",
                )
                return
            before = feature_state(_registry(call), feature)
            restart |= change_feature(_registry(call), feature, install)
            if feature_state(_registry(call), feature) != before:
                changed.append(feature.display_name)
        _report_change(call, changed, restart)

    return change


def _report_change(call: CmdletCall, changed: list[str], restart: bool) -> None:
    code = "SuccessRestartRequired" if restart else "Success" if changed else "NoChangeNeeded"
    values = {
        "Success": True,
        "RestartNeeded": "Yes" if restart else "No",
        "ExitCode": code,
        "FeatureResult": changed,
    }
    call.emit(PsObject("Microsoft.Windows.ServerManager.Commands.FeatureOperationResult", values))
    node = call.process.context.node
    if restart and call.has("Restart") and node is not None:
        request_power(call.process, node.power, "restart", 0)
    elif restart:
        call.warn("You must restart this server to finish the installation process.")


# ---- power ----


def _power(action: PowerAction) -> Callable[[CmdletCall], None]:
    def run(call: CmdletCall) -> None:
        windows = call.process.context.windows
        power, account = windows.power, windows.account
        computer = call.process.context.windows.system.computer_name
        problem = "" if account.administrator else "Access is denied."
        if power is None:
            problem = "The request is not supported."
        elif not problem and not power.request(action, 0):
            problem = "A system shutdown is in progress."
        if problem:
            verb = "restart" if action == "restart" else "stop"
            call.fail(
                f"Failed to {verb} the computer {computer} with the following error message: "
                f"{problem}.",
                f"OperationStopped: ({computer}:String) [{call.cmdlet.name}], "
                "InvalidOperationException",
                "InvalidOperationException",
            )

    return run


_FEATURE_OPTIONS: Final = "Online All NoRestart"
_ROLE_OPTIONS: Final = "IncludeAllSubFeature IncludeManagementTools Restart"

CMDLETS = (
    cmdlet_row("Get-WindowsOptionalFeature", _optional_feature, "FeatureName", "Online"),
    cmdlet_row(
        "Enable-WindowsOptionalFeature", _change_optional(True), "FeatureName*", _FEATURE_OPTIONS
    ),
    cmdlet_row(
        "Disable-WindowsOptionalFeature", _change_optional(False), "FeatureName*", _FEATURE_OPTIONS
    ),
    cmdlet_row("Get-WindowsFeature", _get_features, "Name*"),
    cmdlet_row("Install-WindowsFeature", _change_role(True), "Name*", _ROLE_OPTIONS, "Source"),
    cmdlet_row("Add-WindowsFeature", _change_role(True), "Name*", _ROLE_OPTIONS, "Source"),
    cmdlet_row("Uninstall-WindowsFeature", _change_role(False), "Name*", "Remove Restart"),
    cmdlet_row("Remove-WindowsFeature", _change_role(False), "Name*", "Remove Restart"),
    cmdlet_row("Restart-Computer", _power("restart"), "ComputerName", "Force Wait"),
    cmdlet_row("Stop-Computer", _power("off"), "ComputerName", "Force"),
)
