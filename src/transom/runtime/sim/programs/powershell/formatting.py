"""How objects look on the console."""

from __future__ import annotations

from typing import Any

from transom.runtime.sim.programs.powershell.values import DateTime, Hashtable, PsObject, text

# Which properties of a kind are shown in a table; others show all, as a list when there are more than four.
_COLUMNS: dict[str, tuple[str, ...]] = {
    "System.Diagnostics.Process": ("Handles", "NPM(K)", "PM(K)", "WS(K)", "CPU(s)", "Id", "SI", "ProcessName"),
    "System.ServiceProcess.ServiceController": ("Status", "Name", "DisplayName"),
    "MSFT_NetAdapter": ("Name", "InterfaceDescription", "ifIndex", "Status", "MacAddress", "LinkSpeed"),
    "System.Management.Automation.PSRemotingJob": (
        "Id",
        "Name",
        "PSJobTypeName",
        "State",
        "HasMoreData",
        "Location",
        "Command",
    ),
    **{
        f"Microsoft.DnsClient.Commands.DnsRecord_{kind}": ("Name", "Type", "TTL", "Section", *own)
        for kind, own in (
            ("A", ("IPAddress",)), ("PTR", ("NameHost",)), ("SRV", ("NameTarget", "Priority", "Weight", "Port")),
            ("TXT", ("Strings",)), ("SOA", ("PrimaryServer", "NameAdministrator", "SerialNumber")),
            ("MX", ("NameExchange", "Preference")),
        )
    },
    "System.Management.Automation.PathInfo": ("Path",),
    "ContentWritten": (),
}


def show(values: list[Any]) -> str:
    """Everything that one statement left for the console."""
    out: list[str] = []
    group: list[PsObject] = []

    def flush() -> None:
        if group:
            out.append(_objects(group))
            group.clear()

    for value in values:
        if isinstance(value, PsObject) and not (value.text and value.kind in _AS_TEXT):
            if group and group[0].kind != value.kind:
                flush()
            group.append(value)
            continue
        flush()
        out.append(_plain(value))
    flush()
    return "".join(out)


_AS_TEXT = frozenset(("System.Guid", "System.Net.IPAddress", "System.Uri"))


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, DateTime):
        return f"\r\n{value.format('F')}\r\n\r\n"
    if isinstance(value, Hashtable):
        rows = [(text(key), _cell(item)) for key, item in value.items()]
        return (
            table([("Name", [row[0] for row in rows], False), ("Value", [row[1] for row in rows], False)], pad=30)
            if rows
            else ""
        )
    return text(value).replace("\r\n", "\n").replace("\n", "\r\n") + "\r\n"


def _objects(group: list[PsObject]) -> str:
    kind = group[0].kind
    if kind in ("System.IO.FileInfo", "System.IO.DirectoryInfo"):
        return _files(group)
    columns = _COLUMNS.get(kind)
    names = list(columns) if columns is not None else list(group[0].properties)
    if not names:
        return ""
    if columns is None and len(names) > 4:
        return as_list(group, names)
    return as_table(group, names)


def as_table(group: list[Any], names: list[str]) -> str:
    rows: list[tuple[str, list[str], bool]] = []
    for name in names:
        values = [property_of(item, name) for item in group]
        numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        rows.append((name, [_cell(value) for value in values], numeric))
    return table(rows)


def as_list(group: list[Any], names: list[str]) -> str:
    width = max(len(name) for name in names)
    blocks = ["".join(f"{name:<{width}} : {_cell(property_of(item, name))}\r\n" for name in names) for item in group]
    return "\r\n\r\n" + "\r\n".join(blocks) + "\r\n\r\n\r\n"


def property_of(value: Any, name: str) -> Any:
    if isinstance(value, PsObject):
        return value.get(name)
    if isinstance(value, Hashtable):
        return value.find(name)
    if isinstance(value, str) and name.lower() == "length":
        return len(value)
    return None


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return "{" + ", ".join(text(item) for item in value) + "}"
    if isinstance(value, DateTime):
        return value.format("G")
    return text(value)


def table(columns: list[tuple[str, list[str], bool]], pad: int = 0) -> str:
    """Header, dashes, rows; numbers to the right."""
    widths = [
        max([len(name), pad if index == 0 else 0, *(len(value) for value in values)])
        for index, (name, values, _) in enumerate(columns)
    ]
    lines: list[str] = []

    def line(cells: list[str]) -> str:
        shown = [
            cell.rjust(width) if columns[i][2] else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return " ".join(shown).rstrip()

    lines.append(line([name for name, _, _ in columns]))
    lines.append(line(["-" * len(name) for name, _, _ in columns]))
    for row in range(len(columns[0][1]) if columns else 0):
        lines.append(line([values[row] for _, values, _ in columns]))
    return "\r\n" + "\r\n".join(lines) + "\r\n\r\n\r\n"


def _files(group: list[PsObject]) -> str:
    out: list[str] = []
    directory: str | None = None
    for item in group:
        here = text(item.get("DirectoryName"))
        if here != directory:
            if directory is not None:
                out.append("\r\n\r\n")
            directory = here
            out.append(f"\r\n\r\n    Directory: {here}\r\n\r\n\r\n")
            out.append(
                "Mode                LastWriteTime         Length Name\r\n----                "
                "-------------         ------ ----\r\n"
            )
        written = item.get("LastWriteTime")
        when = (
            f"{written.format('M/d/yyyy'):>10} {written.format('h:mm tt'):>10}" if isinstance(written, DateTime) else " " * 21
        )
        length = text(item.get("Length")) if item.kind == "System.IO.FileInfo" else ""
        out.append(f"{text(item.get('Mode')):<6}    {when:>22} {length:>14} {text(item.get('Name'))}\r\n")
    return "".join(out) + "\r\n\r\n"
