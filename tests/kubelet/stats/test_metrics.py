from __future__ import annotations

import random

import pytest
from tests.kubelet.server_harness import ServerHarness

from transom.kit.clock import VirtualClock
from transom.kubelet.prober.manager import ProbeCounts
from transom.kubelet.stats.metrics import KubeletMetrics, probe_metrics
from transom.kubelet.workers import PodWorker, PodWorkers, SyncOutcome
from transom.machinery.releases import BUILDS


def test_resource_metrics() -> None:
    printed = ServerHarness().text("/metrics/resource")[1]
    labels = '{container="c",namespace="ns",pod="p"}'
    assert f"container_cpu_usage_seconds_total{labels} 5 1577934245000\n" in printed
    assert f"container_memory_working_set_bytes{labels} 8.388608e+06 1577934245000\n" in printed
    assert 'pod_cpu_usage_seconds_total{namespace="ns",pod="p"} 5 1577934245000\n' in printed
    assert "# TYPE node_memory_working_set_bytes gauge\n" in printed and printed.endswith(
        "\nscrape_error 0\n"
    )


def test_resource_metrics_of_newer_releases() -> None:
    labels = '{container="c",namespace="ns",pod="p"}'
    old = ServerHarness(version="v1.29.0").text("/metrics/resource")[1]
    assert "# HELP node_memory_working_set_bytes [STABLE] Current" in old
    assert "# HELP scrape_error [ALPHA] (Deprecated since 1.29.0) 1 if" in old
    printed = ServerHarness(version="v1.36.0").text("/metrics/resource")[1]
    assert f"container_start_time_seconds{labels} 1.5" in printed
    assert "node_swap_usage_bytes 0 " in printed
    assert printed.endswith("\nresource_scrape_error 0\n") and "\nscrape_error" not in printed


@pytest.mark.windows("W-RES-18")
def test_windows_nodes_have_no_metrics_of_swap() -> None:
    printed = ServerHarness("windows", version="v1.36.0").text("/metrics/resource")[1]
    assert "container_start_time_seconds{" in printed and "swap" not in printed


def test_cadvisor_knows_containers_on_linux_only() -> None:
    linux, windows = (
        ServerHarness().text("/metrics/cadvisor")[1],
        ServerHarness("windows").text("/metrics/cadvisor")[1],
    )
    rest = 'id="/kubepods/burstable/podu1/cid",image="busybox:1",name="k8s_c_p_ns_u1_0",namespace="ns",pod="p"} '
    for line in (
        'container_cpu_usage_seconds_total{container="c",cpu="total",' + rest + "5 1577934245000",
        'container_memory_working_set_bytes{container="c",' + rest + "8.388608e+06 1577934245000",
        'container_spec_memory_limit_bytes{container="c",' + rest + "6.7108864e+07",
        'container_spec_cpu_quota{container="c",' + rest + "50000",
    ):
        assert f"{line}\n" in linux
    assert (
        'container_network_receive_bytes_total{container="POD",id="/kubepods/burstable/podu1/sid"'
        in linux
    )
    for printed in (linux, windows):
        assert "machine_cpu_cores{" in printed and "container_scrape_error 0\n" in printed
    assert "container_cpu_usage_seconds_total" not in windows


def test_histograms_and_probes() -> None:
    metrics = KubeletMetrics()
    for seconds in (0.004, 0.3, 20):
        metrics.observe("kubelet_pod_start_duration_seconds", seconds)
    printed = probe_metrics(
        [ProbeCounts("liveness", {"name": "p", "namespace": "ns", "uid": "u1"}, "c", "failed", 1)],
        12.0,
    )
    assert (
        'pod_uid="u1",probe_type="Liveness",result="failed"} 1\n' in printed
        and "process_start_time_seconds 12\n" in printed
    )
    harness = ServerHarness()
    harness.server.metrics = metrics
    printed = harness.text("/metrics")[1]
    name = "kubelet_pod_start_duration_seconds"
    assert (
        f'{name}_bucket{{le="0.005"}} 1\n' in printed
        and f'{name}_bucket{{le="0.5"}} 2\n' in printed
    )
    assert f'{name}_bucket{{le="+Inf"}} 3\n{name}_sum 20.304\n{name}_count 3\n' in printed
    assert "prober_probe_total" not in printed
    assert "kubernetes_build_info{" in printed and 'git_version="v1.20.15"' in printed
    assert (
        f'git_commit="{BUILDS["1.20"].commit}"' in printed and 'go_version="go1.15.15"' in printed
    )


def test_a_pod_worker_names_its_operations() -> None:
    worker = PodWorker("u1", {"metadata": {"uid": "u1"}})
    assert worker.operation == "create"
    worker.synced = True
    assert worker.operation == "update"
    worker.due = True
    assert worker.operation == "sync"
    worker.gone = True
    assert worker.operation == "kill"


async def test_the_duration_of_each_sync_is_reported() -> None:
    seen: list[tuple[str, float]] = []
    clock = VirtualClock()

    async def sync(_worker: PodWorker) -> SyncOutcome:
        clock.advance(2)
        return SyncOutcome.DONE

    workers = PodWorkers(
        clock, random.Random(1), 60, sync, lambda name, seconds: seen.append((name, seconds))
    )
    worker = workers.add("u1", {"metadata": {"uid": "u1"}})
    for _ in range(2):
        workers.wake(worker)
        assert worker.task is not None
        await worker.task
    assert seen == [("create", 2.0), ("update", 2.0)]
