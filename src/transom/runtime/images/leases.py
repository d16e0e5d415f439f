"""Who needs an image: containers, whose layers must not vanish under them. A lease is a file, so it outlives whoever made
it, as containers do. One whose `keeper`, a file or folder of its owner, has gone counts no longer."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson


class Lease(NamedTuple):
    image: str
    manifest: str
    owner: str
    keeper: str = ""


class Leases:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "leases"

    def add(self, lease: Lease) -> None:
        """There completely or not at all; not synced, as containers do not outlive the machine."""
        path = self._path(lease.owner)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        temporary.write_bytes(orjson.dumps(lease._asdict()))
        temporary.rename(path)

    def drop(self, owner: str) -> None:
        self._path(owner).unlink(missing_ok=True)

    def drop_all(self, prefix: str) -> None:
        """Of owners whose names begin so."""
        for path, lease in list(self._all()):
            if lease.owner.startswith(prefix):
                path.unlink(missing_ok=True)

    def live(self) -> list[Lease]:
        """Those that count; the others are cleared away."""
        found = []
        for path, lease in list(self._all()):
            if lease.keeper and not Path(lease.keeper).exists():
                path.unlink(missing_ok=True)
            else:
                found.append(lease)
        return found

    def _all(self) -> Iterator[tuple[Path, Lease]]:
        for path in self.folder.iterdir():
            if path.name.startswith("."):
                continue
            try:
                yield path, Lease(**orjson.loads(path.read_bytes()))
            except FileNotFoundError:
                continue
            except orjson.JSONDecodeError:  # the machine went down before it was on disk
                path.unlink(missing_ok=True)

    def _path(self, owner: str) -> Path:
        return self.folder / hashlib.sha256(owner.encode()).hexdigest()
