"""The command line with an API server that only reports ready: the verbs are tested without the
rest of the cluster.

BARE_FAIL in the environment makes it fail at its start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from socket import socket

from transom.cli.main import main
from transom.cluster import lifecycle
from transom.cluster.config import ClusterConfig
from transom.cluster.pki import ClusterPki
from transom.http import HttpRequest, HttpResponse, HttpServer, server_context
from transom.kit import logs

log = logging.getLogger("transom.cluster")


def answer(request: HttpRequest) -> HttpResponse:
    if request.path == "/transom/nodes":
        return HttpResponse(200, [(b"Content-Type", b"application/json")], b'{"items": []}')
    found = request.path == "/readyz"
    return HttpResponse(
        200 if found else 404,
        [(b"Content-Type", b"text/plain")],
        b"ok" if found else b"not found",
    )


def run_bare_cluster(
    config: ClusterConfig,
    pki: ClusterPki,
    sockets: Sequence[socket],
    report: Callable[[str], None],
) -> None:
    async def serve() -> None:
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        if "BARE_FAIL" in os.environ:
            raise RuntimeError("the store is on fire")
        server = HttpServer(answer, server_context(pki.server_cert, pki.server_key, pki.ca))
        await server.serve(sockets)
        url, version = config.url, config.git_version
        log.info("cluster %s serves Kubernetes %s on %s", config.name, version, url)
        report("")
        await stopping.wait()
        await server.stop(1.0)

    logs.set_up_logging()
    asyncio.run(serve())


if __name__ == "__main__":
    lifecycle.run_cluster = run_bare_cluster
    sys.exit(main())
