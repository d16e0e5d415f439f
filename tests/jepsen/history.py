"""What clients of a cluster saw, and whether one order of all changes explains it.

The resourceVersion of a cluster on etcd is etcd's revision: one total order of all changes. The
events of the watches, of which one is of etcd itself, give that order; every other answer is
checked against it:

- each watch has every event once, in order;
- an acknowledged write is in the order exactly once, with its content; a refused one is not;
- a write or read takes effect between its start and its end: not before changes that were
  acknowledged when it started, not after changes that had not started when it ended;
- a list is the state at its resourceVersion;
- no two services have the same address or node port at any revision;
- there are never more objects than a quota permits.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

OK, REFUSED, UNKNOWN = "ok", "refused", "unknown"
READ, LIST, PAGE = "read", "list", "page"  # a page is part of a list, which is checked as a whole
CREATE, UPDATE, PATCH, DELETE = "create", "update", "patch", "delete"
_WRITES = (CREATE, UPDATE, PATCH)
_FAR = 1 << 62


@dataclass(slots=True)
class Operation:
    """One call of a client. `value` is unique to a write; of a read it is what was found, None if the
    object does not exist. `base`: the revision that an update compares. `items` of a list: revision
    and value by key.
    """

    kind: str
    key: str
    start: float
    end: float = 0.0
    outcome: str = UNKNOWN
    value: str | None = None
    revision: int = 0
    base: int = 0
    uid: str = ""
    linearizable: bool = True
    where: str = ""  # the ports of the servers, for people
    items: Mapping[str, tuple[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """An event of a watch."""

    revision: int
    key: str
    type: str  # ADDED, MODIFIED, DELETED
    value: str
    uid: str
    grants: tuple[str, ...] = ()  # addresses and ports that the object holds


@dataclass(slots=True)
class WatchLog:
    """The events of one watcher between two revisions; a list begins a new one."""

    name: str
    since: int
    until: int = 0
    prefix: str = ""  # of the keys that it follows
    changes: list[Change] = field(default_factory=list)


class HistoryChecker:
    def __init__(
        self,
        operations: Sequence[Operation],
        watches: Sequence[WatchLog],
        limits: Mapping[str, int] | None = None,
    ) -> None:
        """`limits`: how many objects there may be, by the prefix of their keys."""
        self._operations = operations
        self._limits = limits or {}
        self._watches = watches
        self._order: dict[int, Change] = {}
        self.violations: list[str] = []

    def check(self) -> list[str]:
        self._merge()
        self._check_watches()
        self._by_key: dict[str, list[Change]] = defaultdict(list)
        for revision in sorted(self._order):
            change = self._order[revision]
            self._by_key[change.key].append(change)
        self._revisions = {
            key: [change.revision for change in changes] for key, changes in self._by_key.items()
        }
        self._find_deletions()
        self._bounds()
        self._check_writes()
        for operation in self._operations:
            if operation.outcome != OK:
                continue
            if operation.kind == READ:
                self._check_read(operation)
            elif operation.kind == LIST:
                self._check_list(operation)
        self._check_grants()
        self._check_limits()
        return self.violations

    def _bad(self, text: str) -> None:
        self.violations.append(text)

    # ---- watches ----

    def _merge(self) -> None:
        for watch in self._watches:
            for change in watch.changes:
                known = self._order.setdefault(change.revision, change)
                if known != change:
                    self._bad(f"two watches differ at {change.revision}: {known}, {change}")

    def _check_watches(self) -> None:
        for watch in self._watches:
            revisions = sorted(
                one.revision for one in self._order.values() if one.key.startswith(watch.prefix)
            )
            seen = [change.revision for change in watch.changes]
            if any(later <= before for before, later in itertools.pairwise(seen)):
                self._bad(f"watch {watch.name}: an event twice or out of order")
            first = bisect.bisect_right(revisions, watch.since)
            last = bisect.bisect_right(revisions, max(watch.until, watch.since))
            missing = set(revisions[first:last]) - set(seen)
            if missing:
                self._bad(f"watch {watch.name}: no event of {sorted(missing)[:5]}")
            if seen and seen[0] <= watch.since:
                self._bad(f"watch {watch.name}: an event from before its start")

    def _find_deletions(self) -> None:
        """The answer to a deletion has no revision; its event has."""
        found = {one.uid: one.revision for one in self._order.values() if one.type == "DELETED"}
        for operation in self._operations:
            if operation.kind == DELETE and operation.outcome == OK and not operation.revision:
                operation.revision = found.get(operation.uid, 0)

    def _change_at(self, key: str, revision: int) -> Change | None:
        """The newest change of a key that is not newer than a revision."""
        at = bisect.bisect_right(self._revisions.get(key, ()), revision)
        return self._by_key[key][at - 1] if at else None

    # ---- time ----

    def _bounds(self) -> None:
        """Which revisions were known to exist at a time, and which had certainly not begun."""
        done = [one for one in self._operations if one.outcome == OK and one.revision]
        ended = sorted((one.end, one.revision) for one in done)
        self._ends = [end for end, _ in ended]
        self._floors: list[int] = []
        newest = 0
        for _, revision in ended:
            newest = max(newest, revision)
            self._floors.append(newest)
        writes = [one for one in done if one.kind in (*_WRITES, DELETE)]
        started = sorted(((one.start, one.revision) for one in writes), reverse=True)
        self._starts: list[float] = []
        self._ceilings: list[int] = []
        oldest = _FAR
        for start, revision in started:
            oldest = min(oldest, revision)
            self._starts.append(-start)
            self._ceilings.append(oldest)

    def _floor(self, operation: Operation) -> int:
        """The newest revision acknowledged before the operation started."""
        at = bisect.bisect_left(self._ends, operation.start)
        return self._floors[at - 1] if at else 0

    def _ceiling(self, operation: Operation) -> int:
        """The oldest revision of a write that started after the operation ended, minus one."""
        at = bisect.bisect_left(self._starts, -operation.end)
        return self._ceilings[at - 1] - 1 if at else _FAR

    # ---- writes ----

    def _check_writes(self) -> None:
        by_value: dict[tuple[str, str], list[Change]] = defaultdict(list)
        deleted: dict[str, list[Change]] = defaultdict(list)
        for change in self._order.values():
            if change.type == "DELETED":
                deleted[change.uid].append(change)
            else:
                by_value[change.key, change.value].append(change)
        claimed: set[str] = set()
        for operation in self._operations:
            if operation.kind in _WRITES:
                assert operation.value is not None
                self._check_write(operation, by_value[operation.key, operation.value])
            elif operation.kind == DELETE and operation.outcome == OK:
                found = deleted[operation.uid]
                if len(found) != 1:
                    self._bad(f"{operation}: acknowledged, and there are {len(found)} events")
                elif operation.uid in claimed:
                    self._bad(f"{operation}: acknowledged twice")
                elif not self._floor(operation) < operation.revision <= self._ceiling(operation):
                    self._bad(f"{operation}: its revision is not of its time")
                claimed.add(operation.uid)
        written = {(one.key, one.value) for one in self._operations if one.kind in _WRITES}
        for key, value in by_value:
            if (key, value) not in written:
                self._bad(f"{key} has the value {value}, which no client wrote")

    def _check_write(self, operation: Operation, found: list[Change]) -> None:
        if operation.outcome == REFUSED and found:
            self._bad(f"{operation}: refused, and it happened at {found[0].revision}")
        if len(found) > 1:
            self._bad(f"{operation}: happened {len(found)} times")
        if operation.outcome != OK:
            return
        if not found or found[0].revision != operation.revision:
            self._bad(f"{operation}: acknowledged, and it is lost")
            return
        if not self._floor(operation) < operation.revision <= self._ceiling(operation):
            self._bad(f"{operation}: its revision is not of its time")
        if operation.kind == UPDATE:
            before = self._change_at(operation.key, operation.revision - 1)
            if before is None or before.revision != operation.base:
                self._bad(f"{operation}: it overwrote another change")

    # ---- reads ----

    def _check_read(self, operation: Operation) -> None:
        floor = self._floor(operation) if operation.linearizable else 0
        ceiling = self._ceiling(operation)
        changes = self._by_key[operation.key]
        for start, end, change in _versions(changes):
            found = (0, None) if change is None else (change.revision, change.value)
            matches = found == (operation.revision, operation.value)
            if matches and start <= ceiling and end >= floor:
                return
        self._bad(f"{operation}: not the state between {floor} and {ceiling}")

    def _check_list(self, operation: Operation) -> None:
        at = operation.revision
        if operation.linearizable and at < self._floor(operation):
            self._bad(f"a list at {at} that started after {self._floor(operation)} was known")
        expected = {}
        prefix = operation.key
        for key in self._by_key:
            if not key.startswith(prefix):
                continue
            current = self._change_at(key, at)
            if current is not None and current.type != "DELETED":
                expected[key] = (current.revision, current.value)
        if expected != operation.items:
            missing = sorted(expected.items() - operation.items.items())[:4]
            extra = sorted(operation.items.items() - expected.items())[:4]
            self._bad(
                f"a list at {at} of {operation.where} is not the state at that revision: "
                f"it lacks {missing} and has {extra}"
            )

    # ---- allocators ----

    def _check_grants(self) -> None:
        holders: dict[str, str] = {}
        held: dict[str, tuple[str, ...]] = {}
        for revision in sorted(self._order):
            change = self._order[revision]
            for grant in held.pop(change.key, ()):
                holders.pop(grant, None)
            if change.type == "DELETED":
                continue
            for grant in change.grants:
                if grant in holders:
                    self._bad(f"{change.key} and {holders[grant]} have {grant} at {revision}")
                holders[grant] = change.key
            held[change.key] = change.grants

    def _check_limits(self) -> None:
        for prefix, limit in self._limits.items():
            existing: set[str] = set()
            for revision in sorted(self._order):
                change = self._order[revision]
                if not change.key.startswith(prefix):
                    continue
                if change.type == "DELETED":
                    existing.discard(change.key)
                elif change.key not in existing:
                    existing.add(change.key)
                    if len(existing) > limit:
                        self._bad(f"{len(existing)} of {prefix} at {revision}, more than {limit}")


def _versions(changes: Iterable[Change]) -> Iterable[tuple[int, int, Change | None]]:
    """The versions of an object, with the first and last revision of each; None: it does not
    exist.
    """
    start, current = 0, None
    for change in changes:
        yield start, change.revision - 1, current
        start, current = change.revision, None if change.type == "DELETED" else change
    yield start, _FAR, current


def describe_history(operations: Iterable[Operation], watches: Iterable[WatchLog]) -> str:
    """All that clients saw, one operation or event a line, for people who look into a violation."""
    lines = [str(one) for one in sorted(operations, key=lambda one: one.start)]
    for watch in watches:
        lines.append(f"watch {watch.name} from {watch.since} to {watch.until}")
        lines += (f"  {change}" for change in watch.changes)
    return "\n".join(lines) + "\n"
