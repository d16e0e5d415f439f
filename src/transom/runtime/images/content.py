"""Blobs on disk by digest. A blob is either complete and verified, or absent; partial downloads
wait in `ingest`, even across a restart.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from transom.kit.files import sync_directory
from transom.runtime.images.model import ImageError, ImageNotFound, digest_of

_CHUNK: Final = 1 << 20


class BlobStore:
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
            raise ImageNotFound(f"content {digest}") from None

    def read(self, digest: str) -> bytes:
        with self.open(digest) as file:
            return file.read()

    def put(self, data: bytes) -> str:
        """Stores a small blob durably. Returns its digest."""
        digest = digest_of(data)
        if not self.has(digest):
            with self.writer() as writer:
                writer.write(data)
                writer.commit(digest, len(data))
        return digest

    def writer(self) -> BlobWriter:
        """For content whose digest is known only at the end."""
        return BlobWriter(self, self.ingest / f"new-{secrets.token_hex(8)}", keep=False)

    def resume(self, digest: str) -> BlobWriter:
        """For a download: resumes where the last one ended. One at a time."""
        return BlobWriter(self, self.part(digest), keep=True)

    def part(self, digest: str) -> Path:
        return self.ingest / f"{digest.removeprefix('sha256:')}.part"

    def digests(self) -> Iterator[str]:
        for path in self.blobs.iterdir():
            if not path.name.startswith("."):
                yield f"sha256:{path.name}"

    def remove(self, digest: str) -> int:
        """Returns the bytes freed."""
        path = self.path(digest)
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            return 0
        return size


class BlobWriter:
    """A blob being written. `keep`: keeps what was written for the next attempt, unless it was
    wrong.
    """

    def __init__(self, content: BlobStore, path: Path, *, keep: bool) -> None:
        self._content = content
        self._path = path
        self._keep = keep
        self._hash = hashlib.sha256()
        self.offset = 0
        self._file = os.fdopen(
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b", buffering=0
        )
        while data := self._file.read(_CHUNK):
            self._hash.update(data)
            self.offset += len(data)

    def __enter__(self) -> BlobWriter:
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
        """Starts over: the existing bytes are not what is expected."""
        self._file.seek(0)
        self._file.truncate()
        self._hash = hashlib.sha256()
        self.offset = 0

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"

    def commit(self, digest: str = "", size: int = -1, ref: str = "") -> str:
        """Commits it as a blob, durably. Raises ImageError and discards it when the content is not
        what it should be.
        """
        ref = ref or f"blob-{digest}"
        found, length = self.digest, self.offset
        if 0 <= size != length:
            self.restart()
            raise ImageError(
                f'failed commit on ref "{ref}": "{ref}" failed size validation: {length} != '
                f"{size}: "
                "failed precondition",
                "FailedPrecondition",
            )
        if digest and found != digest:
            self.restart()
            raise ImageError(
                f'failed commit on ref "{ref}": unexpected commit digest {found}, expected '
                f"{digest}: "
                "failed precondition",
                "FailedPrecondition",
            )
        os.fsync(self._file.fileno())
        os.replace(self._path, self._content.path(found))
        sync_directory(self._content.blobs)
        return found
