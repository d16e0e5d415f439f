"""Cmdlets that print: Write-*, Out-*, Format-*, and those that convert objects to text."""

from __future__ import annotations

import codecs
import itertools
import json
from typing import Any, Final

from transom.userland.powershell import formatting
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.exceptions import open_failure
from transom.userland.powershell.selecting import selected
from transom.userland.powershell.values import (
    DateTime,
    Hashtable,
    PowerShellError,
    PsObject,
    table_entries,
    to_bool,
    to_items,
    to_number,
    to_text,
)


def _write_host(call: CmdletCall) -> None:
    separator = call.text("Separator", " ")
    values = (
        call.input
        if call.input is not None and not call.has("Object")
        else to_items(call.get("Object"))
    )
    shown = separator.join(to_text(value) for value in values)
    if "6" in call.evaluator.streams:
        call.evaluator.write_stream("6", "", "Information", shown)
        return
    call.evaluator.flush()
    call.process.write(shown + ("" if call.has("NoNewline") else "\r\n"))


def _write_output(call: CmdletCall) -> None:
    if call.has("NoEnumerate") and call.input is None:
        call.emit(call.get("InputObject"))
        return
    for value in call.objects():
        call.emit(value)


def _write_error(call: CmdletCall) -> None:
    message = call.text("Message", to_text(call.input[-1]) if call.input else "")
    calls = call.evaluator.calls
    first = next((line for line in call.evaluator.script.splitlines() if line.strip()), "").strip()
    identity = "Microsoft.PowerShell.Commands.WriteErrorException"
    given = call.get("Exception")
    if given is not None:
        message = message or to_text(given.get("Message") if isinstance(given, PsObject) else given)
    error = PowerShellError(
        message,
        f"{call.text('Category', 'NotSpecified')}: (:) [Write-Error], WriteErrorException",
        call.text("ErrorId", identity) + (f",{calls[-1]}" if calls else ""),
        where=calls[-1] if calls else first[:110],
    )
    if calls:  # the error is that of the function, where it was called
        error.extent = call.evaluator.call_extents[-1]
    else:
        error.has_position = False
    call.evaluator.success = False
    if call.text("ErrorAction").lower() == "stop":
        raise error
    call.evaluator.write_error(error)
    call.evaluator.success = False


def _write_warning(call: CmdletCall) -> None:
    messages = [call.get("Message")] if call.has("Message") else call.objects()
    for message in messages:
        call.warn(to_text(message))


def _write_if(prefix: str, switch: str) -> Any:
    """Shown with -Verbose or -Debug, or if the preference variable requests it."""

    def run(call: CmdletCall) -> None:
        preference = to_text(call.evaluator.get(f"{switch}Preference")).lower()
        if to_bool(call.get(switch)) or preference in ("continue", "inquire"):
            number = "4" if switch == "Verbose" else "5"
            call.evaluator.write_stream(number, f"{prefix}: ", switch, call.text("Message"))

    return run


def _write_to_information(call: CmdletCall) -> None:
    preference = to_text(call.evaluator.get("InformationPreference"))
    if call.text("InformationAction", preference).lower() == "continue":
        call.evaluator.write_stream("6", "", "Information", call.text("MessageData"))


def _write_information(call: CmdletCall) -> None:
    return


def _out_null(call: CmdletCall) -> None:
    return


def _out_host(call: CmdletCall) -> None:
    for value in call.objects():
        call.evaluator.show(value)
    call.evaluator.flush()


def _out_string(call: CmdletCall) -> None:
    shown = formatting.format_objects(call.objects())
    if call.has("Stream"):
        for line in shown.split("\r\n"):
            call.emit(line)
    else:
        call.emit(shown)


def _out_file(call: CmdletCall) -> None:
    if call.has("NoNewline"):
        text = "".join(to_text(value) for value in call.objects())
    else:
        text = formatting.format_objects(call.objects())
    _write_file(call, text)


