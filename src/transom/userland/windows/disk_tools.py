"""diskpart, mountvol, label and fsutil: the disks, volumes and files of the machine."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable
from typing import Final

from transom.machines.windows.host import CONTROL
from transom.userland.api import AttachedDisk
from transom.userland.process import Command, Process
from transom.userland.windows import texts, wmi
from transom.userland.windows.wmi_devices import wmi_disks

_FSUTIL_USAGE: Final = (
    "---- Commands Supported ----\r\n\r\n8dot3name       8dot3name management\r\n"
    "dirty           Manage volume dirty bit\r\nfile            File specific commands\r\n"
    "fsinfo          File system information\r\nhardlink        Hardlink management\r\n"
    "reparsepoint    Reparse point management\r\nvolume          Volume management"
)
_CLUSTER: Final = 4096


def _amount(size: int) -> str:
    for unit, scale in (("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20)):
        if size >= scale:
            return f"{size // scale:>4} {unit}"
    return f"{size >> 10:>4} KB"


class _DiskPart:
    """A session: the disk and the volume that it has in focus."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.disk: AttachedDisk | None = None
        self.volume: AttachedDisk | None = None

    def run(self, line: str) -> bool:
        """False to end the session."""
        words = line.lower().split()
        if not words or words[0] == "rem":
            return True
        if words[0] == "exit":
            return False
        verb = " ".join(words[:2])
        actions: dict[str, Callable[[list[str]], None]] = {
            "list disk": self._list_disks,
            "list volume": self._list_volumes,
            "list partition": self._list_partitions,
            "select disk": self._select_disk,
            "select volume": self._select_volume,
            "detail disk": self._detail_disk,
        }
        action = actions.get(verb)
        if action is None:
            self._process.print_line(
                "\r\nMicrosoft DiskPart version 10.0.17763.1\r\n\r\nThe arguments specified for "
                "this command are not valid.\r\nFor more information on the command type: HELP "
                f"{words[0].upper()}"
            )
        else:
            action(words[2:])
        return True

    def _mark(self, chosen: AttachedDisk | None, one: AttachedDisk) -> str:
        return "*" if chosen is not None and chosen.number == one.number else " "

    def _list_disks(self, words: list[str]) -> None:
        write = self._process.print_line
        write("\r\n  Disk ###  Status         Size     Free     Dyn  Gpt")
        write("  --------  -------------  -------  -------  ---  ---")
        for one in wmi_disks(self._process.context):
            gpt = "*" if one.partition_style == "GPT" else " "
            free = one.size if one.partition_style == "RAW" else 0
            unused = _amount(free) if free else "   0 B"
            write(
                f"{self._mark(self.disk, one)} Disk {one.number:<4} Online        "
                f"{_amount(one.size)}  {unused:>7}        {gpt}".rstrip()
            )

    def _list_volumes(self, words: list[str]) -> None:
        write = self._process.print_line
        write("\r\n  Volume ###  Ltr  Label        Fs     Type        Size     Status     Info")
        write("  ----------  ---  -----------  -----  ----------  -------  ---------  --------")
        formatted = [one for one in wmi_disks(self._process.context) if one.file_system]
        for number, one in enumerate(formatted):
            info = "Boot" if one.letter == "C" else ""
            write(
                f"{self._mark(self.volume, one)} Volume {number:<4} {one.letter:^4}              "
                f"{one.file_system:<5}  Partition  {_amount(one.size)}  Healthy    {info}".rstrip()
            )

    def _list_partitions(self, words: list[str]) -> None:
        if self.disk is None:
            self._process.print_line(
                "\r\nThere is no disk selected to list partitions.\r\nSelect a disk and try again."
            )
            return
        if not self.disk.file_system:
            self._process.print_line("\r\nThere are no partitions on this disk to show.")
            return
        self._process.print_line("\r\n  Partition ###  Type              Size     Offset")
        self._process.print_line("  -------------  ----------------  -------  -------")
        self._process.print_line(
            f"  Partition 1    Primary           {_amount(self.disk.size)}  1024 KB"
        )

    def _chosen(self, words: list[str], found: list[AttachedDisk]) -> AttachedDisk | None:
        wanted = words[0] if words else ""
        by_letter = next((one for one in found if one.letter.lower() == wanted[:1]), None)
        if not wanted.isdigit():
            return by_letter
        return found[int(wanted)] if int(wanted) < len(found) else None

    def _select_disk(self, words: list[str]) -> None:
        self.disk = self._chosen(words, wmi_disks(self._process.context))
        shown = (
            f"\r\nDisk {self.disk.number} is now the selected disk."
            if self.disk is not None
            else "\r\nThe disk you specified is not valid.\r\n\r\nThere is no disk selected."
        )
        self._process.print_line(shown)

    def _select_volume(self, words: list[str]) -> None:
        formatted = [one for one in wmi_disks(self._process.context) if one.file_system]
        self.volume = self.disk = self._chosen(words, formatted)
        shown = (
            f"\r\nVolume {formatted.index(self.volume)} is the selected volume."
            if self.volume is not None
            else "\r\nThe volume you selected is not valid or does not exist.\r\n\r\nThere is no "
            "volume selected."
        )
        self._process.print_line(shown)

    def _detail_disk(self, words: list[str]) -> None:
        if self.disk is None:
            self._process.print_line("\r\nThere is no disk selected.")
            return
        self._process.print_line(
            f"\r\n{self.disk.model}\r\nDisk ID: {self.disk.serial or 0}\r\nType   : SAS\r\n"
            f"Status : Online\r\nPath   : 0\r\nLocation Path : {self.disk.location}\r\n"
            "Current Read-only State : No\r\nRead-only  : No\r\nBoot Disk  : "
            f"{'Yes' if self.disk.letter == 'C' else 'No'}"
        )


