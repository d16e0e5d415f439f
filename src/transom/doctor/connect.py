"""Connects `transom doctor` and `transom report` to the cluster of any kubeconfig and takes one
snapshot.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TypeVar

from transom.client.http import HttpClient
from transom.client.kubeconfig import KubeconfigError, RestConfig, load_kubeconfig
from transom.doctor.control_plane import certificate_ends, der_end
from transom.doctor.examine import UnknownName
from transom.doctor.gather import gather_snapshot
from transom.doctor.snapshot import ClusterSnapshot
from transom.kit.clock import RealClock
from transom.kit.http_message import encode_request
from transom.kit.user_errors import EXIT_USAGE, UserError

log = logging.getLogger("transom.doctor")

_T = TypeVar("_T")
_SECONDS = 15.0  # for one answer


def doctor_target(kubeconfig: Path | None, context: str) -> RestConfig:
    try:
        return load_kubeconfig(kubeconfig, context)
    except (KubeconfigError, OSError, ValueError) as problem:
        raise UserError(
            str(problem), "name a cluster with --name, or a file with --kubeconfig"
        ) from problem


def take_snapshot(
    where: RestConfig, names: Sequence[str] = (), namespace: str = ""
) -> ClusterSnapshot:
    """Raises UserError for unknown names. A cluster that does not respond gives a snapshot with
    that problem.
    """
    clock = RealClock()

    async def work(client: HttpClient) -> ClusterSnapshot:
        server, started = f"{where.host}:{where.port}", clock.monotonic()
        try:
            found = await gather_snapshot(
                client, server, clock.time(), names, namespace or where.namespace or "default"
            )
            found.certificates, at_end = await _tls(where)
            if at_end:
                found.server_time = at_end - (clock.monotonic() - started)
            return found
        except UnknownName as problem:
            hint = "a pod is NAME, with --namespace NAMESPACE, or NAMESPACE/NAME"
            raise UserError(f"there is no node or pod {problem}", hint, EXIT_USAGE) from problem

    return with_client(where, work)


async def _tls(where: RestConfig) -> tuple[dict[str, float], float]:
    """When the server's certificate and the CA in the kubeconfig expire; and the server's time."""
    found: dict[str, float] = {}
    try:
        if where.authority:
            found["the certificate authority of the kubeconfig"] = min(
                certificate_ends(where.authority.encode())
            )
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection(
                where.host,
                where.port,
                ssl=where.tls,
                server_hostname=(where.server_name or where.host) if where.tls else None,
            ),
            _SECONDS,
        )
    except (OSError, TimeoutError, ValueError):
        return found, 0.0
    date = 0.0
    try:
        tls = writer.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        if certificate:
            found["the API server's certificate"] = der_end(certificate)
        headers = [*where.request_headers(), ("Connection", "close")]
        writer.write(encode_request("GET", f"{where.prefix}/version", headers))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _SECONDS)
        for line in head.decode("latin-1").split("\r\n"):
            if line.lower().startswith("date:"):
                date = parsedate_to_datetime(line[5:].strip()).timestamp()
    except (
        OSError,
        TimeoutError,
        ValueError,
        asyncio.IncompleteReadError,
        asyncio.LimitOverrunError,
    ) as problem:
        log.info("the API server's certificate or time cannot be read: %s", problem)
    finally:
        writer.close()
    return found, date


def with_client(where: RestConfig, work: Callable[[HttpClient], Awaitable[_T]]) -> _T:
    async def main() -> _T:
        client = HttpClient(where, RealClock(), user_agent="transom-doctor", timeout=_SECONDS)
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(main())
