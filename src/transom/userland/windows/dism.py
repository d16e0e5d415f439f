"""dism.exe for the running system: its optional features."""

from __future__ import annotations

from typing import Final

from transom.machines.windows.features import (
    FEATURES,
    Feature,
    change_feature,
    feature_state,
    find_feature,
)
from transom.userland.process import Command, Process
from transom.userland.windows.power import request_power

_DONE: Final = "The operation completed successfully."
_LOG: Final = r"The DISM log file can be found at C:\Windows\Logs\DISM\dism.log"
_PROGRESS: Final = "[==========================100.0%==========================] "
_UNKNOWN_FEATURE, _NOT_ELEVATED, _UNKNOWN_OPTION, _RESTART = 0x800F080C, 740, 87, 3010
_HEALTH: Final = {
    "/checkhealth": "No component store corruption detected.",
    "/scanhealth": f"{_PROGRESS}No component store corruption detected.",
    "/restorehealth": f"{_PROGRESS}The restore operation completed successfully.",
    "/startcomponentcleanup": _PROGRESS,
}


def _failed(process: Process, code: int, text: str) -> int:
    shown = f"{code:#x}" if code > 0xFFFF else str(code)
    process.print_line(f"\r\nError: {shown}\r\n\r\n{text}\r\n\r\n{_LOG}")
    return code - (1 << 32) if code > 0x7FFFFFFF else code


def _list(process: Process, table: bool) -> int:
    registry = process.context.windows.system.registry
    rows = [(one.name, feature_state(registry, one)) for one in FEATURES]
    process.print_line(
        "Features listing for package : Microsoft-Windows-ServerCore-Package~31bf3856ad364e35"
        "~amd64~~10.0.17763.1\r\n"
    )
    if table:
        width = max(len(name) for name, _ in rows)
        line = f"{'-' * width} | --------"
        process.print_line(f"\r\n{line}\r\n{'Feature Name':<{width}} | State\r\n{line}")
    for name, state in rows:
        shown = (
            f"{name:<{width}} | {state}"
            if table
            else f"Feature Name : {name}\r\nState : {state}\r\n"
        )
        process.print_line(shown)
    process.print_line(("\r\n" if table else "") + _DONE)
    return 0


def _show(process: Process, feature: Feature) -> int:
    state = feature_state(process.context.windows.system.registry, feature)
    needed = "Possible" if feature.restart else "No"
    process.print_line(
        f"Feature Information:\r\n\r\nFeature Name : {feature.name}\r\n"
        f"Display Name : {feature.display_name}\r\nDescription : {feature.description}\r\n"
        f"Restart Required : {needed}\r\nState : {state}\r\n\r\nCustom Properties:\r\n\r\n"
        f"(No custom properties found)\r\n\r\n{_DONE}"
    )
    return 0


async def _change(process: Process, names: list[str], install: bool, options: set[str]) -> int:
    features = [find_feature(name) for name in names]
    for name, feature in zip(names, features, strict=True):
        if feature is None:
            return _failed(
                process,
                _UNKNOWN_FEATURE,
                f"Feature name {name} is unknown.\r\nA Windows feature name was not recognized."
                "\r\nUse the /Get-Features option to find the name of the feature in the image and "
                "try the command again.",
            )
    process.print_line(f"{'Enabling' if install else 'Disabling'} feature(s)\r\n{_PROGRESS}")
    registry = process.context.windows.system.registry
    found = [feature for feature in features if feature is not None]
    restart = False
    for feature in found:
        restart |= change_feature(registry, feature, install)
    process.print_line(_DONE)
    return await _restart(process, options) if restart else 0


async def _restart(process: Process, options: set[str]) -> int:
    node = process.context.node
    if options & {"/norestart"} or node is None:
        return _RESTART
    if "/quiet" not in options:
        process.print_line(
            "Restart Windows to complete this operation.\r\n"
            "Do you want to restart the computer now? (Y/N) "
        )
        if (await process.read_all()).strip().lower() != b"y":
            return _RESTART
    request_power(process, node.power, "restart", 0)
    return _RESTART


async def dism(process: Process) -> int:
    version = process.context.platform.build
    process.print_line(
        f"\r\nDeployment Image Servicing and Management tool\r\nVersion: {version}\r\n"
    )
    words = process.argv[1:]
    options = {word.partition(":")[0].lower() for word in words}
    values = [(word.partition(":")[0].lower(), word.partition(":")[2]) for word in words]
    if not process.context.windows.account.administrator:
        return _failed(
            process,
            _NOT_ELEVATED,
            "Elevated permissions are required to run DISM.\r\nUse an elevated command prompt to "
            "complete these tasks.",
        )
    if "/online" not in options:
        return _failed(
            process,
            _UNKNOWN_OPTION,
            "An invalid option was used, or no image was specified.\r\n"
            "For more information, refer to the help by running DISM.exe /?.",
        )
    process.print_line(f"Image Version: {version}\r\n")
    names = [value for name, value in values if name == "/featurename"]
    if "/get-features" in options:
        return _list(process, ("/format", "table") in [(n, v.lower()) for n, v in values])
    if "/get-featureinfo" in options and names:
        feature = find_feature(names[0])
        return _show(process, feature) if feature else await _change(process, names, True, options)
    if options & {"/enable-feature", "/disable-feature"} and names:
        return await _change(process, names, "/enable-feature" in options, options)
    health = next((text for option, text in _HEALTH.items() if option in options), None)
    if "/cleanup-image" in options and health is not None:
        process.print_line(f"{health}\r\n{_DONE}")
        return 0
    wrong = next((word for word in words if word.lower() != "/online"), "")
    name = wrong.partition(":")[0].lstrip("/").lower()
    return _failed(process, _UNKNOWN_OPTION, f"The {name} option is unknown." if name else _MISSING)


_MISSING: Final = "No command was specified."
COMMANDS: Final[dict[str, Command]] = {"dism": dism}
