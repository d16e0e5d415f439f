"""dir, vol and tree: the contents of a drive, as cmd.exe shows them."""

from __future__ import annotations

import ntpath
from collections.abc import Callable
from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.machines.api import Stat
from transom.userland.cmd.state import CmdState
from transom.userland.files import FileView
from transom.userland.windows import texts
from transom.userland.windows.clock import wall_clock_time
from transom.userland.windows.wmi import disk_serial_number, volume_label

_TIMES: Final[dict[str, Callable[[Stat], float]]] = {
    "a": lambda state: state.accessed,
    "c": lambda state: state.created,
    "w": lambda state: state.mtime,
}
_ORDERS: Final[dict[str, Callable[[DirRow], object]]] = {
    "n": lambda row: row.name.lower(),
    "s": lambda row: row.state.size,
    "e": lambda row: ntpath.splitext(row.name)[1].lower(),
    "g": lambda row: row.state.kind != "directory",
}


class DirRow(NamedTuple):
    name: str
    path: str
    state: Stat
    attributes: str


class DirOptions(NamedTuple):
    bare: bool
    deep: bool
    short: bool
    owner: bool
    attributes: str | None  # "" for all
    order: str
    lower: bool
    separators: bool  # of thousands
    time: str  # a, c or w

    def moment(self, state: Stat) -> float:
        return _TIMES[self.time](state)

    def number(self, value: int, width: int) -> str:
        return f"{value:>{width},}" if self.separators else f"{value:>{width}}"


def parse_dir_options(switches: set[str]) -> DirOptions:
    attributes = next((one[1:].lstrip(":") for one in switches if one.startswith("a")), None)
    order = next((one[1:].lstrip(":") or "gn" for one in switches if one.startswith("o")), "")
    return DirOptions(
        *("b" in switches, "s" in switches, "x" in switches, "q" in switches, attributes, order),
        lower="l" in switches,
        separators="-c" not in switches,
        time=next((one[-1] for one in switches if one[0] == "t" and one[-1] in _TIMES), "w"),
    )


def volume_header(shell: CmdState, path: str) -> None:
    drive = path[:1].upper()
    serial = disk_serial_number(shell.process.context, f"{drive}:")
    label = volume_label(shell.process.context, f"{drive}:")
    shown = f"is {label}" if label else "has no label."
    shell.print_line(
        f" Volume in drive {drive} {shown}\r\n Volume Serial Number is {serial[:4]}-{serial[4:]}"
    )


def _wanted(row: DirRow, wanted: str | None) -> bool:
    """Hidden and system files are listed on request only; a `-` before a letter excludes files with
    that attribute.
    """
    letters = (
        row.attributes
        + ("D" if row.state.kind == "directory" else "")
        + ("L" if row.state.kind == "symlink" else "")
    )
    if wanted is None:
        return not set(letters) & {"H", "S"}
    absent = False
    for letter in wanted.upper():
        if letter == "-":
            absent = True
            continue
        if (letter in letters) == absent:
            return False
        absent = False
    return True


def _entry(shell: CmdState, row: DirRow, chosen: DirOptions) -> str:
    files = shell.process.files
    kind, shown = "", row.name
    if row.state.kind == "symlink":
        kind = "<SYMLINKD>" if files.is_directory(row.path) else "<SYMLINK>"
        if files.is_junction(row.path):
            kind = "<JUNCTION>"
        shown = f"{row.name} [{files.readlink(row.path)}]"
    elif row.state.kind == "directory":
        kind = "<DIR>"
    size = f"    {kind:<10}    " if kind else chosen.number(row.state.size, 18)
    shown = shown.lower() if chosen.lower else shown
    short = (
        f"{files.short_name(row.path) if row.name not in ('.', '..') else '':<12} "
        if chosen.short
        else ""
    )
    owner = ""
    if chosen.owner:
        name = shell.process.context.windows.system.accounts.name_of(
            files.descriptor(row.path).owner
        )
        owner = f"{name[:22]:<22} "
    return f"{texts.date_time(wall_clock_time(shell.process.context, chosen.moment(row.state)))}{size} {short}{owner}{shown}"


