"""Blobs on disk by their digest. A blob is there completely and verified, or not at all; half of one may wait in `ingest`
for the rest, also over a restart."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from transom.kit.files import sync_directory
from transom.runtime.images.model import ImageError, NotFound, digest_of

_CHUNK: Final = 1 << 20


class Content:
    def __init__(self, folder: Path) -> None:
        self.blobs = folder / "blobs" / "sha256"
        self.ingest = folder / "ingest"

    def prepare(self) -> None:
        for place in (self.blobs, self.ingest):
            place.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path(self, digest: str) -> Path:
        return self.blobs / digest.removeprefix("sha256:")

    def has(self, digest: str) -> bool:
        return self.path(digest).exists()

    def size(self, digest: str) -> int:
        return self.path(digest).stat().st_size

    def open(self, digest: str) -> BinaryIO:
        try:
            return self.path(digest).open("rb")
        except FileNotFoundError:
            raise NotFound(f"content {digest}") from None

    def read(self, digest: str) -> bytes:
        with self.open(digest) as file:
            return file.read()

    def put(self, data: bytes) -> str:
        """A small blob, durably. Its digest."""
        digest = digest_of(data)
        if not self.has(digest):
            with self.writer() as writer:
                writer.write(data)
                writer.commit(digest, len(data))
        return digest

    def writer(self) -> Writer:
        """For content whose digest shows at the end."""
        return Writer(self, self.ingest / f"new-{secrets.token_hex(8)}", keep=False)

    def resume(self, digest: str) -> Writer:
        """For a download: begins where the last one ended. One at a time."""
        return Writer(self, self.part(digest), keep=True)

    def part(self, digest: str) -> Path:
        return self.ingest / f"{digest.removeprefix('sha256:')}.part"

    def digests(self) -> Iterator[str]:
        for path in self.blobs.iterdir():
            if not path.name.startswith("."):
                yield f"sha256:{path.name}"

    def remove(self, digest: str) -> int:
        """The bytes that are free now."""
        path = self.path(digest)
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            return 0
        return size


class Writer:
    """Bytes on their way to becoming a blob. `keep`: what was written stays for the next who asks, unless it was wrong."""

    def __init__(self, content: Content, path: Path, *, keep: bool) -> None:
        self._content = content
        self._path = path
        self._keep = keep
        self._hash = hashlib.sha256()
        self.offset = 0
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b", buffering=0)
        while data := self._file.read(_CHUNK):
            self._hash.update(data)
            self.offset += len(data)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if not self._keep:
            self._path.unlink(missing_ok=True)

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        self._hash.update(view)
        self.offset += len(view)
        while view:
            view = view[self._file.write(view) :]

    def restart(self) -> None:
        """From the beginning: what there was is not what is wanted."""
        self._file.seek(0)
        self._file.truncate()
        self._hash = hashlib.sha256()
        self.offset = 0

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"

    def commit(self, digest: str = "", size: int = -1, ref: str = "") -> str:
        """It is a blob now, durably. ImageError when it is not what it should be: then nothing of it stays."""
        ref = ref or f"blob-{digest}"
        found, length = self.digest, self.offset
        if 0 <= size != length:
            self.restart()
            raise ImageError(f'failed commit on ref "{ref}": "{ref}" failed size validation: {length} != {size}: '
                             "failed precondition", "FailedPrecondition")
        if digest and found != digest:
            self.restart()
            raise ImageError(f'failed commit on ref "{ref}": unexpected commit digest {found}, expected {digest}: '
                             "failed precondition", "FailedPrecondition")
        os.fsync(self._file.fileno())
        os.replace(self._path, self._content.path(found))
        sync_directory(self._content.blobs)
        return found
