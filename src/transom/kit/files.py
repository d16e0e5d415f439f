"""Small files that exist completely or not at all, even after a power loss."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Makes the names in a directory durable; syncing a file does not sync its name."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_private(folder: Path) -> None:
    """Creates a directory that only its owner can enter, whatever the umask, with missing parents.
    Raises PermissionError if it belongs to another user. Other users cannot replace it either: they
    cannot write to its parent directory.
    """
    for above in reversed(folder.parents):
        if not above.exists():
            above.mkdir(0o755, exist_ok=True)
    folder.mkdir(0o700, exist_ok=True)
    found, parent, user = folder.stat(), folder.parent.stat(), os.geteuid()
    if user not in (found.st_uid, 0):
        raise PermissionError(
            errno.EPERM, f"belongs to user {found.st_uid}, not to you", str(folder)
        )
    if found.st_mode & 0o077:
        folder.chmod(0o700)
    if parent.st_mode & 0o022 and not parent.st_mode & stat.S_ISVTX and parent.st_uid == user:
        folder.parent.chmod(stat.S_IMODE(parent.st_mode) & ~0o022)


def is_special(path: Path) -> bool:
    """Whether it is a device or a pipe, which must not be replaced by a file."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISFIFO(mode)


def write_atomic(path: Path, data: bytes, mode: int = 0o600, *, sync_name: bool = True) -> None:
    """Replaces `path` with `data`, durably. The file is created with `mode` (minus the umask).
    Callers that write several files may skip `sync_name` and call `sync_directory` after the last
    one. A device or a pipe is written to instead: replacing /dev/null would break the machine.
    """
    if is_special(path):
        with path.open("wb") as special:
            special.write(data)
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        error.filename = str(path)
        raise
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None  # the caller knows only this name
        temporary.unlink(missing_ok=True)
        raise
    if sync_name:
        sync_directory(path.parent)
