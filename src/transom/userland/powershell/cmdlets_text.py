"""Cmdlets for CSV files and archives, and small ones for the session."""

from __future__ import annotations

import csv
import io
import ntpath
import zipfile
from typing import Any

from transom.userland.limits import MAX_INPUT, check_size
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.cmdlets_output import encode_text, write_stream
from transom.userland.powershell.formatting import property_text
from transom.userland.powershell.values import (
    Hashtable,
    PowerShellError,
    PsObject,
    to_items,
    to_number,
    to_text,
)
from transom.userland.powershell.wildcard_paths import expand_path

_CUSTOM = "System.Management.Automation.PSCustomObject"


def _quoted(value: Any) -> str:
    return '"' + to_text(value).replace('"', '""') + '"'


def csv_lines(call: CmdletCall, values: list[Any]) -> list[str]:
    first = values[0] if values else None
    names = (
        list(first.properties)
        if isinstance(first, PsObject)
        else list(first)
        if isinstance(first, Hashtable)
        else []
    )
    separator = call.text("Delimiter", ",")
    lines = (
        []
        if call.has("NoTypeInformation") or not isinstance(first, PsObject)
        else [f"#TYPE {first.kind}"]
    )
    lines.append(separator.join(_quoted(name) for name in names))
    for value in values:
        cells = [property_text(value, name) for name in names]
        lines.append(separator.join("" if cell is None else _quoted(cell) for cell in cells))
    return lines


def _to_csv(call: CmdletCall) -> None:
    values = call.input if call.input is not None else to_items(call.get("InputObject"))
    for line in csv_lines(call, values):
        call.emit(line)


def _export(call: CmdletCall) -> None:
    values = call.input if call.input is not None else to_items(call.get("InputObject"))
    lines = csv_lines(call, values)
    path = call.text("LiteralPath", call.text("Path"))
    append = call.has("Append") and call.process.files.exists(path)
    if append:
        lines = [line for line in lines if not line.startswith("#TYPE")][1:]
    text = "".join(line + "\r\n" for line in lines)
    write_stream(call, path, encode_text(call, text, mark=not append), append=append)


def _rows(call: CmdletCall, source: str) -> None:
    lines = [
        line
        for line in source.replace("\r\n", "\n").split("\n")
        if line and not line.startswith("#TYPE")
    ]
    reader = csv.reader(
        io.StringIO("\n".join(lines)), delimiter=call.text("Delimiter", ",")[:1] or ","
    )
    names: list[str] | None = [to_text(one) for one in to_items(call.get("Header"))] or None
    for cells in reader:
        if names is None:
            names = cells
            continue
        padded = [*cells, *([None] * (len(names) - len(cells)))]
        call.emit(PsObject(_CUSTOM, dict(zip(names, padded, strict=False))))


def _import(call: CmdletCall) -> None:
    for path in to_items(call.get("Path", call.get("LiteralPath"))) or (call.input or []):
        try:
            _rows(call, call.process.files.read(to_text(path)).decode("utf-8-sig", "replace"))
        except FileNotFoundError:
            full = call.process.files.absolute(to_text(path))
            call.fail(
                f"Could not find file '{full}'.",
                "OpenError: (:) [Import-Csv], FileNotFoundException",
                "FileOpenFailure",
            )


def _from_csv(call: CmdletCall) -> None:
    values = call.input if call.input is not None else to_items(call.get("InputObject"))
    _rows(call, "\n".join(to_text(value) for value in values))


def _string_data(call: CmdletCall) -> None:
    for given in to_items(call.get("StringData")) or (call.input or []):
        table = Hashtable()
        for line in to_text(given).replace("\r\n", "\n").split("\n"):
            name, equals, value = line.partition("=")
            if equals and not line.strip().startswith("#"):
                table.put(name.strip(), value.strip())
        call.emit(table)


def _unique(call: CmdletCall) -> None:
    last: Any = None
    for index, value in enumerate(call.objects()):
        if index == 0 or to_text(value) != to_text(last):
            call.emit(value)
        last = value


def _convert_path(call: CmdletCall) -> None:
    for path in to_items(call.get("LiteralPath", call.get("Path"))) or (call.input or []):
        if not call.process.files.exists(to_text(path)):
            full = call.process.files.absolute(to_text(path))
            call.fail(
                f"Cannot find path '{full}' because it does not exist.",
                f"ObjectNotFound: ({full}:String) [Convert-Path], ItemNotFoundException",
                "PathNotFound",
            )
            continue
        call.emit(call.process.files.absolute(to_text(path)))


def _remove_variable(call: CmdletCall) -> None:
    for name in to_items(call.get("Name")):
        for scope in call.evaluator.scopes:
            if call.cmdlet.name == "Clear-Variable" and to_text(name).lower() in scope:
                scope[to_text(name).lower()] = None
            else:
                scope.pop(to_text(name).lower(), None)


