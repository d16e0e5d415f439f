"""Encryption of the values of chosen buckets on disk; in memory they are always plain.

The store knows neither ciphers nor keys: it receives a `Sealer`. Each value on disk is marked as
sealed or plain, so a file may hold both, as it does while sealing is being turned on.
"""

from __future__ import annotations

from typing import Protocol

from transom.store.api import StoreError

# No valid text value starts with a zero byte; a value that does is escaped.
_MARK = b"\x00"
_SEALED = b"\x00S"
_PLAIN = b"\x00P"


class Sealer(Protocol):
    """Encrypts and authenticates a value. `key` is the record's key: a value sealed for one record
    does not open as another's.
    """

    def seal(self, key: str, value: bytes) -> bytes: ...

    def unseal(self, key: str, sealed: bytes) -> bytes:
        """Raises ValueError, with a user-facing message, if it cannot be decrypted."""

    def is_current(self, key: str, sealed: bytes) -> bool:
        """Whether `seal` would use the same key today."""


class Sealing:
    """Values of `buckets` are sealed with `sealer`. Without buckets nothing is sealed any more, but
    sealed values can still be read.
    """

    def __init__(self, sealer: Sealer | None = None, buckets: tuple[str, ...] = ()) -> None:
        if buckets and sealer is None:
            raise ValueError("buckets to be sealed need a sealer")
        self._sealer = sealer
        self._buckets = frozenset(buckets)

    @property
    def active(self) -> bool:
        return self._sealer is not None

    def to_disk(self, key: str, value: bytes) -> bytes:
        if self._sealer is not None and self._chosen(key):
            return _SEALED + self._sealer.seal(key, value)
        return _PLAIN + value if value.startswith(_MARK) else value

    def from_disk(self, key: str, stored: bytes) -> bytes:
        if not stored.startswith(_MARK):
            return stored
        if stored.startswith(_PLAIN):
            return stored[len(_PLAIN) :]
        if not stored.startswith(_SEALED):
            raise StoreError(f"the record {key} has an unknown form")
        if self._sealer is None:
            raise StoreError(f"the record {key} is encrypted, and no key was given")
        try:
            return self._sealer.unseal(key, stored[len(_SEALED) :])
        except ValueError as problem:
            raise StoreError(f"the record {key} cannot be decrypted: {problem}") from problem

    def is_stale(self, key: str, stored: bytes) -> bool:
        """Whether the value would be stored differently today: not sealed though it should be, with
        an older key, or sealed though it need not be.
        """
        sealed = stored.startswith(_SEALED)
        if sealed and self._sealer is not None and self._chosen(key):
            return not self._sealer.is_current(key, stored[len(_SEALED) :])
        return sealed != self._chosen(key)

    def _chosen(self, key: str) -> bool:
        return key[: key.find("/")] in self._buckets


NOTHING = Sealing()
