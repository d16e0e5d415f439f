"""Cmdlets that print: Write-*, Out-*, Format-*, and those that make text of objects."""

from __future__ import annotations

import json
from typing import Any

from transom.runtime.sim.programs.powershell import formatting
from transom.runtime.sim.programs.powershell.cmdlets import Call, row
from transom.runtime.sim.programs.powershell.values import DateTime, Hashtable, PowerShellError, PsObject, items, number, text


def _objects(call: Call) -> list[Any]:
    return call.input if call.input is not None else items(call.get("InputObject"))


def _write_host(call: Call) -> None:
    separator = call.text("Separator", " ")
    values = call.input if call.input is not None and not call.has("Object") else items(call.get("Object"))
    call.evaluator.flush()
    call.process.write(separator.join(text(value) for value in values) + ("" if call.has("NoNewline") else "\r\n"))


def _write_output(call: Call) -> None:
    for value in _objects(call):
        call.emit(value)


def _write_error(call: Call) -> None:
    message = call.text("Message", text(call.input[-1]) if call.input else "")
    first = next((line for line in call.evaluator.script.splitlines() if line.strip()), "").strip()
    error = PowerShellError(
        message,
        "NotSpecified: (:) [Write-Error], WriteErrorException",
        "Microsoft.PowerShell.Commands.WriteErrorException",
        where=first[:110],
    )
    call.evaluator.success = False
    if call.text("ErrorAction", call.text("EA")).lower() == "stop":
        raise error
    call.evaluator.write_error(error)
    call.evaluator.success = False


def _write_prefixed(prefix: str) -> Any:
    def run(call: Call) -> None:
        call.evaluator.flush()
        call.process.write(f"{prefix}: {call.text('Message')}\r\n")

    return run


def _write_information(call: Call) -> None:
    return


def _out_null(call: Call) -> None:
    return


def _out_host(call: Call) -> None:
    for value in _objects(call):
        call.evaluator.show(value)
    call.evaluator.flush()


def _out_string(call: Call) -> None:
    shown = formatting.show(_objects(call))
    if call.has("Stream"):
        for line in shown.split("\r\n"):
            call.emit(line)
    else:
        call.emit(shown)


def _out_file(call: Call) -> None:
    data = formatting.show(_objects(call)).encode(_encoding(call))
    write(call, call.text("FilePath"), data, append=call.has("Append"))


def _encoding(call: Call) -> str:
    names = {"ascii": "ascii", "utf8": "utf-8", "unicode": "utf-16", "default": "utf-8"}
    return names.get(call.text("Encoding").lower(), "utf-8")


def write(call: Call, path: str, data: bytes, *, append: bool = False) -> bool:
    files = call.process.files
    try:
        if append:
            files.append(path, data)
        else:
            files.write(path, data)
    except FileNotFoundError:
        full = files.absolute(path)
        call.fail(
            f"Could not find a part of the path '{full}'.",
            f"ObjectNotFound: ({full}:String) [{call.cmdlet.name}], DirectoryNotFoundException",
            "GetContentWriterDirectoryNotFoundError",
        )
        return False
    except OSError:
        full = files.absolute(path)
        call.fail(
            f"Access to the path '{full}' is denied.",
            f"PermissionDenied: ({full}:String) [{call.cmdlet.name}], UnauthorizedAccessException",
            "GetContentWriterUnauthorizedAccessError",
        )
        return False
    return True


def _tee(call: Call) -> None:
    if call.has("FilePath"):
        write(call, call.text("FilePath"), formatting.show(_objects(call)).encode(), append=call.has("Append"))
    elif call.has("Variable"):
        call.evaluator.put(call.text("Variable"), _objects(call))
    for value in _objects(call):
        call.emit(value)


def _names(call: Call, values: list[Any]) -> list[str]:
    wanted = [text(name) for name in items(call.get("Property")) if not isinstance(name, Hashtable)]
    if wanted and wanted != ["*"]:
        return wanted
    first = values[0] if values else None
    if isinstance(first, PsObject):
        return list(first.properties)
    return list(first) if isinstance(first, Hashtable) else []