def _write_file(call: CmdletCall, text: str) -> None:
    path, append = call.text("FilePath"), call.has("Append")
    fresh = not (append and call.process.files.exists(path))
    write_stream(call, path, encode_text(call, text, mark=fresh), append=append)


# The codec and the byte order mark of each value of -Encoding, in Windows PowerShell.
_ENCODINGS: Final = {
    "": ("utf-8", b""),
    "ascii": ("ascii", b""),
    "bigendianunicode": ("utf-16-be", codecs.BOM_UTF16_BE),
    "default": ("utf-8", b""),
    "oem": ("cp437", b""),
    "string": ("utf-16-le", codecs.BOM_UTF16_LE),
    "unicode": ("utf-16-le", codecs.BOM_UTF16_LE),
    "unknown": ("utf-16-le", codecs.BOM_UTF16_LE),
    "utf32": ("utf-32-le", codecs.BOM_UTF32_LE),
    "utf7": ("utf-7", b""),
    "utf8": ("utf-8", codecs.BOM_UTF8),
    "utf8bom": ("utf-8", codecs.BOM_UTF8),
    "utf8nobom": ("utf-8", b""),
}


_WRITE_UNICODE: Final = ("Out-File", "Tee-Object")  # by default, in Windows PowerShell


def text_encoding(call: CmdletCall) -> tuple[str, bytes]:
    """The codec and the byte order mark of -Encoding. Raises PowerShellError."""
    given = call.text("Encoding")
    known = _ENCODINGS.get(given.lower())
    if known is None:
        raise PowerShellError(
            f"Cannot bind parameter 'Encoding'. Cannot convert value \"{given}\" to type "
            '"Microsoft.PowerShell.Commands.FileSystemCmdletProviderEncoding".',
            f"InvalidArgument: (:) [{call.cmdlet.name}], ParameterBindingException",
            "CannotConvertArgumentNoMessage,"
            f"Microsoft.PowerShell.Commands.{call.cmdlet.name.replace('-', '')}Command",
            where=call.cmdlet.name,
        )
    core = call.process.name.startswith("pwsh")  # PowerShell 7 writes UTF-8 without a mark
    return known if not (core and given.lower() == "utf8") else ("utf-8", b"")


def encode_text(call: CmdletCall, text: str, *, mark: bool = True) -> bytes:
    """What a file gets, in the encoding of -Encoding."""
    codec, bom = text_encoding(call)
    if call.cmdlet.name in _WRITE_UNICODE and not call.has("Encoding") and not call.evaluator.core:
        codec, bom = _ENCODINGS["unicode"]
    if codec == "utf-8":
        return (bom if mark else b"") + text.encode(codec, "surrogateescape")
    return (bom if mark else b"") + text.encode(codec, "replace")


def write_stream(call: CmdletCall, path: str, data: bytes, *, append: bool = False) -> bool:
    """-Force also writes to a read-only file, which remains read-only."""
    files = call.process.files
    try:
        protected = (
            call.has("Force") and files.exists(path) and "R" in files.attributes(path, follow=True)
        )
        if protected:
            files.set_attributes(path, "", "R")
        if append:
            files.append(path, data)
        else:
            files.write(path, data)
        if protected:
            files.set_attributes(path, "R", "")
    except OSError as problem:
        if call.cmdlet.name not in _WRITE_UNICODE:
            _report_content_failure(call, files.absolute(path), problem)
            return False
        error = open_failure(path, files.absolute(path), problem, call.cmdlet.name)
        call.fail(error.message, error.category, error.identity)
        return False
    return True


def _report_content_failure(call: CmdletCall, full: str, problem: OSError) -> None:
    if isinstance(problem, FileNotFoundError):
        call.fail(
            f"Could not find a part of the path '{full}'.",
            f"ObjectNotFound: ({full}:String) [{call.cmdlet.name}], DirectoryNotFoundException",
            "GetContentWriterDirectoryNotFoundError",
        )
        return
    call.fail(
        f"Access to the path '{full}' is denied.",
        f"PermissionDenied: ({full}:String) [{call.cmdlet.name}], UnauthorizedAccessException",
        "GetContentWriterUnauthorizedAccessError",
    )


