"""Keeps a node in the cluster: registers it, watches its own Node object, renews its lease, reports
its status.

One timer per node drives both the lease and the status; a relevant change (an address range
assigned to the node, `changed()` from another part) triggers it earlier. No failure here is final:
everything is retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from transom.client.api import STRATEGIC_PATCH
from transom.client.events import NORMAL
from transom.client.informer import Informer
from transom.client.resources import NODES
from transom.kit.clock import Timer
from transom.kubelet.base import KubeletContext
from transom.kubelet.node import registration, status
from transom.kubelet.node.lease import NodeLease
from transom.kubelet.node.status import NodeStatus, Pressures
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

log = logging.getLogger("transom.kubelet")

_FIRST_TRY, _LONGEST_TRY = 0.1, 7.0
_JITTER = 0.04
_LEASE_PART = 0.25
_NEARLY = 0.9  # fraction of the interval: the timer may fire early, and changes may come in between
_WHILE_NOT_READY = 0.5


class NodeAgent:
    """`env.node` should be this agent's `node`. The parts that know of pressure and volumes set
    their views before `run`.
    """

    def __init__(self, env: KubeletContext) -> None:
        config = env.config
        self._env = env
        cloud = env.cloud
        self._status = NodeStatus(
            config,
            env.os,
            env.host,
            env.runtime,
            env.clock,
            self.record_event,
            (lambda: cloud.reported_limits(config.node_name)) if cloud is not None else dict,
        )
        self._lease = NodeLease(
            env.client, env.clock, config.node_name, config.node_lease_duration_seconds, self.node
        )
        self._informer = Informer(
            env.client,
            NODES,
            env.clock,
            env.rng,
            field_selector=f"metadata.name={config.node_name}",
        )
        self._informer.add_handler(
            add=self._see, update=lambda _, new: self._see(new), delete=self._lost
        )
        self._node: Object | None = None
        self._registered = False
        self._known = asyncio.Event()
        self._reported_at = float("-inf")
        self._leased_at = float("-inf")
        self._first: Object | None = None  # as it will be registered
        self._news = False
        self._wake: asyncio.Future[None] | None = None
        self._running: asyncio.Task[None] | None = None

    # ---- queries ----

    def node(self) -> Object | None:
        """The Node as last seen."""
        return self._node

    async def known(self) -> None:
        """Whether the Node was seen in the API."""
        await self._known.wait()

    def node_anyway(self) -> Object:
        """The Node as last seen, or as it will be registered."""
        return self._node or self._first or self._initial()

    @property
    def reference(self) -> Object:
        """The involved object of node events: a kubelet does not wait to learn its node's real
        uid.
        """
        name = self._env.config.node_name
        return {"kind": "Node", "name": name, "uid": name}

    def record_event(self, kind: str, reason: str, message: str) -> None:
        self._env.events.event(self.reference, kind, reason, message)

    def set_pressures(self, pressures: Pressures) -> None:
        self._status.pressures = pressures

    def set_shutdown_status(self, status: Callable[[], str]) -> None:
        self._status.shutdown_status = status

    def set_volumes_in_use(self, volumes: Callable[[], Sequence[str] | None]) -> None:
        self._status.volumes_in_use = volumes

    def changed(self) -> None:
        """Called when something in the status has changed: reports it now."""
        self._news = True
        self._wake_up()

    # ---- the loop ----

    async def run(self) -> None:
        """Runs until cancelled or stopped."""
        env = self._env
        self._running = asyncio.current_task()
        self.record_event(NORMAL, "Starting", "Starting kubelet.")
        await self.register()
        watch = asyncio.create_task(self._informer.run())
        try:
            # Spread the retries of nodes that start at the same moment.
            pause = self._interval() * env.rng.random()
            while True:
                await self._wait(pause)
                await self._heartbeat()
                pause = self._interval() * (1 + _JITTER * env.rng.random())
        finally:
            watch.cancel()

    def stop(self) -> None:
        """Simulates the end of the process: sends nothing to the API."""
        if self._running is not None:
            self._running.cancel()

    async def register(self) -> None:
        """Returns when the API server knows the node."""
        env = self._env
        wait = _FIRST_TRY
        while not self._registered:
            try:
                node, created = await registration.register_node(env.client, self._initial())
                self._see(node)
                self._registered = True
                if created:
                    self._reported_at = env.clock.monotonic()
            except (ApiError, OSError) as problem:
                log.info("%s could not be registered: %s", env.config.node_name, problem)
                await env.clock.sleep(wait)
                wait = min(2 * wait, _LONGEST_TRY)
        if env.config.cgroups_per_qos:
            self.record_event(
                NORMAL, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods"
            )
        await self._attempt(self._renew)
        await self._attempt(self._csi_node)
        await self._attempt(self._report)

    def _initial(self) -> Object:
        env = self._env
        node = registration.initial_node(env.config, env.os, env.host.identity)
        self._first = {**node, "status": self._status.compute(node)}
        return self._first

    def _see(self, node: Object) -> None:
        old = self._node
        if old is not None and int(node["metadata"]["resourceVersion"]) < int(
            old["metadata"]["resourceVersion"]
        ):
            return
        self._node = node
        self._known.set()
        if old is None or old["spec"].get("podCIDRs") != node["spec"].get("podCIDRs"):
            self.changed()

    def _lost(self, node: Object) -> None:
        self._node = None

    def _interval(self) -> float:
        config = self._env.config
        return min(
            config.node_status_update_frequency, config.node_lease_duration_seconds * _LEASE_PART
        )

    async def _wait(self, seconds: float) -> None:
        """Waits this long, or until something changes. Nothing announces that a runtime or network
        has become ready, so a node that waits for them looks for it.
        """
        while not self._status.ready and seconds > _WHILE_NOT_READY:
            if await self._pause(_WHILE_NOT_READY) or self._status.runtime_changed():
                return
            seconds -= _WHILE_NOT_READY
        await self._pause(seconds)

    async def _pause(self, seconds: float) -> bool:
        """Waits this long, or until something changes: then it returns True."""
        if not self._news:
            self._wake = asyncio.get_running_loop().create_future()
            timer: Timer = self._env.clock.call_later(seconds, self._wake_up)
            try:
                await self._wake
            finally:
                timer.cancel()
                self._wake = None
        news, self._news = self._news, False
        return news

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _heartbeat(self) -> None:
        now = self._env.clock.monotonic()
        if (
            now - self._leased_at
            >= self._env.config.node_lease_duration_seconds * _LEASE_PART * _NEARLY
        ):
            await self._attempt(self._renew)
        await self._attempt(self._report)

    async def _attempt(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except (ApiError, OSError) as problem:
            log.info("%s: %s: %s", self._env.config.node_name, step.__name__.strip("_"), problem)

    async def _renew(self) -> None:
        await self._lease.renew()
        self._leased_at = self._env.clock.monotonic()

    async def _csi_node(self) -> None:
        if self._node is not None:
            await registration.ensure_csi_node(self._env.client, self._node)

    async def _report(self) -> None:
        """Writes the status when it has changed, and periodically when it has not."""
        node, config = self._node, self._env.config
        if node is None:
            return
        old, new = node.get("status") or {}, self._status.compute(node)
        now = self._env.clock.monotonic()
        if (
            now - self._reported_at < config.node_status_report_frequency
            and not status.node_status_changed(old, new)
        ):
            return
        body = {"status": status.node_status_patch(old, new)}
        self._see(
            await self._env.client.patch(
                NODES, "", config.node_name, body, STRATEGIC_PATCH, subresource="status"
            )
        )
        self._reported_at = now
