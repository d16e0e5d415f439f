"""One version of a key, the unit of the store (`store/api.py`)."""

from __future__ import annotations

from typing import Any


class StoreRecord:
    """One version of a key. Shared by the current state, the history and all readers: immutable,
    except that a reader may keep its decoded form in `cache`.
    """

    __slots__ = ("cache", "create_revision", "expires", "key", "mod_revision", "value")

    def __init__(
        self,
        key: str,
        value: bytes,
        create_revision: int,
        mod_revision: int,
        expires: float | None = None,
        cache: Any = None,
    ) -> None:
        self.key = key
        self.value = value
        self.create_revision = create_revision
        self.mod_revision = mod_revision
        self.expires = expires
        self.cache = cache

    def __repr__(self) -> str:
        return (
            f"Record({self.key!r}, {len(self.value)} bytes, {self.create_revision}, "
            f"{self.mod_revision})"
        )
