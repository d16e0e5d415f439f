"""The DNS server without its sockets: a message comes in, an answer goes out.

Most queries repeat. Their answers are cached as bytes that fit every client, and dropped when the
zone reports a change of something they depend on. All other queries pass through the chain, which
`DnsServer.__init__` declares (`_chain`).
"""

from __future__ import annotations

import random
import struct
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from transom.dns.cache import DnsCache
from transom.dns.forward import DnsExchange, Forwarder
from transom.dns.outcome import DnsOutcome, DnsRequest, Link, make_dns_request
from transom.dns.records import LookupResult
from transom.dns.settings import (
    DnsServerAddress,
    DnsSettings,
    check_dns_settings,
    parse_server_address,
)
from transom.dns.transport import Answer, NoUpstream
from transom.dns.zone import DnsZone
from transom.kit import dnswire as wire
from transom.kit.clock import Clock
from transom.kit.dnswire import DnsQuestion, DnsRecord, Edns, PackedMessage

KEPT_BYTES: Final = 32 << 20
KEPT: Final = 65536  # cached answers; random names must not exhaust the memory
_LONGEST_CHAIN = 8
_HOSTS_TTL = 3600
# expire, cookie, keepalive, padding: others are dropped
_ECHOED_OPTIONS = frozenset((9, 10, 11, 12))
_COUNTS = (
    (b"\0\1\0\0\0\0\0\0", 0),
    (b"\0\1\0\0\0\0\0\1", 2),
)  # one question, without and with EDNS
# The flags and counts of usual queries -> which head of a packed answer fits.
_USUAL: Final[Mapping[bytes, int]] = {
    flags.to_bytes(2) + counts: base + bool(flags & wire.RD)
    for counts, base in _COUNTS
    for flags in (0, wire.RD, wire.AD, wire.RD | wire.AD)
}
_PLAIN_OPT = b"\0\0\x29"
_NO_OPTIONS = b"\0" * 6  # version, flags and length of an OPT record without options


