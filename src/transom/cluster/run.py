"""The running cluster: API server, nodes, controllers and scheduler in one process. Only the
process that serves imports this.

Clients can reach the API server before the other components are imported; the `_import_*` functions
list what each start waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from transom.apiserver.admission import gmsa_resource
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.integrity import check_value
from transom.apiserver.core.loopback import SERVER_USER
from transom.apiserver.kubelets.options import KubeletOptions
from transom.apiserver.server import ApiServer, ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.api import ApiClient
from transom.cluster import protection
from transom.cluster.access import check_access
from transom.cluster.config import (
    ClusterConfig,
    load_starting_nodes,
    save_nodes,
)
from transom.cluster.endpoints.clock_control import CLOCK_ROOT, ClockControl, make_adjustable_clock
from transom.cluster.endpoints.component_metrics import (
    METRICS_ROOT,
    ClusterComponentMetrics,
)
from transom.cluster.endpoints.saved_states import STATES_ROOT, SavedStates
from transom.cluster.endpoints.store_control import ROOT, StoreControl
from transom.cluster.options import parse_feature_gates, parse_runtime_config, windows_policy
from transom.cluster.pki import ClusterPki
from transom.cluster.run_components import (
    RunComponent,
    run_cluster_controllers,
    run_cluster_scheduler,
)
from transom.http import HttpServer, server_context
from transom.http.messages import Answer, HttpRequest, text_response
from transom.http.outgoing import ClientPair
from transom.kit.clock import Clock, RealClock
from transom.kit.durations import parse_duration
from transom.kit.garbage import collect_regularly, pause_collections
from transom.kit.idle import wait_until_idle
from transom.kit.lazy import lazy_import, load_modules
from transom.kit.process import run_event_loop
from transom.kit.process_metrics import collect_process_metrics
from transom.kit.user_errors import EXIT_DISK, UserError
from transom.machinery.errors import ApiError
from transom.machinery.releases import parse_release
from transom.metrics.scraper import MetricsScraper
from transom.node.address_ranges import address_ranges
from transom.node.network_settings import API_PORT
from transom.node.settings import name_option
from transom.node.spec import NodeSpec, control_plane_node, control_plane_nodes
from transom.store.api import DamagedStore, OutOfSpace, ReadOnlyDisk, Store, StoreError
from transom.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from transom.apiserver.crd import definition as crd_definition
    from transom.apiserver.crd import types as crd_types
    from transom.apiserver.kubelets import streams as kubelet_streams
    from transom.cloud import calls as cloud_calls
    from transom.cloud import provider as cloud_provider
    from transom.cloud.calls import CloudCalls
    from transom.cloud.provider import CloudProvider
    from transom.cluster.data import etcd_store, snapshots
    from transom.cluster.endpoints import node_control as cluster_control
    from transom.cluster.endpoints.node_control import ControlHandler
    from transom.kit import adjustable_clock, loop_watchdog
    from transom.kit.adjustable_clock import AdjustableClock
    from transom.kit.loop_watchdog import LoopWatchdog
    from transom.network.api import Dataplane
    from transom.node import cluster_access, cluster_network, machine_disks
    from transom.node import pool as node_pool
    from transom.node.cluster_access import MakeClient
    from transom.node.pool import NodePool
    from transom.runtime.sim import catalogue as sim_catalogue
    from transom.runtime.sim import context as sim_context
    from transom.store import memory as memory_store
    from transom.store.etcd import client as etcd_client
    from transom.store.mvcc import Row
    from transom.userland import start as userland_start
    from transom.userland.launch import linux_commands, windows_commands
else:
    cloud_calls = lazy_import("transom.cloud.calls")
    cloud_provider = lazy_import("transom.cloud.provider")
    memory_store = lazy_import("transom.store.memory")
    etcd_client = lazy_import("transom.store.etcd.client")
    etcd_store = lazy_import("transom.cluster.data.etcd_store")
    cluster_control = lazy_import("transom.cluster.endpoints.node_control")
    snapshots = lazy_import("transom.cluster.data.snapshots")
    cluster_access = lazy_import("transom.node.cluster_access")
    cluster_network = lazy_import("transom.node.cluster_network")
    machine_disks = lazy_import("transom.node.machine_disks")
    node_pool = lazy_import("transom.node.pool")
    sim_catalogue = lazy_import("transom.runtime.sim.catalogue")
    sim_context = lazy_import("transom.runtime.sim.context")
    crd_definition = lazy_import("transom.apiserver.crd.definition")
    crd_types = lazy_import("transom.apiserver.crd.types")
    kubelet_streams = lazy_import("transom.apiserver.kubelets.streams")
    userland_start = lazy_import("transom.userland.start")
    adjustable_clock = lazy_import("transom.kit.adjustable_clock")
    linux_commands = lazy_import("transom.userland.launch.linux_commands")
    windows_commands = lazy_import("transom.userland.launch.windows_commands")
    loop_watchdog = lazy_import("transom.kit.loop_watchdog")

log = logging.getLogger("transom.cluster")

STOP_SECONDS = 5.0
NODES_READY_SECONDS = 20.0
MAX_BACK_OFF = 60.0
MACHINE_DISKS = "machines.db"  # in the cluster's folder
_FIRST_REQUESTS = 0.05  # seconds reserved for clients that wait for the cluster
_REPORTED_ONE_BY_ONE = 8  # larger clusters report node readiness in steps

Report = Callable[[str], None]
"""Receives messages for the process that waits for the cluster; an empty one means ready."""


def run_cluster_process(
    config: ClusterConfig, pki: ClusterPki, sockets: Sequence[socket.socket], report: Report
) -> None:
    """Serves until SIGTERM or SIGINT."""

    async def serve() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)

        def end_start() -> None:
            starting.close()
            if not config.virtual_time:  # whose loop waits until nothing is due
                collect_regularly(loop.call_later)

        with contextlib.ExitStack() as starting:
            starting.enter_context(pause_collections())
            await serve_cluster(config, pki, sockets, report, stopping, on_ready=end_start)

    if config.virtual_time:
        run_event_loop(serve(), adjustable_clock.IdleDetectingLoop)
    else:
        run_event_loop(serve())


async def serve_cluster(
    config: ClusterConfig,
    pki: ClusterPki,
    sockets: Sequence[socket.socket],
    report: Report,
    stopping: asyncio.Event,
    *,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Serves until `stopping` is set. Calls `on_ready` when it reports that it is ready."""
    adjustable = make_adjustable_clock() if config.virtual_time else None
    clock: Clock = RealClock() if adjustable is None else adjustable
    nodes = None if config.no_nodes else ClusterNodes(config, pki, clock)
    health = dict.fromkeys(("controller-manager", "scheduler"), "it has not been started yet")
    budget = config.loop_budget
    watchdog = loop_watchdog.LoopWatchdog(parse_duration(budget)) if budget else None
    metrics = make_component_metrics(config)
    api = build_cluster_api_server(config, pki, nodes, health, watchdog, metrics, adjustable)
    await start_cluster_api_server(config, api)
    context = server_context(pki.server_cert, pki.server_key, pki.ca)
    server = HttpServer(api.handler, context, bodies=api.handler)
    await server.serve(sockets)
    log.info("cluster %s serves Kubernetes %s on %s", config.name, config.git_version, config.url)

    def ready() -> None:
        report("")
        on_ready()
        if watchdog is not None:
            watchdog.start()

    if nodes is None:
        ready()
        await asyncio.sleep(_FIRST_REQUESTS)
    async with asyncio.TaskGroup() as group:
        running: list[asyncio.Task[None]] = []

        def start(name: str, run_component: RunComponent) -> None:
            running.append(group.create_task(supervised(name, run_component, health)))

        nodes_ready = asyncio.Event()
        start(
            "controller-manager",
            lambda: run_cluster_controllers(api, config, pki, nodes, nodes_ready, metrics),
        )
        if nodes is not None:

            def make_client(user: str, groups: tuple[str, ...], agent: str) -> ApiClient:
                return InProcessClient(api, UserInfo(user, groups), user_agent=agent)

            running.append(
                group.create_task(nodes.run(make_client, lambda: api.webhooks.failures, report))
            )
            await nodes.wait_ready(stopping)
            ready()
            nodes_ready.set()
            await define_credential_specs(api)
        start("scheduler", lambda: run_cluster_scheduler(api, config, metrics))
        if nodes is not None:
            simulated = config.engine != "oci"
            running.append(group.create_task(preload_streams(simulated=simulated)))
        await stopping.wait()
        log.info("stopping")
        if watchdog is not None:
            watchdog.stop()
        for component in running:
            component.cancel()
    await server.stop(STOP_SECONDS)
    await api.stop()
    log.info("stopped")


