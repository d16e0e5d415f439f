"""Cmdlets for files: Get-Content, Get-ChildItem, New-Item, Test-Path and others. Env: is a drive,
too.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import ntpath
from fnmatch import fnmatchcase
from typing import Any

from transom.machines.api import Stat
from transom.userland.files import MAX_PATH, decode_text
from transom.userland.posix.commands.files import copy_tree
from transom.userland.powershell import cmdlets_registry
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.cmdlets_certificates import (
    CERTIFICATE_PROVIDER,
    certificate_children,
    certificate_items,
    emit_certificates,
    is_certificate_path,
    remove_certificates,
)
from transom.userland.powershell.cmdlets_output import encode_text, text_encoding, write_stream
from transom.userland.powershell.cmdlets_session import drive_items
from transom.userland.powershell.file_times import file_times
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import (
    PowerShellError,
    PsObject,
    ScriptBlock,
    to_items,
    to_number,
    to_text,
    unrolled,
)
from transom.userland.powershell.wildcard_paths import expand_path, has_wildcards, is_picked

_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
ATTRIBUTE_NAMES = {"R": "ReadOnly", "H": "Hidden", "S": "System", "A": "Archive"}


def path_arguments(call: CmdletCall, name: str = "Path") -> list[str]:
    given = call.get(name, call.get("LiteralPath"))
    if given is None and call.input is not None:
        given = call.input
    paths = [call.evaluator.resolved(_path_of(value)) for value in to_items(given)]
    for path in paths:
        _check_drive(call, path)
    return paths


_ANY_DRIVE = ("Test-Path", "Split-Path")
_PROVIDER_DRIVES = (
    *("alias", "cert", "env", "function", "hkcu", "hklm", "registry", "variable", "wsman"),
)


def _check_drive(call: CmdletCall, path: str) -> None:
    """Raises PowerShellError if the drive of a path does not exist."""
    drive, colon, rest = path.partition(":")
    if not colon or rest.startswith(":") or "\\" in drive or "/" in drive or not drive:
        return
    if not call.process.windows or call.cmdlet.name in _ANY_DRIVE:
        return
    letters = [one.rstrip(":\\").lower() for one in call.process.files.drives()]
    if drive.lower() in (*letters, *_PROVIDER_DRIVES, *call.evaluator.drives):
        return
    raise PowerShellError(
        f"Cannot find drive. A drive with the name '{drive}' does not exist.",
        f"ObjectNotFound: ({drive}:String) [{call.cmdlet.name}], DriveNotFoundException",
        f"DriveNotFound,Microsoft.PowerShell.Commands.{call.cmdlet.name.replace('-', '')}Command",
        where=call.cmdlet.name,
    )


def _path_of(value: Any) -> str:
    if not isinstance(value, PsObject):
        return to_text(value)
    place = to_text(value.get("PSPath") or "")
    if place.startswith(CERTIFICATE_PROVIDER):
        return "Cert:\\" + place.removeprefix(CERTIFICATE_PROVIDER)
    return to_text(value.get("FullName") or value)


def _unblock(call: CmdletCall) -> None:
    """No file has a zone that it was downloaded from, so there is nothing to remove."""
    for path in path_arguments(call):
        if not call.process.files.exists(path):
            fail_missing_path(call, path)


def fail_missing_path(call: CmdletCall, path: str) -> None:
    full = call.process.files.absolute(path)
    call.fail(
        f"Cannot find path '{full}' because it does not exist.",
        f"ObjectNotFound: ({full}:String) [{call.cmdlet.name}], ItemNotFoundException",
        "PathNotFound",
    )


def _denied(call: CmdletCall, path: str) -> None:
    full = call.process.files.absolute(path)
    if len(full) >= MAX_PATH and not full.startswith("\\\\?\\"):
        call.fail(
            "The specified path, file name, or both are too long. The fully qualified file "
            "name must be less than 260 "
            "characters, and the directory name must be less than 248 characters.",
            f"WriteError: ({full}:String) [{call.cmdlet.name}], PathTooLongException",
            "PathTooLong",
        )
        return
    call.fail(
        f"Access to the path '{full}' is denied.",
        f"PermissionDenied: ({full}:String) [{call.cmdlet.name}], UnauthorizedAccessException",
        "UnauthorizedAccessError",
    )


def expand_wildcards(call: CmdletCall, path: str) -> list[str]:
    """The items that match a path with wildcards, without those that -Include and -Exclude drop."""
    if call.has("LiteralPath"):
        return [path]
    found = expand_path(call.process.files, path)
    include = [to_text(one) for one in to_items(call.get("Include"))]
    exclude = [to_text(one) for one in to_items(call.get("Exclude"))]
    return [one for one in found if is_picked(ntpath.basename(one), include, exclude)]


async def _get_content(call: CmdletCall) -> None:
    files = call.process.files
    for path in [one for given in path_arguments(call) for one in expand_wildcards(call, given)]:
        try:
            data = files.read(path)
        except FileNotFoundError:
            fail_missing_path(call, path)
            continue
        except OSError:
            _denied(call, path)
            continue
        if call.text("Encoding").lower() == "byte":
            for byte in _chosen(call, list(data)):
                call.emit(byte)
            continue
        content = _decoded(call, data)
        if call.has("Raw"):
            call.emit(content)
            continue
        found = content.replace("\r\n", "\n").removesuffix("\n").split("\n") if content else []
        for line in _chosen(call, found):
            call.emit(line)
        if call.has("Wait"):
            await _follow(call, path, len(data))


def _chosen(call: CmdletCall, found: list[Any]) -> list[Any]:
    """The lines or bytes that -TotalCount and -Tail select."""
    if call.has("TotalCount") or call.has("First") or call.has("Head"):
        found = found[: int(to_number(call.get("TotalCount", call.get("First", call.get("Head")))))]
    if call.has("Tail") or call.has("Last"):
        count = int(to_number(call.get("Tail", call.get("Last"))))
        found = found[-count:] if count else []
    return found


def _decoded(call: CmdletCall, data: bytes) -> str:
    """A byte order mark counts more than -Encoding."""
    codec, mark = text_encoding(call)
    if not call.has("Encoding") or data.startswith(_MARKS):
        return decode_text(data)
    return data.removeprefix(mark).decode(codec, "replace")


async def _follow(call: CmdletCall, path: str, seen: int) -> None:
    while True:
        await call.process.sleep(1)
        try:
            data = call.process.files.read(path)
        except OSError:
            continue
        fresh = (
            data[seen:].decode("utf-8", "surrogateescape").replace("\r\n", "\n").removesuffix("\n")
        )
        seen = len(data)
        if fresh:
            for line in fresh.split("\n"):
                call.emit(line)


def _content(call: CmdletCall, *, mark: bool = True) -> bytes:
    values = (
        call.input
        if call.input is not None and not call.has("Value")
        else to_items(call.get("Value"))
    )
    if call.text("Encoding").lower() == "byte":
        return bytes(int(to_number(value)) & 0xFF for value in values)
    end = "" if call.has("NoNewline") else "\r\n"
    return encode_text(call, "".join(to_text(value) + end for value in values), mark=mark)


def _set_content(call: CmdletCall) -> None:
    for path in path_arguments(call):
        write_stream(call, path, _content(call))


def _add_content(call: CmdletCall) -> None:
    for path in path_arguments(call):
        fresh = not call.process.files.exists(path)
        write_stream(call, path, _content(call, mark=fresh), append=True)


def _clear_content(call: CmdletCall) -> None:
    for path in path_arguments(call):
        write_stream(call, path, b"")


def _above(path: str, of_directory: bool) -> dict[str, Any]:
    """The directory that an item is in."""
    name = ntpath.basename(path) or path
    properties = {"Name": name, "FullName": path, "PSIsContainer": True}
    if of_directory:
        return {"Parent": PsObject("System.IO.DirectoryInfo", properties, name)}
    return {"Directory": PsObject("System.IO.DirectoryInfo", properties, path)}


def directory_entry(call: CmdletCall, path: str, state: Stat) -> PsObject:
    files = call.process.files
    full = files.absolute(path)
    directory = state.kind == "directory" or (state.kind == "symlink" and files.is_directory(full))
    letters = files.attributes(full, follow=False)
    letters = letters.replace("A", "") if directory else letters
    link = state.kind == "symlink"
    mode = (
        ("d" if directory else "-")
        + "".join(letter.lower() if letter in letters else "-" for letter in "ARHS")
        + ("l" if link else "-")
    )
    names = [
        name for letter, name in ATTRIBUTE_NAMES.items() if letter in letters and letter != "A"
    ]
    names += (
        (["Directory"] if directory else [])
        + (["Archive"] if "A" in letters else [])
        + (["ReparsePoint"] if link else [])
    )
    with contextlib.suppress(OSError):
        full = files.real_path(full)
    name = files.base(full) or full
    stem, extension = ntpath.splitext(name)
    properties: dict[str, Any] = {
        "Name": name,
        "FullName": full,
        "BaseName": stem,
        "Extension": extension,
        "Mode": mode,
        **file_times(call.evaluator, state),
        "Length": None if directory else state.size,
        "DirectoryName": files.parent(full),
        **_above(files.parent(full), directory),
        "PSIsContainer": directory,
        "Exists": True,
        "Attributes": ", ".join(names) or "Normal",
        "IsReadOnly": "R" in letters,
        "Root": full[:3],
        "PSPath": rf"Microsoft.PowerShell.Core\FileSystem::{full}",
        "PSChildName": name,
    }
    if state.kind == "symlink":
        properties["Target"] = files.readlink(full)
        properties["LinkType"] = "Junction" if files.is_junction(full) else "SymbolicLink"
    elif state.kind == "file" and files.link_count(full) > 1:
        properties["LinkType"] = "HardLink"
        properties["Target"] = [
            full[:2] + name for name in files.hard_links(full) if name.lower() != full[2:].lower()
        ]
    return PsObject(
        "System.IO.DirectoryInfo" if directory else "System.IO.FileInfo", properties, name
    )


def _children(call: CmdletCall) -> None:
    files = call.process.files
    for given in path_arguments(call) or ["."]:
        items = drive_items(call, given)
        if items is not None:
            for item in items:
                call.emit(item)
            continue
        if is_certificate_path(given):
            emit_certificates(call, given, certificate_children(call, given))
            continue
        if given.lower().startswith("env:"):
            wanted = given[4:].strip("\\") or "*"
            for name, value in call.evaluator.env.items():
                if not fnmatchcase(name.lower(), wanted.lower()):
                    continue
                call.emit(
                    PsObject(
                        "System.Collections.DictionaryEntry", {"Name": name, "Value": value}, name
                    )
                )
            continue
        key = cmdlets_registry.registry_key_path(call, given)
        if key is not None:
            cmdlets_registry.registry_children(call, key)
            continue
        path, mask = given, call.text("Filter", "*")
        if has_wildcards(given) and not call.has("LiteralPath"):
            path, mask = ntpath.split(given.replace("/", "\\"))
            path = path or "."
        if has_wildcards(path) and not call.has("LiteralPath"):
            _list_matches(call, given)
            continue
        if not files.exists(path):
            fail_missing_path(call, given)
            continue
        if not files.is_directory(path):
            call.emit(_shown(call, path))
            continue
        _walk(
            call,
            path,
            "*" if mask == "*.*" else mask,
            int(to_number(call.get("Depth"))) if call.has("Depth") else None,
        )


def _list_matches(call: CmdletCall, given: str) -> None:
    """`C:\\Users\\*\\Desktop`: the contents of the directories that match, and the files."""
    for path in expand_wildcards(call, given):
        if call.process.files.is_directory(path):
            _walk(call, path, call.text("Filter", "*"))
        else:
            call.emit(_shown(call, path))


def _shown(call: CmdletCall, path: str, top: str = "") -> Any:
    """-Name: relative to the directory that is listed."""
    made = directory_entry(call, path, call.process.files.stat(path, follow=False))
    if not call.has("Name"):
        return made
    above = call.process.files.absolute(top).rstrip("\\") + "\\" if top else ""
    full = to_text(made.get("FullName"))
    return full[len(above) :] if above and full.startswith(above) else made.text


def _walk(
    call: CmdletCall, directory: str, mask: str, depth: int | None = None, top: str = ""
) -> None:
    top = top or directory
    files = call.process.files
    inner: list[str] = []
    try:
        names = files.listdir(directory)
    except OSError:
        _denied(call, directory)
        return
    rows = [(name, files.join(directory, name)) for name in names]
    rows.sort(key=lambda row: (not files.is_directory(row[1]), row[0].lower()))
    include = [to_text(one).lower() for one in to_items(call.get("Include"))]
    exclude = [to_text(one).lower() for one in to_items(call.get("Exclude"))]
    for name, path in rows:
        is_directory = files.is_directory(path)
        if is_directory:
            inner.append(path)
        if (call.has("File") and is_directory) or (call.has("Directory") and not is_directory):
            continue
        if include and not any(fnmatchcase(name.lower(), one) for one in include):
            continue
        if (
            not call.has("Force")
            and set(files.attributes(path, follow=False)) & {"H", "S"}
            and not call.has("Hidden")
        ):
            continue
        if call.has("Hidden") and "H" not in files.attributes(path, follow=False):
            continue
        if call.has("ReadOnly") and "R" not in files.attributes(path, follow=False):
            continue
        if exclude and any(fnmatchcase(name.lower(), one) for one in exclude):
            continue
        if fnmatchcase(name.lower(), mask.lower()):
            call.emit(_shown(call, path, top))
    if call.has("Recurse") and (depth is None or depth > 0):
        for path in inner:
            _walk(call, path, mask, None if depth is None else depth - 1, top)


def _get_item(call: CmdletCall) -> None:
    for given in path_arguments(call):
        if given.lower().startswith("env:"):
            name = given[4:].strip("\\/")
            call.emit(
                PsObject(
                    "System.Collections.DictionaryEntry",
                    {"Name": name, "Value": call.evaluator.env.get(name)},
                    name,
                )
            )
            continue
        if is_certificate_path(given):
            emit_certificates(call, given, certificate_items(call, given))
            continue
        key = cmdlets_registry.registry_key_path(call, given)
        if key is not None:
            cmdlets_registry.get_key(call, key)
            continue
        for path in expand_wildcards(call, given):
            try:
                call.emit(directory_entry(call, path, call.process.files.stat(path, follow=False)))
            except OSError:
                fail_missing_path(call, path)


def _new_item(call: CmdletCall) -> None:
    files = call.process.files
    kind = call.text("ItemType", call.text("Type", "File")).lower()
    if call.cmdlet.name == "New-Directory":
        kind = "directory"
    for given in path_arguments(call):
        path = files.join(given, call.text("Name")) if call.has("Name") else given
        if path.lower().startswith("env:"):
            call.evaluator.put(path, call.get("Value"))
            continue
        key = cmdlets_registry.registry_key_path(call, path)
        if key is not None:
            cmdlets_registry.new_key(call, key)
            continue
        full = files.absolute(path)
        try:
            if kind == "directory":
                if files.exists(path) and not call.has("Force"):
                    call.fail(
                        f"An item with the specified name {full} already exists.",
                        f"ResourceExists: ({full}:String) [New-Item], IOException",
                        "DirectoryExist",
                    )
                    continue
                files.mkdir(path, parents=True)
            elif kind in _LINK_KINDS:
                if not _make_link(call, kind, path):
                    continue
            else:
                if files.exists(path) and not call.has("Force"):
                    call.fail(
                        f"The file '{full}' already exists.",
                        f"WriteError: ({full}:String) [New-Item], IOException",
                        "NewItemIOError",
                    )
                    continue
                if call.has("Force") and not files.is_directory(files.parent(full)):
                    files.mkdir(files.parent(full), parents=True)
                files.write(path, to_text(call.get("Value", "")).encode())
        except FileNotFoundError:
            call.fail(
                f"Could not find a part of the path '{full}'.",
                f"WriteError: ({full}:String) [New-Item], DirectoryNotFoundException",
                "NewItemIOError",
            )
            continue
        except OSError:
            _denied(call, path)
            continue
        call.emit(directory_entry(call, path, files.stat(path, follow=False)))


_LINK_KINDS = ("symboliclink", "junction", "hardlink")


def _make_link(call: CmdletCall, kind: str, path: str) -> bool:
    files, full = call.process.files, call.process.files.absolute(path)
    target = call.text("Value", call.text("Target"))
    if kind == "symboliclink" and not call.process.context.windows.account.administrator:
        call.fail(
            "Administrator privilege required for this operation.",
            f"PermissionDenied: ({target}:String) [New-Item], UnauthorizedAccessException",
            "NewItemSymbolicLinkElevationRequired",
        )
        return False
    if kind != "symboliclink" and not files.exists(target):
        fail_missing_path(call, target)
        return False
    try:
        if kind == "hardlink":
            files.link(target, path)
        elif kind == "junction":
            files.junction(target, path)
        else:
            files.symlink(target, path)
    except FileExistsError:
        call.fail(
            f"NewItemIOError : The file '{full}' already exists.",
            f"WriteError: ({full}:String) [New-Item], IOException",
            "NewItemIOError",
        )
        return False
    return True


def _remove_item(call: CmdletCall) -> None:
    files = call.process.files
    for given in path_arguments(call):
        if given.lower().startswith("env:"):
            call.evaluator.put(given, None)
            continue
        if is_certificate_path(given):
            remove_certificates(call, given)
            continue
        key = cmdlets_registry.registry_key_path(call, given)
        if key is not None:
            cmdlets_registry.remove_key(call, key)
            continue
        for path in expand_wildcards(call, given):
            try:
                state = files.stat(path, follow=False)
                recursive = call.has("Recurse")
                if state.kind == "directory" and files.listdir(path) and not recursive:
                    call.fail(
                        (
                            f"The item at {files.absolute(path)} has children and the Recurse "
                            "parameter was not specified."
                        ),
                        f"WriteError: ({files.absolute(path)}:String) [Remove-Item], IOException",
                        "DirectoryNotEmpty",
                    )
                    continue
                if "R" in files.attributes(path, follow=False) and not call.has("Force"):
                    full = files.absolute(path)
                    call.fail(
                        f"Cannot remove item {full}: You do not have sufficient access rights to "
                        "perform this operation.",
                        f"PermissionDenied: ({full}:String) [Remove-Item], IOException",
                        "RemoveFileSystemItemUnAuthorizedAccess",
                    )
                    continue
                files.remove(path, recursive=recursive or state.kind == "directory")
            except FileNotFoundError:
                fail_missing_path(call, path)
            except OSError:
                _denied(call, path)


def _test_path(call: CmdletCall) -> None:
    for given in path_arguments(call):
        if given.lower().startswith("env:"):
            wanted = given[4:].strip("\\/")
            call.emit(
                not wanted or any(matches_wildcard(name, wanted) for name in call.evaluator.env)
            )
            continue
        items = drive_items(call, given)
        if items is not None:
            call.emit(bool(items))
            continue
        if is_certificate_path(given):
            call.emit(certificate_items(call, given) is not None)
            continue
        key = cmdlets_registry.registry_key_path(call, given)
        if key is not None:
            call.emit(cmdlets_registry.exists(call, key))
            continue
        files = call.process.files
        kind = call.text("PathType", "Any").lower()
        found = [path for path in expand_wildcards(call, given) if files.exists(path)]
        call.emit(
            any(
                kind == "any" or files.is_directory(path) == (kind == "container") for path in found
            )
        )


async def _copy_item(call: CmdletCall) -> None:
    files = call.process.files
    target = call.text("Destination", ".")
    for given in path_arguments(call):
        key = cmdlets_registry.registry_key_path(call, given)
        if key is not None:
            place = cmdlets_registry.registry_key_path(call, target) or target
            for one in cmdlets_registry.expand_key(call, key):
                cmdlets_registry.copy_key(call, one, place)
            continue
        for path in expand_wildcards(call, given):
            place = (
                files.join(target, files.base(files.absolute(path)))
                if files.is_directory(target)
                else target
            )
            try:
                if files.is_directory(path) and not call.has("Recurse"):
                    files.mkdir(place, parents=True)
                    continue
                if call.has("Force") and files.exists(place) and not files.is_directory(place):
                    files.set_attributes(place, "", "R")
                await copy_tree(call.process, path, place, follow=True, preserve=False)
            except FileNotFoundError:
                fail_missing_path(call, path if not files.exists(path) else place)
            except OSError:
                _denied(call, place)
            else:
                if call.has("PassThru"):
                    call.emit(directory_entry(call, place, files.stat(place, follow=False)))


async def _move_item(call: CmdletCall) -> None:
    files = call.process.files
    target = call.text("Destination", call.text("NewName"))
    block = call.get("NewName")
    for given in path_arguments(call):
        for path in expand_wildcards(call, given):
            if isinstance(block, ScriptBlock) and files.exists(path):
                item = directory_entry(call, path, files.stat(path, follow=False))
                target = to_text(unrolled(await call.evaluator.invoke(block, [], item)))
            place = (
                files.join(target, files.base(files.absolute(path)))
                if files.is_directory(target)
                else target
            )
            if call.cmdlet.name == "Rename-Item":
                place = files.join(files.parent(files.absolute(path)), target)
            try:
                files.rename(path, place)
            except FileNotFoundError:
                fail_missing_path(call, path)
            except OSError:
                _denied(call, path)
            else:
                if call.has("PassThru"):
                    call.emit(directory_entry(call, place, files.stat(place, follow=False)))


def _file_hash(call: CmdletCall) -> None:
    for path in path_arguments(call):
        algorithm = call.text("Algorithm", "SHA256")
        digest = (
            hashlib.new(algorithm.lower(), call.process.files.read(path), usedforsecurity=False)
            .hexdigest()
            .upper()
        )
        call.emit(
            PsObject(
                "Microsoft.Powershell.Utility.FileHash",
                {
                    "Algorithm": algorithm.upper(),
                    "Hash": digest,
                    "Path": call.process.files.absolute(path),
                },
            )
        )


CMDLETS = (
    cmdlet_row("Unblock-File", _unblock, "Path*", "", "LiteralPath"),
    cmdlet_row(
        "Get-Content",
        _get_content,
        "Path",
        "Raw Wait",
        "LiteralPath TotalCount First Head Tail Last Encoding ReadCount",
    ),
    cmdlet_row(
        "Set-Content", _set_content, "Path Value", "NoNewline Force", "LiteralPath Encoding"
    ),
    cmdlet_row(
        "Add-Content", _add_content, "Path Value", "NoNewline Force", "LiteralPath Encoding"
    ),
    cmdlet_row("Clear-Content", _clear_content, "Path", "Force", "LiteralPath"),
    cmdlet_row(
        "Get-ChildItem",
        _children,
        "Path Filter",
        "Recurse Force File Directory Name Hidden ReadOnly",
        "LiteralPath Include Exclude Depth",
    ),
    cmdlet_row("Get-Item", _get_item, "Path", "Force", "LiteralPath Include Exclude"),
    cmdlet_row("New-Item", _new_item, "Path", "Force", "ItemType Type Name Value Target"),
    cmdlet_row("New-Directory", _new_item, "Path", "Force", "Name"),
    cmdlet_row("Remove-Item", _remove_item, "Path", "Recurse Force", "LiteralPath Include Exclude"),
    cmdlet_row("Test-Path", _test_path, "Path", "IsValid", "LiteralPath PathType"),
    cmdlet_row(
        "Copy-Item",
        _copy_item,
        "Path Destination",
        "Recurse Force PassThru",
        "LiteralPath Include Exclude",
    ),
    cmdlet_row("Move-Item", _move_item, "Path Destination", "Force PassThru", "LiteralPath"),
    cmdlet_row("Rename-Item", _move_item, "Path NewName", "Force PassThru", "LiteralPath"),
    cmdlet_row("Get-FileHash", _file_hash, "Path", "", "Algorithm"),
)
