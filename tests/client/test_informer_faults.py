"""Informers on virtual time against a scripted server: their requests, and when they send them."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from transom.client.api import ApiUnreachable, BatchedWatch, ObjectList, WatchEvent
from transom.client.informer import Informer
from transom.client.resources import PODS
from transom.kit.clock import VirtualClock
from transom.machinery import errors
from transom.machinery.objects import Object


def pod(name: str, version: int) -> Object:
    return {"metadata": {"namespace": "x", "name": name, "resourceVersion": str(version)}}


class Script:
    """A client that answers with what the test gave it: a listing, or an error; batches of events, or an
    error.
    """

    def __init__(self, clock: VirtualClock, lists: list[Any], watches: list[Any]) -> None:
        self._clock = clock
        self._lists, self._watches = lists, watches
        self.requested: list[tuple[str, str, float]] = []

    async def list(self, _resource: Any, _namespace: str, **options: Any) -> ObjectList:
        self.requested.append(
            ("list", options["resource_version"], round(self._clock.monotonic(), 3))
        )
        answer = self._lists.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    async def watch(self, _resource: Any, _namespace: str, **options: Any) -> BatchedWatch:
        self.requested.append(
            ("watch", options["resource_version"], round(self._clock.monotonic(), 3))
        )
        if not self._watches:
            await asyncio.get_running_loop().create_future()
        answer = self._watches.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return ScriptedWatch(answer)


class ScriptedWatch(BatchedWatch):
    def __init__(self, batches: list[Any]) -> None:
        self._batches = batches

    async def next(self) -> list[WatchEvent]:
        batch = self._batches.pop(0) if self._batches else []
        if isinstance(batch, Exception):
            raise batch
        return batch

    def close(self) -> None:
        self._batches = []


class Middle(random.Random):
    def random(self) -> float:
        return 0.5


def played(
    lists: list[Any], watches: list[Any], seconds: float
) -> tuple[list[tuple[str, str, float]], Informer]:
    async def main() -> tuple[list[tuple[str, str, float]], Informer]:
        clock = VirtualClock()
        script = Script(clock, lists, watches)
        informer = Informer(script, PODS, clock, Middle())  # type: ignore[arg-type]
        task = asyncio.create_task(informer.run())
        await clock.run_for(seconds)
        task.cancel()
        await asyncio.wait((task,))
        return script.requested, informer

    return asyncio.run(main())


GONE = errors.expired("too old resource version")


def test_events_move_the_version_and_bookmarks_too() -> None:
    events = [
        [WatchEvent("ADDED", pod("a", 7))],
        [WatchEvent("BOOKMARK", pod("", 9))],
        ApiUnreachable("cut"),
    ]
    requested, informer = played([ObjectList([], "5")], [events], 1)
    assert requested == [("list", "0", 0.0), ("watch", "5", 0.0), ("watch", "9", 0.0)]
    assert informer.get("x", "a") is not None


def test_an_absent_server_is_asked_less_and_less() -> None:
    away = [ApiUnreachable("refused")] * 4
    requested, _ = played([*away, ObjectList([], "5")], [], 60)
    assert [at for what, _, at in requested if what == "list"] == [0.0, 1.2, 3.6, 8.4, 18.0]


def test_a_lost_server_is_found_again_without_a_list() -> None:
    requested, _ = played(
        [ObjectList([], "5")], [ApiUnreachable("refused"), ApiUnreachable("refused")], 60
    )
    assert requested == [
        ("list", "0", 0.0),
        ("watch", "5", 0.0),
        ("watch", "5", 1.2),
        ("watch", "5", 3.6),
    ]


def test_a_busy_server_is_asked_again_from_the_same_version() -> None:
    busy = [errors.service_unavailable("the server is stopping"), errors.too_many_requests("later")]
    requested, _ = played([ObjectList([], "5")], busy, 60)
    assert requested == [
        ("list", "0", 0.0),
        ("watch", "5", 0.0),
        ("watch", "5", 1.2),
        ("watch", "5", 3.6),
    ]


def test_a_forgotten_version_leads_to_a_fresh_list() -> None:
    requested, informer = played(
        [ObjectList([pod("a", 3)], "5"), ObjectList([pod("b", 8)], "9")], [[GONE]], 60
    )
    assert requested == [
        ("list", "0", 0.0),
        ("watch", "5", 0.0),
        ("list", "", 1.2),
        ("watch", "9", 1.2),
    ]
    assert informer.get("x", "a") is None and informer.get("x", "b") is not None


def test_a_list_not_older_than_what_was_seen_falls_back() -> None:
    too_large = errors.timeout(
        "Timeout: Too large resource version: 5, current: 3",
        1,
        [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
    )
    requested, informer = played(
        [ObjectList([pod("a", 5)], "5"), too_large, ObjectList([], "3")],
        [errors.internal("boom")],
        60,
    )
    assert [(what, version) for what, version, _ in requested] == [
        ("list", "0"),
        ("watch", "5"),
        ("list", "5"),
        ("list", ""),
        ("watch", "3"),
    ]
    assert informer.get("x", "a") is None


def test_watches_that_end_at_once_are_not_repeated_at_once() -> None:
    requested, _ = played([ObjectList([], "5")], [[], []], 60)
    assert [at for what, _, at in requested if what == "watch"] == [0.0, 1.2, 3.6]


async def test_a_failing_handler_does_not_stop_others() -> None:
    recorded: list[str] = []

    def broken(_obj: Object) -> None:
        raise ValueError("broken")

    clock = VirtualClock()
    events = [[WatchEvent("ADDED", pod("a", 6)), WatchEvent("ADDED", pod("b", 7))]]
    script = Script(clock, [ObjectList([], "5")], [events])
    informer = Informer(script, PODS, clock, Middle())  # type: ignore[arg-type]
    informer.add_handler(add=broken)
    informer.add_handler(add=lambda obj: recorded.append(obj["metadata"]["name"]))
    task = asyncio.create_task(informer.run())
    await clock.run_for(0.1)
    task.cancel()
    await asyncio.wait((task,))
    assert recorded == ["a", "b"]


async def test_a_specification_may_be_anything() -> None:
    """Custom resources define it, and a selector in it."""
    specs: list[Any] = [3, "selector", ["selector"], {"selector": 3}, {"selector": {}}, None]
    events = [
        WatchEvent("ADDED", {**pod(f"p{number}", 6 + number), "spec": spec})
        for number, spec in enumerate(specs)
    ]
    recorded: list[Any] = []
    clock = VirtualClock()
    script = Script(clock, [ObjectList([], "5")], [[events]])
    informer = Informer(script, PODS, clock, Middle())  # type: ignore[arg-type]
    informer.add_handler(add=lambda obj: recorded.append(obj["spec"]))
    task = asyncio.create_task(informer.run())
    await clock.run_for(0.1)
    task.cancel()
    await asyncio.wait((task,))
    assert recorded == specs


async def test_resync_delivers_all_objects_again() -> None:
    clock = VirtualClock()
    recorded = []
    informer = Informer(  # type: ignore[call-arg]
        Script(clock, [ObjectList([pod("a", 3), pod("b", 4)], "5")], []),
        PODS,
        clock,
        Middle(),  # type: ignore[arg-type]
    )
    informer.add_handler(update=lambda old, new: recorded.append(old is new), resync=30)
    task = asyncio.create_task(informer.run())
    await clock.run_for(65)
    task.cancel()
    await asyncio.wait((task,))
    await clock.run_for(100)
    assert all(recorded)
    assert len(recorded) == 4
