"""Queries other name servers: one after the other, over UDP, and over TCP if an answer is
truncated.

The caller provides the transport: servers in the cluster are reached over its own network, others
over the machine's. A query that is already in flight is not sent twice, which breaks forwarding
loops.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final, Protocol

from transom.dns.outcome import DnsOutcome, DnsRequest
from transom.dns.settings import DnsServerAddress
from transom.kit import dnswire as wire
from transom.kit.clock import Clock
from transom.kit.dnswire import Edns
from transom.network.resolver import limited_config

MAX_ASKED: Final = 1000  # concurrent queries, like CoreDNS' max_concurrent
SERVER_TIMEOUT: Final = 2.0  # seconds for one server
LONGEST: Final = 5.0  # seconds for all servers
_SIZE = 1232  # a packet size that is safe everywhere
_TRIES = 3


class DnsExchange(Protocol):
    """The transport to a server. Both methods raise OSError; neither has a timeout."""

    async def datagram(self, server: DnsServerAddress, payload: bytes) -> bytes: ...
    async def stream(self, server: DnsServerAddress, payload: bytes) -> bytes: ...


class Forwarder:
    def __init__(self, exchange: DnsExchange, clock: Clock, rng: random.Random) -> None:
        self._exchange = exchange
        self._clock = clock
        self._rng = rng
        self._requested: dict[tuple[object, ...], asyncio.Task[DnsOutcome]] = {}
        self._good: dict[DnsServerAddress, int] = {}  # failures since the last answer
        self.sent = 0

    async def ask(self, servers: Sequence[DnsServerAddress], request: DnsRequest) -> DnsOutcome:
        """Returns SERVFAIL if no upstream server answers."""
        key = (tuple(servers), *request.key)
        task = self._requested.get(key)
        if task is None and len(self._requested) >= MAX_ASKED:
            return DnsOutcome(wire.SERVFAIL, flags=0)
        if task is None:
            task = self._requested[key] = asyncio.get_running_loop().create_task(
                self._ask_all(servers, request)
            )
            task.add_done_callback(lambda _: self._requested.pop(key, None))
        return await asyncio.shield(task)

    async def close(self) -> None:
        tasks = list(self._requested.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask_all(
        self, servers: Sequence[DnsServerAddress], request: DnsRequest
    ) -> DnsOutcome:
        end = self._clock.monotonic() + LONGEST
        # fewest failures first
        ordered = sorted(servers, key=lambda server: self._good.get(server, 0))
        refusal: DnsOutcome | None = None
        for turn in range(_TRIES):
            for server in ordered:
                left = end - self._clock.monotonic()
                if left <= 0:
                    return refusal or DnsOutcome(wire.SERVFAIL, flags=0)
                try:
                    outcome = await limited_config(
                        self._clock, min(SERVER_TIMEOUT, left), self._ask_one(server, request)
                    )
                except (OSError, wire.MalformedDnsMessage):
                    self._good[server] = self._good.get(server, 0) + 1
                    continue
                self._good.pop(server, None)
                if outcome.rcode not in (wire.SERVFAIL, wire.REFUSED, wire.NOTIMP):
                    return outcome
                refusal = outcome
            if refusal is not None or (turn and len(ordered) == 1):
                break
        return refusal or DnsOutcome(wire.SERVFAIL, flags=0)

    async def _ask_one(self, server: DnsServerAddress, request: DnsRequest) -> DnsOutcome:
        self.sent += 1
        number = self._rng.getrandbits(16)
        payload = wire.encode_query(
            number, request.requested, request.type, edns=Edns(_SIZE, request.do)
        )
        message = wire.parse_dns_message(await self._exchange.datagram(server, payload))
        self._check(message, number, request)
        if message.rcode == wire.FORMERR and not message.answers:  # it does not support EDNS
            payload = wire.encode_query(number, request.requested, request.type)
            message = wire.parse_dns_message(await self._exchange.datagram(server, payload))
            self._check(message, number, request)
        if message.truncated:
            message = wire.parse_dns_message(await self._exchange.stream(server, payload))
            self._check(message, number, request)
        flags = message.flags & (wire.AA | wire.RA | wire.AD)
        return DnsOutcome(
            message.rcode & 0xF, message.answers, message.authority, message.additional, flags
        )

    def _check(self, message: wire.DnsMessage, number: int, request: DnsRequest) -> None:
        requested = message.question
        same = requested is None or (requested.name.lower(), requested.type) == (
            request.requested.lower(),
            request.type,
        )
        if message.id != number or not message.flags & wire.QR or not same:
            raise wire.MalformedDnsMessage("an answer to another question")
