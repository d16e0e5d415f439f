"""The running cluster: configuration -> keys, store, API server, controllers, until a signal says stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import random
import resource
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from transom.cluster import families
from transom.cluster.config import ClusterConfig
from transom.cluster.errors import ClusterError
from transom.cluster.features import gates
from transom.cluster.netconfig import API_PORT
from transom.cluster.nodespart import NodesPart
from transom.cluster.pki import ClusterPki
from transom.http import HttpServer, server_context
from transom.http.server import listen
from transom.store.api import StoreError

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer
    from transom.controllers.manager import ControllerManager

log = logging.getLogger("transom.cluster")

STOP_GRACE = 5.0
FIRST_LOOK = 0.05
RESTART_MOST = 60.0
# Bootstrap tokens are at home in every cluster that nodes may join.
_CONTROLLERS = ("*", "bootstrapsigner", "tokencleaner")
_CERTIFICATE_SECONDS = 365 * 86400.0


def open_sockets(config: ClusterConfig) -> list[socket.socket]:
    """The listening sockets; the loopback address has its IPv6 twin too, where the machine has one."""
    try:
        sockets = listen([config.bind], config.port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ClusterError(
                f"port {config.port} on {config.bind} is in use",
                "choose another one with --port N, or let one be chosen with --port 0",
            ) from error
        raise ClusterError(
            f"cannot listen on {config.bind}:{config.port}: {error.strerror}", "choose another port with --port N"
        ) from error
    if config.bind == "127.0.0.1":
        with contextlib.suppress(OSError):
            sockets += listen(["::1"], sockets[0].getsockname()[1])
    return sockets


Report = Callable[[str], None]
"""Takes a line for whoever waits for the cluster; the empty one says that it is ready."""


def run(config: ClusterConfig, pki: ClusterPki, sockets: Sequence[socket.socket], report: Report) -> None:
    """Serves until SIGTERM or SIGINT."""
    import uvloop

    tune_process()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(config, pki, sockets, report))


Life = Callable[[], Coroutine[None, None, None]]


async def serve(config: ClusterConfig, pki: ClusterPki, sockets: Sequence[socket.socket], report: Report) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    nodes = _nodes(config, pki)
    health = dict.fromkeys(("controller-manager", "scheduler"), "it has not been started yet")
    api = _build(config, pki, nodes, health)
    try:
        await api.start()
    except StoreError as error:
        raise ClusterError(f"cluster {config.name!r} cannot use its data: {error}", _data_hint(config)) from error
    server = HttpServer(api.handler, server_context(pki.server_cert, pki.server_key, pki.ca))
    await server.serve(sockets)
    gc.freeze()  # what start-up made stays for good; the collector need not look at it again
    log.info("cluster %s serves Kubernetes %s on %s", config.name, config.git_version, config.url)
    if nodes is None:
        report("")
        # Whoever waits for the cluster looks now; the imports of the other components would keep them waiting.
        await asyncio.sleep(FIRST_LOOK)
    async with asyncio.TaskGroup() as components:

        def start(name: str, life: Life) -> None:
            running.append(components.create_task(supervised(name, life, health)))

        running: list[asyncio.Task[None]] = []
        before, after = _components(api, config, pki)
        for name, life in before.items():
            start(name, life)
        if nodes is not None:
            running.append(components.create_task(nodes.run(api, report)))
            await nodes.ready_or(stopping)
            report("")
            await _define_credential_specs(api)
        for name, life in after.items():
            start(name, life)
        await stopping.wait()
        log.info("stopping")
        for component in running:
            component.cancel()
    await server.stop(STOP_GRACE)
    await api.stop()
    log.info("stopped")


async def supervised(name: str, start: Life, health: dict[str, str] | None = None) -> None:
    """Runs a component for ever: one that falls is started again, a little later each time. `health` tells of its troubles."""
    pause = 1.0
    health = {} if health is None else health
    while True:
        began = asyncio.get_running_loop().time()
        health[name] = ""
        try:
            await start()
            log.warning("%s ended; it is started again", name)
            health[name] = "it has ended"
        except Exception as problem:
            health[name] = f"it has failed: {problem}"
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                log.exception("%s failed while it was stopped", name)
                return
            log.exception("%s failed; it is started again in %.0f s", name, pause)
        if asyncio.get_running_loop().time() - began > RESTART_MOST:
            pause = 1.0
        await asyncio.sleep(pause)
        pause = min(pause * 2, RESTART_MOST)


def _components(api: ApiServer, config: ClusterConfig, pki: ClusterPki) -> tuple[dict[str, Life], dict[str, Life]]:
    """What runs beside the API server, as its clients: what nodes need to get ready, and what can come after them."""
    before: dict[str, Life] = {"controller-manager": lambda: _controllers(api, config, pki).run()}
    after: dict[str, Life] = {"scheduler": lambda: _scheduler(api, config)}
    return before, after


def _nodes(config: ClusterConfig, pki: ClusterPki) -> NodesPart | None:
    return None if config.no_nodes else NodesPart(config, pki)


def _data_hint(config: ClusterConfig) -> str:
    if config.encryption_key_file:
        return f"its keys are in {config.encryption_key_file}; put back the one it needs, or name another file with " \
               "--encryption-key-file FILE"
    return "if it is encrypted, name its keys with --encryption-key-file FILE"


def tune_process() -> None:
    """Settings of the process that the server's speed and size hang on."""
    _tune_malloc()
    # The store's thread needs the interpreter for moments only; it must not wait 5 ms for each.
    sys.setswitchinterval(0.001)
    # The heap is mostly long-lived objects without cycles; looking for cycles in them rarely pays.
    gc.set_threshold(200_000, 20, 100)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _tune_malloc() -> None:
    """Keeps freed memory at hand: giving each read buffer back to the kernel halves the rate of requests."""
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # the GNU C library has it, others do not
        m_trim_threshold, m_mmap_threshold = -1, -3
        mallopt(m_trim_threshold, 256 * 1024 * 1024)
        mallopt(m_mmap_threshold, 32 * 1024 * 1024)


