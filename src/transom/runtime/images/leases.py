"""Leases on images: containers hold them so that their layers are not removed. A lease is a file,
so it outlives its creator, as containers do. It expires when its `keeper`, a file or directory of
its owner, is gone.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson


class ImageLease(NamedTuple):
    image: str
    manifest: str
    owner: str
    keeper: str = ""


class ImageLeases:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "leases"

    def add(self, lease: ImageLease) -> None:
        """Written atomically; not synced, because containers do not outlive the machine."""
        path = self._path(lease.owner)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        temporary.write_bytes(orjson.dumps(lease._asdict()))
        temporary.rename(path)

    def drop(self, owner: str) -> None:
        self._path(owner).unlink(missing_ok=True)

    def drop_all(self, prefix: str) -> None:
        """Drops the leases of owners with this prefix."""
        for path, lease in list(self._all()):
            if lease.owner.startswith(prefix):
                path.unlink(missing_ok=True)

    def live(self) -> list[ImageLease]:
        """The valid leases; expired ones are removed."""
        found = []
        for path, lease in list(self._all()):
            if lease.keeper and not Path(lease.keeper).exists():
                path.unlink(missing_ok=True)
            else:
                found.append(lease)
        return found

    def _all(self) -> Iterator[tuple[Path, ImageLease]]:
        for path in self.folder.iterdir():
            if path.name.startswith("."):
                continue
            try:
                yield path, ImageLease(**orjson.loads(path.read_bytes()))
            except FileNotFoundError:
                continue
            except orjson.JSONDecodeError:  # the machine crashed before it was on disk
                path.unlink(missing_ok=True)

    def _path(self, owner: str) -> Path:
        return self.folder / hashlib.sha256(owner.encode()).hexdigest()
