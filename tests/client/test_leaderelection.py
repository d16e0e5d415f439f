"""Leader election on virtual time: one leader at any moment, and always one in the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from transom.client.api import ApiUnreachable, WatchEvent
from transom.client.leaderelection import LeaderElector, LeaseTimes
from transom.client.resources import LEASES
from transom.kit.clock import VirtualClock
from transom.machinery import errors
from transom.machinery.objects import Object, copy_object


class Server:
    """One lease; a client in `cut` gets no answer, one in `stuck` waits for one for
    ever.
    """

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.version = 0
        self.cut: set[str] = set()
        self.stuck: set[str] = set()
        self.late: set[str] = set()  # its next write is committed, but the answer does not come
        self.watches: list[_Watch] = []

    def client(self, name: str) -> Any:
        return _Client(self, name)


class _Watch:
    def __init__(self) -> None:
        self.queue: asyncio.Queue[list[WatchEvent]] = asyncio.Queue()

    async def next(self) -> list[WatchEvent]:
        return await self.queue.get()

    def close(self) -> None:
        self.queue = asyncio.Queue()


class _Client:
    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name = server, name

    async def _ask(self) -> None:
        if self._name in self._server.cut:
            raise ApiUnreachable("cut")
        if self._name in self._server.stuck:
            await asyncio.get_running_loop().create_future()

    async def get(self, _resource: Any, _namespace: str, name: str) -> Object:
        await self._ask()
        if self._server.lease is None:
            raise errors.not_found(LEASES.group_resource, name)
        return copy_object(self._server.lease)  # type: ignore[no-any-return]

    async def create(self, _resource: Any, _namespace: str, obj: Object) -> Object:
        await self._ask()
        assert self._server.lease is None
        return self._store(obj)

    async def update(self, _resource: Any, obj: Object) -> Object:
        await self._ask()
        assert self._server.lease is not None
        if obj["metadata"]["resourceVersion"] != self._server.lease["metadata"]["resourceVersion"]:
            raise errors.conflict(LEASES.group_resource, "l", "modified")
        stored = self._store(obj)
        if self._name in self._server.late:
            self._server.late.remove(self._name)
            await asyncio.get_running_loop().create_future()
        return stored

    async def watch(self, _resource: Any, _namespace: str, *, field_selector: str) -> _Watch:
        assert field_selector == "metadata.name=l"
        found = _Watch()
        self._server.watches.append(found)
        return found

    def _store(self, obj: Object) -> Object:
        server = self._server
        server.version += 1
        server.lease = copy_object(obj)
        server.lease["metadata"]["resourceVersion"] = str(server.version)
        for one in server.watches:
            one.queue.put_nowait([WatchEvent("MODIFIED", copy_object(server.lease))])
        return copy_object(server.lease)  # type: ignore[no-any-return]


class Candidates:
    def __init__(self, server: Server, clock: VirtualClock) -> None:
        self._server, self._clock = server, clock
        self.leading: list[str] = []
        self.terms: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.electors: dict[str, LeaderElector] = {}

    def start(self, name: str, *, watch: bool = False) -> None:
        client = self._server.client(name)
        elector = LeaderElector(
            client,
            "kube-system",
            "l",
            name,
            self._clock,
            random.Random(name),
            watch_client=client if watch else None,
        )

        async def lead() -> None:
            self.leading.append(name)
            self.terms.append(name)
            assert len(self.leading) == 1
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self.leading.remove(name)

        self.electors[name] = elector
        self.tasks[name] = asyncio.create_task(elector.run(lead))


@asynccontextmanager
async def api_server() -> AsyncIterator[tuple[Server, VirtualClock, Candidates]]:
    server, clock = Server(), VirtualClock()
    candidates = Candidates(server, clock)
    yield (server, clock, candidates)
    for task in candidates.tasks.values():
        task.cancel()
    await clock.run_for(1)
    await asyncio.gather(*candidates.tasks.values(), return_exceptions=True)


async def test_the_lease_of_a_leader() -> None:
    async with api_server() as (server, clock, candidates):
        candidates.start("a")
        await clock.run_for(5)
        assert server.lease is not None and candidates.leading == ["a"]
        assert server.lease["spec"] == {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2020-01-02T03:04:05.000000Z",
            "renewTime": "2020-01-02T03:04:09.000000Z",
            "leaseTransitions": 0,
        }
        assert set(server.lease["metadata"]) == {"name", "namespace", "resourceVersion"}


async def test_another_takes_over_when_the_leader_is_cut_off() -> None:
    async with api_server() as (server, clock, candidates):
        candidates.start("a")
        await clock.run_for(5)
        candidates.start("b")
        await clock.run_for(60)
        assert candidates.leading == ["a"]
        server.cut.add("a")
        await clock.run_for(8)
        assert candidates.leading == ["a"]  # it may still hope
        await clock.run_for(3)
        assert candidates.leading == []  # it gave up before the other may begin
        await clock.run_for(15)
        assert candidates.leading == ["b"] and server.lease is not None
        assert server.lease["spec"]["leaseTransitions"] == 1


async def test_a_suspended_leader_may_not_write_when_it_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with api_server() as (_server, clock, candidates):
        candidates.start("a")
        await clock.run_for(5)
        candidates.start("b")
        await clock.run_for(60)
        candidates.electors["a"].check_leading()
        with pytest.raises(errors.ApiError, match="leaderelection lost"):
            candidates.electors["b"].check_leading()
        now = clock.monotonic()
        with monkeypatch.context() as patch:  # time passes, and no task of the process runs
            patch.setattr(VirtualClock, "monotonic", lambda _clock: now + 10)
            with pytest.raises(errors.ApiError, match="leaderelection lost"):
                candidates.electors["a"].check_leading()
        await clock.run_for(60)
        candidates.electors["a"].check_leading()


async def test_a_leader_that_hangs_knows_when_its_time_is_over() -> None:
    async with api_server() as (server, clock, candidates):
        candidates.start("a")
        await clock.run_for(5)
        candidates.start("b")
        await clock.run_for(5)
        server.stuck.add("a")
        await clock.run_for(40)
        assert candidates.terms == [
            "a",
            "b",
        ]  # `lead` itself asserts that there is only one at a time


async def test_a_leader_that_ends_hands_the_lease_over() -> None:
    async with api_server() as (server, clock, candidates):
        candidates.start("a")
        await clock.run_for(5)
        candidates.start("b")
        await clock.run_for(5)
        candidates.tasks["a"].cancel()
        await clock.run_for(0.01)
        assert server.lease is not None and server.lease["spec"]["holderIdentity"] == ""
        await clock.run_for(4.5)
        assert candidates.leading == ["b"]


async def test_a_candidate_that_watches_the_lease_takes_over_at_once() -> None:
    async with api_server() as (server, clock, candidates):
        candidates.start("a", watch=True)
        await clock.run_for(5)
        candidates.start("b", watch=True)
        await clock.run_for(5)
        candidates.tasks["a"].cancel()
        await clock.run_for(0.01)
        assert candidates.leading == ["b"]
        assert server.lease is not None and server.lease["spec"]["holderIdentity"] == "b"


async def test_a_lease_is_released_even_if_its_last_renewal_was_not_answered() -> None:
    async with api_server() as (server, clock, candidates):
        candidates.start("a")
        await clock.run_for(5)
        server.late.add("a")
        await clock.run_for(2)
        assert not server.late
        candidates.tasks["a"].cancel()
        await clock.run_for(0.01)
        assert server.lease is not None and server.lease["spec"]["holderIdentity"] == ""


def test_times_must_make_sense() -> None:
    with pytest.raises(ValueError):
        LeaseTimes(lease=10, renew=10)
    with pytest.raises(ValueError):
        LeaseTimes(retry=9)