async def supervised(name: str, start: RunComponent, health: dict[str, str] | None = None) -> None:
    """Runs a component until cancelled and restarts it with increasing back-off when it fails.
    `health` records failures.
    """
    pause = 1.0
    health = {} if health is None else health
    while True:
        began = asyncio.get_running_loop().time()
        health[name] = ""
        try:
            await start()
            log.warning("%s ended; restarting it", name)
            health[name] = "it has ended"
        except Exception as problem:
            health[name] = f"it has failed: {problem}"
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                log.exception("%s failed while it was stopped", name)
                return
            log.exception("%s failed; restarting it in %.0f s", name, pause)
        if asyncio.get_running_loop().time() - began > MAX_BACK_OFF:
            pause = 1.0
        await asyncio.sleep(pause)
        pause = min(pause * 2, MAX_BACK_OFF)


# ---- API server ----


def make_component_metrics(config: ClusterConfig) -> ClusterComponentMetrics:
    return ClusterComponentMetrics(f"{config.bind}:{config.port}", parse_release(config.release))


def build_cluster_api_server(
    config: ClusterConfig,
    pki: ClusterPki,
    nodes: NodesOfCluster | None,
    health: dict[str, str],
    watchdog: LoopWatchdog | None,
    metrics: ClusterComponentMetrics,
    adjustable: AdjustableClock | None = None,
) -> ApiServer:
    clock: Clock = RealClock() if adjustable is None else adjustable
    sealing = protection.sealing(config)
    store: Store
    if config.in_memory:
        store = memory_store.MemoryStore(clock)
    elif config.store:
        address = etcd_client.parse_etcd_address(config.store)
        store = etcd_store.make_etcd_store(address, sealing, config.release)
    else:
        store = SqliteStore(
            config.database,
            clock,
            sealing=sealing,
            check=check_value,
            before_upgrade=lambda *found: _save_before_upgrade(config, *found),
        )

    def loop_lag() -> float:
        return api.loop_monitor.current()

    paths: dict[str, Callable[[HttpRequest], Awaitable[Answer]]] = {
        ROOT: StoreControl(config, store, sealing, loop_lag),
        CLOCK_ROOT: ClockControl(clock, adjustable, name_option(config.name)),
        METRICS_ROOT: metrics,
        STATES_ROOT: SavedStates(
            store, clock, random.SystemRandom(), lambda old, new: api.service_replaced(old, new)
        ),
    }
    if nodes is not None:
        paths["/transom"] = nodes.control
    gates = parse_feature_gates(config.feature_gates, config.release)
    api = build_api_server(
        ServerOptions(
            more_paths=paths,
            store=store,
            clock=clock,
            components=health.copy,
            more_metrics=(
                collect_process_metrics,
                *(() if watchdog is None else (watchdog.collect_metrics,)),
            ),
            audit=protection.auditor(config, random.SystemRandom()),
            address=f"{config.bind}:{config.port}",
            advertised_port=0 if nodes is None else API_PORT,
            advertised_address=config.advertise_address if config.store else "",
            hostname=socket.gethostname(),
            release=config.release,
            service_cidr=config.service_cidr,
            node_ports=config.node_ports,
            feature_gates=gates,
            runtime_config=parse_runtime_config(config.runtime_config),
            access=check_access(config.access_flags, config.release, gates),
            gmsa=nodes is not None,
            windows=windows_policy(config),
            kubelets=_kubelets(config, pki, nodes),
            metrics=None if nodes is None else nodes.metrics,
            service_account_key=pki.service_account_key.read_bytes(),
            ca=pki.ca.read_bytes(),
            front_proxy_ca=pki.front_proxy_ca.read_bytes(),
            front_proxy=ClientPair(pki.front_proxy_client_cert, pki.front_proxy_client_key),
        )
    )
    return api


