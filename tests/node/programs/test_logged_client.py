"""The requests of a program of a node are counted, also those that find no API server."""

from __future__ import annotations

from typing import Any, cast

import pytest

from transom.client.api import ApiClient, ApiUnreachable
from transom.client.metrics import RestClientMetrics
from transom.client.resources import PODS
from transom.kit.clock import VirtualClock
from transom.kit.prometheus import render_metrics
from transom.machinery.errors import ApiError
from transom.machinery.releases import Release
from transom.machinery.releases.metrics import metric_rules
from transom.node.programs.log import ProgramLog
from transom.node.programs.logged_client import LoggedClient


class OnePod:
    async def get(self, resource: Any, namespace: str, name: str, subresource: str = "") -> Any:
        if name == "missing":
            raise ApiError(404, "NotFound", "")
        return {"metadata": {"name": name}}


async def test_requests_are_counted_by_their_result() -> None:
    metrics = RestClientMetrics(metric_rules(Release(1, 36)), "10.0.0.1:6443")
    reachable = [True]
    client = LoggedClient(
        cast(ApiClient, OnePod()),
        cast(ProgramLog, None),  # a quiet client does not log
        VirtualClock(),
        "https://10.0.0.1:6443",
        reachable=lambda: reachable[0],
        quiet=True,
        metrics=metrics,
    )
    assert await client.get(PODS, "default", "web")
    with pytest.raises(ApiError):
        await client.get(PODS, "default", "missing")
    reachable[0] = False
    with pytest.raises(ApiUnreachable):
        await client.get(PODS, "default", "web")
    printed = render_metrics(metrics.collect())
    for code in ("200", "404", "<error>"):
        labels = f'code="{code}",host="10.0.0.1:6443",method="GET"'
        assert f"rest_client_requests_total{{{labels}}} 1\n" in printed
