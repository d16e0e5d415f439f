"""Commands that show bytes as numbers: hexdump, od, xxd."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from transom.userland.posix.commands.options import ParsedOptions, parse_options, parse_size
from transom.userland.posix.commands.text import read_inputs
from transom.userland.process import Command, Exit, Process

_ROW = 16
_NAMED = {0: "\\0", 7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r"}
# The formats of `od -t`: the width of a number by its size, and its format.
_WIDTHS = {
    "o": {1: 3, 2: 6, 4: 11, 8: 22},
    "x": {1: 2, 2: 4, 4: 8, 8: 16},
    "u": {1: 3, 2: 5, 4: 10, 8: 20},
    "d": {1: 4, 2: 6, 4: 11, 8: 20},
}

Row = Callable[[bytes], str]


def _visible(row: bytes) -> str:
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)


def _canonical(row: bytes) -> str:
    cells = [f"{byte:02x}" for byte in row] + ["  "] * (_ROW - len(row))
    return f"  {' '.join(cells[:8])}  {' '.join(cells[8:])}  |{_visible(row)}|"


def _numbers(kind: str, width: int, gap: int = 1, fill: str = " ") -> Row:
    """`fill` pads decimal numbers; other bases have a fixed width."""
    digits = _WIDTHS[kind][width]
    form = f"{fill}>{digits}d" if kind in "ud" else f"0{digits}{kind}"

    def show(row: bytes) -> str:
        pieces = (row[at : at + width].ljust(width, b"\0") for at in range(0, len(row), width))
        values = (int.from_bytes(piece, "little", signed=kind == "d") for piece in pieces)
        return "".join(" " * gap + format(value, form) for value in values)

    return show


def _characters(row: bytes) -> str:
    return "".join(
        f" {_NAMED.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f'{byte:03o}'):>3}"
        for byte in row
    )


def _rows(data: bytes, start: int, *, all_of_them: bool) -> Iterator[tuple[int, bytes | None]]:
    """The offset and data of each row; None in place of rows equal to the previous one."""
    before = b""
    skipped = False
    for at in range(0, len(data), _ROW):
        row = data[at : at + _ROW]
        if row == before and not all_of_them:
            if not skipped:
                yield start + at, None
            skipped = True
            continue
        skipped, before = False, row
        yield start + at, row


async def _input(
    process: Process, options: ParsedOptions, skip: str, limit: str
) -> tuple[bytes, int, int]:
    try:
        start = parse_size(options.value(skip, "0"))
        count = parse_size(options.value(limit)) if options.value(limit) else None
    except ValueError as error:
        process.complain(f"{process.name}: invalid number '{error}'")
        raise Exit(1) from None
    data, code = await read_inputs(process, options.operands)
    return data[start:][:count], start, code


async def hexdump(process: Process) -> int:
    options = parse_options(process, "ns", known="bcCdovx")
    data, start, code = await _input(process, options, "s", "n")
    canonical = "C" in options or process.name == "hd"
    kinds = {"b": ("o", 1, 1), "d": ("u", 2, 3), "o": ("o", 2, 2), "x": ("x", 2, 4)}
    show: Row = _canonical if canonical else _characters if "c" in options else _numbers("x", 2)
    for letter, (kind, width, gap) in kinds.items():
        if letter in options and not canonical:
            show = _numbers(kind, width, gap, "0")
    places = 8 if canonical else 7
    whole = len(show(bytes(_ROW)))
    for at, row in _rows(data, start, all_of_them="v" in options):
        process.write(
            f"{at:0{places}x}{show(row).ljust(0 if canonical else whole)}\n"
            if row is not None
            else "*\n"
        )
    if data:
        process.write(f"{start + len(data):0{places}x}\n")
    return code


async def od(process: Process) -> int:
    options = parse_options(process, "AjNtw", known="abcdioxvs")
    data, start, code = await _input(process, options, "j", "N")
    radix = options.value("A", "o")
    show = _od_format(process, options)
    address = {"o": "07o", "d": "07d", "x": "06x"}.get(radix)

    def place(at: int) -> str:
        return format(at, address) if address else ""

    for at, row in _rows(data, start, all_of_them="v" in options):
        process.write(f"{place(at)}{show(row)}\n" if row is not None else "*\n")
    if address:
        process.write(f"{place(start + len(data))}\n")
    return code


def _od_format(process: Process, options: ParsedOptions) -> Row:
    wanted = options.value("t")
    if not wanted:
        short = {"b": "o1", "c": "c", "d": "u2", "i": "d4", "o": "o2", "s": "d2", "x": "x2"}
        wanted = next((form for letter, form in short.items() if letter in options), "o2")
    if wanted[0] == "c":
        return _characters
    sizes = {"": 4, "C": 1, "S": 2, "I": 4, "L": 8}
    width = int(wanted[1:]) if wanted[1:].isdigit() else sizes.get(wanted[1:], 0)
    if width not in _WIDTHS.get(wanted[0], {}):
        process.complain(f"od: invalid type string '{wanted}'")
        raise Exit(1)
    return _numbers(wanted[0], width)


async def xxd(process: Process) -> int:
    options = parse_options(process, "ls", known="p")
    data, start, code = await _input(process, options, "s", "l")
    if "p" in options:
        for at in range(0, len(data), 30):
            process.write(data[at : at + 30].hex() + "\n")
        return code
    for at, row in _rows(data, start, all_of_them=True):
        assert row is not None
        pairs = " ".join(row[place : place + 2].hex() for place in range(0, len(row), 2))
        process.write(f"{at:08x}: {pairs:<39}  {_visible(row)}\n")
    return code


COMMANDS: dict[str, Command] = {"hd": hexdump, "hexdump": hexdump, "od": od, "xxd": xxd}
