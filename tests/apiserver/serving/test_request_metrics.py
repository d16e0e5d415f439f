"""Request metrics stay small and well-formed, whatever paths clients ask for."""

from __future__ import annotations

import pytest
from tests.apiserver.harness import start

from transom.apiserver.core.requestinfo import parse_request_info
from transom.apiserver.core.resources import ResourceRegistry
from transom.apiserver.flowcontrol.flows import RequestFlows
from transom.apiserver.serving.metrics import MAX_LABEL_SETS, ApiServerMetrics
from transom.http.messages import HttpResponse
from transom.machinery.releases import Release


def record(metrics: ApiServerMetrics, method: str, path: str, code: int = 404) -> None:
    metrics.record(parse_request_info(method, path), HttpResponse(code, []), 0.001)


def total(text: str) -> int:
    lines = [line for line in text.splitlines() if line.startswith("apiserver_request_total")]
    return sum(int(line.rpartition(" ")[2]) for line in lines)


def test_paths_that_are_not_served_do_not_become_labels() -> None:
    metrics = ApiServerMetrics(ResourceRegistry().is_served)
    for number in range(500):
        record(metrics, "GET", f"/apis/g{number}.example.com/v1/things/{number}")
        record(metrics, "GET", f"/apis/apps/w{number}/deployments")
        record(metrics, "PUT", f"/api/v1/namespaces/n{number}/pods/p{number}/sub{number}")
        record(metrics, "POST", f"/api/v1/thing{number}")
        record(metrics, f"VERB{number}", "/api/v1/pods")
        record(metrics, f"VERB{number}", f"/path/{number}")
        record(metrics, "GET", f"/path/{number}")
        record(metrics, "GET", f"/api/v1/namespaces/n{number}/pods/p{number}", code=200)
    text = metrics.render({})
    assert total(text) == 8 * 500
    assert 'group="",resource="",scope="",subresource="",verb="GET",version=""} 1000' in text
    assert 'verb="other"' in text
    assert 'resource="pods",scope="resource",subresource="",verb="PUT",version="v1"} 500' in text
    assert 'resource="pods",scope="resource",subresource="",verb="GET",version="v1"} 500' in text
    assert len(text) < 100_000
    assert "things" not in text and "deployments" not in text and "sub7" not in text


def test_labels_of_definitions_that_come_and_go_are_bounded() -> None:
    served: set[str] = set()
    metrics = ApiServerMetrics(lambda group, *_: group in served)
    for number in range(3 * MAX_LABEL_SETS):
        served.clear()
        served.add(f"g{number}")
        record(metrics, "GET", f"/apis/g{number}/v1/things/x", code=200)
    assert len(metrics._durations) <= MAX_LABEL_SETS
    text = metrics.render({})
    assert f'group="g{3 * MAX_LABEL_SETS - 1}"' in text
    served |= {f"h{number}" for number in range(2 * MAX_LABEL_SETS)}
    for number in range(2 * MAX_LABEL_SETS):
        record(metrics, "GET", f"/apis/h{number}/v1/things/x", code=200)
    assert len(metrics._durations) <= MAX_LABEL_SETS + 10


async def test_many_metrics_are_rendered_beside_the_loop() -> None:
    api = await start()
    for number in range(1000):
        labels = ("GET", f"g{number}", "v1", "things", "", "cluster")
        api.server.metrics._durations[labels].total += 1
    text = (await api.send("GET", "/metrics")).body.decode()
    assert 'group="g999"' in text
    await api.server.stop()


def test_no_metric_can_be_forged() -> None:
    metrics = ApiServerMetrics(ResourceRegistry().is_served)
    for name in ('x",y="z', 'x"} 1\nforged_metric{a="b', "x" * 60_000, "\u0000", "\u00e9"):
        record(metrics, "GET", f"/api/v1/{name}/a/{name}", code=403)
        record(metrics, "GET", f"/api/v1/namespaces/default/pods/a/{name}", code=403)
        record(metrics, name, "/api/v1/pods", code=403)
    text = metrics.render({})
    assert (
        'apiserver_request_total{code="403",component="apiserver",group="",resource="",scope=""'
        in text
    )
    assert 'verb="other"' in text
    assert len(text) < 20_000
    assert "forged" not in text


async def test_requests_of_resources_are_counted_by_name() -> None:
    api = await start()
    await api.ok("GET", "/api/v1/namespaces/default/pods")
    text = (await api.send("GET", "/metrics")).body.decode()
    assert 'resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"' in text
    await api.server.stop()


async def test_long_paths_are_not_kept() -> None:
    api = await start()
    flows: RequestFlows = api.server.flows
    before = len(flows._found)
    for number in range(50):
        await api.send("GET", f"/{number}/" + "x" * 5000)
        await api.send("GET", f"/api/v1/namespaces/{number}{'x' * 5000}/pods")
    assert len(flows._found) == before
    await api.server.stop()


@pytest.mark.parametrize(
    "metric", ["apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds"]
)
def test_each_bucket_counts_the_requests_that_were_at_most_as_long(metric: str) -> None:
    metrics = ApiServerMetrics(ResourceRegistry().is_served, Release(1, 36))
    info = parse_request_info("GET", "/api/v1/namespaces/a/pods/b")
    seconds = [0.01, 0.05, 0.051, 0.15, 0.2, 0.55, 1, 2.2, 44, 45, 46, 59.9, 60, 61, 1000]
    for duration in seconds:
        metrics.record(info, HttpResponse(200, []), duration)
    lines = [
        line for line in metrics.render({}).splitlines() if line.startswith(f"{metric}_bucket")
    ]
    assert len(lines) > 20
    for line in lines:
        bound = float(line.partition('le="')[2].partition('"')[0])
        assert int(line.rpartition(" ")[2]) == sum(one <= bound for one in seconds), line
