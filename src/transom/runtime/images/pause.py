"""The programs of pause images, which wait until they are stopped. Assembled byte by byte, because
there may be no compiler.

The Linux one is the first process of its namespace: it must handle termination signals, because the
kernel does not deliver unhandled ones to such a process, and must reap its children.
"""

from __future__ import annotations

import struct
from typing import Final

_BASE: Final = 0x400000
_HEADERS: Final = 64 + 56
_TABLES: Final = 0x50  # where the two signal actions begin in the code
_HANDLER: Final = 0x45
_SA_RESTORER: Final = 0x04000000  # the kernel requires one, though the handler never returns
_CODE: Final = bytes.fromhex(
    "bf0f000000 e824000000"  # SIGTERM, call act
    "bf02000000 e81a000000"  # SIGINT, call act
    "bf11000000 488d3550000000 e810000000"  # SIGCHLD, rsi = the action that ignores, call sigaction
    "b822000000 0f05 ebf7"  # loop: pause()
    "488d351b000000"  # act: rsi = the action that ends
    "31d2 41ba08000000 b80d000000 0f05 c3"  # rt_sigaction(edi, rsi, 0, 8)
    "31ff b83c000000 0f05"  # the handler: exit(0)
    "9090"
)


def linux_amd64() -> bytes:
    """An ELF program."""
    start = _BASE + _HEADERS
    tables = struct.pack("<4Q4Q", start + _HANDLER, _SA_RESTORER, start + _HANDLER, 0, 1, 0, 0, 0)
    body = _CODE + tables
    assert len(_CODE) == _TABLES
    size = _HEADERS + len(body)
    header = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, start, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    )
    # read and execute
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)
    return header + segment + body


_RVA: Final = 0x1000
_RAW: Final = 0x200


def windows_amd64() -> bytes:
    """A PE program for the console: Sleep(INFINITE). Windows ends it at a close or shutdown
    event.
    """
    code = bytes.fromhex("4883ec28 b9ffffffff ff15") + b"????" + bytes.fromhex("ebf3")
    names = len(code) + (-len(code) % 16)
    at_library, at_function = names, names + 16
    at_lookup, at_addresses, at_directory = names + 32, names + 48, names + 64
    # relative to the end of the call
    code = code.replace(b"????", struct.pack("<i", at_addresses - 15))
    pointer = struct.pack("<QQ", _RVA + at_function, 0)
    body = (
        code.ljust(names, b"\x90")
        + b"KERNEL32.dll".ljust(16, b"\0")
        + b"\0\0Sleep".ljust(16, b"\0")
        + pointer
        + pointer
    )
    body += struct.pack(
        "<5I", _RVA + at_lookup, 0, 0, _RVA + at_library, _RVA + at_addresses
    ) + bytes(20)
    directories = [(0, 0)] * 16
    directories[1] = (_RVA + at_directory, 40)
    directories[12] = (_RVA + at_addresses, 16)
    optional = struct.pack(
        "<HBBIIIIIQIIHHHHHHIIIIHHQQQQII",
        0x20B,
        14,
        0,
        _RAW,
        0,
        0,
        _RVA,
        _RVA,
        0x140000000,
        0x1000,
        0x200,
        6,
        0,
        0,
        0,
        6,
        0,
        0,
        0x2000,
        0x200,
        0,
        3,
        0x100,
        1 << 20,
        1 << 12,
        1 << 20,
        1 << 12,
        0,
        16,
    ) + b"".join(struct.pack("<II", *pair) for pair in directories)
    file_header = struct.pack("<HHIIIHH", 0x8664, 1, 0, 0, 0, len(optional), 0x22)
    section = b".text\0\0\0" + struct.pack(
        "<IIIIIIHHI", len(body), _RVA, _RAW, _RAW, 0, 0, 0, 0, 0x60000020
    )
    dos = b"MZ" + bytes(58) + struct.pack("<I", 64)
    return (dos + b"PE\0\0" + file_header + optional + section).ljust(_RAW, b"\0") + body.ljust(
        _RAW, b"\0"
    )
