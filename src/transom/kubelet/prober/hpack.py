"""The headers of an HTTP/2 answer, as far as a gRPC client needs them.

The client allows its peer no table of its own, so every header is either one of the well-known ones, of which only the
status matters, or written out, plainly or in Huffman's code.
"""

from __future__ import annotations

from collections.abc import Iterator

_STATUSES = {8: "200", 9: "204", 10: "206", 11: "304", 12: "400", 13: "404", 14: "500"}
# The code is canonical: within a length symbols follow each other, so the symbols of each length say it all. Those that
# no header of ours contains are longer.
_SYMBOLS = {
    5: "012aceiost", 6: " %-./3456789=A_bdfghlmnpru", 7: ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz", 8: "&*,;XZ", 10: '!"()?',
    11: "'+|", 12: "#>", 13: "\0$@[]~", 14: "^}", 15: "<`{",
}


def _codes() -> Iterator[tuple[tuple[int, int], str]]:
    code = before = 0
    for length, symbols in _SYMBOLS.items():
        code <<= length - before if before else 0
        before = length
        for symbol in symbols:
            yield (length, code), symbol
            code += 1


_CODES = dict(_codes())


def literal(name: str, value: str) -> bytes:
    """A header written out."""
    return b"\0" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    data = text.encode()
    return integer(len(data), 7) + data


def integer(value: int, bits: int) -> bytes:
    limit = (1 << bits) - 1
    if value < limit:
        return bytes((value,))
    out = bytearray((limit,))
    value -= limit
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode(block: bytes) -> dict[str, str]:
    """ValueError for what is no block of headers."""
    headers: dict[str, str] = {}
    at = 0
    try:
        while at < len(block):
            first = block[at]
            if first & 0x80:  # a well-known header with its value
                index, at = _integer(block, at, 7)
                if index in _STATUSES:
                    headers[":status"] = _STATUSES[index]
            elif first & 0xE0 == 0x20:  # the size of the table
                _, at = _integer(block, at, 5)
            else:
                index, at = _integer(block, at, 6 if first & 0x40 else 4)
                name = ":status" if index in _STATUSES else ""
                if index == 0:
                    name, at = _string(block, at)
                value, at = _string(block, at)
                headers[name] = value
    except IndexError:
        raise ValueError("the block of headers ends too early") from None
    return headers


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    limit = (1 << bits) - 1
    value = block[at] & limit
    at += 1
    shift = 0
    while value >= limit:
        value += (block[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not block[at - 1] & 0x80:
            break
    return value, at


def _string(block: bytes, at: int) -> tuple[str, int]:
    packed = block[at] & 0x80
    length, at = _integer(block, at, 7)
    if at + length > len(block):
        raise IndexError
    data = block[at : at + length]
    return (unpack(data) if packed else data.decode(errors="replace")), at + length


def unpack(data: bytes) -> str:
    out: list[str] = []
    code = length = 0
    for byte in data:
        for shift in range(7, -1, -1):
            code = code << 1 | (byte >> shift & 1)
            length += 1
            symbol = _CODES.get((length, code))
            if symbol is not None:
                out.append(symbol)
                code = length = 0
    return "".join(out)  # what is left is padding
