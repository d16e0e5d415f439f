"""A minimal parser for modifying 64-bit PE files: sections, exports and the unused ends of
sections.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

_EXPORTS: Final = 112  # in the optional header
_IMAGE_BASE: Final = 24
_SECTION_HEADER: Final = 40
_EXECUTABLE: Final = 0x20000000


class PeSection(NamedTuple):
    size: int  # in memory
    address: int
    raw_size: int
    offset: int
    flags: int


class PortableExecutable:
    """A modifiable PE file. Raises struct.error or ValueError for other files."""

    def __init__(self, content: bytes) -> None:
        self.content = bytearray(content)
        (self._header,) = struct.unpack_from("<I", content, 0x3C)
        if content[self._header : self._header + 4] != b"PE\0\0":
            raise ValueError("not a PE file")
        self.base: int = struct.unpack_from("<Q", content, self._header + 24 + _IMAGE_BASE)[0]
        self.sections = list(self._sections())

    def _sections(self) -> Iterator[PeSection]:
        count, optional = struct.unpack_from("<H12xH", self.content, self._header + 6)
        for number in range(count):
            at = self._header + 24 + optional + _SECTION_HEADER * number
            size, address, raw_size, offset = struct.unpack_from("<IIII", self.content, at + 8)
            (flags,) = struct.unpack_from("<I", self.content, at + 36)
            yield PeSection(size, address, raw_size, offset, flags)

    def offset(self, address: int) -> int:
        """The file offset of a relative virtual address."""
        for section in self.sections:
            if section.address <= address < section.address + section.raw_size:
                return address - section.address + section.offset
        raise ValueError(f"nothing in the file is at {address:#x}")

    def address(self, offset: int) -> int:
        for section in self.sections:
            if section.offset <= offset < section.offset + section.raw_size:
                return offset - section.offset + section.address
        raise ValueError(f"offset {offset:#x} is in no section")

    def exports(self) -> dict[str, int]:
        """Names, and the file offset of each address."""
        directory, _ = struct.unpack_from("<II", self.content, self._header + 24 + _EXPORTS)
        _, names, functions, name_table, ordinals = struct.unpack_from(
            "<IIIII", self.content, self.offset(directory) + 20
        )
        found = {}
        for number in range(names):
            (at,) = struct.unpack_from("<I", self.content, self.offset(name_table) + 4 * number)
            (ordinal,) = struct.unpack_from("<H", self.content, self.offset(ordinals) + 2 * number)
            found[self._text(self.offset(at))] = self.offset(functions) + 4 * ordinal
        return found

    def _text(self, at: int) -> str:
        return self.content[at : self.content.index(0, at)].decode("ascii")

    def code_of(self, name: str) -> tuple[bytes, int]:
        """The section that contains an exported function, and the function's offset in it."""
        (address,) = struct.unpack_from("<I", self.content, self.exports()[name])
        section = next(
            one for one in self.sections if one.address <= address < one.address + one.size
        )
        end = section.offset + min(section.size, section.raw_size)
        return bytes(self.content[section.offset : end]), address - section.address

    def reserve(self, size: int, *, executable: bool) -> int:
        """The address of unused bytes at the end of a section, which is loaded in whole pages.
        Raises ValueError.
        """
        for section in self.sections:
            if bool(section.flags & _EXECUTABLE) != executable:
                continue
            start = -(-section.size // 16) * 16
            free = self.content[section.offset + start : section.offset + section.raw_size]
            if len(free) >= size and not any(free[:size]):
                return section.address + start
        raise ValueError(f"no room for {size} bytes")

    def write(self, address: int, data: bytes) -> None:
        at = self.offset(address)
        self.content[at : at + len(data)] = data