def _is_directory(files: FileView, row: DirRow) -> bool:
    if row.state.kind != "symlink":
        return row.state.kind == "directory"
    return files.is_junction(row.path) or files.is_directory(row.path)


def show_dir(shell: CmdState, target: str, switches: set[str]) -> int:
    chosen, files = parse_dir_options(switches), shell.process.files
    full = files.absolute(target)
    whole = files.is_directory(full)
    directory = full if whole else files.parent(full)
    if not chosen.bare:
        if not files.is_directory(full[:2] + "\\") and full[1:2] == ":":
            return shell.fail("The system cannot find the path specified.")
        volume_header(shell, full)
        shell.print_line()
    if not files.is_directory(directory):
        return shell.fail(texts.NOT_FOUND_PATH if chosen.bare else "File Not Found")
    mask = "*" if whole else files.base(full)
    found = _one(shell, directory, mask, chosen)
    if found is None:
        return 1
    total, count, directories = found
    if not chosen.bare:
        if chosen.deep:
            shell.print_line("     Total Files Listed:")
            shell.print_line(f"{count:>16} File(s) {chosen.number(total, 14)} bytes")
        shell.print_line(
            f"{directories:>16} Dir(s)  {chosen.number(files.space(directory)[1], 14)} bytes free"
        )
    return 0


def _rows(shell: CmdState, directory: str, mask: str, chosen: DirOptions) -> list[DirRow]:
    files = shell.process.files
    files.listdir(directory)  # raises an error if the user may not read it
    found = []
    for path in shell.names(f"{directory}\\{mask}"):
        name = files.base(path)
        place = files.join(directory, name)
        found.append(
            DirRow(
                name, place, files.stat(place, follow=False), files.attributes(place, follow=False)
            )
        )
    found = [row for row in found if _wanted(row, chosen.attributes)]
    for letter, before in reversed(list(zip(chosen.order, " " + chosen.order, strict=False))):
        if letter == "d":
            found.sort(key=lambda row: chosen.moment(row.state), reverse=before == "-")
        elif letter in _ORDERS:
            found.sort(key=_ORDERS[letter], reverse=before == "-")  # type: ignore[arg-type]
    return found


def _one(
    shell: CmdState, directory: str, mask: str, chosen: DirOptions
) -> tuple[int, int, int] | None:
    """Lists one directory. Returns bytes, files and directories; None after an error."""
    files = shell.process.files
    try:
        rows = _rows(shell, directory, mask, chosen)
        below = (
            []
            if not chosen.deep
            else [
                files.join(directory, name)
                for name in files.listdir(directory)
                if files.stat(files.join(directory, name), follow=False).kind == "directory"
            ]
        )
    except PermissionError:
        shell.complain("File Not Found")
        return None
    except OSError as error:
        shell.complain(texts.windows_message(error))
        return None
    inside = len(directory.rstrip("\\")) > 2 and mask == "*" and chosen.attributes is None
    if not rows and not chosen.deep and (chosen.bare or not inside):
        if not chosen.bare:
            shell.print_line(f" Directory of {directory}\r\n")
        shell.complain("File Not Found")
        return None
    plain = [row for row in rows if not _is_directory(files, row)]
    total, count, directories = (
        sum(row.state.size for row in plain),
        len(plain),
        len(rows) - len(plain),
    )
    if chosen.bare:
        for row in rows:
            shown = row.path if chosen.deep else row.name
            shell.print_line(shown.lower() if chosen.lower else shown)
    elif rows or inside:
        shell.print_line(f" Directory of {directory}\r\n")
        if len(directory.rstrip("\\")) > 2 and mask == "*":
            here = files.stat(directory)
            rows = [DirRow(".", directory, here, ""), DirRow("..", directory, here, ""), *rows]
            directories += 2
        for row in rows:
            shell.print_line(_entry(shell, row, chosen))
        shell.print_line(
            f"{count:>16} File(s) {chosen.number(total, 14)} bytes"
            + ("\r\n" if chosen.deep else "")
        )
    for inner in below:
        found = _one(shell, inner, mask, chosen)
        if found is not None:
            total, count, directories = total + found[0], count + found[1], directories + found[2]
    return total, count, directories
