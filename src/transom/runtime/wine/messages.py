"""Windows' error messages. Wine has its own texts ("Access denied."), which programs print and
users compare.

A container gets a copy of Wine's kernelbase.dll with another message table, and of its shell with
other strings. Such tables are resources of a PE file, one per language; the new one is longer than
Wine's English one and replaces the longest of them all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

_MESSAGES, _STRINGS = 11, 6  # RT_MESSAGETABLE, RT_STRING
_IN_A_TABLE: Final = 16  # strings
_ENGLISH: Final = 9
_UNICODE: Final = 1

TEXTS: Final[Mapping[int, str]] = {
    1: "Incorrect function.",
    2: "The system cannot find the file specified.",
    3: "The system cannot find the path specified.",
    4: "The system cannot open the file.",
    5: "Access is denied.",
    6: "The handle is invalid.",
    8: "Not enough memory resources are available to process this command.",
    13: "The data is invalid.",
    14: "Not enough memory resources are available to complete this operation.",
    15: "The system cannot find the drive specified.",
    16: "The directory cannot be removed.",
    17: "The system cannot move the file to a different disk drive.",
    18: "There are no more files.",
    19: "The media is write protected.",
    21: "The device is not ready.",
    31: "A device attached to the system is not functioning.",
    32: "The process cannot access the file because it is being used by another process.",
    33: (
        "The process cannot access the file because another process has locked a portion of the "
        "file."
    ),
    38: "Reached the end of the file.",
    39: "The disk is full.",
    50: "The request is not supported.",
    53: "The network path was not found.",
    64: "The specified network name is no longer available.",
    65: "Network access is denied.",
    67: "The network name cannot be found.",
    80: "The file exists.",
    82: "The directory or file cannot be created.",
    87: "The parameter is incorrect.",
    109: "The pipe has been ended.",
    110: "The system cannot open the device or file specified.",
    111: "The file name is too long.",
    112: "There is not enough space on the disk.",
    121: "The semaphore timeout period has expired.",
    122: "The data area passed to a system call is too small.",
    123: "The filename, directory name, or volume label syntax is incorrect.",
    126: "The specified module could not be found.",
    127: "The specified procedure could not be found.",
    128: "There are no child processes to wait for.",
    145: "The directory is not empty.",
    161: "The specified path is invalid.",
    170: "The requested resource is in use.",
    183: "Cannot create a file when that file already exists.",
    193: "%1 is not a valid Win32 application.",
    203: "The system could not find the environment option that was entered.",
    206: "The filename or extension is too long.",
    230: "The pipe state is invalid.",
    231: "All pipe instances are busy.",
    232: "The pipe is being closed.",
    233: "No process is on the other end of the pipe.",
    234: "More data is available.",
    258: "The wait operation timed out.",
    259: "No more data is available.",
    267: "The directory name is invalid.",
    995: (
        "The I/O operation has been aborted because of either a thread exit or an application "
        "request."
    ),
    996: "Overlapped I/O event is not in a signaled state.",
    997: "Overlapped I/O operation is in progress.",
    998: "Invalid access to memory location.",
    1056: "An instance of the service is already running.",
    1060: "The specified service does not exist as an installed service.",
    1062: "The service has not been started.",
    1114: "A dynamic link library (DLL) initialization routine failed.",
    1168: "Element not found.",
    1225: "The remote computer refused the network connection.",
    1236: "The network connection was aborted by the local system.",
    1314: "A required privilege is not held by the client.",
    1326: "The user name or password is incorrect.",
    1332: "No mapping between account names and security IDs was done.",
    1450: "Insufficient system resources exist to complete the requested service.",
    1455: "The paging file is too small for this operation to complete.",
    1460: "This operation returned because the timeout period expired.",
    4390: "The file or directory is not a reparse point.",
    10004: "A blocking operation was interrupted by a call to WSACancelBlockingCall.",
    10013: "An attempt was made to access a socket in a way forbidden by its access permissions.",
    10014: (
        "The system detected an invalid pointer address in attempting to use a pointer argument "
        "in a call."
    ),
    10022: "An invalid argument was supplied.",
    10035: "A non-blocking socket operation could not be completed immediately.",
    10036: "A blocking operation is currently executing.",
    10038: "An operation was attempted on something that is not a socket.",
    10048: (
        "Only one usage of each socket address (protocol/network address/port) is normally "
        "permitted."
    ),
    10049: "The requested address is not valid in its context.",
    10050: "A socket operation encountered a dead network.",
    10051: "A socket operation was attempted to an unreachable network.",
    10053: "An established connection was aborted by the software in your host machine.",
    10054: "An existing connection was forcibly closed by the remote host.",
    10056: "A connect request was made on an already connected socket.",
    10057: "A request to send or receive data was disallowed because the socket is not connected "
    "and (when sending on a "
    "datagram socket using a sendto call) no address was supplied.",
    10060: "A connection attempt failed because the connected party did not properly respond after "
    "a period of time, or "
    "established connection failed because connected host has failed to respond.",
    10061: "No connection could be made because the target machine actively refused it.",
    10065: "A socket operation was attempted to an unreachable host.",
    11001: "No such host is known.",
    11002: "This is usually a temporary error during hostname resolution and means that the local "
    "server did not receive a "
    "response from an authoritative server.",
    11003: "A non-recoverable error occurred during a database lookup.",
    11004: "The requested name is valid, but no data of the requested type was found.",
}


# The strings of the shell, by Wine's ids.
STRINGS: Final[Mapping[int, str]] = {
    1010: "The syntax of the command is incorrect.\n",
    1011: "The syntax of the command is incorrect.\n",
    1040: (
        "'%1' is not recognized as an internal or external command,\noperable program or batch "
        "file.\n"
    ),
}


class MessageResource(NamedTuple):
    name: int
    entry: int  # the position of the entry's offset and size in the file
    language: int
    at: int  # in the file
    address: int  # in memory
    size: int


def translate_messages(library: bytes, texts: Mapping[int, str] = TEXTS) -> bytes | None:
    """A PE file with these messages in English; None when it has no such tables, or none that is
    long enough.
    """
    new = {number: f"{text}\r\n" for number, text in texts.items()}
    return _replaced(
        library,
        message_resources(library, _MESSAGES),
        lambda old: write_messages({**dict(read_messages(old)), **new}),
    )


def reword_strings(program: bytes, strings: Mapping[int, str] = STRINGS) -> bytes | None:
    """The same for strings, of which a table has sixteen."""
    made: bytes | None = program
    for name in sorted({number // _IN_A_TABLE + 1 for number in strings}):
        first = (name - 1) * _IN_A_TABLE
        mine = {
            number - first: text
            for number, text in strings.items()
            if number // _IN_A_TABLE + 1 == name
        }
        if made is not None:
            found = [table for table in message_resources(made, _STRINGS) if table.name == name]
            made = _replaced(made, found, partial(_with_strings, mine))
    return made


def _with_strings(mine: Mapping[int, str], old: bytes) -> bytes:
    return write_strings({**dict(read_strings(old)), **mine})


def _replaced(
    file: bytes, found: list[MessageResource], change: Callable[[bytes], bytes]
) -> bytes | None:
    english = [table for table in found if table.language & 0x3FF == _ENGLISH]
    if not english:
        return None
    best = max(english, key=lambda table: table.size)
    new = change(file[best.at : best.at + best.size])
    place = max(found, key=lambda table: table.size)
    if len(new) > place.size:
        return None
    made = bytearray(file)
    made[place.at : place.at + len(new)] = new
    for table in (*english, place):
        struct.pack_into("<II", made, table.entry, place.address, len(new))
    return bytes(made)


def read_strings(table: bytes) -> Iterator[tuple[int, str]]:
    at = 0
    for number in range(_IN_A_TABLE):
        (length,) = struct.unpack_from("<H", table, at)
        yield number, table[at + 2 : at + 2 + 2 * length].decode("utf-16-le")
        at += 2 + 2 * length


def write_strings(strings: Mapping[int, str]) -> bytes:
    raw = [strings.get(number, "").encode("utf-16-le") for number in range(_IN_A_TABLE)]
    return b"".join(struct.pack("<H", len(each) // 2) + each for each in raw)


def read_messages(table: bytes) -> Iterator[tuple[int, str]]:
    (count,) = struct.unpack_from("<I", table)
    for first, last, at in struct.iter_unpack("<III", table[4 : 4 + 12 * count]):
        for number in range(first, last + 1):
            length, flags = struct.unpack_from("<HH", table, at)
            raw = table[at + 4 : at + length]
            yield (
                number,
                (raw.decode("utf-16-le") if flags & _UNICODE else raw.decode("latin-1")).rstrip(
                    "\0"
                ),
            )
            at += length


def write_messages(messages: Mapping[int, str]) -> bytes:
    runs: list[list[int]] = []
    for number in sorted(messages):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    head, body = [struct.pack("<I", len(runs))], bytearray()
    for run in runs:
        head.append(struct.pack("<III", run[0], run[-1], 4 + 12 * len(runs) + len(body)))
        for number in run:
            raw = messages[number].encode("utf-16-le") + b"\0\0"
            raw += bytes(-len(raw) % 4)
            body += struct.pack("<HH", len(raw) + 4, _UNICODE) + raw
    return b"".join(head) + bytes(body)


def message_resources(file: bytes, kind: int = _MESSAGES) -> list[MessageResource]:
    """All resources of a type; none for a file that is not a PE file."""
    try:
        return list(_tables(file, kind))
    except struct.error:
        return []


def _tables(file: bytes, kind: int) -> Iterator[MessageResource]:
    (header,) = struct.unpack_from("<I", file, 0x3C)
    sections, optional = struct.unpack_from("<H12xH", file, header + 6)
    # of resources, in a 64-bit file
    root, _ = struct.unpack_from("<II", file, header + 24 + 112 + 16)
    for number in range(sections):
        _, address, size, offset = struct.unpack_from(
            "<IIII", file, header + 24 + optional + 40 * number + 8
        )
        if root and address <= root < address + size:
            base = offset + root - address
            for name, entry, language in _leaves(file, base, kind):
                start, length = struct.unpack_from("<II", file, entry)
                yield MessageResource(
                    name, entry, language, start - address + offset, start, length
                )


def _leaves(file: bytes, base: int, wanted: int) -> Iterator[tuple[int, int, int]]:
    """Names, entries and languages. A resource directory has types, which have names, which have
    languages.
    """
    for kind, names in _folder(file, base, 0):
        if kind == wanted:
            for name, languages in _folder(file, base, names):
                for language, entry in _folder(file, base, languages):
                    yield name, base + entry, language


def _folder(file: bytes, base: int, at: int) -> Iterator[tuple[int, int]]:
    named, numbered = struct.unpack_from("<HH", file, base + at + 12)
    for number in range(named + numbered):
        name, where = struct.unpack_from("<II", file, base + at + 16 + 8 * number)
        yield name, where & 0x7FFFFFFF