def _kubelets(
    config: ClusterConfig, pki: ClusterPki, nodes: NodesOfCluster | None
) -> KubeletOptions | None:
    """A server without nodes of its own that others can reach has nodes on other machines; as in
    Kubernetes, their serving certificates are not verified by default.
    """
    if nodes is not None:
        return nodes.kubelets()
    if not config.advertise_address:
        return None
    return KubeletOptions(pair=ClientPair(pki.kubelet_client_cert, pki.kubelet_client_key))


async def start_cluster_api_server(config: ClusterConfig, api: ApiServer) -> None:
    try:
        await api.start()
    except StoreError as error:
        raise _unusable_data(config, error) from error
    except ApiError as error:
        if isinstance(error.__cause__, StoreError):
            raise _unusable_data(config, error.__cause__) from error
        raise


def _unusable_data(config: ClusterConfig, error: StoreError) -> UserError:
    message = f"cluster {config.name!r} cannot use its data: {error}"
    if isinstance(error, OutOfSpace):
        return UserError(
            message,
            f"free space on the disk of {config.state}, then start the cluster again",
            EXIT_DISK,
        )
    if isinstance(error, ReadOnlyDisk):
        return UserError(
            message, f"make {config.state} writable, then start the cluster again", EXIT_DISK
        )
    if isinstance(error, DamagedStore):
        return UserError(
            message,
            "restore a snapshot: see `transom snapshot list`, then "
            f"`transom snapshot restore FILE --name {config.name} --replace`",
        )
    return UserError(message, _data_hint(config))


