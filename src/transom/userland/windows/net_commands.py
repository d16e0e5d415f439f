"""The parts of `net` that are about the network and the computer: use, share, config, statistics,
time, helpmsg.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from transom.machines.windows.time_zones import offset_seconds
from transom.userland.api import MappingError, RemoteStorage
from transom.userland.process import Process
from transom.userland.windows import wmi

_DONE: Final = "The command completed successfully.\r\n"
_RULE: Final = "-" * 79
_MESSAGES: Final = {
    2: "The system cannot find the file specified.",
    5: "Access is denied.",
    53: "The network path was not found.",
    67: "The network name cannot be found.",
    86: "The specified network password is not correct.",
    1053: "The service did not respond to the start or control request in a timely fashion.",
    1060: "The specified service does not exist as an installed service.",
    1219: "Multiple connections to a server or shared resource by the same user, using more than "
    "one user name, are not allowed.",
    1326: "The user name or password is incorrect.",
    2182: "The requested service has already been started.",
    2185: "The service name is invalid.",
    2221: "The user name could not be found.",
    2224: "The account already exists.",
    2250: "The network connection could not be found.",
    3521: "The service is not started.",
}


def _storage(process: Process) -> RemoteStorage | None:
    node = process.context.node
    return node.storage if node is not None else None


def _failed(process: Process, code: int, text: str) -> int:
    process.complain(f"System error {code} has occurred.\r\n\r\n{text}\r\n")
    return 2


def _use(process: Process, words: list[str]) -> int:
    storage = _storage(process)
    switches = {word.lower().partition(":")[0]: word for word in words if word.startswith("/")}
    operands = [word for word in words if not word.startswith("/")]
    if not operands:
        process.print_line("New connections will be remembered.\r\n")
        rows = storage.mappings() if storage is not None else {}
        if not rows:
            process.print_line("There are no entries in the list.\r\n")
            return 0
        process.print_line(f"\r\n{'Status':<13}{'Local':<10}{'Remote':<26}Network\r\n\r\n{_RULE}")
        for path in rows:
            process.print_line(f"{'OK':<23}{path:<26}Microsoft Windows Network")
        process.print_line(_DONE)
        return 0
    remote = next((word for word in operands if word.startswith("\\\\")), "")
    if storage is None:
        return _failed(process, 53, _MESSAGES[53])
    if "/delete" in switches or "/d" in switches:
        if not storage.unmap_share(remote or operands[0]):
            process.complain(
                f"{_MESSAGES[2250]}\r\n\r\nMore help is available by typing NET HELPMSG 2250.\r\n"
            )
            return 2
        process.print_line(f"{remote or operands[0]} was deleted successfully.\r\n")
        return 0
    if not remote:
        return _failed(process, 67, _MESSAGES[67])
    after = operands[operands.index(remote) + 1 :]
    user = switches.get("/user", "").partition(":")[2]
    try:
        storage.map_share(remote, user, after[0] if after else "")
    except MappingError as problem:
        return _failed(process, problem.code, str(problem))
    process.print_line(_DONE)
    return 0


def _share(process: Process, words: list[str]) -> int:
    """The administrative shares that every computer has: one for each drive."""
    process.print_line(f"\r\nShare name   Resource                        Remark\r\n\r\n{_RULE}")
    for drive, _, _ in wmi.wmi_drives(process.context):
        process.print_line(f"{drive[0] + '$':<13}{drive + chr(92):<32}Default share")
    process.print_line(f"{'IPC$':<13}{'':<32}Remote IPC")
    process.print_line(f"{'ADMIN$':<13}{'C:' + chr(92) + 'Windows':<32}Remote Admin")
    process.print_line(_DONE)
    return 0


def _config(process: Process, words: list[str]) -> int:
    context = process.context
    _, found = wmi.instances(context, "Win32_OperatingSystem")
    account = context.windows.account
    rows = (
        ("Computer name", "\\\\" + context.windows.system.computer_name),
        ("Full Computer name", context.network.hostname),
        ("User name", account.name),
        ("Software version", str(found[0]["Caption"]).removeprefix("Microsoft ")),
        ("Workstation domain", "WORKGROUP"),
        ("Logon domain", account.domain),
    )
    for name, value in rows:
        process.print_line(f"{name:<37}{value}")
    process.print_line(_DONE)
    return 0


def _local(process: Process, moment: float) -> str:
    offset = offset_seconds(process.context.windows.system.registry, moment)
    return time.strftime("%-m/%-d/%Y %-I:%M:%S %p", time.gmtime(moment + offset))


def _statistics(process: Process, words: list[str]) -> int:
    booted = process.context.windows.resources.boot_time
    name = process.context.windows.system.computer_name
    process.print_line(
        f"Workstation Statistics for \\\\{name}\r\n\r\n\r\nStatistics since "
        f"{_local(process, booted)}\r\n"
    )
    process.print_line(_DONE)
    return 0


def _time(process: Process, words: list[str]) -> int:
    name = process.context.windows.system.computer_name
    now = _local(process, process.context.clock.time())
    process.print_line(f"Current time at \\\\{name} is {now}\r\n\r\n{_DONE}")
    return 0


def _help_message(process: Process, words: list[str]) -> int:
    text = _MESSAGES.get(int(words[0])) if words and words[0].isdigit() else None
    if text is None:
        process.complain(
            f"{words[0] if words else ''} is not a valid Windows network message number.\r\n\r\n"
            "More help is available by typing NET HELPMSG 3871.\r\n"
        )
        return 2
    process.print_line(f"\r\n{text}\r\n")
    return 0


def _none_listed(process: Process, words: list[str]) -> int:
    process.print_line("There are no entries in the list.\r\n")
    return 0


NET: Final[dict[str, Callable[[Process, list[str]], int]]] = {
    "config": _config,
    "file": _none_listed,
    "helpmsg": _help_message,
    "session": _none_listed,
    "share": _share,
    "statistics": _statistics,
    "stats": _statistics,
    "time": _time,
    "use": _use,
}