class DnsServer:
    def __init__(
        self,
        zone: DnsZone,
        settings: DnsSettings,
        clock: Clock,
        rng: random.Random,
        exchange: DnsExchange | None = None,
        own: Sequence[DnsServerAddress] = (),
    ) -> None:
        """`exchange` queries other servers, `own` are the addresses of this server itself. Raises
        ValueError for invalid settings.
        """
        check_dns_settings(settings, own)
        self.zone = zone
        self.settings = settings
        self.responses = [0] * 16  # by response code
        self.cache = DnsCache(clock, settings.cache)
        self.forwarder = Forwarder(exchange or NoUpstream(), clock, rng)
        self._upstreams = tuple(map(parse_server_address, settings.upstreams))
        self._stubs = {
            tuple(wire.name_labels(wire.encode_name(domain).lower())): tuple(
                map(parse_server_address, servers)
            )
            for domain, servers in settings.stub_domains.items()
        }
        self._hosts = {
            wire.encode_name(name).lower(): addresses for name, addresses in settings.hosts.items()
        }
        self._chain: tuple[Link, ...] = (
            self._from_cache,
            self._from_hosts,
            self._from_kubernetes,
            self._from_stubs,
            self._from_upstreams,
        )
        self._packed: dict[bytes, PackedMessage] = {}  # question in lower case -> answer
        self._packed_bytes = 0  # size of all answers cached since the last flush
        self._depending: dict[str, set[bytes]] = {}  # dependency -> questions
        zone.listeners.append(self._changed)

    async def close(self) -> None:
        self.zone.listeners.remove(self._changed)
        await self.forwarder.close()

    # ---- messages ----

    async def respond(self, query: bytes, source: str = "", transport: str = "udp") -> bytes | None:
        """The answer; None to send none. `network.api.Respond`."""
        answer = self.take(query, source, transport == "tcp")
        return await answer if isinstance(answer, Coroutine) else answer

    def take(self, query: bytes, source: str = "", tcp: bool = False) -> Answer:
        """Like `respond`, but synchronous unless another server must be queried."""
        # The first zero byte ends the name: labels are never empty. The whole question is
        # lowercased; record types that collide because of that have no records in the zone.
        end = query.find(0, 12) + 5
        packed = self._packed.get(query[12:end].lower())
        head = _USUAL.get(query[2:12])
        if packed is not None and head is not None:
            question = query[12:end]
            body = packed.body if not packed.stride else packed.rotated()
            if head < 2:
                if len(query) == end and (tcp or end + len(body) <= 512):
                    self.responses[packed.flags & 0xF] += 1
                    return query[:2] + packed.heads[head] + question + body
            else:
                extra = query[end:]
                if (
                    len(extra) == 11
                    and extra[:3] == _PLAIN_OPT
                    and extra[5:] == _NO_OPTIONS
                    and (tcp or end + len(body) + 11 <= max(extra[3] << 8 | extra[4], 512))
                ):
                    self.responses[packed.flags & 0xF] += 1
                    return query[:2] + packed.heads[head] + question + body + extra
        answer = self._take(query, tcp)
        if isinstance(answer, bytes):
            self.responses[answer[3] & 0xF] += 1
        return answer

    def _take(self, query: bytes, tcp: bool) -> Answer:
        if len(query) < wire.HEADER_SIZE or query[2] & 0x80:
            return None  # do not answer responses, to prevent loops between two servers
        flags, questions, answers, authority, additional = struct.unpack_from("!5H", query, 2)
        if flags & wire.OPCODE:
            return wire.encode_error(query, wire.NOTIMP)
        if questions != 1 or answers > 1 or authority > 1 or additional > 2:
            return wire.encode_error(query, wire.FORMERR)
        try:
            message = wire.parse_dns_message(query)
        except wire.MalformedDnsMessage:
            return wire.encode_error(query, wire.FORMERR)
        requested = message.question
        assert requested is not None, "there is one question"
        edns = message.edns
        if edns is not None:
            if edns.version:
                reply = Edns(edns.size, edns.do, extended=wire.BADVERS >> 4)
                return PackedMessage(requested.name, 0).message(
                    message.id, _question(requested), flags, 65535, reply
                )
            edns = Edns(edns.size, edns.do, options=_echoed(edns.options))
        limit = 65535 if tcp else max(edns.size, wire.MAX_UDP) if edns else wire.MAX_UDP
        packed = self._packed.get(_question(requested).lower())
        if packed is not None:
            return packed.message(message.id, _question(requested), flags, limit, edns)
        if requested.klass != wire.IN:
            return PackedMessage(requested.name, wire.REFUSED).message(
                message.id, _question(requested), flags, limit, edns
            )
        outcome = self.solve(
            make_dns_request(requested.name, requested.type, edns is not None and edns.do)
        )
        if isinstance(outcome, Coroutine):
            return self._finish_later(outcome, message.id, requested, flags, limit, edns)
        return self._finish(outcome, message.id, requested, flags, limit, edns)

    async def _finish_later(
        self,
        outcome: Coroutine[Any, Any, DnsOutcome],
        id: int,
        requested: DnsQuestion,
        flags: int,
        limit: int,
        edns: Edns | None,
    ) -> bytes:
        answer = self._finish(await outcome, id, requested, flags, limit, edns)
        self.responses[answer[3] & 0xF] += 1
        return answer

    def _finish(
        self,
        outcome: DnsOutcome,
        id: int,
        requested: DnsQuestion,
        flags: int,
        limit: int,
        edns: Edns | None,
    ) -> bytes:
        packed = PackedMessage(
            requested.name,
            outcome.flags | outcome.rcode,
            outcome.answers,
            outcome.authority,
            outcome.additional,
        )
        question = _question(requested)
        if outcome.depends is not None:
            self._keep(question.lower(), packed, outcome.depends)
        return packed.message(id, question, flags, limit, edns)

    # ---- cached answers ----

    @property
    def kept(self) -> int:
        return len(self._packed)

    def _keep(self, key: bytes, packed: PackedMessage, depends: Sequence[str]) -> None:
        size = len(packed.body) + len(key)
        self._packed_bytes += size
        if len(self._packed) >= KEPT or self._packed_bytes > KEPT_BYTES:
            self._packed.clear()
            self._depending.clear()
            self._packed_bytes = size
        self._packed[key] = packed
        for what in depends:
            self._depending.setdefault(what, set()).add(key)

    def _changed(self, what: str) -> None:
        for key in self._depending.pop(what, ()):
            self._packed.pop(key, None)

    # ---- the chain ----

    def solve(self, requested: DnsRequest) -> DnsOutcome | Coroutine[Any, Any, DnsOutcome]:
        for link in self._chain:
            outcome = link(requested)
            if outcome is not None:
                return outcome
        # Without upstreams only the cluster's names exist.
        return DnsOutcome(wire.NXDOMAIN, authority=[self.zone.soa(b"\0")])

    def _from_cache(self, requested: DnsRequest) -> DnsOutcome | None:
        return self.cache.get(requested)

    def _from_hosts(self, requested: DnsRequest) -> DnsOutcome | None:
        addresses = self._hosts.get(requested.requested.lower())
        if addresses is None:
            return None
        answers = [
            DnsRecord(requested.requested, requested.type, _HOSTS_TTL, wire.address_data(address))
            for address in addresses
            if requested.type == (wire.AAAA if ":" in address else wire.A)
        ]
        return DnsOutcome(wire.NOERROR, answers, () if answers else [self.zone.soa(b"\0")])

    def _from_kubernetes(
        self, requested: DnsRequest
    ) -> DnsOutcome | Coroutine[Any, Any, DnsOutcome] | None:
        if self._stub(requested.labels, longer_than=self.zone.covers(requested.labels)):
            return None
        found = self.zone.lookup(requested.requested, requested.type)
        if found is None or (found.through and (self._upstreams or self._stub(requested.labels))):
            return None
        outcome = DnsOutcome(
            found.rcode,
            found.answers,
            found.authority,
            found.additional,
            depends=None if found.follow else found.depends,
        )
        return self._follow(found, requested, outcome) if found.follow else outcome

    async def _follow(
        self, found: LookupResult, requested: DnsRequest, outcome: DnsOutcome
    ) -> DnsOutcome:
        """Resolves an external name and appends its records."""
        if requested.depth >= _LONGEST_CHAIN:
            return DnsOutcome(wire.SERVFAIL)
        more = self.solve(
            make_dns_request(found.follow, requested.type, requested.do, requested.depth + 1)
        )
        if isinstance(more, Coroutine):
            more = await more
        return outcome._replace(answers=[*outcome.answers, *more.answers])

    def _from_stubs(self, requested: DnsRequest) -> Coroutine[Any, Any, DnsOutcome] | None:
        servers = self._stub(requested.labels)
        return self._ask(servers, requested) if servers else None

    def _from_upstreams(self, requested: DnsRequest) -> Coroutine[Any, Any, DnsOutcome] | None:
        return self._ask(self._upstreams, requested) if self._upstreams else None

    async def _ask(self, servers: Sequence[DnsServerAddress], requested: DnsRequest) -> DnsOutcome:
        return self.cache.put(requested, await self.forwarder.ask(servers, requested))

    def _stub(self, labels: Sequence[bytes], longer_than: int = 0) -> Sequence[DnsServerAddress]:
        """The servers of the longest stub domain that contains the name."""
        for size in range(len(labels), longer_than, -1):
            servers = self._stubs.get(tuple(labels[-size:]))
            if servers:
                return servers
        return ()


def _question(requested: DnsQuestion) -> bytes:
    return requested.name + struct.pack("!2H", requested.type, requested.klass)


def _echoed(options: bytes) -> bytes:
    kept = []
    position = 0
    while position + 4 <= len(options):
        code, size = struct.unpack_from("!2H", options, position)
        end = position + 4 + size
        if code in _ECHOED_OPTIONS and end <= len(options):
            kept.append(options[position:end])
        position = end
    return b"".join(kept)
