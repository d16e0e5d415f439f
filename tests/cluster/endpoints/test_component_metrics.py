"""Where the metrics of the scheduler and the controllers are served."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request

import pytest

from transom.cluster.endpoints.component_metrics import (
    ClusterComponentMetrics,
    ComponentMetrics,
    serving_metrics,
)
from transom.http.messages import HttpRequest, HttpResponse
from transom.http.server import listen_sockets
from transom.kit.prometheus import Family, Sample
from transom.kit.user_errors import UserError
from transom.machinery.releases import Release


async def test_each_component_has_a_path() -> None:
    metrics = ClusterComponentMetrics("127.0.0.1:6443", Release(1, 36))
    metrics.scheduler.set_own(lambda: [Family("own", "gauge", "", [Sample((), 1)])])
    metrics.controllers.client.requests.record("GET", "200", 0.1)

    async def get(path: str, method: str = "GET") -> tuple[int, str]:
        answer = await metrics(HttpRequest(method, path.encode(), path, {}))
        assert isinstance(answer, HttpResponse) and isinstance(answer.body, bytes)
        return answer.status, answer.body.decode()

    status, text = await get("/transom/metrics/kube-scheduler")
    assert status == 200 and "\nown 1\n" in text and "rest_client" not in text
    assert "# HELP kubernetes_build_info [BETA] " in text and 'git_version="v1.36.' in text
    status, text = await get("/transom/metrics/kube-controller-manager")
    assert status == 200 and 'rest_client_requests_total{code="200"' in text
    assert "\nown 1\n" not in text and "process_cpu_seconds_total" in text
    assert (await get("/transom/metrics"))[0] == 404
    assert (await get("/transom/metrics/kube-scheduler", "POST"))[0] == 405


async def test_a_component_alone_serves_its_port_until_it_ends() -> None:
    (sock,) = listen_sockets(["127.0.0.1"], 0)
    port = sock.getsockname()[1]
    sock.close()
    metrics = ComponentMetrics("127.0.0.1:6443", Release(1, 36))

    def read(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    async with serving_metrics(f"127.0.0.1:{port}", metrics):
        assert "process_open_fds" in await asyncio.to_thread(read, "/metrics")
        assert await asyncio.to_thread(read, "/healthz") == "ok"
    with pytest.raises(urllib.error.URLError):
        await asyncio.to_thread(read, "/metrics")


async def test_a_wrong_address_is_an_error() -> None:
    metrics = ComponentMetrics("", Release(1, 36))
    with pytest.raises(UserError, match="metrics-bind-address"):
        async with serving_metrics("10259", metrics):
            pass
