"""The checker finds a violation wherever it is put into a long history: a model of a cluster makes
histories of overlapping operations, by seed, and each test damages one at a random place.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from tests.jepsen.history import (
    CREATE,
    DELETE,
    LIST,
    OK,
    READ,
    REFUSED,
    UNKNOWN,
    UPDATE,
    Change,
    HistoryChecker,
    Operation,
    WatchLog,
)

LIMIT = 5
QUOTA = "t/"
KEYS = [f"m/{n}" for n in range(8)] + [f"{QUOTA}{n}" for n in range(10)]
OPERATIONS = 1500
SEEDS = range(12)


@dataclass
class RecordedHistory:
    operations: list[Operation] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    watches: list[WatchLog] = field(default_factory=list)

    def violations(self) -> list[str]:
        return HistoryChecker(self.operations, self.watches, {QUOTA: LIMIT}).check()


class ModelCluster:
    """Carries out each operation at one moment between its start and its end. Even revisions are used,
    so that a mutation can add a change at an odd one.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._now = 10.0
        self._revision = 10
        self._objects: dict[str, Change] = {}
        self._past: dict[int, dict[str, Change]] = {10: {}}
        self.history = RecordedHistory()

    def play(self) -> RecordedHistory:
        steps = [self._create, self._update, self._delete, self._read, self._list]
        for number in range(OPERATIONS):
            self._now += self._rng.uniform(0.01, 0.2)
            self._rng.choices(steps, (4, 4, 2, 6, 1))[0](self._rng.choice(KEYS), number)
        for name in ("a", "b"):
            log = WatchLog(name, 10, self._revision, changes=list(self.history.changes))
            self.history.watches.append(log)
        half = len(self.history.changes) // 2
        since = self.history.changes[half - 1].revision
        late = WatchLog("c", since, self._revision, changes=self.history.changes[half:])
        self.history.watches.append(late)
        return self.history

    def _operation(self, kind: str, key: str, **more: object) -> Operation:
        start, end = (self._rng.uniform(0.0, 0.6) for _ in "ab")
        found = Operation(kind, key, self._now - start, self._now + end, OK)
        for name, value in more.items():
            setattr(found, name, value)
        self.history.operations.append(found)
        return found

    def _commit(self, kind: str, key: str, value: str, uid: str) -> int:
        self._revision += 2
        grants = (f"10.0.0.{key[2:]}",) if key.startswith("m/") and kind != "DELETED" else ()
        change = Change(self._revision, key, kind, value, uid, grants)
        self.history.changes.append(change)
        if kind == "DELETED":
            del self._objects[key]
        else:
            self._objects[key] = change
        self._past[self._revision] = dict(self._objects)
        return self._revision

    def _create(self, key: str, number: int) -> None:
        value, uid = f"v{number}", f"u{number}"
        used = sum(one.startswith(QUOTA) for one in self._objects)
        if key in self._objects or (key.startswith(QUOTA) and used >= LIMIT):
            self._operation(CREATE, key, value=value, outcome=REFUSED)
            return
        revision = self._commit("ADDED", key, value, uid)
        self._answer(self._operation(CREATE, key, value=value, uid=uid, revision=revision))

    def _update(self, key: str, number: int) -> None:
        before = self._objects.get(key)
        if before is None:
            return
        value = f"v{number}"
        if self._rng.random() < 0.2:
            base = before.revision - 2
            self._operation(UPDATE, key, value=value, base=base, outcome=REFUSED)
            return
        revision = self._commit("MODIFIED", key, value, before.uid)
        base = before.revision
        self._answer(self._operation(UPDATE, key, value=value, base=base, revision=revision))

    def _delete(self, key: str, _number: int) -> None:
        before = self._objects.get(key)
        if before is not None:
            revision = self._commit("DELETED", key, before.value, before.uid)
            self._operation(DELETE, key, uid=before.uid, revision=revision)

    def _answer(self, write: Operation) -> None:
        if self._rng.random() < 0.05:  # the connection was lost
            write.outcome, write.revision = UNKNOWN, 0

    def _read(self, key: str, _number: int) -> None:
        found = self._objects.get(key)
        value, revision = (None, 0) if found is None else (found.value, found.revision)
        self._operation(READ, key, value=value, revision=revision)

    def _list(self, _key: str, _number: int) -> None:
        linearizable = self._rng.random() < 0.5
        at = self._revision if linearizable else self._rng.choice(list(self._past))
        items = {key: (one.revision, one.value) for key, one in self._past[at].items()}
        self._operation(LIST, "", revision=at, items=items, linearizable=linearizable)


def acknowledged(history: RecordedHistory, *kinds: str) -> list[Operation]:
    return [one for one in history.operations if one.kind in kinds and one.outcome == OK]


def without(history: RecordedHistory, revision: int) -> None:
    for watch in history.watches:
        watch.changes = [one for one in watch.changes if one.revision != revision]


def lose_a_write(history: RecordedHistory, rng: random.Random) -> None:
    without(history, rng.choice(acknowledged(history, CREATE, UPDATE)).revision)


def lose_a_deletion(history: RecordedHistory, rng: random.Random) -> None:
    without(history, rng.choice(acknowledged(history, DELETE)).revision)


