"""fc, comp, tree and certutil: directory trees and file contents."""

from __future__ import annotations

import base64
import difflib
import hashlib
from typing import Final

from transom.userland.limits import check_size
from transom.userland.process import Command, Process
from transom.userland.windows import certificate_tool
from transom.userland.windows.wmi import disk_serial_number

_CHUNK: Final = 1 << 20


def _words(process: Process) -> tuple[set[str], list[str]]:
    switches = {word.lower() for word in process.argv[1:] if word.startswith(("/", "-"))}
    return switches, [word for word in process.argv[1:] if not word.startswith(("/", "-"))]


_MAX_LINES: Final = 2000


def fc(process: Process) -> int:
    switches, operands = _words(process)
    if len(operands) != 2:
        process.complain("FC: Insufficient number of file specifications")
        return -1 & 0xFFFFFFFF
    try:
        left, right = (process.files.read(path) for path in operands)
    except OSError:
        missing = next((path for path in operands if not process.files.exists(path)), operands[0])
        process.complain(f"FC: cannot open {missing.upper()} - No such file or folder")
        return 2
    process.print_line(f"Comparing files {operands[0]} and {operands[1].upper()}")
    if left == right:
        process.print_line("FC: no differences encountered\r\n")
        return 0
    if "/b" in switches:
        for index, (a, b) in enumerate(zip(left, right, strict=False)):
            if a != b:
                process.print_line(f"{index:08X}: {a:02X} {b:02X}")
        return 1
    check_size(max(left.count(b"\n"), right.count(b"\n")), _MAX_LINES)
    one, two = (data.decode("utf-8", "replace").splitlines() for data in (left, right))
    matcher = difflib.SequenceMatcher(None, one, two, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            continue
        # with the equal line before and after the difference
        for name, lines, first, last in ((operands[0], one, a, b), (operands[1], two, c, d)):
            process.print_line(f"***** {name.upper() if name == operands[1] else name}")
            for line in lines[max(0, first - 1) : last + 1]:
                process.print_line(line)
        process.print_line("*****\r\n")
    return 1


def windows_tree(process: Process) -> int:
    switches, operands = _words(process)
    files = process.files
    top = files.absolute(operands[0] if operands else ".")
    if not files.is_directory(top):
        process.print_line(f"Invalid path - {top[2:].upper()}\r\nNo subfolders exist \r\n")
        return 1
    number = disk_serial_number(process.context, top[:2])
    serial = f"{number[:4]}-{number[4:]}"
    process.print_line(f"Folder PATH listing\r\nVolume serial number is {serial}\r\n{top.upper()}")
    lines = _branches(process, top, "/f" in switches, "")
    for line in lines:
        process.print_line(line)
    if not lines:
        process.print_line("No subfolders exist \r\n")
    return 0


def _branches(process: Process, directory: str, with_files: bool, indent: str) -> list[str]:
    files = process.files
    names = files.listdir(directory)
    folders = [name for name in names if files.is_directory(files.join(directory, name))]
    out = []
    if with_files:
        bar = "|   " if folders else "    "
        out += [f"{indent}{bar}{name}" for name in names if name not in folders]
        if out:
            out.append(f"{indent}{bar}".rstrip())
    for number, name in enumerate(folders, 1):
        last = number == len(folders)
        out.append(f"{indent}{chr(92) if last else '+'}---{name}")
        out += _branches(
            process, files.join(directory, name), with_files, indent + ("    " if last else "|   ")
        )
    return out


def comp(process: Process) -> int:
    """Compares byte by byte, up to ten differences."""
    operands = [word for word in process.argv[1:] if not word.startswith("/")]
    if len(operands) != 2:
        process.complain("The syntax of the command is incorrect.")
        return 1
    try:
        left, right = (process.files.read(path) for path in operands)
    except OSError:
        missing = next((path for path in operands if not process.files.exists(path)), operands[0])
        process.complain(f"Can't find/open file: {missing}")
        return 2
    process.print_line(f"Comparing {operands[0]} and {operands[1]}...")
    if len(left) != len(right):
        process.print_line("Files are different sizes.\r\n")
        return 1
    differing = [at for at, (a, b) in enumerate(zip(left, right, strict=True)) if a != b]
    for at in differing[:10]:
        process.print_line(f"Compare error at OFFSET {at:X}")
        process.print_line(f"file1 = {left[at]:X}\r\nfile2 = {right[at]:X}")
    if len(differing) > 10:
        process.print_line("10 mismatches - ending compare\r\n")
    elif not differing:
        process.print_line("Files compare OK\r\n")
    return int(bool(differing))


def _recode(process: Process, verb: str, words: list[str]) -> int:
    """-encode and -decode: base64 between the lines of a certificate."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    files = process.files
    try:
        data = files.read(words[0])
        if verb == "encode":
            coded = base64.b64encode(data).decode()
            lines = [coded[at : at + 64] for at in range(0, len(coded), 64)]
            made = "".join(f"{line}\r\n" for line in (begin, *lines, end)).encode()
        else:
            text = data.decode("ascii", "replace").replace(begin, "").replace(end, "")
            made = base64.b64decode("".join(text.split()), validate=True)
        if files.exists(words[1]):
            process.complain(
                f"{verb.capitalize()}ToFile returned The file exists. 0x80070050 (WIN32: 80 "
                f"ERROR_FILE_EXISTS)\r\nCertUtil: -{verb} command FAILED: 0x80070050 (WIN32: 80 "
                "ERROR_FILE_EXISTS)\r\nCertUtil: The file exists."
            )
            return 0x80070050
        files.write(words[1], made)
    except OSError:
        process.complain(
            f"CertUtil: -{verb} command FAILED: 0x80070002 (WIN32: 2 ERROR_FILE_NOT_FOUND)\r\n"
            "CertUtil: The system cannot find the file specified."
        )
        return 0x80070002
    except ValueError:
        process.complain(
            f"CertUtil: -{verb} command FAILED: 0x8007000d (WIN32: 13 ERROR_INVALID_DATA)\r\n"
            "CertUtil: The data is invalid."
        )
        return 0x8007000D
    process.print_line(
        f"Input Length = {len(data)}\r\nOutput Length = {len(made)}\r\nCertUtil: -{verb} command "
        "completed successfully."
    )
    return 0


async def certutil(process: Process) -> int:
    words = process.argv[1:]
    verb = words[0].lower().lstrip("-/") if words else ""
    if verb in ("encode", "decode") and len(words) == 3:
        return _recode(process, verb, words[1:])
    if verb in certificate_tool.VERBS:
        return certificate_tool.certificate_store_verb(process, verb, words[1:])
    if not words or words[0].lower().lstrip("-/") != "hashfile" or len(words) < 2:
        process.complain(
            "CertUtil: -hashfile command FAILED: 0x80070057 (WIN32: 87 ERROR_INVALID_PARAMETER)\r\n"
            "CertUtil: The parameter is incorrect."
        )
        return 0x80070057
    algorithm = (words[2] if len(words) > 2 else "SHA1").upper()
    if algorithm not in ("MD5", "SHA1", "SHA256", "SHA384", "SHA512"):
        process.complain(
            "CertUtil: -hashfile command FAILED: 0xd0000225 (-805305819)\r\nCertUtil: The "
            "object was not found."
        )
        return 0xD0000225
    try:
        data = memoryview(process.files.read(words[1]))
    except OSError:
        process.complain(
            "CertUtil: -hashfile command FAILED: 0x80070002 (WIN32: 2 ERROR_FILE_NOT_FOUND)\r\n"
            "CertUtil: The system cannot find the file specified."
        )
        return 0x80070002
    hashed = hashlib.new(algorithm.lower(), usedforsecurity=False)
    for start in range(0, len(data), _CHUNK):
        hashed.update(data[start : start + _CHUNK])
        await process.take_turn()
    digest = hashed.hexdigest()
    process.print_line(
        (
            f"{algorithm} hash of {words[1]}:\r\n{digest}\r\nCertUtil: -hashfile command "
            "completed successfully."
        ),
    )
    return 0


COMMANDS: dict[str, Command] = {
    "certutil": certutil,
    "comp": comp,
    "fc": fc,
    "tree": windows_tree,
}
