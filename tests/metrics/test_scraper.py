"""The collector of samples: when nodes are scraped, and what happens to those that do not respond."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from transom.kit.clock import VirtualClock, rfc3339
from transom.metrics.scraper import MetricsScraper


class Kubelets:
    def __init__(self, clock: VirtualClock, *names: str) -> None:
        self.clock = clock
        self.names = list(names)
        self.requested: list[tuple[float, str]] = []
        self.faults: dict[str, Callable[[], Any]] = {}

    async def fetch(self, node: str) -> Any:
        self.requested.append((self.clock.monotonic(), node))
        if node in self.faults:
            await self.faults[node]()
        now = rfc3339(self.clock.time())
        used = {
            "cpu": {"time": now, "usageNanoCores": len(self.requested)},
            "memory": {"time": now, "workingSetBytes": 1},
        }
        reference = {"namespace": "d", "name": f"on-{node}"}
        return {
            "node": used,
            "pods": [{"podRef": reference, "containers": [{"name": "c", **used}]}],
        }


@asynccontextmanager
async def start(*names: str) -> AsyncIterator[tuple[VirtualClock, Kubelets, MetricsScraper]]:
    clock = VirtualClock()
    kubelets = Kubelets(clock, *names)
    scraper = MetricsScraper(lambda: kubelets.names, kubelets.fetch, clock)
    task = asyncio.create_task(scraper.run())
    try:
        await clock.run_for(0)
        yield (clock, kubelets, scraper)
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def test_nodes_are_asked_in_turn_over_the_interval() -> None:
    async with start("c", "a", "d", "b") as (clock, kubelets, scraper):
        await clock.run_for(7.4)
        turns = [0, 5 / 4, 10 / 4, 15 / 4, 5, 25 / 4]
        assert [(round(time, 6), name) for time, name in kubelets.requested] == list(
            zip(turns, "abcdab", strict=True)
        )
        assert scraper.node("c") is not None
        pod = scraper.pod("c", "d", "on-c")
        assert pod is not None
        assert pod.containers["c"].cpu == 3
        assert scraper.pod("a", "d", "on-c") is None


async def test_a_thousand_nodes_are_asked_in_groups() -> None:
    async with start(*(f"n{i}" for i in range(1000))) as (clock, kubelets, _scraper):
        await clock.run_for(14.99)
        assert len(kubelets.requested) == len({name for _, name in kubelets.requested}) == 1000
        assert len({time for time, _ in kubelets.requested}) == 150


async def test_no_samples_of_nodes_that_fail_or_are_gone() -> None:
    async with start("a", "b") as (clock, kubelets, scraper):

        async def refuse() -> None:
            raise ValueError("no")

        await clock.run_for(10)
        assert scraper.node("a") and scraper.node("b")
        kubelets.faults["a"] = refuse
        await clock.run_for(15)
        assert scraper.node("a") is None
        assert scraper.pod("a", "d", "on-a") is None
        assert scraper.node("b") is not None
        del kubelets.faults["a"]
        kubelets.names.remove("b")
        await clock.run_for(15)
        assert scraper.node("a") is not None
        assert scraper.node("b") is None


async def test_a_node_that_hangs_is_asked_once_and_given_up() -> None:
    async with start("a") as (clock, kubelets, scraper):
        await clock.run_for(4)
        kubelets.faults["a"] = lambda: asyncio.get_running_loop().create_future()
        await clock.run_for(10)  # asked at 5
        assert scraper.node("a") is not None  # it may still answer
        await clock.run_for(2)
        assert scraper.node("a") is None
        del kubelets.faults["a"]
        await clock.run_for(12)
        assert [time for time, _ in kubelets.requested] == [
            0,
            5,
            15,
            25,
        ]  # given up after ten seconds, each time
        assert scraper.node("a") is not None
