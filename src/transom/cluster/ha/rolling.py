"""The nodes in `transom upgrade`: one after the other, each is cordoned, drained, restarted and
uncordoned, as an administrator does it with kubectl.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

import transom
from transom.client.api import MERGE_PATCH, ApiClient, is_conflict, is_not_found
from transom.client.resources import NODES, PODS
from transom.kit.clock import Clock
from transom.kit.user_errors import UserError
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, controller_of
from transom.machinery.validation.pod_annotations import MIRROR

_POLL_SECONDS: Final = 0.5

Report = Callable[[str], None]


class RollingRestart:
    """`restart` restarts the programs of one node and returns when the node is ready again."""

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        restart: Callable[[str], Awaitable[None]],
        report: Report,
        drain_seconds: float,
    ) -> None:
        self._client = client
        self._clock = clock
        self._restart = restart
        self._report = report
        self._drain_seconds = drain_seconds

    async def run(self, nodes: Iterable[str]) -> None:
        """Raises UserError if a node cannot be drained; the nodes after it stay as they are."""
        for name in nodes:
            await self._restart_node(name)

    async def _restart_node(self, name: str) -> None:
        try:
            node = await self._client.get(NODES, "", name)
        except ApiError as problem:
            if not is_not_found(problem):
                raise
            await self._restart(name)
            self._report(f"{name} is restarted; it has no Node object, so it was not drained")
            return
        by_user = (node.get("spec") or {}).get("unschedulable", False)
        try:
            if not by_user:
                await self._cordon(name, True)
            evicted = await self._drain(name)
            await self._restart(name)
        finally:
            if not by_user:
                await self._cordon(name, None)
        pods = "1 pod" if evicted == 1 else f"{evicted} pods"
        self._report(f"{name} is drained ({pods} evicted) and restarted")

    async def _cordon(self, name: str, unschedulable: bool | None) -> None:
        body = {"spec": {"unschedulable": unschedulable}}
        await self._client.patch(NODES, "", name, body, MERGE_PATCH)

    async def _drain(self, name: str) -> int:
        """Returns how many pods have been evicted, when they are gone."""
        deadline = self._clock.monotonic() + self._drain_seconds
        evicted: set[str] = set()
        while True:
            found = await self._client.list(PODS, field_selector=f"spec.nodeName={name}")
            leaving = [pod for pod in found.items if is_drained(pod)]
            if not leaving:
                return len(evicted)
            refused = ""
            for pod in leaving:
                if "deletionTimestamp" in pod["metadata"]:
                    continue
                problem = await self._evict(pod)
                if problem:
                    refused = f"pod {_name(pod)}: {problem}"
                else:
                    evicted.add(pod["metadata"]["uid"])
            if self._clock.monotonic() >= deadline:
                waiting = refused or f"pod {_name(leaving[0])} is still terminating"
                raise UserError(
                    f"node {name} is not drained after {self._drain_seconds:.0f} s: {waiting}",
                    "remove the obstacle and run transom upgrade again, or use --no-drain",
                )
            await self._clock.sleep(_POLL_SECONDS)

    async def _evict(self, pod: Object) -> str:
        """Returns why the pod cannot be evicted now; "" if it is evicted or gone."""
        meta = pod["metadata"]
        eviction = {
            "apiVersion": "policy/v1beta1",
            "kind": "Eviction",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            # Another pod may have the name by now: that of a StatefulSet, on another node.
            "deleteOptions": {"preconditions": {"uid": meta["uid"]}},
        }
        try:
            await self._client.create_subresource(
                PODS, meta["namespace"], meta["name"], "eviction", eviction
            )
        except ApiError as problem:
            return "" if is_not_found(problem) or is_conflict(problem) else str(problem)
        return ""


def is_drained(pod: Object) -> bool:
    """Whether a pod leaves its node when the node is drained. Pods that would not run elsewhere
    stay, and restart with the node: those of a DaemonSet, static ones, and those without a
    controller. `kubectl drain` ignores the first two and stops at the third.
    """
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return False
    if MIRROR in (pod["metadata"].get("annotations") or {}):
        return False
    owner = controller_of(pod)
    return owner is not None and owner["kind"] != "DaemonSet"


def _name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def installed_since(timestamp: float) -> bool:
    """Whether a file of this package has been installed or changed after a time. Compiled modules
    do not count: running Transom writes them.
    """
    files = Path(transom.__file__).parent.rglob("*")
    return any(
        path.stat().st_ctime > timestamp
        for path in files
        if path.suffix != ".pyc" and path.is_file()
    )