def _data_hint(config: ClusterConfig) -> str:
    if config.store:
        return "check that etcd is running, and its address: --store etcd://HOST:PORT"
    if config.encryption_key_file:
        return (
            f"its keys are in {config.encryption_key_file}; restore the missing key, or use "
            "another file with "
            "--encryption-key-file FILE"
        )
    return "if it is encrypted, pass its keys with --encryption-key-file FILE"


async def define_credential_specs(api: ApiServer) -> None:
    """Installs the custom resource of group-managed service accounts. Runs after the start, because
    schemas are slow to import.
    """
    await asyncio.to_thread(load_modules, crd_definition, crd_types)
    try:
        await gmsa_resource.ensure_gmsa_resource(InProcessClient(api, SERVER_USER))
    except ApiError:
        log.exception("cannot define the credential specs of managed service accounts")


# ---- nodes ----


class NodesOfCluster(Protocol):
    """What the API server and the controllers use of the nodes, which may run in another process."""

    @property
    def metrics(self) -> MetricsScraper: ...

    async def control(self, request: HttpRequest) -> Answer: ...

    def kubelets(self) -> KubeletOptions: ...

    def cloud_calls(self) -> CloudCalls | None: ...


class ClusterNodes:
    """The nodes of a cluster while it starts and runs, and how the API server reaches them."""

    def __init__(self, config: ClusterConfig, pki: ClusterPki, clock: Clock) -> None:
        self._config = config
        self._pki = pki
        self._clock = clock
        self._dataplane: asyncio.Future[Dataplane] = asyncio.get_running_loop().create_future()
        self._pool: NodePool | None = None
        self._control: ControlHandler | None = None
        self._ready = asyncio.Event()
        self._cloud: CloudProvider | None = None
        self.metrics = MetricsScraper(self.node_names, self.usage, clock)

    def cloud(self) -> CloudProvider:
        """The emulated cloud that the nodes and the controllers share."""
        if self._cloud is None:
            self._cloud = _make_cloud(self._config, self._clock)
        return self._cloud

    def cloud_calls(self) -> CloudCalls:
        return cloud_calls.local_cloud(self.cloud())

    def node_names(self) -> Iterable[str]:
        nodes = self._pool.nodes() if self._pool is not None else ()
        return [node.spec.name for node in nodes if node.kubelet is not None]

    async def usage(self, node: str) -> Mapping[str, Any]:
        kubelet = self._pool.node(node).kubelet if self._pool is not None else None
        if kubelet is None:
            raise ConnectionRefusedError("its kubelet is not running")
        return kubelet.server.stats.usage()

    def kubelets(self) -> KubeletOptions:
        """How the API server reaches kubelets and pods: over the cluster network, with the client
        certificate that kubelets trust.
        """
        pair = ClientPair(self._pki.kubelet_client_cert, self._pki.kubelet_client_key)
        return KubeletOptions(self._connection, pair, self._pki.ca.read_bytes())

    def _connection(self, host: str, port: int) -> Awaitable[socket.socket] | None:
        """Addresses of the cluster are in its own network; all others are reached from this
        machine.
        """
        if not address_ranges(self._config).contains(host):
            return None
        return self.connect(host, port)

    async def connect(self, address: str, port: int) -> socket.socket:
        """Requests wait until the nodes exist."""
        return await (await asyncio.shield(self._dataplane)).connect(address, port)

    async def run(
        self,
        make_client: MakeClient,
        webhook_failures: Callable[[], Mapping[str, tuple[float, str]]],
        report: Report,
    ) -> None:
        specs = load_starting_nodes(self._config)
        parts = _make_nodes(
            self._config,
            self._pki,
            self._clock,
            make_client,
            webhook_failures,
            self.cloud(),
            self._reporter(report),
        )
        self._pool, self._control, dataplane, disks = parts
        self._dataplane.set_result(dataplane)
        if self._pool.all_ready():  # there are no nodes, or all are switched off
            self._ready.set()
        report(f"the control plane is up; starting {len(specs)} nodes")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(supervised("nodes", self._pool.run))
                group.create_task(self.cloud().run())
                group.create_task(supervised("metrics", self.metrics.run))
        finally:
            self.cloud().close()
            disks.close()
            closing = dataplane.close()
            if closing is not None:
                await closing

    def _reporter(self, report: Report) -> Callable[[str, int, int], None]:
        def on_ready(name: str, ready: int, of: int) -> None:
            if self._ready.is_set():
                return
            if of <= _REPORTED_ONE_BY_ONE or ready == of or ready % 100 == 0:
                count = f" ({ready} of {of})" if of > _REPORTED_ONE_BY_ONE else ""
                report(f"node {name} is ready{count}")
            if ready >= of:
                self._ready.set()

        return on_ready

    async def wait_ready(self, stopping: asyncio.Event) -> None:
        """Waits until all nodes are ready, the cluster is stopping, or the time is over."""
        waiting = [
            asyncio.ensure_future(self._ready.wait()),
            asyncio.ensure_future(stopping.wait()),
        ]
        try:
            await asyncio.wait(
                waiting, timeout=NODES_READY_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in waiting:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            self._ready.set()

    async def control(self, request: HttpRequest) -> Answer:
        if self._control is None:
            return text_response(503, "the nodes are not there yet\n")
        return await self._control(request)


# ---- imports after the API server is up ----


async def preload_streams(*, simulated: bool) -> None:
    """Imports what the first `kubectl exec` and the first container need, once the components have
    started and the process is idle. A container that starts earlier imports it itself.
    """
    await wait_until_idle()
    await asyncio.to_thread(_import_streams, simulated=simulated)


def _import_streams(*, simulated: bool) -> None:
    """Takes up to 1 s on the event loop."""
    load_modules(kubelet_streams)
    if simulated:
        load_modules(userland_start, sim_context, linux_commands, windows_commands)
        sim_catalogue.default_catalogue()


def _save_before_upgrade(
    config: ClusterConfig, rows: Sequence[Row], revision: int, version: int
) -> None:
    snapshots.before_upgrade(config)(rows, revision, version)


def api_relays(config: ClusterConfig, specs: Iterable[NodeSpec]) -> dict[int, int]:
    """With several API servers: the number of each control-plane node, and the port of the server
    that it stands for.
    """
    found = control_plane_nodes(specs)
    return {node.number: port for node, port in zip(found, config.server_ports, strict=False)}


def _make_cloud(config: ClusterConfig, clock: Clock) -> cloud_provider.CloudProvider:
    return cloud_provider.CloudProvider(clock, config.state / "cloud")


def _make_nodes(
    config: ClusterConfig,
    pki: ClusterPki,
    clock: Clock,
    make_client: MakeClient,
    webhook_failures: Callable[[], Mapping[str, tuple[float, str]]],
    cloud: CloudProvider,
    on_ready: Callable[[str, int, int], None],
) -> tuple[
    node_pool.NodePool, cluster_control.ControlHandler, Dataplane, machine_disks.MachineDisks
]:
    specs = load_starting_nodes(config)
    rng = random.Random(random.SystemRandom().getrandbits(64))
    fabric = cluster_network.make_fabric(address_ranges(config))
    dataplane = cluster_network.make_dataplane(config, fabric, clock, rng)
    disks = machine_disks.MachineDisks(config.state / MACHINE_DISKS, protection.sealing(config))
    cluster = cluster_access.ClusterAccess(
        config,
        clock,
        make_client,
        cluster_access.CertificatePaths(pki.ca, pki.ca_key),
        fabric,
        dataplane,
        cloud,
        supervised,
        control_plane_node(specs),
        api_relays(config, specs),
    )
    pool = node_pool.NodePool(
        cluster, specs, disks, save=lambda found: save_nodes(config, found), on_ready=on_ready
    )
    facts = cluster_access.ControlPlaneFacts(pki.certificates(), webhook_failures)
    return pool, cluster_control.ControlHandler(config, pool, facts), dataplane, disks
