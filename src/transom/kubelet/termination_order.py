"""The order in which the containers of a pod with sidecars are stopped: sidecars after all regular
containers, the last sidecar first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from transom.kit.clock import Clock
from transom.machinery.objects import Object
from transom.machinery.podutil import is_restartable_init_container


def has_sidecar(pod: Object) -> bool:
    return any(map(is_restartable_init_container, pod["spec"].get("initContainers") or ()))


class TerminationOrder:
    """One for each time that a pod is stopped."""

    def __init__(self, pod: Object, running: Iterable[str], clock: Clock) -> None:
        self._clock = clock
        names = frozenset(running)
        self._terminated: dict[str, asyncio.Event] = {}
        self._after: dict[str, list[asyncio.Event]] = {}
        spec = pod["spec"]
        regular = [self._add(container["name"], names) for container in spec["containers"]]
        later: asyncio.Event | None = None
        for container in reversed(spec.get("initContainers") or ()):
            event = self._add(container["name"], names)
            if is_restartable_init_container(container):
                self._after[container["name"]] = [*regular, *([later] if later else ())]
                later = event

    def _add(self, name: str, running: frozenset[str]) -> asyncio.Event:
        event = self._terminated[name] = asyncio.Event()
        if name not in running:
            event.set()
        return event

    async def wait_for_turn(self, name: str, seconds: float) -> float:
        """Waits for the containers that stop before this one, at most so long. Returns how long it
        took.
        """
        start = self._clock.monotonic()
        over = asyncio.Event()
        timer = self._clock.call_later(seconds, over.set)
        late = asyncio.ensure_future(over.wait())
        try:
            for event in self._after.get(name, ()):
                turn = asyncio.ensure_future(event.wait())
                try:
                    await asyncio.wait((turn, late), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    turn.cancel()
                if over.is_set():
                    break
        finally:
            timer.cancel()
            late.cancel()
        return self._clock.monotonic() - start

    def container_terminated(self, name: str) -> None:
        self._terminated[name].set()
