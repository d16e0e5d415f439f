"""Cmdlets over files: Get-Content, Get-ChildItem, New-Item, Test-Path and their like. Env: is a drive, too."""

from __future__ import annotations

import hashlib
import ntpath
from fnmatch import fnmatchcase
from typing import Any

from transom.hosts.api import Stat
from transom.runtime.sim.programs.commands.files import copy_tree
from transom.runtime.sim.programs.powershell.cmdlets import Call, row
from transom.runtime.sim.programs.powershell.cmdlets_output import write
from transom.runtime.sim.programs.powershell.values import DateTime, PsObject, items, number, text
from transom.runtime.sim.programs.win.system import registry_of


def _paths(call: Call, name: str = "Path") -> list[str]:
    given = call.get(name, call.get("LiteralPath"))
    if given is None and call.input is not None:
        return [text(value.get("FullName") or value) if isinstance(value, PsObject) else text(value) for value in call.input]
    return [text(value.get("FullName") or value) if isinstance(value, PsObject) else text(value) for value in items(given)]


def _missing(call: Call, path: str) -> None:
    full = call.process.files.absolute(path)
    call.fail(
        f"Cannot find path '{full}' because it does not exist.",
        f"ObjectNotFound: ({full}:String) [{call.cmdlet.name}], ItemNotFoundException",
        "PathNotFound",
    )


def _denied(call: Call, path: str) -> None:
    full = call.process.files.absolute(path)
    call.fail(
        f"Access to the path '{full}' is denied.",
        f"PermissionDenied: ({full}:String) [{call.cmdlet.name}], UnauthorizedAccessException",
        "UnauthorizedAccessError",
    )


def _expand(call: Call, path: str) -> list[str]:
    """Files that a path with wildcards means."""
    if "*" not in path and "?" not in path:
        return [path]
    directory, mask = ntpath.split(path.replace("/", "\\"))
    files = call.process.files
    try:
        names = files.listdir(directory or ".")
    except OSError:
        return []
    mask = "*" if mask == "*.*" else mask
    return [files.join(directory, name) if directory else name for name in names if fnmatchcase(name.lower(), mask.lower())]


async def _get_content(call: Call) -> None:
    files = call.process.files
    for path in [one for given in _paths(call) for one in _expand(call, given)]:
        try:
            data = files.read(path)
        except FileNotFoundError:
            _missing(call, path)
            continue
        except OSError:
            _denied(call, path)
            continue
        content = data.decode("utf-8-sig", "surrogateescape")
        if call.has("Raw"):
            call.emit(content)
            continue
        found = content.replace("\r\n", "\n").removesuffix("\n").split("\n") if content else []
        if call.has("TotalCount") or call.has("First") or call.has("Head"):
            found = found[: int(number(call.get("TotalCount", call.get("First", call.get("Head")))))]
        if call.has("Tail") or call.has("Last"):
            count = int(number(call.get("Tail", call.get("Last"))))
            found = found[-count:] if count else []
        for line in found:
            call.emit(line)
        if call.has("Wait"):
            await _follow(call, path, len(data))


async def _follow(call: Call, path: str, seen: int) -> None:
    while True:
        await call.process.sleep(1)
        try:
            data = call.process.files.read(path)
        except OSError:
            continue
        fresh = data[seen:].decode("utf-8", "surrogateescape").replace("\r\n", "\n").removesuffix("\n")
        seen = len(data)
        if fresh:
            for line in fresh.split("\n"):
                call.emit(line)


def _content(call: Call) -> bytes:
    values = call.input if call.input is not None and not call.has("Value") else items(call.get("Value"))
    end = "" if call.has("NoNewline") else "\r\n"
    return "".join(text(value) + end for value in values).encode("utf-8", "surrogateescape")


def _set_content(call: Call) -> None:
    for path in _paths(call):
        write(call, path, _content(call))


def _add_content(call: Call) -> None:
    for path in _paths(call):
        write(call, path, _content(call), append=True)


def _clear_content(call: Call) -> None:
    for path in _paths(call):
        write(call, path, b"")


def file_object(call: Call, path: str, state: Stat) -> PsObject:
    files = call.process.files
    full = files.absolute(path)
    directory = state.kind == "directory" or (state.kind == "symlink" and files.is_directory(full))
    mode = (
        ("d" if directory else "-")
        + ("-" if directory else "a")
        + ("r" if not state.mode & 0o200 else "-")
        + "--"
        + ("l" if state.kind == "symlink" else "-")
    )
    name = files.base(full) or full
    stem, extension = ntpath.splitext(name)
    properties: dict[str, Any] = {
        "Name": name,
        "FullName": full,
        "BaseName": stem,
        "Extension": extension,
        "Mode": mode,
        "LastWriteTime": DateTime(state.mtime),
        "CreationTime": DateTime(state.mtime),
        "Length": None if directory else state.size,
        "DirectoryName": files.parent(full),
        "PSIsContainer": directory,
        "Exists": True,
        "Attributes": "Directory" if directory else "Archive",
    }
    if state.kind == "symlink":
        properties["Target"] = files.readlink(full)
        properties["LinkType"] = "SymbolicLink"
    return PsObject("System.IO.DirectoryInfo" if directory else "System.IO.FileInfo", properties, name)


