"""The DNS server alone, in its own process, on a socket of this machine, for the cluster of any
kubeconfig.
"""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path
from typing import NamedTuple

from transom.client.http import HttpClient
from transom.client.informer import InformerFactory
from transom.client.kubeconfig import KubeconfigError, RestConfig, load_kubeconfig
from transom.client.negotiation import NegotiatingClient
from transom.client.resources import ENDPOINT_SLICES
from transom.dns.feed import ZoneFeed
from transom.dns.server import DnsServer
from transom.dns.settings import DnsServerAddress, DnsSettings
from transom.dns.transport import DnsConnections, DnsDatagrams, HostExchange, TcpListener
from transom.dns.zone import DnsZone
from transom.kit.clock import RealClock
from transom.kit.process import run_event_loop, run_until_signal
from transom.kit.user_errors import UserError
from transom.machinery.errors import ApiError

log = logging.getLogger("transom.node")


class DnsServerOptions(NamedTuple):
    kubeconfig: Path | None
    context: str
    address: str
    port: int
    settings: DnsSettings


def run_dns_server(options: DnsServerOptions) -> None:
    """Runs until SIGTERM or SIGINT."""
    try:
        target = load_kubeconfig(options.kubeconfig, options.context)
    except (KubeconfigError, OSError, ValueError) as problem:
        raise UserError(str(problem)) from problem
    clock, rng = RealClock(), random.SystemRandom()
    settings = options.settings

    async def main() -> None:
        http = HttpClient(target, clock, user_agent="transom-dns")
        client = NegotiatingClient(http, clock)
        try:
            zone = DnsZone(
                settings.domain,
                ttl=settings.ttl,
                now=clock.time,
                nameserver=settings.nameserver,
                addresses=[options.address],
            )
            server = DnsServer(
                zone,
                settings,
                clock,
                rng,
                HostExchange(),
                [DnsServerAddress(options.address, options.port)],
            )
        except ValueError as problem:
            raise UserError(str(problem)) from problem
        informers = InformerFactory(client, clock, rng)
        feed = ZoneFeed(zone, informers, slices=await _has_slices(client, target))
        connections = DnsConnections(server.take, clock)
        try:
            datagrams = DnsDatagrams(server.take, options.address, options.port)
            listener = TcpListener(connections, options.address, datagrams.port)
        except OSError as problem:
            raise UserError(
                f"cannot listen on {options.address}:{options.port}: {problem.strerror}",
                "choose another --port; those below 1024 need root",
            ) from problem
        log.info("answering %s on %s port %d", settings.domain, options.address, datagrams.port)

        async def work() -> None:
            informers.start()
            await feed.run()
            log.info("all services are known")
            await asyncio.get_running_loop().create_future()

        try:
            await run_until_signal(work)
        finally:
            await listener.close()
            await datagrams.close()
            await connections.close()
            await informers.stop()
            await server.close()
            await http.close()

    run_event_loop(main())


async def _has_slices(client: NegotiatingClient, target: RestConfig) -> bool:
    """API servers before 1.17 have none."""
    try:
        return await client.serves(ENDPOINT_SLICES)
    except ApiError as problem:
        raise UserError(str(problem)) from problem
    except OSError as problem:
        raise UserError(
            f"the API server at {target.host}:{target.port} does not respond: {problem}"
        ) from problem
