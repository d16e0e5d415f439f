"""Asking other name servers: one after the other, by datagram, over a connection when an answer does not fit into one.

How packets get there is handed in: servers in the cluster are reached over its own network, others over the machine's.
A question that is already on its way is not asked twice, so one that comes back to us cannot go round in circles.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from transom.dns.outcome import Outcome, Request
from transom.dns.settings import Server
from transom.kit import dnswire as wire
from transom.kit.clock import Clock
from transom.kit.dnswire import Edns
from transom.network.resolver import limited

PATIENCE: Final = 2.0  # seconds for one server
LONGEST: Final = 5.0  # for all
_SIZE = 1232  # what fits into a packet everywhere
_TRIES = 3


class Exchange(Protocol):
    """How packets reach a server. Both raise OSError; there is no limit of time."""

    async def datagram(self, server: Server, payload: bytes) -> bytes: ...
    async def stream(self, server: Server, payload: bytes) -> bytes: ...


class Forwarder:
    def __init__(self, exchange: Exchange, clock: Clock, rng: random.Random) -> None:
        self._exchange = exchange
        self._clock = clock
        self._rng = rng
        self._asked: dict[tuple[object, ...], asyncio.Task[Outcome]] = {}
        self._good: dict[Server, int] = {}  # how often it failed since it last answered
        self.sent = 0

    async def ask(self, servers: Sequence[Server], request: Request) -> Outcome:
        """SERVFAIL when nobody answers."""
        key = (tuple(servers), *request.key)
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.get_running_loop().create_task(self._ask_all(servers, request))
            task.add_done_callback(lambda _: self._asked.pop(key, None))
        return await asyncio.shield(task)

    async def close(self) -> None:
        tasks = list(self._asked.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask_all(self, servers: Sequence[Server], request: Request) -> Outcome:
        end = self._clock.monotonic() + LONGEST
        ordered = sorted(servers, key=lambda server: self._good.get(server, 0))  # those that answer first
        refusal: Outcome | None = None
        for turn in range(_TRIES):
            for server in ordered:
                left = end - self._clock.monotonic()
                if left <= 0:
                    return refusal or Outcome(wire.SERVFAIL, flags=0)
                try:
                    outcome = await limited(self._clock, min(PATIENCE, left), self._ask_one(server, request))
                except (OSError, wire.Malformed):
                    self._good[server] = self._good.get(server, 0) + 1
                    continue
                self._good.pop(server, None)
                if outcome.rcode not in (wire.SERVFAIL, wire.REFUSED, wire.NOTIMP):
                    return outcome
                refusal = outcome
            if refusal is not None or (turn and len(ordered) == 1):
                break
        return refusal or Outcome(wire.SERVFAIL, flags=0)

    async def _ask_one(self, server: Server, request: Request) -> Outcome:
        self.sent += 1
        number = self._rng.getrandbits(16)
        payload = wire.query(number, request.asked, request.type, edns=Edns(_SIZE, request.do))
        message = wire.parse(await self._exchange.datagram(server, payload))
        self._check(message, number, request)
        if message.rcode == wire.FORMERR and not message.answers:  # it has never heard of EDNS
            payload = wire.query(number, request.asked, request.type)
            message = wire.parse(await self._exchange.datagram(server, payload))
            self._check(message, number, request)
        if message.truncated:
            message = wire.parse(await self._exchange.stream(server, payload))
            self._check(message, number, request)
        flags = message.flags & (wire.AA | wire.RA | wire.AD)
        return Outcome(message.rcode & 0xF, message.answers, message.authority, message.additional, flags)

    def _check(self, message: wire.Message, number: int, request: Request) -> None:
        asked = message.question
        same = asked is None or (asked.name.lower(), asked.type) == (request.asked.lower(), request.type)
        if message.id != number or not message.flags & wire.QR or not same:
            raise wire.Malformed("an answer to another question")


class Routed:
    """Servers for which `inside` is true are reached by one way, all others by another."""

    def __init__(self, inside: Callable[[str], bool], near: Exchange, far: Exchange) -> None:
        self._inside = inside
        self._near = near
        self._far = far

    async def datagram(self, server: Server, payload: bytes) -> bytes:
        return await (self._near if self._inside(server.address) else self._far).datagram(server, payload)

    async def stream(self, server: Server, payload: bytes) -> bytes:
        return await (self._near if self._inside(server.address) else self._far).stream(server, payload)
