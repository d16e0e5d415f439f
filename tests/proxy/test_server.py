from __future__ import annotations

import asyncio
from typing import Any

from tests.proxy.objects import endpoint_slice, endpoints, service
from tests.proxy.planes import in_loop

from transom.client.informer import InformerFactory
from transom.kit.clock import VirtualClock
from transom.proxy.server import SELECTOR, SyncRunner, feed_proxier
from transom.proxy.tracker import PortName, ServiceTracker


class Informers:
    """Stands for a factory: remembers handlers, and is synced when the test says so."""

    def __init__(self) -> None:
        self.requested: dict[str, Any] = {}

    def __call__(self, resource: Any, *, label_selector: str = "") -> Any:
        made = self.requested[resource.plural] = _Informer(label_selector)
        return made


class _Informer:
    def __init__(self, selector: str) -> None:
        self.selector = selector
        self.has = asyncio.Event()

    def add_handler(self, **handlers: Any) -> None:
        self.handlers = handlers

    async def synced(self) -> None:
        await self.has.wait()


@in_loop
async def test_informers_feed_a_tracker_of_either_source() -> None:
    for source, plural, item in (
        ("slices", "endpointslices", endpoint_slice),
        ("endpoints", "endpoints", endpoints),
    ):
        tracker, informers = ServiceTracker(source), Informers()  # type: ignore[arg-type]
        factory: InformerFactory = informers  # type: ignore[assignment]
        synced = asyncio.create_task(feed_proxier(tracker, factory, label_selector=SELECTOR)())
        nodes = {"nodes"} if source == "slices" else set()  # whose zones decide about hints
        assert set(informers.requested) == {"services", plural} | nodes
        services, others = informers.requested["services"], informers.requested[plural]
        assert (
            services.selector
            == "!service.kubernetes.io/service-proxy-name,!service.kubernetes.io/headless"
        )
        services.handlers["add"](service())
        others.handlers["update"](None, item(pods=[("10.244.2.5", "b")]))
        services.has.set()
        await asyncio.sleep(0)
        assert not tracker.initialized
        others.has.set()
        await synced
        assert tracker.initialized and list(tracker.endpoints) == list(tracker.service_ports) == [
            PortName("default", "web")
        ]
        services.handlers["delete"](service())
        assert not tracker.service_ports


@in_loop
async def test_syncs_come_at_once_then_in_the_shortest_interval() -> None:
    clock, times = VirtualClock(), []
    runner = SyncRunner(lambda: times.append(clock.monotonic()), clock, shortest=1.0, longest=30.0)
    task = asyncio.create_task(runner.loop())
    await clock.run_for(0)
    for _ in range(50):
        runner.changed()
        await clock.run_for(0.1)
    # The first one, two more at once, and then one each second.
    assert times[:3] == [0.0, 0.0, 0.1] and len(times) == 3 + 4
    times.clear()
    await clock.run_for(100)
    assert len(times) in (3, 4)
    task.cancel()


@in_loop
async def test_a_due_time_before_the_longest_interval_causes_a_sync() -> None:
    clock, times = VirtualClock(), []
    runner = SyncRunner(
        lambda: times.append(clock.monotonic()),
        clock,
        shortest=1.0,
        longest=30.0,
        due=lambda: 10.0 if len(times) < 2 else 1e9,
    )
    task = asyncio.create_task(runner.loop())
    await clock.run_for(45)
    assert times == [0.0, 10.0, 40.0]
    task.cancel()
