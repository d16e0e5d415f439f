"""Runs controllers: builds the rows of a table and isolates their failures.

Knows no controller, so that a cluster can start the few that its nodes wait for before it imports
the others (`early.py`, `manager.py`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable

from transom.client.api import ApiClient
from transom.client.events import EventRecorder
from transom.client.informer import InformerFactory
from transom.client.metrics import WorkQueueMetrics
from transom.controllers.base import Controller, ControllerContext, ControllerSettings
from transom.kit.clock import Clock
from transom.kit.named_tuple import NamedTuple

log = logging.getLogger("transom.controllers")

USER = "system:kube-controller-manager"
USER_AGENT = "kube-controller-manager"


class ControllerRow(NamedTuple):
    """`build` returns None if the settings lack what the controller needs. `identity` "" is the
    manager's own.
    """

    name: str
    identity: str
    build: Callable[[ControllerContext], Controller | None]
    by_default: bool = True


class ControllerRunner:
    def __init__(
        self,
        clients: Callable[[str], ApiClient],
        clock: Clock,
        rng: random.Random,
        settings: ControllerSettings,
        queues: WorkQueueMetrics | None = None,
    ) -> None:
        """`clients` creates the client of an identity ("" for the manager's own); `queues` counts
        the work of the controllers.
        """
        self._queues = queues or WorkQueueMetrics()
        self._clients = clients
        self._clock = clock
        self._rng = rng
        self._settings = settings
        self._own = clients("")
        self.informers = InformerFactory(self._own, clock, rng)

    async def run(
        self,
        rows: Iterable[ControllerRow],
        later: Callable[[], Awaitable[Iterable[ControllerRow]]] | None = None,
    ) -> None:
        """Runs the controllers until cancelled. `later` returns more of them when it is time to
        start them.
        """
        try:
            async with asyncio.TaskGroup() as group:
                self._start(rows, group)
                if later is not None:
                    self._start(await later(), group)
        finally:
            self._queues.end_work()
            await self.informers.stop()

    def _start(self, rows: Iterable[ControllerRow], group: asyncio.TaskGroup) -> None:
        recorders: list[EventRecorder] = []
        running = []
        for row in rows:
            controller = row.build(self._context(row, recorders))
            if controller is None:
                log.info("the controller %s is not run: it lacks its settings", row.name)
            else:
                running.append((row.name, controller))
        self.informers.start()
        for recorder in recorders:
            group.create_task(recorder.run())
        for name, controller in running:
            group.create_task(_run_controller(name, controller), name=name)

    def _context(self, row: ControllerRow, recorders: list[EventRecorder]) -> ControllerContext:
        client = self._clients(row.identity) if row.identity else self._own

        def recorder(component: str) -> EventRecorder:
            made = EventRecorder(client, component, self._clock, self._rng)
            recorders.append(made)
            return made

        return ControllerContext(
            client, self.informers, recorder, self._clock, self._rng, self._settings, self._queues
        )


async def _run_controller(name: str, controller: Controller) -> None:
    """Isolates failures: a controller that crashes does not affect the others."""
    try:
        await controller.run()
    except Exception:
        log.exception("the controller %s has ended", name)
