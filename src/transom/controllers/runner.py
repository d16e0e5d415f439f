"""Runs controllers: builds the rows of a table, isolates their failures and restarts them.

Knows no controller, so that a cluster can start the few that its nodes wait for before it imports
the others (`early.py`, `manager.py`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Container, Iterable

from transom.client.api import ApiClient
from transom.client.backoff import KeyedBackoff
from transom.client.events import EventRecorder
from transom.client.informer import Informer, InformerFactory, ResourceEventHandler
from transom.client.metrics import WorkQueueMetrics
from transom.controllers.base import Controller, ControllerContext, ControllerSettings
from transom.kit.clock import Clock
from transom.kit.named_tuple import NamedTuple

log = logging.getLogger("transom.controllers")

USER = "system:kube-controller-manager"
USER_AGENT = "kube-controller-manager"
_FIRST_RESTART, _LONGEST_RESTART = 1.0, 300.0  # seconds of waiting, doubled with each failure


class ControllerRow(NamedTuple):
    """`build` returns None if the settings lack what the controller needs. `identity` "" is the
    manager's own.
    """

    name: str
    identity: str
    build: Callable[[ControllerContext], Controller | None]
    by_default: bool = True


class _BuiltController(NamedTuple):
    """A controller with what it alone uses."""

    controller: Controller
    recorders: list[EventRecorder]
    handlers: dict[ResourceEventHandler, Informer]


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
        started = []
        skipped = []
        for row in rows:
            controller = self._build(row)
            if controller is None:
                skipped.append(row.name)
            else:
                started.append((row, controller))
        if skipped:
            log.info(
                "skipping controllers that the release, its feature gates or the settings of this "
                "cluster turn off: %s",
                ", ".join(skipped),
            )
        self.informers.start()
        for row, controller in started:
            group.create_task(self._keep_running(row, controller), name=row.name)

    def _build(self, row: ControllerRow) -> _BuiltController | None:
        recorders: list[EventRecorder] = []
        before = self.informers.handlers()
        try:
            controller = row.build(self._context(row, recorders))
        except Exception:
            self._remove_handlers(self._added_since(before))
            raise
        if controller is None:
            return None
        return _BuiltController(controller, recorders, self._added_since(before))

    def _added_since(
        self, before: Container[ResourceEventHandler]
    ) -> dict[ResourceEventHandler, Informer]:
        return {h: informer for h, informer in self.informers.handlers().items() if h not in before}

    def _remove_handlers(self, handlers: dict[ResourceEventHandler, Informer]) -> None:
        for handler, informer in handlers.items():
            informer.remove_handler(handler)

    async def _keep_running(self, row: ControllerRow, first: _BuiltController) -> None:
        """Runs a controller, and builds it again after it has failed: a new instance has a new
        state, as after a restart of kube-controller-manager. Unlike there, the other controllers
        continue.
        """
        built: _BuiltController | None = first
        back_off = KeyedBackoff(_FIRST_RESTART, _LONGEST_RESTART)
        while True:
            try:
                if built is None:
                    built = self._build(row)
                    self.informers.start()
                if built is not None:
                    await self._run_once(built)
                return
            except Exception:
                now = self._clock.monotonic()
                back_off.next(row.name, now, now)
                seconds = back_off.get(row.name)
                log.exception("the controller %s failed; restarting it in %g s", row.name, seconds)
            built = None
            await self._clock.sleep(seconds)

    async def _run_once(self, built: _BuiltController) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for recorder in built.recorders:
                    group.create_task(recorder.run())
                await built.controller.run()
        finally:
            self._remove_handlers(built.handlers)

    def _context(self, row: ControllerRow, recorders: list[EventRecorder]) -> ControllerContext:
        client = self._clients(row.identity) if row.identity else self._own

        def recorder(component: str) -> EventRecorder:
            made = EventRecorder(
                client, component, self._clock, self._rng, release=self._settings.release
            )
            recorders.append(made)
            return made

        return ControllerContext(
            client, self.informers, recorder, self._clock, self._rng, self._settings, self._queues
        )
