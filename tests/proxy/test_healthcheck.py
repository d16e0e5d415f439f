from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.proxy.objects import endpoint_slice, port, service
from tests.proxy.planes import TablePlane, in_loop
from tests.proxy.winkernel.nodes import NODE, NODE_IP, OTHER, Node

from transom.http.messages import HttpRequest
from transom.kit.clock import VirtualClock
from transom.proxy.healthcheck import ProxierHealth, ServiceHealth, serve_health_checks
from transom.proxy.metrics import MetricsHandler, ProxyMetrics
from transom.proxy.tracker import ServiceTracker
from transom.proxy.winkernel.options import WinkernelOptions
from transom.proxy.winkernel.proxier import WinkernelProxier

WEB = ("default", "web")


async def get(
    plane: TablePlane, address: str, number: int, path: str = "/"
) -> tuple[int, dict[str, str], bytes]:
    loop = asyncio.get_running_loop()
    with await plane.connect(address, number, "172.18.0.9") as connection:
        await loop.sock_sendall(
            connection, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        )
        raw = b""
        while data := await loop.sock_recv(connection, 65536):
            raw += data
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
    return int(first.split()[1]), headers, body


@in_loop
async def test_load_balancers_ask_each_node_whether_it_has_a_pod() -> None:
    node, plane = Node(), TablePlane()
    health = ServiceHealth(NODE, plane, lambda: [NODE_IP])
    proxier = WinkernelProxier(
        node.tracker,
        NODE,
        node.hns,
        WinkernelOptions(network_name="cbr0", node_ip=NODE_IP),
        node.clock,
        health=health,
    )
    node.pod("10.244.1.5")
    shape = service(
        kind="LoadBalancer",
        ports=[port(node=30080)],
        externalTrafficPolicy="Local",
        healthCheckNodePort=32000,
    )
    node.put(shape, ("10.244.1.5", NODE), ("10.244.2.5", OTHER))
    proxier.sync()
    status, headers, body = await get(plane, NODE_IP, 32000)
    assert (status, headers["content-type"], headers["x-content-type-options"]) == (
        200,
        "application/json",
        "nosniff",
    )
    assert json.loads(body) == {
        "service": {"namespace": "default", "name": "web"},
        "localEndpoints": 1,
    }
    assert body == (
        b'{\n\t"service": {\n\t\t"namespace": "default",\n\t\t"name": '
        b'"web"\n\t},\n\t"localEndpoints": 1\n}'
    )
    node.put_pods("web", ("10.244.2.5", OTHER))
    proxier.sync()
    status, _, body = await get(plane, NODE_IP, 32000)
    assert status == 503 and json.loads(body)["localEndpoints"] == 0
    node.tracker.remove_service(shape)
    proxier.sync()
    assert not plane.listeners


def test_a_port_that_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    plane = TablePlane()
    events: list[Any] = []
    health = ServiceHealth(NODE, plane, lambda: [NODE_IP], lambda *event: events.append(event))
    plane.listen(NODE_IP, 32000, lambda _: None)
    health.sync({WEB: 32000}, {WEB: 1})
    text = (
        'node win1 failed to start healthcheck "default/web" on port 32000: listen tcp :32000: '
        "bind: address already in use"
    )
    assert caplog.messages == [text] and events == [(WEB, text)]


def ask(handler: Any, path: str) -> tuple[int, bytes]:
    answer = handler(HttpRequest("GET", path.encode(), path, {}))
    return answer.status, answer.body


def test_healthz_is_late_only_while_something_waits() -> None:
    clock = VirtualClock()
    health = ProxierHealth(clock, 60)
    health.queued()
    clock.advance(1000)
    assert health.healthy  # it has never synced: it is starting
    health.updated()
    clock.advance(1)
    health.queued()
    clock.advance(59)
    assert health.healthy
    clock.advance(1)
    status, body = ask(health.handle, "/healthz")
    assert status == 503 and json.loads(body)["lastUpdated"].startswith(
        "2020-01-02 03:20:45 +0000 UTC m=+1000"
    )
    health.updated()
    status, body = ask(health.handle, "/healthz")
    assert status == 200 and json.loads(body)["lastUpdated"] == json.loads(body)["currentTime"]
    assert ask(health.handle, "/other") == (404, b"404 page not found\n")


def test_metrics() -> None:
    clock, tracker = VirtualClock(), ServiceTracker()
    metrics = ProxyMetrics(tracker, clock, ProxierHealth(clock, 60))
    tracker.put_service(service())
    tracker.put_slice(endpoint_slice(pods=[("10.244.2.5", OTHER)]))
    metrics.queued()
    metrics.synced(0.003, complete=True)
    metrics.synced(0.5, complete=False)
    handler = MetricsHandler(metrics, "kernelspace", {"mode": "kernelspace"})
    text = ask(handler, "/metrics")[1].decode()
    for line in (
        'kubeproxy_sync_proxy_rules_duration_seconds_bucket{le="0.002"} 0',
        'kubeproxy_sync_proxy_rules_duration_seconds_bucket{le="0.004"} 1',
        'kubeproxy_sync_proxy_rules_duration_seconds_bucket{le="+Inf"} 2',
        "kubeproxy_sync_proxy_rules_duration_seconds_count 2",
        "kubeproxy_sync_proxy_rules_service_changes_total 1",
        "kubeproxy_sync_proxy_rules_service_changes_pending 0",
        "# TYPE kubeproxy_sync_proxy_rules_last_timestamp_seconds gauge",
        "kubeproxy_sync_proxy_rules_last_timestamp_seconds 1.577934245e+09",
    ):
        assert line in text.splitlines(), line
    assert ask(handler, "/proxyMode") == (200, b"kernelspace")
    assert ask(handler, "/healthz") == (200, b"ok")
    assert json.loads(ask(handler, "/configz")[1]) == {
        "kubeproxy.config.k8s.io": {"mode": "kernelspace"}
    }
    assert ask(handler, "/")[0] == 404


def test_serving_is_all_or_nothing() -> None:
    plane = TablePlane()
    plane.listen("b", 1, lambda _: None)
    with pytest.raises(OSError):
        serve_health_checks(plane, ["a", "b"], 1, lambda _: None)  # type: ignore[arg-type, return-value]
    assert set(plane.listeners) == {("b", 1)}
