"""subst, chkdsk and chkntfs: drive letters and the state of volumes."""

from __future__ import annotations

import re
from typing import Final

from transom.machines.windows.host import CONTROL
from transom.userland.process import Command, Process
from transom.userland.windows import wmi

_DRIVE: Final = re.compile(r"[A-Za-z]:")
_CLUSTER: Final = 4096
SESSION_MANAGER: Final = CONTROL + r"\Session Manager"
_BOOT_EXECUTE: Final = "BootExecute"
_AUTOCHECK: Final = "autocheck autochk *"
_INVALID_DRIVE: Final = "The drive, the path, or the file name is not valid."
_NOT_ELEVATED: Final = (
    "Access Denied as you do not have sufficient privileges or\r\nthe disk may be locked by "
    "another process.\r\nYou have to invoke this utility running in elevated mode\r\nand make sure "
    "the disk is unlocked."
)


def subst(process: Process) -> int:
    words = process.argv[1:]
    files = process.files
    known = files.drive_targets()
    if not words:
        for letter, target in sorted(known.items()):
            if not target.startswith("\\\\"):
                process.print_line(f"{letter}\\: => {target}")
        return 0
    letter = words[0].upper()
    if len(words) != 2 or not _DRIVE.fullmatch(letter):
        process.complain(f"Invalid parameter - {words[-1]}")
        return 1
    if words[1].lower() == "/d":
        if letter not in known:
            process.complain(f"Invalid parameter - {words[0]}")
            return 1
        files.remove_drive(letter)
        return 0
    if letter in known:
        process.complain("Drive already SUBSTed")
        return 1
    if letter in files.drives():
        process.complain(f"Invalid parameter - {words[0]}")
        return 1
    if not files.is_directory(words[1]):
        process.complain(f"Path not found - {words[1]}")
        return 1
    files.add_drive(letter, files.real_path(words[1]))
    return 0


def _count(process: Process, drive: str) -> tuple[int, int, int, int]:
    """Files and their bytes, directories, and all names of a drive."""
    files = process.files
    count = size = directories = names = 0
    todo = [drive + "\\"]
    while todo:
        place = todo.pop()
        directories += 1
        for name in files.listdir(place):
            path = files.join(place, name)
            state = files.stat(path, follow=False)
            names += 1
            if state.kind == "directory":
                todo.append(path)
            else:
                count, size = count + 1, size + state.size
    return count, size, directories, names


async def chkdsk(process: Process) -> int:
    words = [word.lower() for word in process.argv[1:]]
    given = next((word for word in words if not word.startswith("/")), process.cwd[:2])
    rows = wmi.local_drives(process.context)
    found = next((row for row in rows if row[0].lower() == given[:2]), None)
    if found is None:
        process.complain(_INVALID_DRIVE)
        return 3
    if not process.context.windows.account.administrator:
        process.complain(_NOT_ELEVATED)
        return 3
    process.print_line("The type of the file system is NTFS.")
    if set(words) & {"/f", "/r", "/x", "/b"}:
        return await _schedule(process, found[0])
    process.print_line(
        "\r\nWARNING!  /F parameter not specified.\r\nRunning CHKDSK in read-only mode.\r\n"
    )
    _report(process, found)
    return 0


