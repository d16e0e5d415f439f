"""Text commands: cat, head, tail, cut, tr, sort, wc and others."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import AsyncIterator

from transom.userland.files import error_text
from transom.userland.limits import MAX_INPUT, MAX_LINES, check_size
from transom.userland.posix.commands.basic import run_child
from transom.userland.posix.commands.options import option_number, parse_options, parse_size
from transom.userland.posix.escapes import unescape
from transom.userland.preemption import check_slice, sort_in_slices
from transom.userland.process import Command, Process
from transom.userland.streams import ByteSink, ByteSource

_CONTINUATION_BYTES = [bytes((byte,)) for byte in range(0x80, 0xC0)]  # of UTF-8
_SEQ_BLOCK = 512  # numbers that seq writes at once
_OWN_INPUT = ("-", "/dev/stdin", "/dev/fd/0")


_CHARACTERS = 4096  # characters of a line to process in one step


def open_input(process: Process, path: str) -> ByteSource:
    return process.stdin if path in _OWN_INPUT else process.files.source(path)


def cannot_open(process: Process, path: str, error: OSError) -> int:
    if process.gnu:
        process.complain(f"{process.name}: {path}: {error_text(error)}")
    else:
        process.complain(f"{process.name}: can't open '{path}': {error_text(error)}")
    return 1


async def read_lines(source: ByteSource) -> AsyncIterator[bytes]:
    while line := await source.readline():
        yield line


async def read_inputs(
    process: Process, paths: list[str], limit: int = MAX_INPUT
) -> tuple[bytes, int]:
    """The content of the files or of standard input, and 1 if a file could not be read."""
    out: list[bytes] = []
    code = held = 0
    for path in paths or ["-"]:
        try:
            out.append(
                await process.read_all(limit) if path in _OWN_INPUT else process.files.read(path)
            )
            held += len(out[-1])
            check_size(held, limit)
        except OSError as error:
            code = cannot_open(process, path, error)
    return b"".join(out), code


async def cat(process: Process) -> int:
    options = parse_options(process)
    code = 0
    number = 0
    for path in options.operands or ["-"]:
        try:
            if path not in _OWN_INPUT and process.files.is_directory(path):
                process.complain(
                    f"cat: {path}: Is a directory"
                    if process.gnu
                    else "cat: read error: Is a directory"
                )
                code = 1
                continue
            source = open_input(process, path)
        except OSError as error:
            code = cannot_open(process, path, error)
            continue
        if "n" in options:
            async for line in read_lines(source):
                number += 1
                process.stdout.write(f"{number:6d}\t".encode() + line)
                await process.breathe()
            continue
        while chunk := await source.read():
            process.stdout.write(chunk)
            await process.breathe()
    return code


def _count(text: str) -> int:
    try:
        return parse_size(text.lstrip("+-"))
    except ValueError:
        return 10


def _old_style(process: Process) -> None:
    """`-5` means `-n 5`."""
    for index, argument in enumerate(process.argv[1:], 1):
        if process.argv[index - 1] in ("-n", "-c"):
            continue
        if re.fullmatch(r"-\d+", argument):
            process.argv[index : index + 1] = ["-n", argument[1:]]
            return
        if re.fullmatch(r"\+\d+", argument):
            process.argv[index : index + 1] = ["-n", argument]
            return


async def linux_head(process: Process) -> int:
    _old_style(process)
    options = parse_options(process, "nc", long_names={"lines": "n", "bytes": "c"})
    code = 0
    many = len(options.operands) > 1
    for index, path in enumerate(options.operands or ["-"]):
        try:
            source = open_input(process, path)
        except OSError as error:
            code = cannot_open(process, path, error)
            continue
        if many and "q" not in options:
            process.write(("\n" if index else "") + f"==> {path} <==\n")
        if "c" in options:
            left = _count(options.value("c"))
            while left > 0 and (chunk := await source.read(min(left, 65536))):
                process.stdout.write(chunk)
                left -= len(chunk)
                await process.breathe()
            continue
        wanted = options.value("n", "10")
        if wanted.startswith("-"):
            everything: list[bytes] = []
            held = 0
            async for line in read_lines(source):
                held += len(line)
                check_size(held, MAX_INPUT)
                everything.append(line)
                await process.breathe()
            process.stdout.write(b"".join(everything[: max(0, len(everything) - _count(wanted))]))
            continue
        for _ in range(_count(wanted)):
            line = await source.readline()
            if not line:
                break
            process.stdout.write(line)
            await process.breathe()
    return code


async def linux_tail(process: Process) -> int:
    _old_style(process)
    options = parse_options(process, "ncs", long_names={"lines": "n", "bytes": "c", "follow": "f"})
    follow = "f" in options or "F" in options
    code = 0
    many = len(options.operands) > 1
    offsets: dict[str, int] = {}
    for index, path in enumerate(options.operands or ["-"]):
        if path == "/dev/null":
            offsets[path] = 0
            continue
        try:
            if path in _OWN_INPUT:
                data = await _end_of(process, options.value("n", "10"), options.value("c"))
            else:
                data = process.files.read(path)
        except OSError as error:
            if not (follow and "F" in options):
                code = cannot_open(process, path, error)
                continue
            cannot_open(process, path, error)
            data = b""
        if many and "q" not in options:
            process.write(("\n" if index else "") + f"==> {path} <==\n")
        process.stdout.write(_last(data, options.value("n", "10"), options.value("c")))
        offsets[path] = len(data)
    if not follow or not offsets:
        return code
    while True:
        await process.sleep(1)
        for path, seen in offsets.items():
            if path in _OWN_INPUT or path == "/dev/null":
                continue
            try:
                data = process.files.read(path)
            except OSError:
                continue
            if len(data) < seen:
                seen = 0
            process.stdout.write(data[seen:])
            offsets[path] = len(data)


async def _end_of(process: Process, count: str, size_text: str) -> bytes:
    """Enough of the end of standard input for `_last`; all of it if tail counts from the beginning."""
    if (size_text or count).startswith("+"):
        return await process.read_all()
    data = bytearray()
    trimmed = 0
    while chunk := await process.stdin.read():
        data += chunk
        if len(data) > 2 * trimmed + 65536:
            del data[: len(data) - len(_last(bytes(data), count, size_text))]
            trimmed = len(data)
            check_size(trimmed, MAX_INPUT)
        await process.breathe()
    return bytes(data)


def _last(data: bytes, count: str, size_text: str) -> bytes:
    if size_text:
        amount = _count(size_text)
        return (
            data[amount - 1 :] if size_text.startswith("+") else data[-amount:] if amount else b""
        )
    number = _count(count)
    if count.startswith("+"):
        begin = 0
        for _ in range(number - 1):
            check_slice()
            begin = data.find(b"\n", begin) + 1
            if not begin:
                return b""
        return data[begin:]
    position = len(data) - data.endswith(b"\n")
    for _ in range(number):
        check_slice()
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            return data
    return data[position + 1 :] if number else b""


def _ranges(text: str) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for piece in text.split(","):
        first, dash, last = piece.partition("-")
        start = int(first) if first else 1
        out.append((start, int(last) if last else (1 << 30 if dash else start)))
    return out


async def linux_cut(process: Process) -> int:
    options = parse_options(
        process,
        "dfcb",
        long_names={"delimiter": "d", "fields": "f", "characters": "c", "bytes": "b"},
        long_with_value=("output-delimiter",),
    )
    data, code = await read_inputs(process, options.operands)
    delimiter = options.value("d", "\t")
    try:
        ranges = _ranges(options.value("f") or options.value("c") or options.value("b"))
    except ValueError:
        return process.fail("invalid range")
    between = options.value("output-delimiter", delimiter)
    for line in data.decode("utf-8", "surrogateescape").splitlines():
        if "f" not in options:
            for start in range(0, len(line), _CHARACTERS):
                piece = enumerate(line[start : start + _CHARACTERS], start + 1)
                process.write("".join(c for i, c in piece if any(a <= i <= b for a, b in ranges)))
            process.write("\n")
            continue
        if delimiter not in line:
            if "s" not in options:
                process.write(line + "\n")
            continue
        fields = line.split(delimiter)
        process.write(
            between.join(f for i, f in enumerate(fields, 1) if any(a <= i <= b for a, b in ranges))
            + "\n"
        )
    return code


def _set(text: str) -> list[str]:
    for name, value in (
        ("[:upper:]", "A-Z"),
        ("[:lower:]", "a-z"),
        ("[:digit:]", "0-9"),
        ("[:alpha:]", "A-Za-z"),
        ("[:alnum:]", "A-Za-z0-9"),
        ("[:space:]", " \\t\\n\\r\\v\\f"),
        ("[:blank:]", " \\t"),
        ("[:punct:]", "!-/:-@[-`{-~"),
    ):
        text = text.replace(name, value)
    text = unescape(text)
    out: list[str] = []
    position = 0
    while position < len(text):
        if position + 2 < len(text) and text[position + 1] == "-":
            out.extend(
                chr(code) for code in range(ord(text[position]), ord(text[position + 2]) + 1)
            )
            position += 3
        else:
            out.append(text[position])
            position += 1
    return out


async def tr(process: Process) -> int:
    options = parse_options(process)
    if not options.operands:
        return process.fail("missing operand")
    first = _set(options.operands[0])
    second = _set(options.operands[1]) if len(options.operands) > 1 else []
    complement = "c" in options or "C" in options
    members = set(first)
    mapping = {}
    if second:
        padded = second + [second[-1]] * max(0, len(first) - len(second))
        mapping = dict(zip(first, padded, strict=False))
    squeezed = set(second or first)
    last = ""
    while chunk := await process.stdin.read():
        out: list[str] = []
        for c in chunk.decode("utf-8", "surrogateescape"):
            inside = (c in members) != complement
            if "d" in options and inside:
                continue
            if inside and second and "d" not in options:
                c = second[-1] if complement else mapping[c]
            if (
                "s" in options
                and c == last
                and (c in squeezed if not complement or second else c not in members)
            ):
                continue
            out.append(c)
            last = c
        process.write("".join(out))
        await process.breathe()
    return 0


def _lines_of(data: bytes) -> list[str]:
    check_size(data.count(b"\n"), MAX_LINES)
    return data.decode("utf-8", "surrogateescape").splitlines()


async def linux_sort(process: Process) -> int:
    options = parse_options(
        process,
        "kto",
        long_names={
            "reverse": "r",
            "numeric-sort": "n",
            "unique": "u",
            "key": "k",
            "field-separator": "t",
        },
    )
    data, code = await read_inputs(process, options.operands)
    found = _lines_of(data)
    numeric, fold = "n" in options or "h" in options or "g" in options, "f" in options
    reverse = "r" in options
    specification = options.value("k")
    match = re.match(r"(\d+)(?:\.\d+)?([a-z]*)(?:,(\d+)(?:\.\d+)?([a-z]*))?", specification)

    def key(line: str) -> tuple[object, ...]:
        part = line
        number = numeric
        if match is not None:
            separator = options.value("t")
            fields = line.split(separator) if separator else line.split()
            last = int(match[3]) if match[3] else len(fields)
            part = (separator or " ").join(fields[int(match[1]) - 1 : last])
            number = number or "n" in (match[2] + (match[4] or ""))
        if fold:
            part = part.lower()
        if number:
            value = re.match(r"\s*(-?\d+(?:\.\d+)?)", part)
            return (float(value[1]) if value else 0.0, line if "s" not in options else "")
        if "V" in options:
            return (
                tuple((int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", part)),
                "",
            )
        return (part, line)

    if match is not None and "r" in match[2] + (match[4] or ""):
        reverse = True
    found = sort_in_slices(found, key, reverse=reverse)
    if "u" in options:
        seen: set[str] = set()
        unique: list[str] = []
        for line in found:
            check_slice()
            mark = line.lower() if fold else line
            if mark not in seen:
                seen.add(mark)
                unique.append(line)
        found = unique
    text = "".join(line + "\n" for line in found)
    if options.value("o"):
        process.files.write(options.value("o"), text.encode("utf-8", "surrogateescape"))
    else:
        process.write(text)
    return code


async def uniq(process: Process) -> int:
    options = parse_options(process)
    data, code = await read_inputs(process, options.operands[:1])
    groups: list[tuple[str, int]] = []
    for line in _lines_of(data):
        check_slice()
        same = groups and (
            groups[-1][0].lower() == line.lower() if "i" in options else groups[-1][0] == line
        )
        if same:
            groups[-1] = (groups[-1][0], groups[-1][1] + 1)
        else:
            groups.append((line, 1))
    for line, count in groups:
        if ("d" in options and count == 1) or ("u" in options and count > 1):
            continue
        process.write((f"{count:7d} " if "c" in options else "") + line + "\n")
    return code


async def wc(process: Process) -> int:
    options = parse_options(
        process, long_names={"lines": "l", "words": "w", "bytes": "c", "chars": "m"}
    )
    wanted = [letter for letter in "lwcm" if letter in options] or ["l", "w", "c"]
    totals = [0, 0, 0, 0]
    code = 0
    rows: list[tuple[list[int], str]] = []
    for path in options.operands or ["-"]:
        try:
            source = open_input(process, path)
        except OSError as error:
            code = cannot_open(process, path, error)
            continue
        counts = [0, 0, 0, 0]
        within = False  # a word that began in an earlier chunk
        while chunk := await source.read():
            words = chunk.split()
            joined = within and not chunk[:1].isspace()
            within = not chunk[-1:].isspace()
            characters = (
                len(chunk) - sum(map(chunk.count, _CONTINUATION_BYTES)) if "m" in options else 0
            )
            added = (chunk.count(b"\n"), len(words) - joined, len(chunk), characters)
            counts = [a + b for a, b in zip(counts, added, strict=True)]
            await process.breathe()
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        rows.append((counts, "" if path == "-" else path))
    if len(rows) > 1:
        rows.append((totals, "total"))
    places = {"l": 0, "w": 1, "c": 2, "m": 3}
    for counts, name in rows:
        numbers = [counts[places[letter]] for letter in wanted]
        if len(wanted) == 1:
            text = str(numbers[0])
        elif process.gnu:
            text = " ".join(f"{number:7d}" for number in numbers)
        else:
            text = " ".join(f"{number:9d}" for number in numbers)
        process.write(f"{text} {name}".rstrip() + "\n")
    return code


async def tee(process: Process) -> int:
    options = parse_options(process)
    sinks: list[ByteSink] = [process.stdout]
    code = 0
    for path in options.operands:
        try:
            sinks.append(process.open_output(path, "a" in options))
        except OSError as error:
            code = cannot_open(process, path, error)
    while chunk := await process.stdin.read():
        for sink in sinks:
            sink.write(chunk)
        await process.breathe()
    return code


async def xargs(process: Process) -> int:
    options = parse_options(
        process, "nILPds", stop_at_operand=True, long_names={"null": "0", "no-run-if-empty": "r"}
    )
    command = options.operands or ["echo"]
    text = (await process.read_all()).decode("utf-8", "surrogateescape")
    if "0" in options:
        items = [item for item in text.split("\0") if item]
    elif options.value("I") or "L" in options or options.value("d"):
        separator = unescape(options.value("d")) or "\n"
        items = [
            item.strip() if separator == "\n" else item
            for item in text.split(separator)
            if item.strip()
        ]
    else:
        items = [
            piece[0] or piece[1] or piece[2]
            for piece in re.findall(r'"([^"]*)"|\'([^\']*)\'|(\S+)', text)
        ]
    batches: list[list[str]]
    mark = options.value("I")
    if mark:
        batches = [[argument.replace(mark, item) for argument in command] for item in items]
    else:
        given = options.value("n", options.value("L", "0"))
        message = 'invalid number "{}" for -n option'
        count = option_number(process, given, message) or max(1, len(items))
        batches = [
            [*command, *items[start : start + count]] for start in range(0, len(items), count)
        ]
        if not items and "r" not in options:
            batches = [list(command)]
    code = 0
    for batch in batches:
        if "t" in options:
            process.complain(" ".join(batch))
        result = await run_child(process, batch)
        if result:
            code = result if result in (126, 127) else 123
    return code


async def seq(process: Process) -> int:
    arguments = [
        a
        for a in process.argv[1:]
        if a not in ("-w",) and not a.startswith("-s") and not a.startswith("-f")
    ]
    separator = next((a[2:] for a in process.argv[1:] if a.startswith("-s") and len(a) > 2), "\n")
    try:
        numbers = [_seq_number(a) for a in arguments]
    except ValueError:
        return process.fail(f"invalid number '{arguments[0]}'")
    if not 1 <= len(numbers) <= 3:
        return process.fail("missing operand")
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) == 3 else 1
    last = numbers[-1]
    if step == 0:
        return process.fail("increment must not be zero")
    places = max((len(a.partition(".")[2]) for a in arguments), default=0)
    check_size(places, _SEQ_BLOCK)
    count = int((last - first) / step + 1e-9) if (last - first) * step >= 0 else -1

    def shown(index: int) -> str:
        return f"{first + index * step:.{places}f}" if places else str(first + index * step)

    width = max(len(shown(0)), len(shown(count))) if "-w" in process.argv and count >= 0 else 0
    for start in range(0, count + 1, _SEQ_BLOCK):
        stop = min(start + _SEQ_BLOCK, count + 1)
        block = separator.join(shown(index).zfill(width) for index in range(start, stop))
        process.write(block + ("\n" if stop > count else separator))
        await process.breathe()
    return 0


def _seq_number(text: str) -> float | int:
    value = float(text)
    if not math.isfinite(value) or abs(value) > sys.maxsize:
        raise ValueError(text)
    return value if "." in text else int(value) if "e" in text.lower() else int(text)


async def yes(process: Process) -> int:
    line = (" ".join(process.argv[1:]) or "y") + "\n"
    chunk = (line * max(1, 4096 // len(line))).encode()
    while True:
        process.stdout.write(chunk)
        await process.breathe()


async def rev(process: Process) -> int:
    data, code = await read_inputs(process, process.argv[1:])
    found = _lines_of(data)
    shown = [line[::-1] for line in found] if process.name == "rev" else found[::-1]
    process.write("".join(line + "\n" for line in shown))
    return code


async def nl(process: Process) -> int:
    options = parse_options(process, "bnwsv")
    data, code = await read_inputs(process, options.operands)
    number = 0
    for line in _lines_of(data):
        if line or options.value("b") == "a":
            number += 1
            process.write(f"{number:6d}\t{line}\n")
        else:
            process.write("       \n")
    return code


async def paste(process: Process) -> int:
    options = parse_options(process, "d")
    delimiter = unescape(options.value("d", "\t"))
    columns = []
    for path in options.operands or ["-"]:
        data, _ = await read_inputs(process, [path])
        columns.append(_lines_of(data))
    if "s" in options:
        process.write("".join(delimiter.join(column) + "\n" for column in columns))
        return 0
    for index in range(max((len(column) for column in columns), default=0)):
        process.write(
            delimiter.join(column[index] if index < len(column) else "" for column in columns)
            + "\n"
        )
    return 0


async def fold(process: Process) -> int:
    options = parse_options(process, "w")
    data, code = await read_inputs(process, options.operands)
    width = option_number(process, options.value("w", "80"), "invalid number of columns: '{}'")
    for line in _lines_of(data):
        for start in range(0, len(line) or 1, width):
            process.write(line[start : start + width] + "\n")
    return code


COMMANDS: dict[str, Command] = {
    "cat": cat,
    "cut": linux_cut,
    "fold": fold,
    "head": linux_head,
    "less": cat,
    "more": cat,
    "nl": nl,
    "paste": paste,
    "rev": rev,
    "seq": seq,
    "sort": linux_sort,
    "tac": rev,
    "tail": linux_tail,
    "tee": tee,
    "tr": tr,
    "uniq": uniq,
    "wc": wc,
    "xargs": xargs,
    "yes": yes,
}
