"""Small files that are there completely or not at all, also after the power went."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable; syncing a file does not do that for its name."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes, mode: int = 0o600, *, sync_name: bool = True) -> None:
    """Replace `path` by `data`, durably. The file has `mode` (less the umask) from its first moment. Who writes several
    files may leave out `sync_name`, and call `sync_directory` after the last."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if sync_name:
        sync_directory(path.parent)
