"""Unused tokens of service accounts, over two years of virtual time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from tests.conftest import ContextFactory

from transom.client.api import MERGE_PATCH
from transom.client.resources import CONFIG_MAPS, PODS, SECRETS, SERVICE_ACCOUNTS
from transom.machinery.serviceaccounts import INVALID_SINCE, LAST_USED

from .conftest import Plane

NS = "default"
DAY = 86_400.0


async def token_secret(plane: Plane, name: str, **labels: str) -> None:
    meta: dict[str, Any] = {
        "name": name,
        "annotations": {"kubernetes.io/service-account.name": "robot"},
        "labels": labels,
    }
    body = {"metadata": meta, "type": "kubernetes.io/service-account-token"}
    await plane.client.create(SECRETS, NS, body)


async def later(plane: Plane, days: int) -> None:
    for _ in range(days):
        plane.clock.advance(DAY)
        await asyncio.sleep(0)
    await plane.settle()


async def invalid_since(plane: Plane, name: str) -> str | None:
    found = await plane.get(SECRETS, NS, name)
    label: str | None = (found["metadata"].get("labels") or {}).get(INVALID_SINCE)
    return label


async def test_listed_tokens_that_are_unused_for_a_year_are_invalidated_then_deleted(
    control_plane: ContextFactory,
) -> None:
    names = ("old", "listed-and-mounted")
    async with control_plane("legacy-service-account-token-cleaner", release="1.36") as plane:
        tracking = "kube-apiserver-legacy-service-account-token-tracking"
        since = (await plane.get(CONFIG_MAPS, "kube-system", tracking))["data"]["since"]
        assert len(since) == len("2026-01-01")
        account = {"metadata": {"name": "robot"}, "secrets": [{"name": name} for name in names]}
        await plane.client.create(SERVICE_ACCOUNTS, NS, account)
        for name in (*names, "by-hand"):
            await token_secret(plane, name)
        volume = {"name": "v", "secret": {"secretName": "listed-and-mounted"}}
        spec = {
            "serviceAccountName": "robot",
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [volume],
        }
        await plane.client.create(PODS, NS, {"metadata": {"name": "p"}, "spec": spec})
        await later(plane, 367)  # a year, and the day on which tracking began
        assert await invalid_since(plane, "old") is not None
        assert await invalid_since(plane, "by-hand") is None
        assert await invalid_since(plane, "listed-and-mounted") is None
        await later(plane, 367)
        assert await plane.missing(SECRETS, NS, "old")
        assert not await plane.missing(SECRETS, NS, "by-hand")
        assert not await plane.missing(SECRETS, NS, "listed-and-mounted")


async def test_a_token_that_was_used_lately_stays(control_plane: ContextFactory) -> None:
    async with control_plane("legacy-service-account-token-cleaner", release="1.36") as plane:
        account = {"metadata": {"name": "robot"}, "secrets": [{"name": "used"}]}
        await plane.client.create(SERVICE_ACCOUNTS, NS, account)
        await token_secret(plane, "used")
        await later(plane, 300)
        date = datetime.fromtimestamp(plane.clock.time(), UTC).strftime("%Y-%m-%d")
        label = {"metadata": {"labels": {LAST_USED: date}}}
        await plane.client.patch(SECRETS, NS, "used", label, MERGE_PATCH)
        await later(plane, 100)
        assert await invalid_since(plane, "used") is None