def _tee(call: CmdletCall) -> None:
    if call.has("FilePath"):
        _write_file(call, formatting.format_objects(call.objects()))
    elif call.has("Variable"):
        call.evaluator.put(call.text("Variable"), call.objects())
    for value in call.objects():
        call.emit(value)


def _column_names(value: Any, listed: bool) -> list[str]:
    """The properties that a table or a list shows by default."""
    if isinstance(value, PsObject):
        columns = formatting.list_names(value) if listed else formatting.default_columns(value)
        names = list(columns if columns is not None else formatting.shown_properties(value))
        return names if listed else names[:_MAX_COLUMNS]
    return [to_text(key) for key in value] if isinstance(value, Hashtable) else []


_MAX_COLUMNS = 10


def _format(shape: Any) -> Any:
    async def run(call: CmdletCall) -> None:
        values = call.objects()
        if not values:
            return
        listed = shape is formatting.as_list
        values = [
            row
            for value in values
            for row in (table_entries(value) if isinstance(value, Hashtable) else [value])
        ]
        if not values:
            return
        wanted = [one for one in to_items(call.get("Property")) if one != "*"]
        every = call.has("Property") and not wanted
        first = values[0]
        call.evaluator.flush()
        names: list[str] = []
        rows: list[Any] = values
        if wanted:
            rows = [PsObject("Formatted", await selected(call, value, wanted)) for value in values]
            names = list(rows[0].properties)
            shown = shape(rows, names)
        elif not every and not listed and formatting.has_own_view(first):
            shown = formatting.format_objects(values)
        else:
            names = list(first.properties) if every and isinstance(first, PsObject) else []
            names = names or _column_names(first, listed)
            shown = shape(values, names) if names else formatting.format_objects(values)
        grouped = call.text("GroupBy")
        if grouped and names:
            shown = await _by_group(call, values, rows if wanted else values, names, grouped, shape)
        if call.has("HideTableHeaders"):
            shown = "\r\n".join(shown.split("\r\n")[3:])
        if call.evaluator.emit == call.evaluator.show:
            call.process.write(shown)
        else:
            for line in shown.split("\r\n"):
                call.emit(line)

    return run


async def _by_group(
    call: CmdletCall, values: list[Any], rows: list[Any], names: list[str], by: str, shape: Any
) -> str:
    """-GroupBy: a table or list for each run of objects with the same value."""
    keys = [
        to_text(next(iter((await selected(call, value, [by])).values()), "")) for value in values
    ]
    out = []
    for key, run in itertools.groupby(zip(keys, rows, strict=True), lambda pair: pair[0]):
        body = shape([row for _, row in run], names)
        out.append(f"\r\n\r\n   {by}: {key}\r\n{body.removesuffix(chr(13) + chr(10))}")
    return "".join(out)


def to_plain(value: Any, depth: int = 4) -> Any:
    """For JSON."""
    if isinstance(value, PsObject):
        return (
            {name: to_plain(item, depth - 1) for name, item in value.properties.items()}
            if depth
            else to_text(value)
        )
    if isinstance(value, dict):
        return (
            {to_text(key): to_plain(item, depth - 1) for key, item in value.items()}
            if depth
            else to_text(value)
        )
    if isinstance(value, list | tuple | range):
        return [to_plain(item, depth - 1) for item in value] if depth else to_text(list(value))
    if isinstance(value, DateTime):
        return value.format("o")
    return value if value is None or isinstance(value, str | int | float | bool) else to_text(value)


def _to_json(call: CmdletCall) -> None:
    values = call.objects()
    if call.input == []:
        return
    value = values[0] if len(values) == 1 else values
    shaped = to_plain(value, int(to_number(call.get("Depth", 2))) + 1)
    if call.process.name.startswith("pwsh"):
        compact = (",", ":") if call.has("Compress") else None
        indent = None if call.has("Compress") else 2
        shown = json.dumps(shaped, indent=indent, separators=compact, ensure_ascii=False)
        call.emit(shown.replace("\n", "\r\n"))
    elif call.has("Compress"):
        call.emit(_escaped(json.dumps(shaped, separators=(",", ":"), ensure_ascii=False)))
    else:
        call.emit(_aligned(shaped, 0))