async def diskpart(process: Process) -> int:
    """`/s FILE`, or commands on the standard input."""
    words = process.argv[1:]
    if not process.context.windows.account.administrator:
        process.complain("Access is denied.")
        return 5
    process.print_line(
        "\r\nMicrosoft DiskPart version 10.0.17763.1\r\n\r\nCopyright (C) Microsoft Corporation."
        f"\r\nOn computer: {process.context.windows.system.computer_name}"
    )
    if len(words) == 2 and words[0].lower() == "/s":
        try:
            source = process.files.text(words[1])
        except OSError:
            process.complain("\r\nDiskPart encountered an error opening the script file.")
            return 2
    else:
        source = (await process.read_all()).decode("utf-8", "replace")
    session = _DiskPart(process)
    for line in source.splitlines():
        if not session.run(line.strip()):
            process.print_line("\r\nLeaving DiskPart...")
            break
    return 0


def mountvol(process: Process) -> int:
    """Without arguments: the volumes and where they are mounted. `DRIVE /L` shows one."""
    words = process.argv[1:]
    rows = []
    for one in wmi_disks(process.context):
        own = uuid.uuid5(uuid.NAMESPACE_OID, f"{process.context.network.hostname}{one.number}")
        name = one.volume.rstrip("\\") or rf"\\?\Volume{{{own}}}"
        place = f"{one.letter}:\\" if one.letter else "*** NO MOUNT POINTS ***"
        rows.append((name + "\\", place))
    if len(words) == 2 and words[1].lower() == "/l":
        found = [name for name, place in rows if place[:2].lower() == words[0][:2].lower()]
        if not found:
            process.complain("The system cannot find the file specified.")
            return 1
        process.print_line(f"    {found[0]}")
        return 0
    process.print_line("Possible values for VolumeName along with current mount points are:\r\n")
    for name, place in rows:
        process.print_line(f"    {name}\r\n        {place}\r\n")
    return 0


def _drive(process: Process, word: str) -> tuple[str, int, int] | None:
    rows = wmi.wmi_drives(process.context)
    return next((row for row in rows if row[0].lower() == word[:2].lower()), None)


def _volume_disk_free(process: Process, words: list[str]) -> int:
    found = _drive(process, words[0] if words else "")
    if found is None:
        process.complain("Error:  The system cannot find the path specified.")
        return 1
    rows = (("free bytes", found[2]), ("bytes", found[1]), ("quota free bytes", found[2]))
    for label, value in rows:
        process.print_line(f"Total {label:<16}: {value:>18,} ({value / (1 << 30):6.1f} GB)")
    return 0


def _drives(process: Process, words: list[str]) -> int:
    shown = " ".join(f"{drive}\\" for drive, _, _ in wmi.wmi_drives(process.context))
    process.print_line("\r\nDrives: " + shown)
    return 0


def _volume_info(process: Process, words: list[str]) -> int:
    found = _drive(process, words[0] if words else "")
    if found is None:
        process.complain("Error:  The system cannot find the path specified.")
        return 1
    serial = wmi.disk_serial_number(process.context, found[0]).lower()
    process.print_line(
        f"Volume Name : {wmi.volume_label(process.context, found[0])}\r\n"
        f"Volume Serial Number : 0x{serial}\r\nMax Component Length : 255\r\n"
        "File System Name : NTFS\r\nIs ReadWrite"
    )
    return 0


def _ntfs_info(process: Process, words: list[str]) -> int:
    found = _drive(process, words[0] if words else "")
    if found is None:
        process.complain("Error:  The system cannot find the path specified.")
        return 1
    drive, size, free = found
    serial = wmi.disk_serial_number(process.context, drive)
    rows = (
        ("NTFS Volume Serial Number", f"0x{serial.lower() * 2}"),
        ("NTFS Version", "3.1"),
        ("Total Sectors", f"{size // 512:,}"),
        ("Total Clusters", f"{size // _CLUSTER:,}"),
        ("Free Clusters", f"{free // _CLUSTER:,}"),
        ("Bytes Per Sector", "512"),
        ("Bytes Per Cluster", str(_CLUSTER)),
    )
    for name, value in rows:
        process.print_line(f"{name:<33}: {value}")
    return 0