def _children(call: Call) -> None:
    files = call.process.files
    for given in _paths(call) or ["."]:
        if given.lower().startswith("env:"):
            for name, value in call.evaluator.env.items():
                call.emit(PsObject("System.Collections.DictionaryEntry", {"Name": name, "Value": value}, name))
            continue
        path, mask = given, call.text("Filter", "*")
        if "*" in given or "?" in given:
            path, mask = ntpath.split(given.replace("/", "\\"))
            path = path or "."
        if not files.exists(path):
            _missing(call, given)
            continue
        if not files.is_directory(path):
            call.emit(_shown(call, path))
            continue
        _walk(call, path, "*" if mask == "*.*" else mask)


def _shown(call: Call, path: str) -> Any:
    made = file_object(call, path, call.process.files.stat(path, follow=False))
    return made.text if call.has("Name") else made


def _walk(call: Call, directory: str, mask: str) -> None:
    files = call.process.files
    inner: list[str] = []
    try:
        names = files.listdir(directory)
    except OSError:
        _denied(call, directory)
        return
    rows = [(name, files.join(directory, name)) for name in names]
    rows.sort(key=lambda row: (not files.is_directory(row[1]), row[0].lower()))
    include = [text(one).lower() for one in items(call.get("Include"))]
    for name, path in rows:
        is_directory = files.is_directory(path)
        if is_directory:
            inner.append(path)
        if (call.has("File") and is_directory) or (call.has("Directory") and not is_directory):
            continue
        if include and not any(fnmatchcase(name.lower(), one) for one in include):
            continue
        if fnmatchcase(name.lower(), mask.lower()):
            call.emit(_shown(call, path))
    if call.has("Recurse"):
        for path in inner:
            _walk(call, path, mask)


def _get_item(call: Call) -> None:
    for given in _paths(call):
        if given.lower().startswith("env:"):
            name = given[4:]
            call.emit(
                PsObject("System.Collections.DictionaryEntry", {"Name": name, "Value": call.evaluator.env.get(name)}, name)
            )
            continue
        for path in _expand(call, given):
            try:
                call.emit(file_object(call, path, call.process.files.stat(path, follow=False)))
            except OSError:
                _missing(call, path)


def _new_item(call: Call) -> None:
    files = call.process.files
    kind = call.text("ItemType", call.text("Type", "File")).lower()
    if call.cmdlet.name == "New-Directory":
        kind = "directory"
    for given in _paths(call):
        path = files.join(given, call.text("Name")) if call.has("Name") else given
        if path.lower().startswith("env:"):
            call.evaluator.put(path, call.get("Value"))
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
            elif kind in ("symboliclink", "junction"):
                files.symlink(call.text("Value", call.text("Target")), path)
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
                files.write(path, text(call.get("Value", "")).encode())
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
        call.emit(file_object(call, path, files.stat(path, follow=False)))


def _remove_item(call: Call) -> None:
    files = call.process.files
    for given in _paths(call):
        if given.lower().startswith("env:"):
            call.evaluator.put(given, None)
            continue
        for path in _expand(call, given):
            try:
                state = files.stat(path, follow=False)
                recursive = call.has("Recurse")
                if state.kind == "directory" and files.listdir(path) and not recursive:
                    call.fail(
                        f"The item at {files.absolute(path)} has children and the Recurse parameter was not specified.",
                        f"WriteError: ({files.absolute(path)}:String) [Remove-Item], IOException",
                        "DirectoryNotEmpty",
                    )
                    continue
                files.remove(path, recursive=recursive or state.kind == "directory")
            except FileNotFoundError:
                _missing(call, path)
            except OSError:
                _denied(call, path)


def _test_path(call: Call) -> None:
    for given in _paths(call):
        if given.lower().startswith("env:"):
            call.emit(given[4:] in call.evaluator.env)
            continue
        if given.lower().startswith(("hklm:", "registry::")):
            call.emit(registry_of(call.process).exists(_registry_key(given)))
            continue
        files = call.process.files
        kind = call.text("PathType", "Any").lower()
        found = [path for path in _expand(call, given) if files.exists(path)]
        call.emit(any(kind == "any" or files.is_directory(path) == (kind == "container") for path in found))


def _registry_key(path: str) -> str:
    path = path.removeprefix("Registry::").removeprefix("registry::")
    return path.replace("HKLM:", "HKLM").replace("hklm:", "HKLM").replace("HKEY_LOCAL_MACHINE", "HKLM").replace("/", "\\")


