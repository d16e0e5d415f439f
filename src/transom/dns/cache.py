"""A cache of other servers' answers, limited by their TTL."""

from __future__ import annotations

from typing import Final

from transom.dns.outcome import DnsOutcome, DnsRequest
from transom.kit import dnswire as wire
from transom.kit.clock import Clock
from transom.kit.named_tuple import NamedTuple

CAPACITY: Final = 9984
SHORTEST: Final = 5.0  # seconds
_FAILURE = 5.0


MAX_BYTES: Final = 16 << 20
_RECORD_BYTES = 250  # bytes of a record without its data


class _Entry(NamedTuple):
    outcome: DnsOutcome
    expires: float
    size: int


class DnsCache:
    """Bounded in size; evicts the least recently used entry first."""

    def __init__(self, clock: Clock, longest: int, capacity: int = CAPACITY) -> None:
        self._clock = clock
        self._longest = longest
        self._capacity = capacity
        self._entries: dict[tuple[bytes, int, bool], _Entry] = {}
        self._bytes = 0
        self.hits = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, request: DnsRequest) -> DnsOutcome | None:
        """The cached outcome, with the remaining TTL."""
        key = request.key
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        left = entry.expires - self._clock.monotonic()
        if left <= 0:
            self._bytes -= entry.size
            return None
        self._entries[key] = entry  # now the most recently used
        self.hits += 1
        return _with_ttl(entry.outcome, int(left))

    def put(self, request: DnsRequest, outcome: DnsOutcome) -> DnsOutcome:
        """Returns the outcome as clients get it: no TTL in it exceeds the caching time."""
        seconds = min(self._seconds(outcome), float(self._longest))
        if seconds <= 0:
            return outcome
        size = _size(outcome)
        old = self._entries.pop(request.key, None)
        self._bytes += size - (old.size if old is not None else 0)
        while self._entries and (len(self._entries) >= self._capacity or self._bytes > MAX_BYTES):
            self._bytes -= self._entries.pop(next(iter(self._entries))).size
        self._entries[request.key] = _Entry(outcome, self._clock.monotonic() + seconds, size)
        return _with_ttl(outcome, int(seconds))

    def _seconds(self, outcome: DnsOutcome) -> float:
        if outcome.rcode == wire.SERVFAIL:
            return _FAILURE
        if outcome.rcode not in (wire.NOERROR, wire.NXDOMAIN):
            return 0
        records = (*outcome.answers, *outcome.authority)
        if not outcome.answers and not any(record.type == wire.SOA for record in outcome.authority):
            return SHORTEST  # no SOA record with a negative TTL
        shortest = min(
            (_ttl(record.type, record.ttl, record.data) for record in records), default=0
        )
        return max(float(shortest), SHORTEST)


def _size(outcome: DnsOutcome) -> int:
    """The approximate memory usage."""
    sections = (outcome.answers, outcome.authority, outcome.additional)
    return 500 + sum(
        _RECORD_BYTES + len(record.name) + len(record.data)
        for section in sections
        for record in section
    )


def _ttl(type: int, ttl: int, data: bytes) -> int:
    return min(ttl, int.from_bytes(data[-4:])) if type == wire.SOA else ttl


def _with_ttl(outcome: DnsOutcome, ttl: int) -> DnsOutcome:
    answers, authority, additional = (
        [record._replace(ttl=min(record.ttl, ttl)) for record in section]
        for section in (outcome.answers, outcome.authority, outcome.additional)
    )
    return outcome._replace(answers=answers, authority=authority, additional=additional)
