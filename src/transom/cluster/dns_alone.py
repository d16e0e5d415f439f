"""The DNS server alone, in a process of its own, on a socket of this machine, for the cluster of any kubeconfig."""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path
from typing import NamedTuple

from transom.client.http import HttpClient
from transom.client.informer import InformerFactory
from transom.client.kubeconfig import KubeconfigError, load
from transom.cluster.alone import until_signal
from transom.cluster.errors import ClusterError
from transom.dns.feed import Feed
from transom.dns.server import DnsServer
from transom.dns.settings import Server, Settings
from transom.dns.transport import Connections, Datagrams, Listener, Sockets
from transom.dns.zone import Zone
from transom.kit.clock import RealClock

log = logging.getLogger("transom.cluster")


class Alone(NamedTuple):
    kubeconfig: Path | None
    context: str
    address: str
    port: int
    settings: Settings


def run(wanted: Alone) -> None:
    """Until SIGTERM or SIGINT."""
    try:
        target = load(wanted.kubeconfig, wanted.context)
    except (KubeconfigError, OSError, ValueError) as problem:
        raise ClusterError(str(problem)) from problem
    clock, rng = RealClock(), random.SystemRandom()
    settings = wanted.settings

    async def main() -> None:
        client = HttpClient(target, clock, user_agent="transom-dns")
        try:
            zone = Zone(
                settings.domain, ttl=settings.ttl, now=clock.time, nameserver=settings.nameserver, addresses=[wanted.address]
            )
            server = DnsServer(zone, settings, clock, rng, Sockets(), [Server(wanted.address, wanted.port)])
        except ValueError as problem:
            raise ClusterError(str(problem)) from problem
        informers = InformerFactory(client, clock, rng)
        feed = Feed(zone, informers)
        connections = Connections(server.take, clock)
        try:
            datagrams = Datagrams(server.take, wanted.address, wanted.port)
            listener = Listener(connections, wanted.address, datagrams.port)
        except OSError as problem:
            raise ClusterError(
                f"cannot listen on {wanted.address}:{wanted.port}: {problem.strerror}",
                "choose another --port; those below 1024 need root",
            ) from problem
        log.info("answering %s on %s port %d", settings.domain, wanted.address, datagrams.port)

        async def work() -> None:
            informers.start()
            await feed.run()
            log.info("all services are known")
            await asyncio.get_running_loop().create_future()

        try:
            await until_signal(work)
        finally:
            await listener.close()
            await datagrams.close()
            await connections.close()
            await informers.stop()
            await server.close()
            await client.close()

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
