"""Cmdlets that write objects as documents: ConvertTo-Html."""

from __future__ import annotations

from html import escape
from typing import Any

from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.formatting import default_columns, property_text
from transom.userland.powershell.selecting import computed
from transom.userland.powershell.values import PsObject, to_bool, to_items, to_text

_HEAD = (
    '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN"  '
    '"http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd">',
    '<html xmlns="http://www.w3.org/1999/xhtml">',
)


async def _row(call: CmdletCall, value: Any, properties: list[Any]) -> dict[str, Any]:
    """The cells of one object, by name."""
    if properties and properties != ["*"]:
        return dict([await computed(call, value, one) for one in properties])
    if not isinstance(value, PsObject):
        return {"*": value}
    names = list(default_columns(value) or value.properties) if not properties else value.properties
    return {name: property_text(value, name) for name in names}


async def _to_html(call: CmdletCall) -> None:
    objects = call.objects()
    rows = [await _row(call, value, to_items(call.get("Property"))) for value in objects]
    fragment = call.has("Fragment") and to_bool(call.get("Fragment"))
    if not fragment:
        title = escape(call.text("Title", "HTML TABLE"))
        head = [to_text(one) for one in to_items(call.get("Head"))]
        for line in (*_HEAD, "<head>", *(head or [f"<title>{title}</title>"]), "</head><body>"):
            call.emit(line)
        for line in to_items(call.get("Body")):
            call.emit(to_text(line))
    for line in to_items(call.get("PreContent")):
        call.emit(to_text(line))
    for line in _as_list(rows) if call.text("As", "Table").lower() == "list" else _as_table(rows):
        call.emit(line)
    for line in to_items(call.get("PostContent")):
        call.emit(to_text(line))
    if not fragment:
        call.emit("</body></html>")


def _as_table(rows: list[dict[str, Any]]) -> list[str]:
    names = list(rows[0]) if rows else []
    heads = "".join(f"<th>{escape(name)}</th>" for name in names)
    out = ["<table>", f"<colgroup>{'<col/>' * len(names)}</colgroup>", f"<tr>{heads}</tr>"]
    for row in rows:
        cells = "".join(f"<td>{escape(to_text(row.get(name)))}</td>" for name in names)
        out.append(f"<tr>{cells}</tr>")
    return [*out, "</table>"]


def _as_list(rows: list[dict[str, Any]]) -> list[str]:
    out = ["<table>"]
    for number, row in enumerate(rows):
        if number:
            out.append('<tr><td colspan="2"><hr></td></tr>')
        out += [
            f"<tr><td>{escape(name)}:</td><td>{escape(to_text(value))}</td></tr>"
            for name, value in row.items()
        ]
    return [*out, "</table>"]


CMDLETS = (
    cmdlet_row(
        "ConvertTo-Html",
        _to_html,
        "Property*",
        "Fragment",
        "InputObject Head Title Body As PreContent PostContent",
    ),
)
