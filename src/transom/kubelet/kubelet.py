"""A whole kubelet: its parts put together, started and stopped.

It keeps nothing that could not be found again: a new one on the same machine and runtime goes on with what runs there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from socket import socket

from transom.kubelet import static_pods
from transom.kubelet.admission.chain import PodAdmission
from transom.kubelet.base import Env
from transom.kubelet.container_gc import ContainerGC
from transom.kubelet.containers import ContainerBuilder
from transom.kubelet.core import Core
from transom.kubelet.dns import check_node_limits
from transom.kubelet.eviction import EvictionManager
from transom.kubelet.hooks import HookRunner
from transom.kubelet.housekeeping import Housekeeping
from transom.kubelet.image_gc import ImageGC
from transom.kubelet.images import ImageManager
from transom.kubelet.node import checks
from transom.kubelet.node.agent import NodeAgent
from transom.kubelet.parts import PodView
from transom.kubelet.plugins.drivers import Drivers
from transom.kubelet.plugins.manager import PluginManager
from transom.kubelet.prober import ProbeManager
from transom.kubelet.referenced import ReferencedObjects
from transom.kubelet.server.server import KubeletServer, TlsContext
from transom.kubelet.static_pods import ApiMirrors, Folder, StaticPods
from transom.kubelet.stats.counting import counted
from transom.kubelet.stats.metrics import Metrics
from transom.kubelet.volumes.manager import VolumeManager
from transom.machinery.objects import Object


class BadConfiguration(Exception):
    """The kubelet refuses to start; the text says why."""


class Kubelet:
    """`env.node` may be anything: the kubelet knows its node itself. Whoever made `env.events` runs it.

    `static` is a folder of manifests in place of the one that the configuration names. `server.handler` answers requests
    also without a listener."""

    def __init__(self, env: Env, *, tls: TlsContext | None = None, static: Folder | None = None) -> None:
        problems = checks.check(env.config, env.os, env.host)
        if problems:
            raise BadConfiguration("\n".join(problems))
        metrics = Metrics()
        env = replace(env, node=self.node, runtime=counted(env.runtime, metrics, env.clock, self._pod))
        self.env = env
        self.agent = NodeAgent(env)
        objects = ReferencedObjects(env.client, env.clock)
        drivers = Drivers()
        volumes = VolumeManager(env, objects, drivers)
        volumes.in_use_changed = self.agent.changed
        self.agent.set_volumes_in_use(volumes.in_use)
        self._plugins = PluginManager(env, drivers)
        containers, images = ContainerGC(env, self._pod, self._sources_ready), ImageGC(env)
        evictions = EvictionManager(
            env, self._active_pods, self.kill_pod,
            (lambda: containers.collect(terminated_too=True), images.delete_unused), self.agent.changed,
        )
        source = StaticPods(env, static) if static is not None else static_pods.source(env)
        self.core = Core(
            env,
            images=ImageManager(env),
            builder=ContainerBuilder(env, volumes, objects),
            hooks=HookRunner(env),
            volumes=volumes,
            admission=PodAdmission(env, self.agent.node_anyway, self.kill_pod, evictions.admit),
            mirrors=ApiMirrors(env),
            prober=self._make_prober,
            sources={"file": source} if source is not None else {},
        )
        self._housekeeping = Housekeeping(env, evictions, containers, images)
        self.agent.set_pressures(evictions)
        self.server = KubeletServer(
            env, self.core.pods, tls=tls, metrics=metrics, mounted=volumes.of, probes=lambda: self._probes.counts()
        )
        self._running: asyncio.Task[None] | None = None

    @property
    def view(self) -> PodView:
        return self.core.pods

    def node(self) -> Object | None:
        """Its Node, as last seen."""
        return self.agent.node()

    async def kill_pod(self, pod: Object, reason: str, message: str, grace: int | None) -> None:
        """The pod becomes Failed with these, and is stopped."""
        await self.core.kill_pod(pod, reason, message, grace)

    async def run(self, listener: socket | None = None) -> None:
        """Until cancelled or stopped. What runs on the node goes on without it."""
        self._running = asyncio.current_task()
        try:
            if listener is not None:
                await self.server.serve(listener)
            check_node_limits(self.env)
            async with asyncio.TaskGroup() as group:
                group.create_task(self.agent.run())
                group.create_task(self.core.run(self.agent.known()))
                group.create_task(self._housekeeping.run())
                group.create_task(self._run_plugins())
        finally:
            self._running = None
            await self.server.stop()

    async def _run_plugins(self) -> None:
        if self.env.os.registers_plugins(self.env.config.release):
            await self.agent.known()
            await self._plugins.run()

    async def stop(self) -> None:
        """As when the process ends: nothing is said to the API, nothing on the node is touched."""
        task = self._running
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def _make_prober(self, changed: Callable[[str], None]) -> ProbeManager:
        self._probes = ProbeManager(self.env, changed)
        return self._probes

    def _pod(self, uid: str) -> Object | None:
        return self.core.pods.pod_by_uid(uid)

    def _active_pods(self, wanted: Callable[[Object], bool] | None = None) -> Sequence[Object]:
        return self.core.pods.active_pods(wanted)

    def _sources_ready(self) -> bool:
        return self.core.is_ready
