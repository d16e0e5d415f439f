"""`transom doctor` and `transom report` at work: any cluster of a kubeconfig, looked at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from transom.client.http import HttpClient
from transom.client.kubeconfig import KubeconfigError, Target, load
from transom.cluster.errors import ClusterError
from transom.doctor.examine import Unknown
from transom.doctor.gather import gather
from transom.doctor.snapshot import Snapshot
from transom.kit.clock import RealClock

_T = TypeVar("_T")
_SECONDS = 15.0  # for one answer


def target(kubeconfig: Path | None, context: str) -> Target:
    try:
        return load(kubeconfig, context)
    except (KubeconfigError, OSError, ValueError) as problem:
        raise ClusterError(str(problem), "name a cluster with --name, or a file with --kubeconfig") from problem


def look(where: Target, names: Sequence[str] = (), namespace: str = "") -> Snapshot:
    """ClusterError for names of nothing. A cluster that does not answer is a snapshot that says so."""
    clock = RealClock()

    async def work(client: HttpClient) -> Snapshot:
        server = f"{where.host}:{where.port}"
        try:
            return await gather(client, server, clock.time(), names, namespace or where.namespace or "default")
        except Unknown as problem:
            raise ClusterError(f"there is neither a node nor a pod {problem}", "a pod is NAME or NAMESPACE/NAME") from problem

    return with_client(where, work)


def with_client(where: Target, work: Callable[[HttpClient], Awaitable[_T]]) -> _T:
    async def main() -> _T:
        client = HttpClient(where, RealClock(), user_agent="transom-doctor", timeout=_SECONDS)
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(main())