def _item_property(call: Call) -> None:
    for given in _paths(call):
        if not given.lower().startswith(("hklm:", "hkcu:", "registry::", "hklm\\")):
            try:
                call.emit(file_object(call, given, call.process.files.stat(given)))
            except OSError:
                _missing(call, given)
            continue
        values = registry_of(call.process).values(_registry_key(given).rstrip("\\"))
        if values is None:
            _missing(call, given)
            continue
        names = [text(name) for name in items(call.get("Name"))]
        picked = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in values.items()
            if not names or key.lower() in (name.lower() for name in names)
        }
        if call.cmdlet.name == "Get-ItemPropertyValue":
            for value in picked.values():
                call.emit(value)
        else:
            call.emit(PsObject("System.Management.Automation.PSCustomObject", picked))


def _copy_item(call: Call) -> None:
    files = call.process.files
    target = call.text("Destination", ".")
    for given in _paths(call):
        for path in _expand(call, given):
            place = files.join(target, files.base(files.absolute(path))) if files.is_directory(target) else target
            try:
                if files.is_directory(path) and not call.has("Recurse"):
                    files.mkdir(place, parents=True)
                    continue
                copy_tree(call.process, path, place, follow=True, preserve=False)
            except FileNotFoundError:
                _missing(call, path if not files.exists(path) else place)
            except OSError:
                _denied(call, place)


def _move_item(call: Call) -> None:
    files = call.process.files
    target = call.text("Destination", call.text("NewName"))
    for given in _paths(call):
        for path in _expand(call, given):
            place = files.join(target, files.base(files.absolute(path))) if files.is_directory(target) else target
            if call.cmdlet.name == "Rename-Item":
                place = files.join(files.parent(files.absolute(path)), target)
            try:
                files.rename(path, place)
            except FileNotFoundError:
                _missing(call, path)
            except OSError:
                _denied(call, path)


def _get_location(call: Call) -> None:
    cwd = call.process.cwd
    call.emit(PsObject("System.Management.Automation.PathInfo", {"Path": cwd}, cwd))


def _set_location(call: Call) -> None:
    path = (_paths(call) or ["."])[0]
    if not call.process.files.is_directory(path):
        _missing(call, path)
        return
    call.process.cwd = call.process.files.absolute(path)


def _join_path(call: Call) -> None:
    for path in _paths(call):
        call.emit(ntpath.join(path, call.text("ChildPath").lstrip("\\")))


def _split_path(call: Call) -> None:
    for path in _paths(call):
        call.emit(ntpath.basename(path) if call.has("Leaf") else ntpath.dirname(path))


def _resolve_path(call: Call) -> None:
    for path in _paths(call):
        if not call.process.files.exists(path):
            _missing(call, path)
            continue
        full = call.process.files.absolute(path)
        call.emit(PsObject("System.Management.Automation.PathInfo", {"Path": full}, full))


def _file_hash(call: Call) -> None:
    for path in _paths(call):
        algorithm = call.text("Algorithm", "SHA256")
        digest = hashlib.new(algorithm.lower(), call.process.files.read(path), usedforsecurity=False).hexdigest().upper()
        call.emit(
            PsObject(
                "Microsoft.Powershell.Utility.FileHash",
                {"Algorithm": algorithm.upper(), "Hash": digest, "Path": call.process.files.absolute(path)},
            )
        )


CMDLETS = (
    row("Get-Content", _get_content, "Path", "Raw Wait", "LiteralPath TotalCount First Head Tail Last Encoding ReadCount"),
    row("Set-Content", _set_content, "Path Value", "NoNewline Force", "LiteralPath Encoding"),
    row("Add-Content", _add_content, "Path Value", "NoNewline Force", "LiteralPath Encoding"),
    row("Clear-Content", _clear_content, "Path", "Force", "LiteralPath"),
    row(
        "Get-ChildItem",
        _children,
        "Path Filter",
        "Recurse Force File Directory Name Hidden",
        "LiteralPath Include Exclude Depth",
    ),
    row("Get-Item", _get_item, "Path", "Force", "LiteralPath"),
    row("New-Item", _new_item, "Path", "Force", "ItemType Type Name Value Target"),
    row("New-Directory", _new_item, "Path", "Force", "Name"),
    row("Remove-Item", _remove_item, "Path", "Recurse Force", "LiteralPath Include Exclude"),
    row("Test-Path", _test_path, "Path", "IsValid", "LiteralPath PathType"),
    row("Get-ItemProperty", _item_property, "Path Name", "", "LiteralPath"),
    row("Get-ItemPropertyValue", _item_property, "Path Name", "", "LiteralPath"),
    row("Copy-Item", _copy_item, "Path Destination", "Recurse Force PassThru", "LiteralPath"),
    row("Move-Item", _move_item, "Path Destination", "Force", "LiteralPath"),
    row("Rename-Item", _move_item, "Path NewName", "Force", "LiteralPath"),
    row("Get-Location", _get_location),
    row("Set-Location", _set_location, "Path", "", "LiteralPath"),
    row("Push-Location", _set_location, "Path"),
    row("Join-Path", _join_path, "Path ChildPath"),
    row("Split-Path", _split_path, "Path", "Leaf Parent Qualifier"),
    row("Resolve-Path", _resolve_path, "Path", "", "LiteralPath"),
    row("Get-FileHash", _file_hash, "Path", "", "Algorithm"),
)
