"""A whole kubelet: assembles its parts, starts and stops it.

It holds no state that cannot be rebuilt: a new one on the same machine and runtime adopts what runs
there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from socket import socket
from typing import TYPE_CHECKING

from transom.kit.lazy import lazy_import
from transom.kit.lazy_dataclass import replace
from transom.kit.prometheus import Collector
from transom.kubelet import static_pods
from transom.kubelet.admission.chain import PodAdmission
from transom.kubelet.base import KubeletContext
from transom.kubelet.cm.container_manager import ContainerManager
from transom.kubelet.container_gc import ContainerGC
from transom.kubelet.containers import ContainerBuilder
from transom.kubelet.core import KubeletCore
from transom.kubelet.dns import check_node_limits
from transom.kubelet.dra.drivers import DRA
from transom.kubelet.dra.manager import DynamicResourceManager
from transom.kubelet.eviction import EvictionManager
from transom.kubelet.features import has_dynamic_resources, serves_pod_resources
from transom.kubelet.hooks import HookRunner
from transom.kubelet.housekeeping import Housekeeping
from transom.kubelet.image_gc import ImageGC
from transom.kubelet.images import ImageManager
from transom.kubelet.interfaces import PodView
from transom.kubelet.node import checks
from transom.kubelet.node.agent import NodeAgent
from transom.kubelet.node_shutdown import NodeShutdownManager
from transom.kubelet.plugins.csi_handler import CSI, CsiPluginHandler
from transom.kubelet.plugins.drivers import CsiDriverRegistry
from transom.kubelet.plugins.handler import PluginHandler
from transom.kubelet.plugins.manager import PluginManager
from transom.kubelet.prober import ProbeManager
from transom.kubelet.pull_records import PullRecords
from transom.kubelet.referenced import ReferencedObjects
from transom.kubelet.server.server import KubeletServer, TlsContext
from transom.kubelet.serving_certificate import ServingCertificateManager
from transom.kubelet.static_pods import ApiMirrors, ManifestFolder, StaticPods
from transom.kubelet.stats.counting import count_runtime_operations
from transom.kubelet.stats.metrics import (
    KubeletMetrics,
    ResourceManagerMetrics,
    ShutdownMetrics,
    StartMetrics,
)
from transom.kubelet.volumes.manager import VolumeManager
from transom.machinery.objects import Object

if TYPE_CHECKING:
    from transom.kubelet import pod_resources
else:
    pod_resources = lazy_import("transom.kubelet.pod_resources")

# Seconds until the machine ends the kubelet after the shutdown of its pods: its last statuses and
# events are written in this time.
_LAST_WRITES = 1.0


class BadConfiguration(Exception):
    """The kubelet refuses to start; the text is the reason."""


class Kubelet:
    """`env.node` may be anything: the kubelet tracks its node itself. The creator of `env.events`
    runs it.

    `static` is a manifest directory that replaces the one in the configuration. `server.handler`
    answers requests even without a listener. `client_metrics` collects the metrics of `env.client`.
    """

    def __init__(
        self,
        env: KubeletContext,
        *,
        tls: TlsContext | None = None,
        static: ManifestFolder | None = None,
        client_metrics: Collector = tuple,
    ) -> None:
        problems = checks.check_node_configuration(env.config, env.os, env.host)
        if problems:
            raise BadConfiguration("\n".join(problems))
        metrics = self._metrics = KubeletMetrics()
        env = replace(
            env,
            node=self.node,
            runtime=count_runtime_operations(env.runtime, metrics, env.clock, self._pod),
        )
        self.env = env
        self.agent = NodeAgent(env)
        objects = ReferencedObjects(env.client, env.clock)
        drivers = CsiDriverRegistry()
        volumes = VolumeManager(env, objects, drivers, self.agent.changed)
        self.agent.set_volumes_in_use(volumes.in_use)
        pulls = PullRecords(env)
        pulls.recover()
        containers, images = ContainerGC(env, self._pod, self._sources_ready), ImageGC(env, pulls)
        evictions = EvictionManager(
            env,
            self._active_pods,
            self.kill_pod,
            (lambda: containers.collect(terminated_too=True), images.delete_unused),
            self.agent.changed,
        )
        self._shutdown = NodeShutdownManager(
            env,
            self._active_pods,
            self.kill_pod,
            volumes.mounted,
            self.agent.changed,
            ShutdownMetrics(metrics).set,
        )
        try:
            self._containers = ContainerManager(
                env,
                lambda: self.core.allocated_pods(),
                self._sources_ready,
                ResourceManagerMetrics(metrics, env.config.release).count,
            )
            self._claims = self._make_claims(metrics)
        except ValueError as problem:
            raise BadConfiguration(str(problem)) from problem
        plugins: dict[str, PluginHandler] = {CSI: CsiPluginHandler(env, drivers)}
        if self._claims is not None:
            plugins[DRA] = self._claims.drivers
        self._plugins = PluginManager(env, plugins)
        source = (
            StaticPods(env, static) if static is not None else static_pods.static_pod_source(env)
        )
        self.core = KubeletCore(
            env,
            images=ImageManager(env, pulls),
            builder=ContainerBuilder(
                env,
                volumes,
                objects,
                self._containers,
                self._claims,
            ),
            hooks=HookRunner(env),
            volumes=volumes,
            admission=PodAdmission(
                env,
                self.agent.node_anyway,
                self.kill_pod,
                evictions.admit,
                self._shutdown.admit,
                self._containers.admit,
            ),
            managers=self._containers,
            claims=self._claims,
            counter=StartMetrics(metrics, env.config.release),
            mirrors=ApiMirrors(env),
            prober=self._make_prober,
            sources={"file": source} if source is not None else {},
            on_synced=lambda operation, seconds: metrics.observe(
                "kubelet_pod_worker_duration_seconds", seconds, operation
            ),
        )
        self._serving: ServingCertificateManager | None = None
        if env.config.requests_serving_certificate and tls is not None:
            serving, make_context = ServingCertificateManager(env, self.agent.node), tls
            self._serving, tls = serving, lambda: serving.attach(make_context())
        self._housekeeping = Housekeeping(env, evictions, containers, images, metrics)
        self.agent.set_pressures(evictions)
        self.agent.set_shutdown_status(self._shutdown.status)
        self.server = KubeletServer(
            env,
            self.core.pods,
            tls=tls,
            metrics=metrics,
            mounted=volumes.of,
            measure=volumes.measure,
            collectors=(volumes.collect_metrics, client_metrics),
            probes=lambda: self._probes.counts(),
        )
        self._running: asyncio.Task[None] | None = None

    @property
    def view(self) -> PodView:
        return self.core.pods

    def node(self) -> Object | None:
        """Its Node, as last seen."""
        return self.agent.node()

    async def kill_pod(self, pod: Object, reason: str, message: str, grace: int | None) -> None:
        """The pod becomes Failed with this reason and message, and is stopped."""
        await self.core.kill_pod(pod, reason, message, grace)

    @property
    def ends_pods_at_shutdown(self) -> bool:
        return self._shutdown.enabled

    async def shut_down(self) -> None:
        """Graceful node shutdown, if it is configured: returns when the machine may end."""
        if self._shutdown.enabled:
            await self._shutdown.shut_down()
            self.core.statuses.flush()
            await self.env.clock.sleep(_LAST_WRITES)

    async def run(self, listener: socket | None = None) -> None:
        """Runs until cancelled or stopped. The node's containers keep running without it."""
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
                group.create_task(self._containers.run())
                group.create_task(self._serve_pod_resources())
                if self._serving is not None:
                    group.create_task(self._serving.run())
        finally:
            self._running = None
            await self.server.stop()

    def _make_claims(self, metrics: KubeletMetrics) -> DynamicResourceManager | None:
        """Raises ValueError if the file with the prepared claims is damaged."""
        env = self.env
        config = env.config
        if not (
            env.os.prepares_claims() and has_dynamic_resources(config.release, config.feature_gates)
        ):
            return None
        return DynamicResourceManager(
            env,
            self._active_pods,
            self._sources_ready,
            lambda operation, failed, seconds: metrics.observe(
                "dra_operations_duration_seconds", seconds, operation, str(failed).lower()
            ),
            lambda driver, method, code, seconds: metrics.observe(
                "dra_grpc_operations_duration_seconds", seconds, driver, method, code
            ),
        )

    async def _run_plugins(self) -> None:
        if self.env.os.registers_plugins(self.env.config.release):
            await self.agent.known()
            async with asyncio.TaskGroup() as group:
                if self._claims is not None:
                    group.create_task(self._claims.run())
                group.create_task(self._plugins.run())

    async def _serve_pod_resources(self) -> None:
        env = self.env
        if env.os.has_container_manager() and serves_pod_resources(
            env.config.release, env.config.feature_gates
        ):
            await self.agent.known()
            claims = self._claims
            await pod_resources.PodResourcesServer(
                env,
                self.core.pods,
                self._containers,
                claims.claimed_devices if claims is not None else lambda pod, container: (),
                self._metrics.count,
            ).run()

    async def stop(self) -> None:
        """Simulates the end of the process: sends nothing to the API and changes nothing on the
        node.
        """
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
