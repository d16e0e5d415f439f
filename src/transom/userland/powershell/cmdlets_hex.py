"""Format-Hex."""

from __future__ import annotations

from transom.userland.limits import MAX_LINES, check_size
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.cmdlets_files import expand_wildcards
from transom.userland.powershell.values import PsObject, to_items, to_text

_WIDTH = 16


def _hex_text(path: str, data: bytes) -> str:
    check_size(len(data) // _WIDTH, MAX_LINES)
    head = "           " + " ".join(f"{number:02X}" for number in range(_WIDTH))
    rows = ["", f"           Path: {path}", "", head, ""] if path else ["", head, ""]
    for start in range(0, len(data), _WIDTH):
        part = data[start : start + _WIDTH]
        digits = " ".join(f"{byte:02X}" for byte in part)
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        rows.append(f"{start:08X}   {digits:<47}  {shown}")
    return "\r\n".join(rows)


def _format_hex(call: CmdletCall) -> None:
    """Sixteen bytes a line, of files or of text from the pipeline."""
    files = call.process.files
    requested = [*to_items(call.get("Path")), *to_items(call.get("LiteralPath"))]
    for value in call.input or []:
        if isinstance(value, PsObject):
            requested.append(value.get("FullName"))
        else:
            call.emit(_hex_text("", to_text(value).encode()))
    for path in [one for given in requested for one in expand_wildcards(call, to_text(given))]:
        try:
            call.emit(_hex_text(files.absolute(path), files.read(path)))
        except FileNotFoundError:
            call.fail(
                f"Cannot find path '{files.absolute(path)}' because it does not exist.",
                f"ObjectNotFound: ({path}:String) [Format-Hex], ItemNotFoundException",
                "FileNotFound",
            )


CMDLETS = (cmdlet_row("Format-Hex", _format_hex, "Path", "", "LiteralPath InputObject Encoding"),)