def _format(shape: Any) -> Any:
    def run(call: Call) -> None:
        values = _objects(call)
        names = _names(call, values)
        if not values:
            return
        call.evaluator.flush()
        shown = shape(values, names) if names else formatting.show(values)
        if call.has("HideTableHeaders"):
            shown = "\r\n".join(shown.split("\r\n")[3:])
        if call.evaluator.emit == call.evaluator.show:
            call.process.write(shown)
        else:
            for line in shown.split("\r\n"):
                call.emit(line)

    return run


def plain(value: Any, depth: int = 4) -> Any:
    """For JSON."""
    if isinstance(value, PsObject):
        return {name: plain(item, depth - 1) for name, item in value.properties.items()} if depth else text(value)
    if isinstance(value, dict):
        return {text(key): plain(item, depth - 1) for key, item in value.items()} if depth else text(value)
    if isinstance(value, list | tuple | range):
        return [plain(item, depth - 1) for item in value]
    if isinstance(value, DateTime):
        return value.format("o")
    return value if value is None or isinstance(value, str | int | float | bool) else text(value)


def _to_json(call: Call) -> None:
    values = _objects(call)
    value = values[0] if len(values) == 1 else values
    shaped = plain(value, int(number(call.get("Depth", 2))) + 2)
    if call.has("Compress"):
        call.emit(json.dumps(shaped, separators=(",", ":"), ensure_ascii=False))
    else:
        call.emit(json.dumps(shaped, indent=4, ensure_ascii=False).replace("\n", "\r\n"))


def from_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return PsObject("System.Management.Automation.PSCustomObject", {key: from_plain(item) for key, item in value.items()})
    return [from_plain(item) for item in value] if isinstance(value, list) else value


def _from_json(call: Call) -> None:
    source = "\n".join(text(value) for value in _objects(call))
    try:
        value = from_plain(json.loads(source))
    except ValueError:
        raise PowerShellError(
            "Invalid JSON primitive: " + source[:40] + ".",
            "NotSpecified: (:) [ConvertFrom-Json], ArgumentException",
            "System.ArgumentException,Microsoft.PowerShell.Commands.ConvertFromJsonCommand",
        ) from None
    for item in items(value):
        call.emit(item)


def _to_csv(call: Call) -> None:
    values = _objects(call)
    names = _names(call, values)
    if not call.has("NoTypeInformation") and values and isinstance(values[0], PsObject):
        call.emit(f"#TYPE {values[0].kind}")
    call.emit(",".join(f'"{name}"' for name in names))
    for value in values:
        call.emit(",".join(f'"{text(formatting.property_of(value, name))}"' for name in names))


CMDLETS = (
    row("Write-Host", _write_host, "Object*", "NoNewline", "Separator ForegroundColor BackgroundColor"),
    row("Write-Output", _write_output, "InputObject*", "NoEnumerate"),
    row("Write-Error", _write_error, "Message", "", "Exception Category ErrorId"),
    row("Write-Warning", _write_prefixed("WARNING"), "Message"),
    row("Write-Verbose", _write_information, "Message"),
    row("Write-Debug", _write_information, "Message"),
    row("Write-Information", _write_information, "MessageData"),
    row("Write-Progress", _write_information, "Activity Status", "Completed", "PercentComplete Id"),
    row("Out-Null", _out_null, "InputObject"),
    row("Out-Host", _out_host, "InputObject", "Paging"),
    row("Out-Default", _out_host, "InputObject"),
    row("Out-String", _out_string, "InputObject", "Stream", "Width"),
    row("Out-File", _out_file, "FilePath Encoding", "Append Force NoNewline", "InputObject Width"),
    row("Tee-Object", _tee, "FilePath", "Append", "Variable InputObject"),
    row("Format-Table", _format(formatting.as_table), "Property*", "AutoSize HideTableHeaders Wrap", "InputObject"),
    row("Format-List", _format(formatting.as_list), "Property*", "", "InputObject"),
    row("ConvertTo-Json", _to_json, "InputObject", "Compress", "Depth"),
    row("ConvertFrom-Json", _from_json, "InputObject"),
    row("ConvertTo-Csv", _to_csv, "InputObject", "NoTypeInformation"),
)
