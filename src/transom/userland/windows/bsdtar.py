"""tar.exe of Windows: bsdtar, with its own messages. It also reads ZIP archives."""

from __future__ import annotations

import calendar
import io
import tarfile
from typing import TYPE_CHECKING

from transom.kit.lazy import lazy_import
from transom.userland.limits import MAX_FILE, check_size
from transom.userland.posix.commands.archive import TarMessages, run_tar
from transom.userland.preemption import check_slice
from transom.userland.process import Process

if TYPE_CHECKING:
    import zipfile
else:
    zipfile = lazy_import("zipfile")

_VERSION = "bsdtar 3.3.2 - libarchive 3.3.2 zlib/1.2.5.f-ipp"
_ZIP = b"PK\x03\x04"
_EMPTY_ZIP = b"PK\x05\x06"


class _BsdTarMessages(TarMessages):
    def cannot_open(self, process: Process, archive: str, error: OSError) -> int:
        return process.fail(f"Error opening archive: Failed to open '{archive}'")

    def no_mode(self, process: Process) -> int:
        return process.fail("Must specify one of -c, -r, -t, -u, -x")

    def no_archive(self, process: Process, data: bytes) -> int:
        if not data:
            return 0  # an empty file is an empty archive
        return process.fail("Error opening archive: Unrecognized archive format")

    def converted(self, data: bytes) -> bytes:
        return _tar_from_zip(data) if data.startswith((_ZIP, _EMPTY_ZIP)) else data


def _tar_from_zip(data: bytes) -> bytes:
    """The data itself if it is damaged: then it has no known format. Raises OSError when the files
    together are too large.
    """
    output, total = io.BytesIO(), 0
    try:
        with (
            zipfile.ZipFile(io.BytesIO(data)) as archive,
            tarfile.open(fileobj=output, mode="w") as made,
        ):
            for info in archive.infolist():
                total += info.file_size
                check_size(total, MAX_FILE)
                check_slice()
                member = tarfile.TarInfo(info.filename.rstrip("/"))
                member.mtime = calendar.timegm((*info.date_time, 0, 0, 0))
                if info.is_dir():
                    member.type, member.mode = tarfile.DIRTYPE, 0o755
                    made.addfile(member)
                    continue
                content = archive.read(info)
                member.size, member.mode = len(content), 0o644
                made.addfile(member, io.BytesIO(content))
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError):
        return data
    return output.getvalue()


async def tar(process: Process) -> int:
    if process.argv[1:2] == ["--version"]:
        process.print_line(_VERSION)
        return 0
    return await run_tar(process, _BsdTarMessages())
