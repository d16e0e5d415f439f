"""tar and gzip, over the container's files. `kubectl cp` is tar at both ends."""

from __future__ import annotations

import io
import posixpath
import tarfile
import zlib
from typing import IO

from transom.machines.api import Kind, Stat
from transom.userland.files import FileView, error_text
from transom.userland.limits import MAX_FILE, MAX_PIPE, check_size
from transom.userland.posix.commands.look import mode_text, owner_name
from transom.userland.posix.commands.options import option_number, parse_options
from transom.userland.posix.commands.text import cannot_open, read_inputs
from transom.userland.preemption import check_slice
from transom.userland.process import Command, Process

_GZIP = 16 + zlib.MAX_WBITS
_CHUNK = 65536
_KIND_TYPES = {
    "file": tarfile.REGTYPE,
    "directory": tarfile.DIRTYPE,
    "symlink": tarfile.SYMTYPE,
    "pipe": tarfile.FIFOTYPE,
    "char": tarfile.CHRTYPE,
    "block": tarfile.BLKTYPE,
}


class TarMessages:
    """What a tar prints when it cannot read an archive: busybox's or GNU's."""

    def cannot_open(self, process: Process, archive: str, error: OSError) -> int:
        return cannot_open(process, archive, error)

    def no_mode(self, process: Process) -> int:
        process.complain(
            "tar: You must specify one of the '-Acdtrux' options"
            if process.gnu
            else "tar: must specify one of -ctx"
        )
        return 2 if process.gnu else 1

    def no_archive(self, process: Process, data: bytes) -> int:
        if not data and process.gnu:
            process.complain(
                "tar: This does not look like a tar archive\ntar: Exiting with failure "
                "status due to previous errors"
            )
            return 2
        return process.fail("invalid tar magic" if data else "short read")

    def converted(self, data: bytes) -> bytes:
        """A tar archive from one of another format that this tar reads too."""
        return data


async def tar(process: Process) -> int:
    return await run_tar(process, TarMessages())


async def run_tar(process: Process, messages: TarMessages) -> int:
    arguments = process.argv[1:]
    if arguments and not arguments[0].startswith("-"):
        process.argv[1] = "-" + arguments[0]
        _spread_bundle(process)
    options = parse_options(
        process,
        "fCTX",
        long_with_value=("exclude", "strip-components", "owner", "group", "mode"),
        long_names={
            "create": "c",
            "extract": "x",
            "get": "x",
            "list": "t",
            "file": "f",
            "directory": "C",
            "gzip": "z",
            "verbose": "v",
        },
    )
    archive = options.value("f", "-")
    compressed = "z" in options or archive.endswith((".tgz", ".tar.gz"))
    if "c" in options:
        return await _create(
            process,
            archive,
            options.operands,
            options.values.get("C", []),
            compressed,
            "v" in options,
            options.values.get("exclude", []),
            "h" in options,
        )
    if "x" not in options and "t" not in options:
        return messages.no_mode(process)
    try:
        data = await process.read_all(MAX_FILE) if archive == "-" else process.files.read(archive)
    except OSError as error:
        return messages.cannot_open(process, archive, error)
    data = messages.converted(data)
    if data.startswith(b"\x1f\x8b"):
        try:
            data = await _unpacked(process, data)
        except zlib.error:
            return process.fail("invalid magic")
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as opened:
            members = []
            for member in opened:
                members.append(member)
                check_slice()
            if "t" in options:
                return _list(process, members, "v" in options)
            directory = options.value("C", ".")
            strip = option_number(
                process,
                options.value("strip-components", "0"),
                "{}: invalid number of elements",
                code=2,
            )
            wanted = [operand.rstrip("/") for operand in options.operands]
            return _extract(
                process, opened, members, directory, strip, wanted, "v" in options, "O" in options
            )
    except (tarfile.TarError, EOFError, zlib.error):
        return messages.no_archive(process, data)


def _spread_bundle(process: Process) -> None:
    """The old style of options: values for the letters of the first word follow in order."""
    letters = process.argv[1][1:]
    takes = [letter for letter in letters if letter in "fCTX"]
    rest = process.argv[2:]
    values = rest[: len(takes)]
    plain = "".join(letter for letter in letters if letter not in "fCTX")
    process.argv = [process.argv[0], *([f"-{plain}"] if plain else [])]
    for letter, value in zip(takes, values, strict=False):
        process.argv += [f"-{letter}", value]
    process.argv += rest[len(takes) :]


