"""Graceful node shutdown: pods end by priority, within the configured periods."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from transom.client.resources import NODES, PODS
from transom.kubelet.config import KubeletConfig
from transom.kubelet.configuration_fields import configuration_settings
from transom.kubelet.node_shutdown import (
    ShutdownPeriod,
    group_pods_by_priority,
    pod_priority,
    shutdown_configuration_problems,
    shutdown_periods,
)
from transom.machinery.releases import Release

from .conftest import NODE
from .test_kubelet import SERVERCORE, phase, shell

NEWEST = Release(1, 36)
PERIODS = {"shutdown_grace_period": 30.0, "shutdown_grace_period_critical_pods": 10.0}
STUBBORN = "trap 'echo no' TERM; while true; do sleep 1; done"


def config(release: str = "1.36", **settings: Any) -> KubeletConfig:
    return KubeletConfig("n", "10.0.0.1", version=f"v{release}.0", **settings)


@pytest.mark.parametrize(
    ("settings", "periods"),
    [
        ({}, ()),
        (PERIODS, ((0, 20), (2_000_000_000, 10))),
        ({"shutdown_grace_period": 5.0}, ((0, 5), (2_000_000_000, 0))),
        (
            {"shutdown_grace_period_by_pod_priority": ((100, 60), (0, 5), (-10, 7))},
            ((-10, 7), (0, 5), (100, 60)),
        ),
    ],
)
def test_periods_are_in_the_order_of_priorities(settings: Any, periods: Any) -> None:
    assert shutdown_periods(config(**settings)) == periods


def test_a_pod_belongs_to_the_period_below_its_priority() -> None:
    periods = [ShutdownPeriod(0, 1), ShutdownPeriod(100, 2), ShutdownPeriod(1000, 3)]
    pods = [{"spec": {"priority": p}} for p in (-5, 0, 99, 100, 101, 1000, 5000)]
    groups = group_pods_by_priority(periods, [*pods, {"spec": {}}], pod_priority)
    assert [[p["spec"].get("priority") for p in group] for group in groups.values()] == [
        [-5, 0, 99, None],
        [100, 101],
        [1000, 5000],
    ]


@pytest.mark.parametrize(
    ("release", "settings", "problems"),
    [
        ("1.36", PERIODS, []),
        ("1.20", {}, []),
        (
            "1.20",
            PERIODS,
            [
                "Specifying ShutdownGracePeriod or ShutdownGracePeriodCriticalPods requires "
                "feature gate GracefulNodeShutdown"
            ],
        ),
        (
            "1.36",
            {"shutdown_grace_period": 0.5, "shutdown_grace_period_critical_pods": 60.0},
            [
                "shutdownGracePeriodCriticalPods 1m0s must be <= shutdownGracePeriod 500ms",
                "shutdownGracePeriod 500ms must be either zero or otherwise >= 1 sec",
            ],
        ),
        (
            "1.22",
            {"shutdown_grace_period": 5.0, "shutdown_grace_period_critical_pods": 60.0},
            [
                "ShutdownGracePeriod 5s must be >= 0, ShutdownGracePeriodCriticalPods 1m0s must "
                "be >= 0, and ShutdownGracePeriodCriticalPods 1m0s must be <= ShutdownGracePeriod "
                "5s"
            ],
        ),
        (
            "1.36",
            {**PERIODS, "shutdown_grace_period_by_pod_priority": ((0, 5),)},
            [
                "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at "
                "the same time"
            ],
        ),
        (
            "1.23",
            {"shutdown_grace_period_by_pod_priority": ((0, 5),)},
            [
                "Specifying shutdownGracePeriodByPodPriority requires feature gate "
                "GracefulNodeShutdownBasedOnPodPriority"
            ],
        ),
    ],
)
def test_a_kubelet_refuses_wrong_periods(release: str, settings: Any, problems: list[str]) -> None:
    assert shutdown_configuration_problems(config(release, **settings)) == problems


@pytest.mark.windows("W-NODE-30")
def test_periods_by_priority_come_from_the_configuration_file() -> None:
    entries = [{"priority": 100, "shutdownGracePeriodSeconds": 7}]
    assert configuration_settings({"shutdownGracePeriodByPodPriority": entries}) == {
        "shutdown_grace_period_by_pod_priority": ((100, 7),)
    }


async def shut_down(node: Any) -> None:
    shutdown = asyncio.create_task(node.kubelet.shut_down())
    await finish(node, shutdown)


async def finish(node: Any, shutdown: asyncio.Task[None]) -> None:
    for _ in range(60):
        if shutdown.done():
            break
        await node.settle(1)
    assert shutdown.done()
    await shutdown


@pytest.mark.windows("W-NODE-26", "W-NODE-27", "W-NODE-28", "W-NODE-29")
async def test_pods_end_by_priority_and_new_ones_are_rejected(node: Any) -> None:
    async with node("linux", flavour="containerd", release=NEWEST, **PERIODS) as node:
        await node.create("slow", terminationGracePeriodSeconds=600, containers=[shell(STUBBORN)])
        await node.create("quick", terminationGracePeriodSeconds=2, containers=[shell(STUBBORN)])
        await node.create(
            "critical",
            terminationGracePeriodSeconds=3,
            containers=[shell(STUBBORN)],
            priorityClassName="system-node-critical",
        )
        for name in ("slow", "quick", "critical"):
            await phase(node, name, "Running")
        started = node.clock.monotonic()
        shutdown = asyncio.create_task(node.kubelet.shut_down())
        await node.settle(5)
        ready = [
            c
            for c in (await node.client.get(NODES, "", NODE))["status"]["conditions"]
            if c["type"] == "Ready"
        ]
        assert (ready[0]["status"], ready[0]["message"]) == ("False", "node is shutting down")
        quick = (await node.pod("quick"))["status"]
        assert (quick["phase"], quick["reason"]) == ("Failed", "Terminated")
        assert quick["message"] == "Pod was terminated in response to imminent node shutdown."
        target = next(c for c in quick["conditions"] if c["type"] == "DisruptionTarget")
        assert target["reason"] == "TerminationByKubelet"
        assert "running" in (await node.pod("critical"))["status"]["containerStatuses"][0]["state"]
        late = [{"operator": "Exists"}]
        await node.create("late", tolerations=late, containers=[shell("sleep 1")])
        status = (await phase(node, "late", "Failed"))["status"]
        assert status["reason"] == "NodeShutdown"
        assert status["message"] == (
            "Pod was rejected: Pod was rejected as the node is shutting down."
        )
        await finish(node, shutdown)
        assert 20 <= node.clock.monotonic() - started <= 26
        for name in ("slow", "critical"):
            pod = (await node.pod(name))["status"]
            assert (pod["phase"], pod["reason"]) == ("Failed", "Terminated")
            assert "terminated" in pod["containerStatuses"][0]["state"]
        events = await node.events()
        assert ("Normal", "NodeShutdown", "Shutdown manager detected shutdown event") in events


@pytest.mark.windows("W-NODE-31")
async def test_the_times_of_a_shutdown_are_kept(node: Any) -> None:
    async with node("windows", flavour="containerd", release=NEWEST, **PERIODS) as node:
        path = "C:\\var\\lib\\kubelet\\graceful_node_shutdown_state"
        assert times(node) == (0, 0) and not node.host.files.exists(path)
        started = node.clock.time()
        await shut_down(node)
        before = times(node)
        assert before[0] >= int(started) and before[1] >= before[0]
        await node.stop_kubelet()
        await node.start_kubelet()
        assert times(node) == before
        assert set(orjson.loads(node.host.files.read(path))) == {"startTime", "endTime"}


def times(node: Any) -> tuple[float, float]:
    found = {
        family.name: family.samples[0].value
        for family in node.kubelet.server.metrics.collect()
        if family.name.startswith("kubelet_graceful_shutdown")
    }
    return (
        found["kubelet_graceful_shutdown_start_time_seconds"],
        found["kubelet_graceful_shutdown_end_time_seconds"],
    )


@pytest.mark.windows("W-NODE-25")
async def test_without_periods_nothing_is_stopped(node: Any) -> None:
    async with node("linux", flavour="containerd", release=NEWEST) as node:
        await node.create("p", containers=[shell("sleep 1000")])
        await phase(node, "p", "Running")
        await shut_down(node)
        await node.settle(5)
        assert (await node.pod("p"))["status"]["phase"] == "Running"


@pytest.mark.windows("W-NODE-20")
@pytest.mark.parametrize(("release", "ended"), [(Release(1, 33), False), (Release(1, 34), True)])
async def test_windows_nodes_have_it_since_1_34(node: Any, release: Release, ended: bool) -> None:
    async with node("windows", flavour="containerd", release=release, **PERIODS) as node:
        await node.create(
            "p",
            containers=[{"name": "c", "image": SERVERCORE, "command": ["ping", "-t", "localhost"]}],
        )
        await phase(node, "p", "Running")
        await shut_down(node)
        pod = await node.client.get(PODS, "default", "p")
        assert (pod["status"].get("reason") == "Terminated") is ended
        texts = [text for _, reason, text in await node.events() if reason == "NodeShutdown"]
        assert texts == (["Shutdown manager detected preshutdown event"] if ended else [])


async def test_older_kubelets_have_other_texts_and_wait_the_whole_period(node: Any) -> None:
    async with node("linux", release=Release(1, 21), **PERIODS) as node:
        await node.create("p", terminationGracePeriodSeconds=2, containers=[shell("sleep 1000")])
        await phase(node, "p", "Running")
        started = node.clock.monotonic()
        await shut_down(node)
        assert node.clock.monotonic() - started >= 20
        status = (await node.pod("p"))["status"]
        assert (status["reason"], status["message"]) == (
            "Shutdown",
            "Node is shutting, evicting pods",
        )