def _wide(call: CmdletCall) -> None:
    names = [
        to_text(property_text(value, call.text("Property", "Name")) or value)
        for value in call.input or []
    ]
    columns = max(1, int(to_number(call.get("Column", 2))))
    width = max(1, 80 // columns - 1)
    call.evaluator.flush()
    call.process.write("\r\n\r\n")
    for start in range(0, len(names), columns):
        row = names[start : start + columns]
        call.process.write("".join(f"{name[:width]:<{width}} " for name in row).rstrip() + "\r\n")
    call.process.write("\r\n\r\n")


def _help(call: CmdletCall) -> None:
    cmdlet = call.evaluator.cmdlets.find(call.text("Name"))
    if cmdlet is None:
        call.fail(
            f"Get-Help could not find {call.text('Name')} in a help file in this session.",
            "ResourceUnavailable: (:) [Get-Help], HelpNotFoundException",
            "HelpNotFound",
        )
        return
    words = [f"[[-{one.rstrip('*')}] <Object>]" for one in cmdlet.positional]
    words += [f"[-{one} <Object>]" for one in cmdlet.named] + [
        f"[-{one}]" for one in sorted(cmdlet.switches)
    ]
    call.emit(
        f"\nNAME\n    {cmdlet.name}\n\nSYNTAX\n    {cmdlet.name} {' '.join(words)} "
        "[<CommonParameters>]\n"
    )


def _archived_paths(call: CmdletCall) -> list[str]:
    """What Compress-Archive is to add; `folder\\*` stays, for the content of a folder."""
    out: list[str] = []
    for given in to_items(call.get("Path", call.get("LiteralPath"))) or (call.input or []):
        path = to_text(given.get("FullName") if isinstance(given, PsObject) else given)
        whole = path.endswith("\\*") or call.has("LiteralPath")
        out += [path] if whole else expand_path(call.process.files, path) or [path]
    return out


def _compress(call: CmdletCall) -> None:
    files, target = call.process.files, call.text("DestinationPath")
    if files.exists(target) and not call.has("Force") and not call.has("Update"):
        raise PowerShellError(
            f"The archive file {files.absolute(target)} already exists. Use the -Update "
            "parameter to update the existing "
            "archive file or use the -Force parameter to overwrite the existing archive file."
        )
    held = io.BytesIO()
    size = 0
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for top in _archived_paths(call):
            inner = top.endswith("\\*")
            top = files.absolute(top.removesuffix("\\*"))
            if not files.exists(top):
                raise PowerShellError(
                    f"The path '{top}' either does not exist or is not a valid file system path."
                )
            for path, state in files.walk(top):
                if state.kind == "file":
                    size += state.size
                    check_size(size, MAX_INPUT)
                    name = path[len(top if inner else ntpath.dirname(top)) :].lstrip("\\")
                    archive.writestr(name.replace("\\", "/"), files.read(path))
    write_stream(call, target, held.getvalue())


def _expand(call: CmdletCall) -> None:
    files = call.process.files
    source = to_text(call.get("Path", call.get("LiteralPath")))
    target = call.text("DestinationPath", ntpath.splitext(source)[0])
    try:
        archive = zipfile.ZipFile(io.BytesIO(files.read(source)))
    except FileNotFoundError:
        raise PowerShellError(
            f"The path '{source}' either does not exist or is not a valid file system path."
        ) from None
    except zipfile.BadZipFile:
        raise PowerShellError(
            'Exception calling ".ctor" with "3" argument(s): "End of Central Directory '
            "record could not be "
            'found."'
        ) from None
    check_size(sum(one.file_size for one in archive.infolist()), MAX_INPUT)
    for one in archive.infolist():
        path = files.absolute(ntpath.join(target, one.filename.replace("/", "\\")))
        if not path.lower().startswith(files.absolute(target).lower()):
            continue  # an entry whose path leaves the directory
        if one.is_dir():
            files.mkdir(path, parents=True)
            continue
        if files.exists(path) and not call.has("Force"):
            raise PowerShellError(
                f"Failed to create file '{path}' while expanding the archive file '{source}' "
                "contents as the "
                f"file '{path}' already exists. Use the -Force parameter if you want to overwrite."
            )
        files.mkdir(files.parent(path), parents=True)
        files.write(path, archive.read(one))


def _nothing(call: CmdletCall) -> None:
    return


CMDLETS = (
    cmdlet_row("ConvertTo-Csv", _to_csv, "InputObject", "NoTypeInformation", "Delimiter"),
    cmdlet_row(
        "Export-Csv",
        _export,
        "Path",
        "NoTypeInformation Append Force",
        "InputObject Delimiter Encoding LiteralPath",
    ),
    cmdlet_row("Import-Csv", _import, "Path", "", "Delimiter Header LiteralPath Encoding"),
    cmdlet_row("ConvertFrom-Csv", _from_csv, "InputObject", "", "Delimiter Header"),
    cmdlet_row("ConvertFrom-StringData", _string_data, "StringData"),
    cmdlet_row("Get-Unique", _unique, "", "AsString OnType", "InputObject"),
    cmdlet_row("Convert-Path", _convert_path, "Path", "", "LiteralPath"),
    cmdlet_row("Remove-Variable", _remove_variable, "Name", "Force", "Scope"),
    cmdlet_row("Clear-Variable", _remove_variable, "Name", "Force", "Scope"),
    cmdlet_row("Format-Wide", _wide, "Property", "AutoSize", "Column"),
    cmdlet_row("Get-Help", _help, "Name", "Full Examples Detailed Online"),
    cmdlet_row("Get-History", _nothing, "Id"),
    cmdlet_row(
        "Compress-Archive",
        _compress,
        "Path DestinationPath",
        "Force Update",
        "LiteralPath CompressionLevel",
    ),
    cmdlet_row("Expand-Archive", _expand, "Path DestinationPath", "Force", "LiteralPath"),
)
