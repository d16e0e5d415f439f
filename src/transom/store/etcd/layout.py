"""How keys and values of the store look in etcd, and the store's own keys."""

from __future__ import annotations

from typing import Protocol

# Own keys below the prefix. Kubernetes has no group of this name, and ignores them.
OWN = "transom.io/"
MARKER = OWN + "marker"
LOCKS = OWN + "locks/"
FENCES = OWN + "fences/"
QUARANTINE = OWN + "quarantine/"


class EtcdLayout(Protocol):
    """How keys and values of the store look in etcd."""

    def to_path(self, key: str) -> str:
        """The key in etcd, below the prefix and without a leading slash."""

    def from_path(self, path: str, former: bool = False) -> str | None:
        """None for a key that does not belong to the store. `former`: also for one that an earlier
        version had at this path.
        """

    def to_etcd(self, key: str, value: bytes) -> bytes:
        """Without the revision, which etcd assigns."""

    def from_etcd(self, key: str, stored: bytes, revision: int) -> bytes:
        """The value as `encode` makes it for this revision. Raises ValueError."""


class PlainLayout:
    """Keys and values as they are."""

    def to_path(self, key: str) -> str:
        return key

    def from_path(self, path: str, former: bool = False) -> str | None:
        return None if path.startswith(OWN) else path

    def to_etcd(self, key: str, value: bytes) -> bytes:
        return value

    def from_etcd(self, key: str, stored: bytes, revision: int) -> bytes:
        return stored
