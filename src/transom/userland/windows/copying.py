"""xcopy, robocopy, fc, comp, tree and certutil: directory trees and file contents."""

from __future__ import annotations

import base64
import hashlib
import ntpath
import time
from fnmatch import fnmatchcase
from typing import Final

from transom.machines.styles import windows_error_code
from transom.userland.process import Command, Process
from transom.userland.windows import certificate_tool, texts

_CHUNK: Final = 1 << 20
_RULE: Final = "-" * 79


def _words(process: Process) -> tuple[set[str], list[str]]:
    switches = {word.lower() for word in process.argv[1:] if word.startswith(("/", "-"))}
    return switches, [word for word in process.argv[1:] if not word.startswith(("/", "-"))]


async def xcopy(process: Process) -> int:
    switches, operands = _words(process)
    files = process.files
    if not operands:
        process.complain("Invalid number of parameters\r\n0 File(s) copied")
        return 4
    source = operands[0].rstrip("\\") if len(operands[0]) > 3 else operands[0]
    target = operands[1] if len(operands) > 1 else "."
    directory, mask = (
        (source, "*") if files.is_directory(source) else ntpath.split(files.absolute(source))
    )
    mask = "*" if mask == "*.*" else mask.lower()
    into = (
        files.is_directory(target)
        or target.endswith("\\")
        or "/i" in switches
        or "*" in mask
        or files.is_directory(source)
    )
    deep = bool(switches & {"/s", "/e"})
    copied = 0
    try:
        names = (
            [path for path, state in files.walk(directory) if state.kind == "file"]
            if deep
            else [
                files.join(directory, name)
                for name in files.listdir(directory)
                if not files.is_directory(files.join(directory, name))
            ]
        )
        for path in names:
            await process.breathe()
            if not fnmatchcase(files.base(path).lower(), mask):
                continue
            inner = path[len(directory) :].lstrip("\\")
            place = files.join(target.rstrip("\\"), inner) if into else target
            files.mkdir(files.parent(files.absolute(place)), parents=True)
            files.write(place, files.read(path))
            if "/q" not in switches:
                shown = path if not ntpath.isabs(operands[0]) else files.absolute(path)
                process.print_line(shown)
            copied += 1
        if "/e" in switches:
            for path, state in list(files.walk(directory)):
                if state.kind == "directory":
                    files.mkdir(
                        files.join(target.rstrip("\\"), path[len(directory) :].lstrip("\\")),
                        parents=True,
                    )
    except FileNotFoundError:
        copied = 0
    except OSError as error:
        process.complain(texts.windows_message(error))
        return 4
    if not copied and not deep:
        process.complain(f"File not found - {files.base(source)}")
        process.print_line("0 File(s) copied")
        return 4
    process.print_line(f"{copied} File(s) copied")
    return 0


def _silent(_line: str) -> None:
    """/njh and /njs: no heading, no summary."""


async def robocopy(process: Process) -> int:
    """Exit codes: 1 files were copied, 2 there are extra files, 8 some copies failed, 16 it could
    not start.
    """
    switches, operands = _words(process)
    files = process.files
    if len(operands) < 2:
        process.complain("ERROR : Invalid Parameter")
        return 16
    source, target, masks = (
        operands[0].rstrip("\\"),
        operands[1].rstrip("\\"),
        [m.lower() for m in operands[2:]] or ["*"],
    )
    masks = ["*" if mask == "*.*" else mask for mask in masks]
    now = time.strftime("%A, %B %-d, %Y %-I:%M:%S %p", time.gmtime(process.context.clock.time()))
    log = process.print_line if "/njh" not in switches else _silent
    log(
        (
            f"\r\n{_RULE}\r\n   ROBOCOPY     ::     Robust File Copy for "
            f"Windows\r\n{_RULE}\r\n\r\n  Started : {now}"
        ),
    )
    log(
        f"   Source : {files.absolute(source)}\\\r\n     Dest : {files.absolute(target)}\\\r\n",
    )
    if not files.is_directory(source):
        stamp = time.strftime("%Y/%m/%d %H:%M:%S", time.gmtime(process.context.clock.time()))
        process.complain(
            f"{stamp} ERROR 2 (0x00000002) Accessing Source Directory "
            f"{files.absolute(source)}\\\r\n"
            "The system cannot find the file specified."
        )
        return 16
    deep, mirror = bool(switches & {"/s", "/e", "/mir"}), bool(switches & {"/mir", "/purge"})
    copied = skipped = size = extras = directories = failed = 0
    for path, state in list(files.walk(source)):
        await process.breathe()
        inner = path[len(source) :].lstrip("\\")
        if (not deep and "\\" in inner) or (not deep and state.kind == "directory" and inner):
            continue
        place = files.join(target, inner) if inner else target
        if state.kind == "directory":
            directories += 1
            files.mkdir(place, parents=True)
            continue
        if not any(fnmatchcase(files.base(path).lower(), mask) for mask in masks):
            continue
        try:
            data = files.read(path)
            if files.exists(place) and files.read(place) == data:
                skipped += 1
                continue
            files.write(place, data)
        except OSError as error:
            failed += 1
            process.complain(
                f"ERROR {windows_error_code(error, 5)} Copying File "
                f"{path}\r\n{texts.windows_message(error)}"
            )
            continue
        copied, size = copied + 1, size + len(data)
        if "/nfl" not in switches:
            kind = "" if "/nc" in switches else "    New File  "
            length = "" if "/ns" in switches else f"{len(data):>8}"
            process.print_line(f"\t{kind}\t\t{length}\t{files.base(path)}")
    for path, state in list(files.walk(target)):
        inner = path[len(target) :].lstrip("\\")
        if inner and not files.exists(files.join(source, inner)) and files.exists(path):
            extras += 1
            if mirror:
                process.print_line(
                    f"\t  *EXTRA {'Dir' if state.kind == 'directory' else 'File'} \t\t\t{path}",
                )
                files.remove(path, recursive=True)
    total = copied + skipped + failed
    summary = process.print_line if "/njs" not in switches else _silent
    summary(
        (
            f"\r\n{'-' * 78}\r\n\r\n               Total    Copied   Skipped  Mismatch    FAILED "
            "   Extras"
        ),
    )
    summary(f"    Dirs : {directories:>9} {directories:>9} {0:>9} {0:>9} {0:>9} {0:>9}")
    summary(f"   Files : {total:>9} {copied:>9} {skipped:>9} {0:>9} {failed:>9} {extras:>9}")
    summary(f"   Bytes : {size:>9} {size:>9} {0:>9} {0:>9} {0:>9} {0:>9}\r\n")
    return (1 if copied else 0) | (2 if extras else 0) | (8 if failed else 0)


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
    for name, data in zip(operands, (left, right), strict=True):
        process.print_line(f"***** {name.upper() if name == operands[1] else name}")
        process.write(data.decode("utf-8", "replace").rstrip("\r\n") + "\r\n")
    process.print_line("*****\r\n")
    return 1


def windows_tree(process: Process) -> int:
    switches, operands = _words(process)
    files = process.files
    top = files.absolute(operands[0] if operands else ".")
    if not files.is_directory(top):
        process.print_line(f"Invalid path - {top[2:].upper()}\r\nNo subfolders exist \r\n")
        return 1
    process.print_line(f"Folder PATH listing\r\n{top.upper()}")
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
    "robocopy": robocopy,
    "tree": windows_tree,
    "xcopy": xcopy,
}