def _report(process: Process, volume: tuple[str, int, int]) -> None:
    drive, total, free = volume
    count, size, directories, names = _count(process, drive)
    used = total - free
    lines = (
        "Stage 1: Examining basic file system structure ...",
        f"  {count + directories} file records processed.",
        "File verification completed.",
        "  0 large file records processed.",
        "  0 bad file records processed.\r\n",
        "Stage 2: Examining file name linkage ...",
        f"  {names} index entries processed.",
        "Index verification completed.",
        "  0 unindexed files scanned.",
        "  0 unindexed files recovered to lost and found.\r\n",
        "Stage 3: Examining security descriptors ...",
        "Security descriptor verification completed.",
        f"  {count} data files processed.\r\n",
        "Windows has scanned the file system and found no problems.",
        "No further action is required.\r\n",
        f"{total >> 10:>10} KB total disk space.",
        f"{size >> 10:>10} KB in {count} files.",
        f"{directories * 4:>10} KB in {directories} indexes.",
        "         0 KB in bad sectors.",
        f"{max(0, (used - size >> 10) - directories * 4):>10} KB in use by the system.",
        f"{free >> 10:>10} KB available on disk.\r\n",
        f"{_CLUSTER:>10} bytes in each allocation unit.",
        f"{total // _CLUSTER:>10} total allocation units on disk.",
        f"{free // _CLUSTER:>10} allocation units available on disk.",
    )
    for line in lines:
        process.print_line(line)


async def _schedule(process: Process, drive: str) -> int:
    """Volumes of a running system are in use: the check can run at the next start."""
    process.print_line(
        "Cannot lock current drive.\r\n\r\nChkdsk cannot run because the volume is in use by "
        "another\r\nprocess.  Would you like to schedule this volume to be\r\nchecked the next "
        "time the system restarts? (Y/N) "
    )
    answer = (await process.read_all()).decode("utf-8", "replace").strip().lower()
    if answer[:1] != "y":
        return 3
    registry = process.context.windows.system.registry
    registry.set(SESSION_MANAGER, _BOOT_EXECUTE, (_boot_check(drive), *_boot_executes(process)))
    process.print_line("\r\nThis volume will be checked the next time the system restarts.")
    return 3


def _boot_check(drive: str) -> str:
    return rf"autocheck autochk /r \??\{drive}"


def _boot_executes(process: Process) -> tuple[str, ...]:
    found = process.context.windows.system.registry.get(SESSION_MANAGER, _BOOT_EXECUTE)
    return found if isinstance(found, tuple) else (_AUTOCHECK,)


def chkntfs(process: Process) -> int:
    drives = [drive for drive, _, _ in wmi.local_drives(process.context)]
    wanted = [word[:2].upper() for word in process.argv[1:] if not word.startswith("/")]
    if not wanted or set(wanted) - set(drives):
        process.complain("The specified drive does not exist." if wanted else "Missing parameter.")
        return 3
    code = 0
    for drive in wanted:
        process.print_line("The type of the file system is NTFS.")
        if _boot_check(drive) in _boot_executes(process):
            process.print_line(
                f"Chkdsk has been scheduled manually to run on next reboot for volume {drive}."
            )
            code = 1
        else:
            process.print_line(f"{drive} is not dirty.")
    return code


async def label(process: Process) -> int:
    """`label C: NAME`; without a name it asks for one."""
    words = process.argv[1:]
    drive = words[0].upper() if words and _DRIVE.fullmatch(words[0]) else process.cwd[:2].upper()
    rest = words[1:] if words and _DRIVE.fullmatch(words[0]) else words
    if drive not in [row[0] for row in wmi.local_drives(process.context)]:
        process.complain("The volume label cannot be changed: the drive does not exist.")
        return 1
    if not process.context.windows.account.administrator:
        process.complain("Access Denied as you do not have sufficient privileges.")
        return 1
    name = " ".join(rest)
    if not name:
        before = wmi.volume_label(process.context, drive)
        shown = f"is {before}" if before else "has no label"
        process.print_line(f"Volume in drive {drive[0]} {shown}")
        process.print_line("Volume label (32 characters, ENTER for none)? ")
        name = (await process.read_all()).decode("utf-8", "replace").strip()
    if len(name) > 32 or set(name) & set('*?/\\|.,;:+=[]()&^<>"'):
        process.complain("Cannot change the volume label. The volume label is not valid.")
        return 1
    process.context.windows.system.registry.set(wmi.LABELS, drive, name)
    return 0


COMMANDS: Final[dict[str, Command]] = {
    "chkdsk": chkdsk,
    "chkntfs": chkntfs,
    "label": label,
    "subst": subst,
}
