"""What a restore changes in the records of a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from transom.cluster.data.cluster_records import distinct_revisions, value_at_revision
from transom.store.api import StoreError
from transom.store.sealing import Sealing
from transom.store.snapshot_file import SnapshotRecord

_TOKEN_TYPE = "kubernetes.io/service-account-token"


def with_distinct_revisions(
    records: Sequence[SnapshotRecord], newest: int, sealing: Sealing
) -> tuple[list[SnapshotRecord], int]:
    """The records for a file, where each has a revision of its own, sorted by revision; and how
    many got a new one, after `newest`. These are not encrypted: the next start does that again.
    """
    moved = distinct_revisions(records, newest)
    out = [
        _at_revision(one, moved[one.key], sealing) if one.key in moved else one for one in records
    ]
    return sorted(out, key=lambda record: record.mod_revision), len(moved)


def _at_revision(record: SnapshotRecord, revision: int, sealing: Sealing) -> SnapshotRecord:
    """A value that does not decode stays as it is: the next start moves its record to quarantine."""
    try:
        value = value_at_revision(sealing.from_disk(record.key, record.value), revision)
    except (StoreError, ValueError):
        value = record.value
    return record._replace(value=value, mod_revision=revision)


def _readable_secret(record: SnapshotRecord, sealing: Sealing) -> dict[str, Any]:
    """The object, or an empty one if it does not decode: the next start moves its record to
    quarantine.
    """
    try:
        obj = orjson.loads(sealing.from_disk(record.key, record.value))
    except (StoreError, orjson.JSONDecodeError):
        return {}
    return obj if isinstance(obj, dict) and isinstance(obj.get("data") or {}, dict) else {}


def without_tokens(
    records: Iterable[SnapshotRecord], sealing: Sealing
) -> tuple[list[SnapshotRecord], int]:
    """Drops service account tokens signed with a key that the restored cluster does not have. The
    token controller fills their Secrets again.
    """
    out: list[SnapshotRecord] = []
    count = 0
    for record in records:
        if record.bucket == "secrets":
            obj = _readable_secret(record, sealing)
            if obj.get("type") == _TOKEN_TYPE and "token" in (obj.get("data") or {}):
                del obj["data"]["token"]
                count += 1
                # The next start encrypts it, if the cluster encrypts Secrets.
                record = record._replace(value=orjson.dumps(obj))
        out.append(record)
    return out, count
