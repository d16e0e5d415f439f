"""The records of a cluster independent of the store that keeps them, for snapshots and migrations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import orjson

from transom.apiserver.core.integrity import MASTER_LEASES
from transom.apiserver.core.strategies.table import EVENT_TTL
from transom.store.api import StoreRecord, StoreSnapshot
from transom.store.core import CoreSnapshot

_EVENTS = "events/"
_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io/"


class RevisionedRecord(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def create_revision(self) -> int: ...
    @property
    def mod_revision(self) -> int: ...


def all_records(snapshot: StoreSnapshot) -> Iterator[StoreRecord]:
    for start in range(0, snapshot.count, 1024):
        yield from snapshot.records(start, 1024)


def portable_snapshot(snapshot: StoreSnapshot, now: float) -> CoreSnapshot:
    """A snapshot of etcd without what concerns only its servers. etcd keeps the expiry of a key with
    its lease: the time to live of Events starts again.
    """
    records = []
    for record in all_records(snapshot):
        if record.key.startswith(MASTER_LEASES + "/"):
            continue
        if record.expires is None and record.key.startswith(_EVENTS):
            record = StoreRecord(
                record.key,
                record.value,
                record.create_revision,
                record.mod_revision,
                now + EVENT_TTL,
            )
        records.append(record)
    return CoreSnapshot(snapshot.revision, records)


def custom_kinds(records: Iterable[StoreRecord]) -> dict[str, str]:
    """The kinds of custom resources by the bucket of their objects, from their definitions."""
    out = {}
    for record in records:
        if record.key.startswith(_DEFINITIONS):
            spec = orjson.loads(record.value)["spec"]
            out[f"{spec['names']['plural']}.{spec['group']}"] = spec["names"]["kind"]
    return out


def distinct_revisions(records: Iterable[RevisionedRecord], newest: int) -> dict[str, int]:
    """The keys that need a new revision in a file, where each change has a revision of its own: the
    changes of one transaction of etcd (an object and the usage in its quotas) share theirs. New ones
    follow `newest`, as if the object was written once more. What the transaction created keeps its.
    """
    moved: dict[str, int] = {}
    taken: set[int] = set()
    for record in sorted(
        records,
        key=lambda one: (one.mod_revision, one.create_revision != one.mod_revision, one.key),
    ):
        if record.mod_revision in taken:
            moved[record.key] = newest + len(moved) + 1
        taken.add(record.mod_revision)
    return moved


def value_at_revision(value: bytes, revision: int) -> bytes:
    """The value of an object with another resourceVersion. Raises ValueError if it is no object."""
    obj = orjson.loads(value)
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
        raise ValueError("the value is not an object with metadata")
    return orjson.dumps({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}})
