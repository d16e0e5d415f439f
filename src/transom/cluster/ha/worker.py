"""The processes of a cluster with several API servers: `python -m transom.cluster.ha.worker ROLE
NAME`, where ROLE is `server-NUMBER` or `nodes`. The supervisor starts and stops them.

Each line on standard output is a message for the supervisor: progress, `ready`, or an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import ssl
import sys

from transom.client.api import ApiClient
from transom.client.http import HttpClient
from transom.client.kubeconfig import RestConfig
from transom.client.negotiation import NegotiatingClient
from transom.cluster import config as configs
from transom.cluster import run, run_components
from transom.cluster.config import ClusterConfig
from transom.cluster.ha import layout
from transom.cluster.ha.nodes_link import NodesLinkServer, RemoteNodes
from transom.cluster.pki import ClusterPki
from transom.http import HttpServer, server_context
from transom.http.server import listen_sockets
from transom.kit import pki as kit
from transom.kit.clock import RealClock
from transom.kit.durations import parse_duration
from transom.kit.logs import set_up_logging
from transom.kit.loop_watchdog import LoopWatchdog
from transom.kit.process import end_with_parent, run_event_loop
from transom.kit.tls_pairs import load_certificate_files
from transom.kit.user_errors import UserError

log = logging.getLogger("transom.cluster")

READY = "ready"
ERROR = "error "
_SERVER = "server-"
_STOP_SECONDS = 5.0
_POLL_SECONDS = 0.1


def tell_supervisor(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(text or READY, flush=True)  # noqa: T201


def _stop_event() -> asyncio.Event:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping


# ---- an API server ----


async def serve_one(config: ClusterConfig, pki: ClusterPki) -> None:
    """An API server, and its candidates for the controllers and the scheduler."""
    stopping = _stop_event()
    nodes = None if config.no_nodes else RemoteNodes(config, pki)
    health = dict.fromkeys(("controller-manager", "scheduler"), "it has not been started yet")
    watchdog = LoopWatchdog(parse_duration(config.loop_budget)) if config.loop_budget else None
    metrics = run.make_component_metrics(config)
    api = run.build_cluster_api_server(config, pki, nodes, health, watchdog, metrics)
    await run.start_cluster_api_server(config, api)
    context = server_context(pki.server_cert, pki.server_key, pki.ca)
    server = HttpServer(api.handler, context, bodies=api.handler)
    await server.serve(listen_sockets([config.bind], config.port))
    gc.freeze()
    log.info("serving Kubernetes %s on %s", config.git_version, config.url)
    tell_supervisor(READY)
    if watchdog is not None:
        watchdog.start()
    nodes_ready = asyncio.Event()
    nodes_ready.set()
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(
                run.supervised(
                    "controller-manager",
                    lambda: run_components.run_cluster_controllers(
                        api, config, pki, nodes, nodes_ready, metrics
                    ),
                    health,
                )
            ),
            group.create_task(
                run.supervised(
                    "scheduler",
                    lambda: run_components.run_cluster_scheduler(api, config, metrics),
                    health,
                )
            ),
        ]
        if nodes is not None:
            running.append(group.create_task(run.supervised("metrics", nodes.run)))
            await run.define_credential_specs(api)
        await stopping.wait()
        log.info("stopping")
        api.ready = False  # the load balancer sends no more connections
        if watchdog is not None:
            watchdog.stop()
        for component in running:
            component.cancel()
    await server.stop(_STOP_SECONDS)
    await api.stop()
    log.info("stopped")


# ---- the nodes ----


class CertificateClients:
    """Clients of the API, each with a certificate for its user and groups."""

    def __init__(self, config: ClusterConfig, pki: ClusterPki) -> None:
        bind = layout.LOCAL if config.bind in ("0.0.0.0", "::") else config.bind
        self._address = (bind, config.port)
        self._ca = pki.ca
        self._authority = kit.load_key_pair(pki.ca, pki.ca_key)
        self._contexts: dict[tuple[str, tuple[str, ...]], ssl.SSLContext] = {}

    def __call__(self, user: str, groups: tuple[str, ...], agent: str) -> ApiClient:
        host, port = self._address
        target = RestConfig(host, port, tls=self._context(user, groups))
        clock = RealClock()
        return NegotiatingClient(HttpClient(target, clock, user_agent=agent), clock)

    def _context(self, user: str, groups: tuple[str, ...]) -> ssl.SSLContext:
        found = self._contexts.get((user, groups))
        if found is None:
            # Every user with a certificate is in system:authenticated.
            named = [group for group in groups if group != "system:authenticated"]
            pair = kit.issue_client(self._authority, user, named)
            found = ssl.create_default_context(cafile=self._ca)
            _load_pair(found, pair)
            self._contexts[user, groups] = found
        return found


def _load_pair(context: ssl.SSLContext, pair: kit.KeyPair) -> None:
    """OpenSSL reads keys from files only: this one is in memory."""
    file = os.memfd_create("client", os.MFD_CLOEXEC)
    try:
        os.write(file, pair.certificate + pair.key)
        load_certificate_files(context, f"/proc/self/fd/{file}")
    finally:
        os.close(file)


async def run_nodes(config: ClusterConfig, pki: ClusterPki) -> None:
    stopping = _stop_event()
    nodes = run.ClusterNodes(config, pki, RealClock())
    clients = CertificateClients(config, pki)
    if not await _api_ready(clients, stopping):
        return
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(nodes.run(clients, dict, tell_supervisor)),
            group.create_task(NodesLinkServer(config, nodes).run()),
        ]
        await nodes.wait_ready(stopping)
        tell_supervisor(READY)
        simulated = config.engine != "oci"
        running.append(group.create_task(run.preload_streams(simulated=simulated)))
        await stopping.wait()
        log.info("stopping")
        for task in running:
            task.cancel()
    log.info("stopped")


async def _api_ready(clients: CertificateClients, stopping: asyncio.Event) -> bool:
    client = clients("system:transom:nodes", ("system:masters",), "transom")
    while not stopping.is_set():
        try:
            await client.get_json("/version")
            return True
        except OSError:
            await asyncio.sleep(_POLL_SECONDS)
    return False


def load_worker_config(name: str) -> ClusterConfig:
    config = configs.load_starting_config(name) or configs.load_config(name)
    if config is None:
        raise UserError(f"there is no cluster {name!r}")
    return config


def main(role: str, name: str) -> int:
    end_with_parent()
    set_up_logging()
    try:
        config = load_worker_config(name)
        pki = ClusterPki(config.pki)
        if role.startswith(_SERVER):
            number = int(role.removeprefix(_SERVER))
            specs = [] if config.no_nodes else configs.load_starting_nodes(config)
            own = layout.server_config(config, number, specs)
            run_event_loop(serve_one(own, pki))
        else:
            run_event_loop(run_nodes(config, pki))
    except UserError as error:
        tell_supervisor(ERROR + json.dumps([error.message, error.hint, error.code]))
        log.error("%s; %s", error.message, error.hint)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