def read_a_former_version(history: RecordedHistory, rng: random.Random) -> None:
    """One that had been replaced, by an acknowledged update, before the read began."""
    update = rng.choice(acknowledged(history, UPDATE))
    former = next(one for one in history.changes if one.revision == update.base)
    start = update.end + 0.01
    stale = Operation(READ, update.key, start, start + 0.1, OK, former.value, former.revision)
    history.operations.append(stale)


def read_a_later_version(history: RecordedHistory, rng: random.Random) -> None:
    update = rng.choice(acknowledged(history, UPDATE))
    end = update.start - 0.01
    value, revision = update.value, update.revision
    history.operations.append(Operation(READ, update.key, end - 0.1, end, OK, value, revision))


def leave_out_an_event(history: RecordedHistory, rng: random.Random) -> None:
    changes = rng.choice(history.watches).changes
    del changes[rng.randrange(len(changes))]


def send_an_event_twice(history: RecordedHistory, rng: random.Random) -> None:
    changes = rng.choice(history.watches).changes
    first = rng.randrange(len(changes))
    changes.insert(rng.randint(first, len(changes)), changes[first])


def swap_two_events(history: RecordedHistory, rng: random.Random) -> None:
    changes = rng.choice(history.watches).changes
    first, second = rng.sample(range(len(changes)), 2)
    changes[first], changes[second] = changes[second], changes[first]


def change_an_event(history: RecordedHistory, rng: random.Random) -> None:
    changes = rng.choice(history.watches).changes
    at = rng.randrange(len(changes))
    changes[at] = replace(changes[at], value="other")


def carry_out_a_refused_write(history: RecordedHistory, rng: random.Random) -> None:
    refused = [one for one in history.operations if one.outcome == REFUSED]
    write = rng.choice(refused)
    before = [one for one in history.changes if one.revision % 2 == 0]
    revision = rng.choice(before).revision + 1
    add_change(history, Change(revision, write.key, "ADDED", str(write.value), "odd"))


def add_change(history: RecordedHistory, change: Change) -> None:
    for watch in history.watches:
        if watch.since < change.revision:
            watch.changes = sorted([*watch.changes, change], key=lambda one: one.revision)


def grant_the_quota_twice(history: RecordedHistory, rng: random.Random) -> None:
    """Two servers admit the object for which there is room once."""
    full, existing = [], set[str]()
    for change in history.changes:
        if change.key.startswith(QUOTA):
            (existing.discard if change.type == "DELETED" else existing.add)(change.key)
        if len(existing) == LIMIT:
            full.append(change.revision)
    key = f"{QUOTA}more"
    add_change(history, Change(rng.choice(full) + 1, key, "ADDED", "more", "more"))
    history.operations.append(Operation(CREATE, key, 0.0, 1e6, UNKNOWN, "more"))


def grant_an_address_twice(history: RecordedHistory, rng: random.Random) -> None:
    holder = rng.choice([one for one in history.changes if one.grants])
    change = Change(holder.revision + 1, "s/more", "ADDED", "more", "more", holder.grants)
    add_change(history, change)
    history.operations.append(Operation(CREATE, "s/more", 0.0, 1e6, UNKNOWN, "more"))


def list_two_revisions_at_once(history: RecordedHistory, rng: random.Random) -> None:
    """An object of the list is of another revision than the others."""
    lists = [one for one in acknowledged(history, LIST) if one.items]
    found = rng.choice(lists)
    key = rng.choice(sorted(found.items))
    revision, value = found.items[key]
    found.items = {**found.items, key: (revision + 1, value)}


def list_too_little(history: RecordedHistory, rng: random.Random) -> None:
    found = rng.choice([one for one in acknowledged(history, LIST) if one.items])
    key = rng.choice(sorted(found.items))
    found.items = {name: item for name, item in found.items.items() if name != key}


def overwrite_a_change(history: RecordedHistory, rng: random.Random) -> None:
    update = rng.choice(acknowledged(history, UPDATE))
    update.base -= 2


def acknowledge_twice(history: RecordedHistory, rng: random.Random) -> None:
    history.operations.append(copy.copy(rng.choice(acknowledged(history, DELETE))))


Mutation = Callable[[RecordedHistory, random.Random], None]
MUTATIONS: list[Mutation] = [
    lose_a_write,
    lose_a_deletion,
    read_a_former_version,
    read_a_later_version,
    leave_out_an_event,
    send_an_event_twice,
    swap_two_events,
    change_an_event,
    carry_out_a_refused_write,
    grant_the_quota_twice,
    grant_an_address_twice,
    list_two_revisions_at_once,
    list_too_little,
    overwrite_a_change,
    acknowledge_twice,
]


def make_history(seed: int) -> RecordedHistory:
    return ModelCluster(random.Random(seed)).play()


def test_histories_of_a_correct_cluster_have_no_violations() -> None:
    for seed in SEEDS:
        history = make_history(seed)
        assert len(history.changes) > OPERATIONS // 5
        assert history.violations() == []


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_a_violation_is_found_wherever_it_is(mutate: Mutation) -> None:
    for seed in SEEDS:
        history = make_history(seed)
        mutate(history, random.Random(seed + 1000))
        assert history.violations(), f"{mutate.__name__} in the history of seed {seed}"
