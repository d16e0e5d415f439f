from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.kubelet.server_harness import ServerHarness

from transom.kit.prometheus import render_metrics
from transom.kubelet.stats.counting import count_runtime_operations
from transom.runtime.api import RuntimeFailure, SandboxConfig


async def test_what_is_asked_of_a_runtime_is_counted_and_handed_on() -> None:
    harness = ServerHarness()
    metrics = harness.server.metrics
    inner: Any = SimpleNamespace(
        containers=harness.runtime.containers, container=harness.runtime.container
    )
    runtime = count_runtime_operations(inner, metrics, harness.clock, harness.view.pod_by_uid)

    async def run(config: SandboxConfig, handler: str) -> str:
        harness.clock.advance(2)
        raise RuntimeFailure("Unknown", "no network")

    async def start(container_id: str) -> None:
        harness.clock.advance(1)

    async def stop(container_id: str, grace: float) -> None:
        assert (container_id, grace) == ("cid", 3)

    inner.run_sandbox, inner.start_container, inner.stop_container = run, start, stop

    with pytest.raises(RuntimeFailure):
        await runtime.run_sandbox(SandboxConfig("p", "ns", "u1"))
    await runtime.start_container("cid")
    await runtime.stop_container("cid", grace=3)
    assert [c.id for c in runtime.containers("u1")] == ["cid"]
    printed = render_metrics(metrics.collect())
    for operation in ("run_podsandbox", "start_container", "stop_container"):
        assert f'kubelet_runtime_operations_total{{operation_type="{operation}"}} 1\n' in printed
    assert 'kubelet_runtime_operations_errors_total{operation_type="run_podsandbox"} 1\n' in printed
    assert 'kubelet_run_podsandbox_errors_total{runtime_handler=""} 1\n' in printed
    assert (
        'kubelet_runtime_operations_duration_seconds_sum{operation_type="start_container"} 1\n'
        in printed
    )
    assert (
        "kubelet_pod_start_duration_seconds_sum 3\n" in printed
        and "kubelet_containers_per_pod_count_count 1\n" in printed
    )
