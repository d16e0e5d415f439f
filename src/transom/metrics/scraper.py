"""Keeps the latest samples of all nodes.

Depends on neither kubelets nor the API: callers pass functions that list the nodes and query one of
them. Implements the provider of metrics.k8s.io.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from transom.kit.clock import Clock
from transom.machinery.resource_metrics import (
    MetricSamples,
    NodeSample,
    PodSample,
    read_stats_summary,
)

log = logging.getLogger("transom.metrics")

INTERVAL: Final = 15.0
FEW: Final = 16  # nodes
FEW_INTERVAL: Final = 5.0
_TIMEOUT: Final = 10.0
_PAUSE: Final = 0.1  # between two groups of nodes

Fetch = Callable[[str], Awaitable[Mapping[str, Any]]]
"""Node name -> /stats/summary?only_cpu_and_memory=true of its kubelet."""


class MetricsScraper:
    def __init__(
        self,
        nodes: Callable[[], Iterable[str]],
        fetch: Fetch,
        clock: Clock,
        *,
        interval: float = INTERVAL,
    ) -> None:
        self._nodes = nodes
        self._fetch = fetch
        self._clock = clock
        self._interval = interval
        self._samples: dict[str, MetricSamples] = {}
        self._requested: dict[str, asyncio.Task[None]] = {}
        self._silent: set[str] = set()  # nodes whose failure is already logged

    # ---- the newest samples ----

    def node(self, name: str) -> NodeSample | None:
        found = self._samples.get(name)
        return found.node if found is not None else None

    def pod(self, node: str, namespace: str, name: str) -> PodSample | None:
        found = self._samples.get(node)
        return found.pods.get((namespace, name)) if found is not None else None

    # ---- collecting ----

    async def run(self) -> None:
        """Runs until cancelled. Spreads the queries over the whole interval, so that they do not
        delay other tasks.
        """
        try:
            while True:
                names = sorted(self._nodes())
                self._forget_all_but(set(names))
                # Few nodes are cheap to query, so query them early and have the first figures
                # sooner.
                interval = (
                    min(self._interval, FEW_INTERVAL) if len(names) <= FEW else self._interval
                )
                rounds = max(1, min(len(names), int(interval / _PAUSE)))
                for turn in range(rounds):
                    for name in names[turn::rounds]:
                        self._ask(name)
                    await self._clock.sleep(interval / rounds)
        finally:
            self._silent.update(self._requested)
            for task in list(self._requested.values()):
                task.cancel()

    def _ask(self, name: str) -> None:
        if name in self._requested:
            return  # it has not responded yet
        task = asyncio.get_running_loop().create_task(self._scrape(name))
        self._requested[name] = task
        timer = self._clock.call_later(_TIMEOUT, task.cancel)

        def done(_task: asyncio.Task[None]) -> None:
            timer.cancel()
            del self._requested[name]
            if _task.cancelled():
                self._failed(name, "it took too long")

        task.add_done_callback(done)

    async def _scrape(self, name: str) -> None:
        try:
            self._samples[name] = read_stats_summary(await self._fetch(name))
        except Exception as problem:  # any failure of one node must not affect the others
            self._failed(name, str(problem) or type(problem).__name__)
        else:
            self._silent.discard(name)

    def _failed(self, name: str, why: str) -> None:
        """Old samples do not represent current usage."""
        self._samples.pop(name, None)
        if name not in self._silent:
            self._silent.add(name)
            log.warning("cannot scrape the resource metrics of node %s: %s", name, why)

    def _forget_all_but(self, names: set[str]) -> None:
        for name in self._samples.keys() - names:
            del self._samples[name]
        self._silent &= names