async def _create(
    process: Process,
    archive: str,
    paths: list[str],
    directories: list[str],
    compressed: bool,
    verbose: bool,
    excluded: list[str],
    follow: bool,
) -> int:
    output = io.BytesIO()
    code = 0
    files = process.files
    if directories:
        files.cwd = files.absolute(directories[-1])
        if not files.is_directory("."):
            return process.fail(
                f"can't change directory to '{directories[-1]}': No such file or directory"
            )
    if not paths:
        return process.fail(
            "Cowardly refusing to create an empty archive" if process.gnu else "empty archive",
            2 if process.gnu else 1,
        )
    stripped = False
    with tarfile.open(fileobj=output, mode="w", format=tarfile.GNU_FORMAT) as made:
        for path in paths:
            if path.startswith("/") and not stripped:
                stripped = True
                process.complain(
                    "tar: Removing leading `/' from member names"
                    if process.gnu
                    else "tar: removing leading '/' from member names"
                )
            try:
                await _add_tree(process, files, made, path, verbose, excluded, follow)
            except OSError as error:
                if process.gnu:
                    process.complain(f"tar: {path}: Cannot stat: {error_text(error)}")
                    code = 2
                else:
                    process.complain(f"tar: {path}: {error_text(error)}")
                    code = 1
    if code:
        message = "tar: Exiting with failure status due to previous errors"
        process.complain(message if process.gnu else "tar: error exit delayed from previous errors")
    data = output.getvalue()
    if compressed:
        data = await _packed(process, data)
    if archive != "-":
        try:
            files.cwd = process.cwd
            files.write(archive, data)
        except OSError as error:
            return cannot_open(process, archive, error)
        return code
    for start in range(0, len(data), 65536):
        process.stdout.write(data[start : start + 65536])
        await process.breathe()
    return code


async def _add_tree(
    process: Process,
    files: FileView,
    made: tarfile.TarFile,
    path: str,
    verbose: bool,
    excluded: list[str],
    follow: bool,
) -> None:
    for place, state in files.walk(path):
        if any(place == pattern or posixpath.basename(place) == pattern for pattern in excluded):
            continue
        if follow and state.kind == "symlink":
            state = files.stat(place)
        _add(process, made, place, state, files.cwd)
        await process.take_turn()
        if verbose:
            process.complain(place + ("/" if state.kind == "directory" else ""))


def _add(process: Process, made: tarfile.TarFile, place: str, state: Stat, cwd: str) -> None:
    kind = _KIND_TYPES.get(state.kind)
    if kind is None:
        return
    files = process.files
    files.cwd = cwd
    entry = tarfile.TarInfo(place.replace("\\", "/").lstrip("/").removeprefix("C:/") or ".")
    entry.type = kind
    entry.mode = state.mode & 0o7777
    entry.uid, entry.gid, entry.mtime = state.uid, state.gid, int(state.mtime)
    if not process.windows:
        entry.uname, entry.gname = (
            owner_name(process, state.uid),
            owner_name(process, state.gid, "/etc/group"),
        )
    if state.kind == "symlink":
        entry.linkname = files.readlink(place)
        made.addfile(entry)
    elif state.kind == "file":
        data = files.read(place)
        entry.size = len(data)
        made.addfile(entry, io.BytesIO(data))
    else:
        made.addfile(entry)


def _list(process: Process, members: list[tarfile.TarInfo], verbose: bool) -> int:
    for member in members:
        name = member.name + ("/" if member.isdir() else "")
        if verbose:
            kind: Kind = "directory" if member.isdir() else "symlink" if member.issym() else "file"
            state = Stat(
                kind, member.mode, member.uid, member.gid, member.size, float(member.mtime)
            )
            link = f" -> {member.linkname}" if member.issym() else ""
            name = (
                f"{mode_text(state)} {member.uname or member.uid}/{member.gname or member.gid} "
                f"{member.size:>9} {name}{link}"
            )
        process.write(name + process.newline)
    return 0


