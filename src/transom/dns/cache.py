"""Answers of other servers, kept for as long as they are good."""

from __future__ import annotations

from typing import Final, NamedTuple

from transom.dns.outcome import Outcome, Request
from transom.kit import dnswire as wire
from transom.kit.clock import Clock

CAPACITY: Final = 9984
SHORTEST: Final = 5.0  # seconds
_FAILURE = 5.0


class _Entry(NamedTuple):
    outcome: Outcome
    expires: float


class Cache:
    """The most that is kept is bounded; who is asked for seldom goes first."""

    def __init__(self, clock: Clock, longest: int, capacity: int = CAPACITY) -> None:
        self._clock = clock
        self._longest = longest
        self._capacity = capacity
        self._entries: dict[tuple[bytes, int, bool], _Entry] = {}
        self.hits = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, request: Request) -> Outcome | None:
        """With what is left of each time to live."""
        key = request.key
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        left = entry.expires - self._clock.monotonic()
        if left <= 0:
            return None
        self._entries[key] = entry  # the youngest again
        self.hits += 1
        return _with_ttl(entry.outcome, int(left))

    def put(self, request: Request, outcome: Outcome) -> Outcome:
        """The outcome as clients get it: nothing in it is good for longer than we keep it."""
        seconds = min(self._seconds(outcome), float(self._longest))
        if seconds <= 0:
            return outcome
        if len(self._entries) >= self._capacity:
            del self._entries[next(iter(self._entries))]
        self._entries[request.key] = _Entry(outcome, self._clock.monotonic() + seconds)
        return _with_ttl(outcome, int(seconds))

    def _seconds(self, outcome: Outcome) -> float:
        if outcome.rcode == wire.SERVFAIL:
            return _FAILURE
        if outcome.rcode not in (wire.NOERROR, wire.NXDOMAIN):
            return 0
        records = (*outcome.answers, *outcome.authority)
        if not outcome.answers and not any(record.type == wire.SOA for record in outcome.authority):
            return SHORTEST  # nobody says how long there is nothing
        shortest = min((_ttl(record.type, record.ttl, record.data) for record in records), default=0)
        return max(float(shortest), SHORTEST)


def _ttl(type: int, ttl: int, data: bytes) -> int:
    return min(ttl, int.from_bytes(data[-4:])) if type == wire.SOA else ttl


def _with_ttl(outcome: Outcome, ttl: int) -> Outcome:
    answers, authority, additional = (
        [record._replace(ttl=min(record.ttl, ttl)) for record in section]
        for section in (outcome.answers, outcome.authority, outcome.additional)
    )
    return outcome._replace(answers=answers, authority=authority, additional=additional)
