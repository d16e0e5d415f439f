"""Clients that fail: calls get lost before or after they had their effect, conflicts, a busy
server, cut and slow watches.

A `Line` is what one process has to the API server. When the process dies its line dies with it:
nothing of what its cancelled tasks still try has an effect.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from transom.client.api import ApiClient, ApiUnreachable, ApiWatch, BatchedWatch, WatchEvent
from transom.client.resources import GroupVersionResource
from transom.machinery import errors
from transom.machinery.errors import ApiError

Report = Callable[[str], None]


@dataclass
class Faults:
    """How likely each fault is, for each call or each batch of events; and how slow everything is,
    in seconds.
    """

    rng: random.Random
    lost_call: float = 0.0
    lost_answer: float = 0.0
    conflict: float = 0.0
    busy: float = 0.0
    watch_cut: float = 0.0
    watch_expired: float = 0.0
    # never none while there are faults: two who undo each other's work would do it forever
    call_delay: float = 0.0
    watch_delay: float = 0.0
    long_delay: float = 0.0  # the likelihood of a delay a thousand times as long
    outage: bool = False  # no client reaches the server
    # pods that were bound, and whose scheduler did not hear of it
    unheard: set[str] = field(default_factory=set)

    @classmethod
    def drawn(cls, rng: random.Random) -> Faults:
        """Some kinds of faults are left out, so that no kind hides what another would show."""

        def rate(most: float) -> float:
            return rng.choice((0.0, 0.3, 1.0)) * rng.random() * most

        return cls(
            rng,
            lost_call=rate(0.2),
            lost_answer=rate(0.2),
            conflict=rate(0.4),
            busy=rate(0.2),
            watch_cut=rate(0.1),
            watch_expired=rate(0.03),
            call_delay=rng.choice((0.001, 0.003, 0.01, 0.05)),
            watch_delay=rng.choice((0.0, 0.002, 0.02, 0.2)),
            long_delay=rate(0.01),
        )

    def begin(self, rates: Faults) -> None:
        for name in _RATES:
            setattr(self, name, getattr(rates, name))

    def heal(self) -> None:
        """No more faults. Delays stay, short ones: they are part of life."""
        self.lost_call = self.lost_answer = self.conflict = self.busy = self.watch_cut = (
            self.watch_expired
        ) = 0.0
        self.long_delay = 0.0
        self.outage = False

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.3g}" for name in _RATES if (value := getattr(self, name)))

    def happens(self, likelihood: float) -> bool:
        return likelihood > 0 and self.rng.random() < likelihood

    async def delay(self, mean: float) -> None:
        if mean <= 0:
            return
        seconds = self.rng.expovariate(1 / mean)
        if self.happens(self.long_delay):
            seconds = min(seconds * 1000, 30.0)
        await asyncio.sleep(seconds)


_RATES = [name for name in Faults.__dataclass_fields__ if name not in ("rng", "outage", "unheard")]


class Line:
    """The connection of one process, or of one node."""

    def __init__(self, faults: Faults, name: str, report: Report | None = None) -> None:
        self.faults = faults
        self.name = name
        self.dead = False  # the process is gone
        self.cut = False  # the network is
        self.calls = 0
        self.on_call: Callable[[], None] | None = None
        self.report = report
        self._watches: dict[ApiWatch, None] = {}  # in order: a set would be in that of addresses

    @property
    def up(self) -> bool:
        return not (self.dead or self.cut or self.faults.outage)

    def check(self) -> None:
        if not self.up:
            raise ApiUnreachable("no connection")

    def drop_watches(self) -> None:
        for watch in [*self._watches]:
            watch.close()

    def opened(self, watch: ApiWatch) -> None:
        self._watches[watch] = None

    def closed(self, watch: ApiWatch) -> None:
        self._watches.pop(watch, None)

    def client(self, inner: ApiClient, who: str) -> ApiClient:
        return FaultyClient(inner, self, who)


class FaultyWatch(BatchedWatch):
    """Events come late, and sometimes never: then the connection is cut before or after a part of
    them.
    """

    def __init__(self, inner: ApiWatch, line: Line) -> None:
        self._inner = inner
        self._line = line
        self._broken = False
        line.opened(inner)

    async def next(self) -> list[WatchEvent]:
        line, faults = self._line, self._line.faults
        if self._broken:
            line.check()
            raise ApiUnreachable("the watch is cut")
        batch = await self._inner.next()
        await faults.delay(faults.watch_delay)
        line.check()
        if faults.happens(faults.watch_expired):
            self.close()
            raise errors.expired("too old resource version: 1 (2)")
        if batch and faults.happens(faults.watch_cut):
            arrived = faults.rng.randrange(len(batch) + 1)
            self.close()
            self._broken = True
            if not arrived:
                raise ApiUnreachable("the watch is cut")
            return batch[:arrived]
        return batch

    def close(self) -> None:
        self._line.closed(self._inner)
        self._inner.close()


_READS = ("get", "list", "get_json")
_UPDATES = ("update", "update_status")
_BUSY: tuple[Callable[[], ApiError], ...] = (
    lambda: errors.too_many_requests("Too many requests, please try again later.", 1),
    lambda: errors.internal("the server lost power"),
    lambda: errors.service_unavailable("the server is currently unable to handle the request"),
    lambda: errors.timeout("request did not complete within the allotted timeout"),
)


class FaultyClient:
    """A `ApiClient` around another one. `who` is for the trace."""

    def __init__(self, inner: ApiClient, line: Line, who: str) -> None:
        self._inner = inner
        self._line = line
        self._who = who

    async def watch(self, resource: GroupVersionResource, *args: Any, **options: Any) -> ApiWatch:
        line, faults = self._line, self._line.faults
        line.check()
        await faults.delay(faults.call_delay)
        line.check()
        if faults.happens(faults.lost_call):
            raise ApiUnreachable("no connection")
        return FaultyWatch(await self._inner.watch(resource, *args, **options), line)

    def __getattr__(self, verb: str) -> Any:
        call = getattr(self._inner, verb)

        async def faulty(*args: Any, **options: Any) -> Any:
            line = self._line
            line.calls += 1
            if line.on_call is not None:
                line.on_call()
            if line.report is None:
                return await self._faulty(verb, call, args, options)
            what = "" if verb in _READS else self._text(verb, args, options)
            try:
                result = await self._faulty(verb, call, args, options)
            except (ApiError, OSError) as problem:
                if what:
                    line.report(f"{what}: {problem}")
                raise
            if what:
                line.report(what)
            return result

        return faulty

    async def _faulty(
        self, verb: str, call: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        line, faults = self._line, self._line.faults
        line.check()
        await faults.delay(faults.call_delay)
        line.check()
        if faults.happens(faults.lost_call):
            raise ApiUnreachable("the call is lost")
        if verb in _UPDATES and faults.happens(faults.conflict):
            raise errors.conflict(
                args[0].group_resource, args[1]["metadata"]["name"], "the object has been modified"
            )
        if faults.happens(faults.busy):
            raise faults.rng.choice(_BUSY)()
        result = await call(*args, **options)
        await faults.delay(faults.call_delay)
        if not line.up or faults.happens(faults.lost_answer):
            if verb == "create_subresource" and args[3] == "binding":
                faults.unheard.add(f"{args[1]}/{args[2]}")
            raise ApiUnreachable("the answer is lost")
        return result

    def _text(self, verb: str, args: tuple[Any, ...], options: dict[str, Any]) -> str:
        resource, *rest = args
        if verb in _UPDATES:
            meta = rest[0]["metadata"]
            rest = [meta.get("namespace", ""), meta["name"]]
        elif verb == "create":
            meta = rest[1]["metadata"]
            rest = [rest[0], meta.get("name") or meta.get("generateName", "")]
        where = "/".join(str(part) for part in rest[:2] if part)
        more = [
            options[name]
            for name in ("subresource", "grace", "propagation")
            if options.get(name) is not None
        ]
        if verb == "create_subresource":
            more.insert(0, rest[2])
        return " ".join(str(part) for part in (self._who, verb, resource, where, *more))