_SHORT_NAME_STATES: Final = {
    0: "8dot3 name creation is enabled on all volumes",
    1: "8dot3 name creation is disabled on all volumes",
    2: "the default - per volume setting",
    3: "8dot3 name creation is disabled on all volumes except the system volume",
}


def _short_names(process: Process, words: list[str]) -> int:
    state = process.context.windows.system.registry.get(
        CONTROL + r"\FileSystem", "NtfsDisable8dot3NameCreation"
    )
    number = state if isinstance(state, int) and state in _SHORT_NAME_STATES else 2
    if words:
        process.print_line("The volume state is: 0 (8dot3 name creation is enabled).")
    process.print_line(f"The registry state is: {number} ({_SHORT_NAME_STATES[number]}).")
    return 0


def _create_hard_link(process: Process, words: list[str]) -> int:
    if len(words) != 2:
        process.print_line(
            "Usage : fsutil hardlink create <new filename> <existing filename>\r\n"
            "   Eg : fsutil hardlink create c:\\foo.txt c:\\bar.txt"
        )
        return 1
    new, existing = words
    try:
        process.files.link(existing, new)
    except OSError as error:
        process.complain(f"Error:  {texts.windows_message(error)}")
        return 1
    shown = (process.files.absolute(path) for path in (new, existing))
    process.print_line("Hardlink created for {} <<===>> {}".format(*shown))
    return 0


def _list_hard_links(process: Process, words: list[str]) -> int:
    try:
        for path in process.files.hard_links(words[0] if words else ""):
            process.print_line(path)
    except OSError as error:
        process.complain(f"Error:  {texts.windows_message(error)}")
        return 1
    return 0


def _reparse_point(process: Process, words: list[str]) -> int:
    path = words[0] if words else ""
    try:
        target = process.files.readlink(path)
        junction = process.files.is_junction(path)
    except OSError as error:
        text = texts.windows_message(error)
        if error.errno == errno.EINVAL:
            text = "The file or directory is not a reparse point."
        process.complain(f"Error:  {text}")
        return 1
    tag, kind = (0xA0000003, "Mount Point") if junction else (0xA000000C, "Symbolic Link")
    process.print_line(f"Reparse Tag Value : {tag:#x}")
    process.print_line(f"Tag value: Microsoft\r\nTag value: Name Surrogate\r\nTag value: {kind}")
    process.print_line(
        f"Substitute Name:        \\??\\{target}\r\nPrint Name:             {target}"
    )
    return 0


def _delete_reparse_point(process: Process, words: list[str]) -> int:
    try:
        process.files.readlink(words[0] if words else "")
        process.files.remove(words[0])
    except OSError as error:
        process.complain(f"Error:  {texts.windows_message(error)}")
        return 1
    return 0


def _create_file(process: Process, words: list[str]) -> int:
    if len(words) != 2 or not words[1].isdigit():
        process.print_line("Usage : fsutil file createNew <filename> <length>")
        return 1
    if process.files.exists(words[0]):
        process.complain("Error:  The file exists.")
        return 1
    try:
        process.files.write(words[0], bytes(int(words[1])))
    except OSError as error:
        process.complain(f"Error:  {texts.windows_message(error)}")
        return 1
    process.print_line(f"File {process.files.absolute(words[0])} is created")
    return 0


def _dirty(process: Process, words: list[str]) -> int:
    if not words or _drive(process, words[0]) is None:
        process.complain("Error:  The system cannot find the path specified.")
        return 1
    process.print_line(f"Volume - {words[0]} is NOT Dirty")
    return 0


_FSUTIL: Final[dict[tuple[str, str], Callable[[Process, list[str]], int]]] = {
    ("fsinfo", "drives"): _drives,
    ("fsinfo", "volumeinfo"): _volume_info,
    ("fsinfo", "ntfsinfo"): _ntfs_info,
    ("volume", "diskfree"): _volume_disk_free,
    ("8dot3name", "query"): _short_names,
    ("file", "createnew"): _create_file,
    ("dirty", "query"): _dirty,
    ("hardlink", "create"): _create_hard_link,
    ("hardlink", "list"): _list_hard_links,
    ("reparsepoint", "query"): _reparse_point,
    ("reparsepoint", "delete"): _delete_reparse_point,
}


def fsutil(process: Process) -> int:
    words = process.argv[1:]
    action = _FSUTIL.get((words[0].lower(), words[1].lower())) if len(words) > 1 else None
    if action is None:
        process.print_line(_FSUTIL_USAGE)
        return 1
    return action(process, words[2:])


COMMANDS: Final[dict[str, Command]] = {
    "diskpart": diskpart,
    "fsutil": fsutil,
    "mountvol": mountvol,
}
