"""A running cluster for scenarios: their objects and faults as requests to its API server.

The caller sends the requests, so that the command line and the web console share the rest.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from transom.kit.user_errors import UserError
from transom.machinery.errors import ApiError
from transom.scenarios.model import Object

# method, path with its query, body, media type; raises UserError or ApiError
ClusterCall = Callable[[str, str, Any, str], Awaitable[Any]]
_APPLY: Final = "application/apply-patch+yaml"
_JSON: Final = "application/json"
_GONE_SECONDS: Final = 60.0
_ACCOUNT_SECONDS: Final = 15.0  # for the service account of a new namespace, and its token
_NO_ACCOUNT: Final = re.compile(
    r"No API token found for service account|serviceaccount \"default\" not found"
)
_POLL_SECONDS: Final = 0.5
_PLURALS: Final[Mapping[str, str]] = {
    "ConfigMap": "configmaps",
    "DaemonSet": "daemonsets",
    "Deployment": "deployments",
    "HorizontalPodAutoscaler": "horizontalpodautoscalers",
    "Namespace": "namespaces",
    "Pod": "pods",
    "Service": "services",
}


class ClusterCalls:
    """`ScenarioCluster` of a running cluster."""

    def __init__(
        self, call: ClusterCall, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._call = call
        self._sleep = sleep

    async def apply(self, obj: Object) -> None:
        path = f"{object_path(obj)}?fieldManager=transom-scenario&force=true"
        for _ in range(int(_ACCOUNT_SECONDS / _POLL_SECONDS)):
            try:
                await self._call("PATCH", path, obj, _APPLY)
                return
            except (UserError, ApiError) as problem:
                if _NO_ACCOUNT.search(str(problem)) is None:
                    raise
            await self._sleep(_POLL_SECONDS)
        await self._call("PATCH", path, obj, _APPLY)

    async def delete(self, obj: Object) -> None:
        """Returns when it is gone."""
        grace = {"gracePeriodSeconds": 0} if obj["kind"] == "Pod" else {}
        path = object_path(obj)
        try:
            await self._call("DELETE", path, {"propagationPolicy": "Background", **grace}, _JSON)
            for _ in range(int(_GONE_SECONDS / _POLL_SECONDS)):
                await self._call("GET", path, None, _JSON)
                await self._sleep(_POLL_SECONDS)
        except (UserError, ApiError) as problem:
            if not _is_missing(problem):
                raise

    async def control(self, method: str, path: str, body: Any = None) -> Any:
        return await self._call(method, path, body, _JSON)

    async def sleep(self, seconds: float) -> None:
        await self._sleep(seconds)


def _is_missing(problem: UserError | ApiError) -> bool:
    if isinstance(problem, ApiError):
        return problem.code == 404
    return "not found" in str(problem)


def object_path(obj: Object) -> str:
    """The path of an object of a scenario."""
    version, meta = obj["apiVersion"], obj["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    within = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    return f"{root}{within}/{_PLURALS[obj['kind']]}/{meta['name']}"
