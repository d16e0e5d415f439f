"""What a native runtime asks of the images of its node."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from transom.runtime.api import Auth, Image
from transom.runtime.native.platform import StoredImage


class Images(Protocol):
    @property
    def root(self) -> Path: ...

    async def pull(self, image: str, auth: Auth | None) -> str:
        """Its id. Raises RuntimeFailure."""

    def find(self, image: str) -> StoredImage | None:
        """By name, digest or id."""

    def view(self, image: str) -> Image | None: ...
    def views(self) -> Sequence[Image]: ...
    async def remove(self, image: str) -> None: ...
    def lease(self, identity: str, owner: str, keeper: Path | None = None) -> None:
        """Its layers stay until `release`, or until `keeper` has gone."""

    def release(self, owner: str) -> None: ...
    def usage(self) -> tuple[int, int]:
        """Bytes and files."""