def _extract(
    process: Process,
    opened: tarfile.TarFile,
    members: list[tarfile.TarInfo],
    directory: str,
    strip: int,
    wanted: list[str],
    verbose: bool,
    to_output: bool,
) -> int:
    files = process.files
    if not files.is_directory(directory):
        if process.gnu:
            process.complain(
                f"tar: {directory}: Cannot open: No such file or directory\ntar: Error is "
                "not recoverable: exiting now"
            )
            return 2
        return process.fail(f"can't change directory to '{directory}': No such file or directory")
    files.cwd = files.absolute(directory)
    code = 0
    for member in members:
        name = member.name
        if wanted and not any(name == want or name.startswith(want + "/") for want in wanted):
            continue
        pieces = [piece for piece in name.split("/") if piece not in ("", ".")][strip:]
        if not pieces or ".." in pieces:
            continue
        place = ("\\" if process.windows else "/").join(pieces)
        content = opened.extractfile(member) if member.isfile() else None
        if to_output:
            if content is not None:
                process.stdout.write(content.read())
            continue
        try:
            _extract_member(process, files, member, place, content)
            if verbose and not member.isdir():
                process.write(name + process.newline)
        except OSError as error:
            if process.gnu:
                process.complain(f"tar: {name}: Cannot open: {error_text(error)}")
            else:
                process.complain(f"tar: can't open '{name}': {error_text(error)}")
            code = 2 if process.gnu else 1
            if not process.gnu:
                break
    if code and process.gnu:
        process.complain("tar: Exiting with failure status due to previous errors")
    return code


def _extract_member(
    process: Process,
    files: FileView,
    member: tarfile.TarInfo,
    place: str,
    content: IO[bytes] | None,
) -> None:
    if member.isdir():
        files.mkdir(place, member.mode or 0o755, parents=True)
        return
    parent = files.parent(files.absolute(place))
    if not files.is_directory(parent):
        files.mkdir(parent, 0o777, parents=True)
    if member.issym():
        if _there(process, files.absolute(place)):
            files.remove(place)
        files.symlink(member.linkname, place)
    elif content is not None:
        files.write(place, content.read(), member.mode)
        if not process.windows:
            files.chmod(place, member.mode & 0o7777)
            if process.context.credentials.uid == 0:
                files.chown(place, member.uid, member.gid)


def _there(process: Process, full: str) -> bool:
    try:
        process.files.stat(full, follow=False)
    except OSError:
        return False
    return True


async def _packed(process: Process, data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=_GZIP)
    out: list[bytes] = []
    for start in range(0, len(data), _CHUNK):
        out.append(packer.compress(data[start : start + _CHUNK]))
        await process.breathe()
    return b"".join((*out, packer.flush()))


async def _unpacked(process: Process, data: bytes) -> bytes:
    """All members. Raises MemoryError if the archive is too large, zlib.error for invalid or
    truncated gzip.
    """
    out: list[bytes] = []
    size = 0
    while data.rstrip(b"\0") or not out:
        unpacker = zlib.decompressobj(wbits=_GZIP)
        while not unpacker.eof:
            out.append(unpacker.decompress(data, _CHUNK))
            data = unpacker.unconsumed_tail or unpacker.unused_data
            size += len(out[-1])
            check_size(size, MAX_PIPE)
            if not out[-1] and not data and not unpacker.eof:
                raise zlib.error("incomplete")
            await process.breathe()
        data = unpacker.unused_data
    return b"".join(out)


async def linux_gzip(process: Process) -> int:
    options = parse_options(process)
    unpack = "d" in options or process.name in ("gunzip", "zcat")
    if not options.operands or "c" in options or process.name == "zcat":
        data, code = await read_inputs(process, options.operands)
        try:
            process.stdout.write(
                await _unpacked(process, data) if unpack else await _packed(process, data)
            )
        except zlib.error:
            return process.fail("invalid magic")
        return code
    for path in options.operands:
        try:
            data = process.files.read(path)
            target = path.removesuffix(".gz") if unpack else path + ".gz"
            process.files.write(
                target, await _unpacked(process, data) if unpack else await _packed(process, data)
            )
            process.files.remove(path)
        except zlib.error:
            return process.fail("invalid magic")
        except OSError as error:
            return process.fail(f"{path}: {error_text(error)}")
    return 0


COMMANDS: dict[str, Command] = {
    "gunzip": linux_gzip,
    "gzip": linux_gzip,
    "tar": tar,
    "zcat": linux_gzip,
}
