"""The parts of `net` that are about the network and the computer: use, share, config, statistics,
time, helpmsg.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

from transom.machines.windows.time_zones import offset_seconds
from transom.userland.api import MappingError, RemoteStorage
from transom.userland.process import Process
from transom.userland.windows import wmi, wmi_query
from transom.userland.windows.wmi_devices import (
    add_share,
    remove_share,
    set_share_access,
    share_access,
    share_remark,
    shared_directories,
)

_DONE: Final = "The command completed successfully.\r\n"
_RULE: Final = "-" * 79
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_LETTERS: Final = "ZYXWVUTSRQPONMLKJIHGFED"
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
    1332: "No mapping between account names and security IDs was done.",
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
            drive = storage.drive_of(path) if storage is not None else ""
            process.print_line(f"{'OK':<13}{drive:<10}{path:<26}Microsoft Windows Network")
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
        drive = _wanted_drive(process, operands)
        storage.map_share(remote, user, after[0] if after else "", drive)
    except MappingError as problem:
        return _failed(process, problem.code, str(problem))
    if operands[0] == "*":
        process.print_line(f"Drive {drive} is now connected to {remote}.\r\n")
    process.print_line(_DONE)
    return 0


def _wanted_drive(process: Process, operands: list[str]) -> str:
    """The drive letter of `net use X: ...`; `*` is the last free one."""
    if operands[0] == "*":
        taken = process.files.drives()
        return next(drive for letter in _LETTERS if (drive := f"{letter}:") not in taken)
    return operands[0].upper() if _DRIVE.fullmatch(operands[0]) else ""


def _share(process: Process, words: list[str]) -> int:
    """Without arguments, all shares: those of an administrator, and one for each drive."""
    if not _running(process, "LanmanServer", "Server"):
        return 2
    if words:
        return _change_share(process, words)
    process.print_line(f"\r\nShare name   Resource                        Remark\r\n\r\n{_RULE}")
    for drive, _, _ in wmi.local_drives(process.context):
        process.print_line(f"{drive[0] + '$':<13}{drive + chr(92):<32}Default share")
    for name, path in shared_directories(process.context).items():
        remark = share_remark(process.context, name)
        process.print_line(f"{name:<13}{path:<32}{remark}".rstrip())
    process.print_line(f"{'IPC$':<13}{'':<32}Remote IPC")
    process.print_line(f"{'ADMIN$':<13}{'C:' + chr(92) + 'Windows':<32}Remote Admin")
    process.print_line(_DONE)
    return 0


def _change_share(process: Process, words: list[str]) -> int:
    """`net share NAME=PATH`, `net share NAME /delete`, `net share NAME`"""
    name, equals, path = words[0].partition("=")
    known = {one.lower(): one for one in shared_directories(process.context)}
    if not process.context.windows.account.administrator:
        return _failed(process, 5, _MESSAGES[5])
    if not equals and name.lower() not in known:
        process.complain(
            "This shared resource does not exist.\r\n\r\nMore help is available by typing NET "
            "HELPMSG 2310.\r\n"
        )
        return 2
    if equals and name.lower() in known:
        process.complain(
            "The name has already been shared.\r\n\r\nMore help is available by typing NET HELPMSG "
            "2118.\r\n"
        )
        return 2
    if equals and not process.files.is_directory(path):
        process.complain(
            "The device or directory does not exist.\r\n\r\nMore help is available by typing NET "
            "HELPMSG 2116.\r\n"
        )
        return 2
    if equals:
        remark = next((w[8:] for w in words if w.lower().startswith("/remark:")), "")
        try:
            access = _granted(words)
            if access:
                set_share_access(process.context, name, access)
        except ValueError:
            process.complain(_SHARE_SYNTAX)
            return 1
        except LookupError:
            return _failed(process, 1332, _MESSAGES[1332])
        add_share(process.context, name, process.files.real_path(path), remark)
        process.print_line(f"{name} was shared successfully.\r\n")
    elif any(word.lower() in ("/delete", "/d") for word in words):
        remove_share(process.context, known[name.lower()])
        process.print_line(f"{known[name.lower()]} was deleted successfully.\r\n")
    else:
        target = shared_directories(process.context)[known[name.lower()]]
        process.print_line(f"Share name        {known[name.lower()]}\r\nPath              {target}")
        for number, (account, right) in enumerate(share_access(process.context, name)):
            heading = "" if number else "Permission"
            process.print_line(f"{heading:<18}{account}, {right.upper()}")
        process.print_line(_DONE)
    return 0


_SHARE_SYNTAX: Final = (
    "The option /GRANT is unknown.\r\n\r\nThe syntax of this command is:\r\n\r\nNET SHARE\r\n"
    "sharename=drive:path [/GRANT:user,[READ | CHANGE | FULL]]\r\n"
    '                     [/REMARK:"text"]\r\nsharename /DELETE\r\n'
)


def _granted(words: list[str]) -> list[tuple[str, str]]:
    """The accounts of `/grant:USER,RIGHT` with their rights. Raises ValueError."""
    out = []
    for word in words:
        if word.lower().startswith("/grant:"):
            account, _, right = word[7:].rpartition(",")
            if not account or right.lower() not in ("read", "change", "full"):
                raise ValueError(word)
            out.append((account, right.capitalize()))
    return out


def _running(process: Process, name: str, shown: str) -> bool:
    """Whether a service that these commands need runs."""
    service = process.context.windows.system.services.find(name)
    if service is None or service.state == "RUNNING":
        return True
    process.complain(
        f"The {shown} service is not started.\r\n\r\nMore help is available by typing NET "
        "HELPMSG 2114.\r\n"
    )
    return False


def _config(process: Process, words: list[str]) -> int:
    context = process.context
    if words and words[0].lower().startswith("serv"):
        return _config_server(process)
    _, found = wmi_query.instances(context, "Win32_OperatingSystem")
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


def _config_server(process: Process) -> int:
    context = process.context
    if not _running(process, "LanmanServer", "Server"):
        return 2
    (found,) = wmi_query.instances(context, "Win32_OperatingSystem")[1]
    rows = (
        ("Server Name", "\\\\" + context.windows.system.computer_name),
        ("Server Comment", ""),
        ("Software version", str(found["Caption"]).removeprefix("Microsoft ")),
        ("Server hidden", "No"),
        ("Maximum Logged On Users", "16777216"),
        ("Maximum open files per session", "16384"),
        ("Idle session time (min)", "15"),
    )
    for name, value in rows:
        process.print_line(f"{name:<37} {value}".rstrip())
    process.print_line(_DONE)
    return 0


def _local(process: Process, moment: float) -> str:
    offset = offset_seconds(process.context.windows.system.registry, moment)
    return time.strftime("%-m/%-d/%Y %-I:%M:%S %p", time.gmtime(moment + offset))


def _statistics(process: Process, words: list[str]) -> int:
    booted = process.context.windows.resources.boot_time
    name = process.context.windows.system.computer_name
    server = bool(words) and words[0].lower().startswith("serv")
    if server and not _running(process, "LanmanServer", "Server"):
        return 2
    process.print_line(
        f"{'Server' if server else 'Workstation'} Statistics for \\\\{name}\r\n\r\n\r\nStatistics since "
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


def _domain_only(process: Process, words: list[str]) -> int:
    process.complain(
        "This command can be used only on a Windows Domain Controller.\r\n\r\n"
        "More help is available by typing NET HELPMSG 3515.\r\n"
    )
    return 2


def _view(process: Process, words: list[str]) -> int:
    """`net view`, `net view \\\\SERVER`: this computer's own shares; others have none to show."""
    if not words:
        return _failed(process, 1231, "The network location cannot be reached.")
    name = words[0].lstrip("\\").lower()
    own = (process.context.windows.system.computer_name.lower(), "localhost", "127.0.0.1")
    if name not in own:
        return _failed(process, 53, _MESSAGES[53])
    found = shared_directories(process.context)
    if not found:
        process.print_line("There are no entries in the list.\r\n")
        return 0
    process.print_line(f"Shared resources at {words[0]}\r\n\r\n\r\n")
    process.print_line(f"Share name  Type  Used as  Comment\r\n\r\n{_RULE}")
    for share in sorted(found):
        remark = share_remark(process.context, share)
        process.print_line(f"{share:<12}Disk           {remark}".rstrip())
    process.print_line(_DONE)
    return 0


NET: Final[dict[str, Callable[[Process, list[str]], int]]] = {
    "computer": _domain_only,
    "config": _config,
    "group": _domain_only,
    "view": _view,
    "file": _none_listed,
    "helpmsg": _help_message,
    "session": _none_listed,
    "share": _share,
    "statistics": _statistics,
    "stats": _statistics,
    "time": _time,
    "use": _use,
}
