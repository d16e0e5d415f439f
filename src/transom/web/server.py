"""Runs the console: listens first, then puts its parts together for the port it got."""

from __future__ import annotations

import ssl
from ipaddress import ip_address
from typing import Final

from transom.client.kubeconfig import RestConfig
from transom.http.limits import HttpLimits
from transom.http.server import HttpServer, listen_sockets
from transom.http.tls import limit_tls_buffers
from transom.kit.clock import Clock
from transom.kit.lazy_dataclass import dataclass
from transom.web.api_access import ApiAccess
from transom.web.app import ConsoleApp, login_link
from transom.web.child_jobs import ChildJobs, JobRunner
from transom.web.cluster_feed import ClusterFeed
from transom.web.forwards import PortForwards
from transom.web.identity import ConsoleIdentity
from transom.web.kind_index import KindIndex
from transom.web.login import Logins
from transom.web.page_table import PAGES
from transom.web.routing import ConsoleServices, Page
from transom.web.scenario_doctor import ScenarioDoctor
from transom.web.scenario_runs import ScenarioRuns
from transom.web.tasks import StreamLimit
from transom.web.workers import free_memory_soon

_LIMITS: Final = HttpLimits(connections=512)
_STOP_GRACE: Final = 1.0


@dataclass(frozen=True, slots=True)
class ConsoleAddress:
    """Where the console listens; `names` are further host names that browsers may use."""

    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()
    tls: ssl.SSLContext | None = None


class Console:
    """A console that serves."""

    def __init__(self, server: HttpServer, services: ConsoleServices, origin: str) -> None:
        self._server = server
        self._services = services
        self.origin = origin  # its address, without a path

    def make_login_link(self) -> str:
        return login_link(self.origin, self._services.logins)

    async def stop(self) -> None:
        self._services.logins.end_all()
        await self._services.forwards.stop()
        await self._services.streams.stop()
        await self._server.stop(_STOP_GRACE)
        self._services.api.close()


async def start_console(target: RestConfig, clock: Clock, address: ConsoleAddress) -> Console:
    """Serves the console for the identity and cluster of `target`."""
    limit_tls_buffers()
    sockets = listen_sockets([address.host], address.port)
    port = sockets[0].getsockname()[1]
    secure = address.tls is not None
    origins = console_origins(address.host, port, address.names, secure=secure)
    services = make_services(target, clock, PAGES, ChildJobs(target))
    app = ConsoleApp(services, PAGES, origins, f"transom-console-{port}", secure=secure)
    server = HttpServer(app, address.tls, limits=_LIMITS)
    await server.serve(sockets)
    free_memory_soon()  # of the imports
    return Console(server, services, origins[0])


def make_services(
    target: RestConfig, clock: Clock, pages: tuple[Page, ...], jobs: JobRunner
) -> ConsoleServices:
    """What the pages use, for the identity and cluster of `target`."""
    api, streams = ApiAccess(target), StreamLimit()
    return ConsoleServices(
        api,
        jobs,
        clock,
        Logins(clock, f"{target.user}@{target.host}:{target.port}"),
        streams,
        ClusterFeed(api, jobs, clock, target.namespace),
        KindIndex(api, clock),
        PortForwards(api, streams),
        ScenarioRuns(api, streams, clock),
        ScenarioDoctor(jobs, streams, clock),
        target.context or f"{target.host}:{target.port}",
        ConsoleIdentity(api, target.user),
        target.namespace,
        tuple((page.title, page.path) for page in pages),
    )


def console_origins(
    host: str, port: int, names: tuple[str, ...] = (), *, secure: bool = False
) -> tuple[str, ...]:
    """How browsers may address the console; the first one is for the login link."""
    loopback = ("localhost",) if ip_address(host).is_loopback else ()
    everywhere = ip_address(host).is_unspecified
    hosts = names if everywhere and names else (host, *names, *loopback)
    scheme = "https" if secure else "http"
    return tuple(f"{scheme}://{f'[{h}]' if ':' in h else h}:{port}" for h in hosts)
