"""A server with a default service account whose pods need no token, and short functions for
requests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.apiserver.harness import Api, start

MERGE = "application/merge-patch+json"
NS = "/api/v1/namespaces/default"
PODS, QUOTAS = f"{NS}/pods", f"{NS}/resourcequotas"


@asynccontextmanager
async def run(**options: Any) -> AsyncIterator[Api]:
    api = await start(**options)
    quiet = {"metadata": {"name": "default"}, "automountServiceAccountToken": False}
    await api.ok("POST", f"{NS}/serviceaccounts", quiet)
    yield api
    await api.server.stop()


def pod(name: str = "p", resources: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "resources": resources or {}}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def cpu(request: str = "", limit: str = "") -> dict[str, Any]:
    parts = (("requests", request), ("limits", limit))
    return {part: {"cpu": amount} for part, amount in parts if amount}


def claim(name: str = "c", size: str = "1Gi", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            **spec,
        },
    }


async def refused(api: Api, method: str, target: str, body: Any = None, **more: Any) -> str:
    """The reason after `is forbidden: `."""
    status, answer = await api.call(method, target, body, **more)
    assert status == 403, answer
    text: str = answer["message"]
    return text.partition(" is forbidden: ")[2]


async def store_quota(
    api: Api, name: str, hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any
) -> None:
    """A quota whose usage has been counted."""
    await api.ok("POST", QUOTAS, {"metadata": {"name": name}, "spec": {"hard": hard, **spec}})
    counted = dict.fromkeys(hard, "0") | (used or {})
    status = {"status": {"hard": hard, "used": counted}}
    await api.ok("PATCH", f"{QUOTAS}/{name}/status", status, media=MERGE)


async def used(api: Api, name: str) -> dict[str, str]:
    amounts: dict[str, str] = (await api.ok("GET", f"{QUOTAS}/{name}"))["status"]["used"]
    return amounts