def _build(config: ClusterConfig, pki: ClusterPki, nodes: NodesPart | None, health: dict[str, str]) -> ApiServer:
    from transom.apiserver.server import ServerOptions, build
    from transom.cluster import protection, windows
    from transom.http.outgoing import ClientPair
    from transom.store.sqlite import SqliteStore

    return build(ServerOptions(
        more_paths={} if nodes is None else {"/transom": nodes.control},
        store=SqliteStore(config.database, sealing=protection.sealing(config)),
        components=health.copy,
        audit=protection.auditor(config, random.SystemRandom()),
        address=f"{config.bind}:{config.port}",
        advertised_port=0 if nodes is None else API_PORT,
        release=config.release,
        service_cidr=config.service_cidr,
        node_ports=config.node_ports,
        feature_gates=gates(config.feature_gates),
        gmsa=nodes is not None,
        windows=windows.policy(config),
        kubelets=None if nodes is None else nodes.kubelets(),
        metrics=None if nodes is None else nodes.metrics,
        service_account_key=pki.service_account_key.read_bytes(),
        ca=pki.ca.read_bytes(),
        front_proxy_ca=pki.front_proxy_ca.read_bytes(),
        front_proxy=ClientPair(pki.front_proxy_client_cert, pki.front_proxy_client_key),
    ))


async def _define_credential_specs(api: ApiServer) -> None:
    """The custom resource that admission knows in clusters with nodes. Last, because schemas are slow to import."""
    from transom.apiserver import gmsa
    from transom.apiserver.inprocess import InProcessClient
    from transom.apiserver.server import SERVER_USER
    from transom.machinery.errors import ApiError

    try:
        await gmsa.ensure(InProcessClient(api, SERVER_USER))
    except ApiError:
        log.exception("credential specs of managed service accounts cannot be defined")


async def _scheduler(api: ApiServer, config: ClusterConfig) -> None:
    """The scheduler in this process; without it pods stay where they are, and the cluster goes on."""
    from transom.cluster.scheduling import run_beside

    await run_beside(api, config)


def _controllers(api: ApiServer, config: ClusterConfig, pki: ClusterPki) -> ControllerManager:
    """The controllers in this process, each with the identity it would have in one of its own."""
    from transom.apiserver.context import User
    from transom.apiserver.inprocess import InProcessClient
    from transom.client.api import Client
    from transom.controllers.base import Settings
    from transom.controllers.manager import USER, USER_AGENT, ControllerManager
    from transom.kit.jws import Signer
    from transom.kit.pki import load as load_pair
    from transom.machinery.serviceaccounts import group_names, user_name

    def client(identity: str) -> Client:
        namespace = "kube-system"
        name = user_name(namespace, identity) if identity else USER
        groups = (*group_names(namespace), "system:authenticated") if identity else ("system:authenticated",)
        agent = f"{USER_AGENT}/{config.git_version} (linux/amd64) kubernetes/{identity or 'shared-informers'}"
        return InProcessClient(api, User(name, groups), user_agent=agent)

    signer = Signer(pki.service_account_key.read_bytes())
    authority = load_pair(pki.ca, pki.ca_key)

    def sign_certificate(request: bytes, usages: Iterable[str]) -> bytes:
        from transom.kit.signing import sign_request

        return sign_request(authority, request, usages, _CERTIFICATE_SECONDS, api.clock.time())

    settings = Settings(root_ca=pki.ca.read_text(), sign=signer.sign, sign_certificate=sign_certificate)
    if not config.no_nodes:
        # Without nodes of our own there is nobody to use either; who brings nodes brings what they need.
        settings = replace(settings, pod_cidrs=families.split(config.pod_cidr),
                           service_cidrs=families.split(config.service_cidr), load_balancers=config.load_balancer_cidr)
    return ControllerManager(client, api.clock, random.SystemRandom(), settings, controllers=_CONTROLLERS)