def _escaped(shown: str) -> str:
    """Windows PowerShell also escapes characters that are special in HTML."""
    for character in "<>&'":
        shown = shown.replace(character, f"\\u{ord(character):04x}")
    return shown


def _aligned(value: Any, column: int) -> str:
    """Windows PowerShell's layout: two spaces after a colon, and nested values are aligned below
    their parent value.
    """
    if isinstance(value, dict):
        rows = []
        for key, item in value.items():
            name = _escaped(json.dumps(key, ensure_ascii=False)) + ":  "
            rows.append(name + _aligned(item, column + 4 + len(name)))
        opening, closing = "{", "}"
    elif isinstance(value, list):
        rows = [_aligned(item, column + 4) for item in value]
        opening, closing = "[", "]"
    else:
        return _escaped(json.dumps(value, ensure_ascii=False))
    inner = ",\r\n".join(" " * (column + 4) + row for row in rows)
    return f"{opening}\r\n{inner}\r\n{' ' * column}{closing}"


def from_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return PsObject(
            "System.Management.Automation.PSCustomObject",
            {key: from_plain(item) for key, item in value.items()},
        )
    return [from_plain(item) for item in value] if isinstance(value, list) else value


def _from_json(call: CmdletCall) -> None:
    source = "\n".join(to_text(value) for value in call.objects())
    try:
        value = from_plain(json.loads(source))
    except ValueError:
        raise PowerShellError(
            "Invalid JSON primitive: " + source[:40] + ".",
            "NotSpecified: (:) [ConvertFrom-Json], ArgumentException",
            "System.ArgumentException,Microsoft.PowerShell.Commands.ConvertFromJsonCommand",
        ) from None
    for item in to_items(value):
        call.emit(item)


CMDLETS = (
    cmdlet_row(
        "Write-Host",
        _write_host,
        "Object*",
        "NoNewline",
        "Separator ForegroundColor BackgroundColor",
    ),
    cmdlet_row("Write-Output", _write_output, "InputObject*", "NoEnumerate"),
    cmdlet_row("Write-Error", _write_error, "Message", "", "Exception Category ErrorId"),
    cmdlet_row("Write-Warning", _write_warning, "Message"),
    cmdlet_row("Write-Verbose", _write_if("VERBOSE", "Verbose"), "Message"),
    cmdlet_row("Write-Debug", _write_if("DEBUG", "Debug"), "Message"),
    cmdlet_row("Write-Information", _write_to_information, "MessageData", "", "Tags"),
    cmdlet_row(
        "Write-Progress", _write_information, "Activity Status", "Completed", "PercentComplete Id"
    ),
    cmdlet_row("Out-Null", _out_null, "InputObject"),
    cmdlet_row("Out-Host", _out_host, "InputObject", "Paging"),
    cmdlet_row("Out-Default", _out_host, "InputObject"),
    cmdlet_row("Out-String", _out_string, "InputObject", "Stream", "Width"),
    cmdlet_row(
        "Out-File", _out_file, "FilePath Encoding", "Append Force NoNewline", "InputObject Width"
    ),
    cmdlet_row("Tee-Object", _tee, "FilePath", "Append", "Variable InputObject"),
    cmdlet_row(
        "Format-Table",
        _format(formatting.as_table),
        "Property*",
        "AutoSize HideTableHeaders Wrap",
        "InputObject GroupBy",
    ),
    cmdlet_row("Format-List", _format(formatting.as_list), "Property*", "", "InputObject GroupBy"),
    cmdlet_row("ConvertTo-Json", _to_json, "InputObject", "Compress", "Depth"),
    cmdlet_row("ConvertFrom-Json", _from_json, "InputObject"),
)
