"""Memory, processors, reservations and the kubelet's flags on Windows: no OOM killer, page file,
nothing enforced.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.kubelet.conftest import Node

from transom.client.resources import NODES
from transom.kit.clock import VirtualClock
from transom.kubelet import os_windows
from transom.kubelet.config import KubeletConfig
from transom.kubelet.kubelet import BadConfiguration
from transom.kubelet.node.checks import check_node_configuration
from transom.machinery.quantity import parse_quantity
from transom.machines.api import Hardware
from transom.machines.windows.host import WindowsHost

from .windows_pods import (
    BOTH,
    cmd,
    config,
    container,
    ended,
    log,
    recorded,
    run,
    running,
    simulation_annotations,
    state,
    states,
    summary,
    until,
)

flavours = pytest.mark.parametrize("flavour", BOTH)
GI, MI = 1 << 30, 1 << 20
NINE_TENTHS = 96_636_764_000  # of 100 Gi: the kubelet computes parts in 32-bit floats
SMALL = {"machine": {"hardware": Hardware(memory=4 * GI, page_file=4 * GI)}}


async def the_node(node: Node) -> Any:
    return await node.client.get(NODES, "", "node1")


async def conditions(node: Node) -> dict[str, str]:
    return {c["type"]: c["status"] for c in (await the_node(node))["status"]["conditions"]}


# ---- memory ----


@pytest.mark.windows("RES-07", "RES-09", "FLAG-08", "API-16", "WIN-RES-001")
@flavours
async def test_an_allocation_beyond_the_limit_fails_and_nothing_is_killed(
    node: Any, flavour: str
) -> None:
    async with node("windows", flavour=flavour) as node:
        metadata = simulation_annotations(memory="0s=60Mi,10s=100Mi,20s=900Mi")
        limits = {"limits": {"memory": "128Mi"}}
        await node.create("p", metadata=metadata, containers=[container(resources=limits)])
        await running(node)
        await node.settle(60)
        pod = await node.pod("p")
        assert (
            "running" in state(pod)
            and states(pod)[0]["restartCount"] == 0
            and states(pod)[0]["lastState"] == {}
        )
        [row] = summary(node)["pods"]
        assert row["containers"][0]["memory"]["workingSetBytes"] == 100 * MI  # the last that it got
        assert not [text for text in await recorded(node) if "OOM" in text]


@pytest.mark.windows("RES-07", "API-16", "WIN-RES-001")
async def test_a_program_hears_of_the_allocation_that_failed(node: Any) -> None:
    async with node("windows") as node:
        script = "$a = New-Object byte[] 500MB; Write-Output got"
        await node.create(
            "p",
            restartPolicy="Never",
            containers=[
                container(
                    "powershell", "-Command", script, resources={"limits": {"memory": "256Mi"}}
                ),
                container("powershell", "-Command", script, name="free"),
            ],
        )
        pod = await ended(node)
        assert "OutOfMemoryException" in log(node, pod)
        assert state(pod)["terminated"]["reason"] != "OOMKilled"
        assert log(node, pod, "free") == "got"


@pytest.mark.windows(
    "RES-08", "RES-09", "RES-10", "WIN-RES-002", "WIN-RES-003", "FLAG-07", "WIN-NODE-004"
)
@flavours
async def test_memory_past_the_physical_pages_to_disk_and_slows_everything(
    node: Any, flavour: str
) -> None:
    async with node("windows", flavour=flavour, **SMALL) as node:
        probe = {
            "exec": {"command": ["cmd", "/c", "exit 0"]},
            "periodSeconds": 2,
            "timeoutSeconds": 1,
        }
        await node.create("small", containers=[container(readinessProbe=probe)])
        await until(node, "small", lambda pod: states(pod)[0].get("ready"))
        await node.create(
            "greedy", metadata=simulation_annotations(memory="0s=6Gi"), containers=[container()]
        )
        await running(node, "greedy")
        await node.settle(60)
        # More is committed than there is; what is resident is less than what was asked for.
        stats = summary(node)
        memory = stats["node"]["memory"]
        assert (
            memory["usageBytes"] > 7 * GI
            and memory["workingSetBytes"] == 4 * GI
            and memory["availableBytes"] == 0
        )
        sizes = {row["podRef"]["name"]: row["memory"]["workingSetBytes"] for row in stats["pods"]}
        assert 2 * GI < sizes["greedy"] < 6 * GI and sizes["small"] < 38 * MI
        [paged] = [row.paged for row in node.runtime.container_stats() if row.paged > GI]
        assert paged + sizes["greedy"] == 6 * GI
        # Everything runs, but so slowly that a probe times out.
        assert {
            name: states(await node.pod(name))[0]["restartCount"] for name in sizes
        } == dict.fromkeys(sizes, 0)
        assert not states(await node.pod("small"))[0]["ready"]
        assert await recorded(node, "Unhealthy")
        assert (await conditions(node))["MemoryPressure"] == "False"
        assert not await recorded(node, "Evicted") and not await recorded(node, "SystemOOM")


@pytest.mark.windows("RES-08", "RES-10")
async def test_a_windows_machine_always_has_a_page_file_and_refuses_what_is_beyond_it(
    node: Any,
) -> None:
    async with node("windows", **SMALL) as node:
        assert node.host.hardware.page_file > 0 and node.host.commit_limit == 8 * GI
        await node.create(
            "p", metadata=simulation_annotations(memory="0s=1Gi,5s=20Gi"), containers=[container()]
        )
        await running(node)
        await node.settle(20)
        [row] = node.runtime.container_stats()
        assert row.usage == GI  # the second wish was refused
        assert "running" in state(await node.pod("p"))


@pytest.mark.windows("FLAG-05", "FLAG-06", "FLAG-07", "WIN-NODE-003", "WIN-NODE-004")
@pytest.mark.parametrize("version", ["v1.14.10", "v1.17.17", "v1.18.20", "v1.19.16", "v1.20.15"])
async def test_eviction_by_memory_is_not_implemented(node: Any, version: str) -> None:
    async with node(
        "windows",
        version=version,
        **SMALL,
        eviction_hard={"memory.available": "3Gi"},
        eviction_soft={"memory.available": "3500Mi"},
        eviction_soft_grace_period={"memory.available": "10s"},
    ) as node:
        await node.create(
            "p", metadata=simulation_annotations(memory="0s=5Gi"), containers=[container()]
        )
        await running(node)
        await node.settle(400)
        assert (await node.pod("p"))["status"]["phase"] == "Running"
        assert (await conditions(node))["MemoryPressure"] == "False"
        assert not await recorded(node, "Evicted") and not await recorded(
            node, "EvictionThresholdMet"
        )


@pytest.mark.windows("FLAG-05", "WIN-NODE-003")
async def test_eviction_by_disk_works(node: Any) -> None:
    async with node("windows") as node:
        await node.create("p", containers=[container()])
        await running(node)
        node.host.fill_disk(node.host.disk().available - 2 * GI)
        pod = await until(node, "p", lambda pod: pod["status"]["phase"] == "Failed", 60)
        assert pod["status"]["reason"] == "Evicted"
        assert pod["status"]["message"].startswith(
            "The node was low on resource: ephemeral-storage."
        )
        await node.settle(15)
        assert (await conditions(node))["DiskPressure"] == "True"


@pytest.mark.windows("FLAG-09", "FLAG-10", "WIN-RES-007")
async def test_reservations_do_not_bind_processes_of_the_node(node: Any) -> None:
    async with node("windows", system_reserved={"memory": "500Mi"}, **SMALL) as node:
        # a process of the node takes far more than was reserved for it
        assert node.host.fill_memory(5 * GI)
        await node.settle(30)
        status = (await the_node(node))["status"]
        assert parse_quantity(status["allocatable"]["memory"]).value() == 4 * GI - 600 * MI
        assert (await conditions(node)) == {
            "MemoryPressure": "False",
            "DiskPressure": "False",
            "PIDPressure": "False",
            "Ready": "True",
        }
        # So there are still allocatable resources for pods.
        await node.create("p", containers=[container(resources={"limits": {"memory": "3Gi"}})])
        await running(node)
        assert node.host.memory().paged > GI


# ---- processors ----


@pytest.mark.windows("API-15", "WIN-RES-006")
@flavours
@pytest.mark.parametrize("limit", ["0.5", "500m"])
async def test_a_cpu_limit_is_a_maximum(node: Any, flavour: str, limit: str) -> None:
    async with node("windows", flavour=flavour) as node:
        limits = {"limits": {"cpu": limit, "memory": "1Gi"}}
        await node.create(
            "p",
            metadata=simulation_annotations(cpu="0s=8"),
            containers=[container(resources=limits)],
        )
        await running(node)
        for _ in range(12):
            await node.settle(10)
            rows = summary(node)["pods"]
        assert 0.45e9 < rows[0]["cpu"]["usageNanoCores"] < 0.5e9 * 1.05


@pytest.mark.windows("API-15", "WIN-RES-006")
@pytest.mark.parametrize(
    ("milli", "cpus", "version", "maximum", "shares"),
    [
        (500, 4, "v1.20.15", 1250, 0),
        (1, 64, "v1.20.15", 1, 0),
        (8000, 4, "v1.20.15", 10000, 0),
        (0, 4, "v1.20.15", 0, 0),
        (500, 128, "v1.20.15", 78, 0),  # a process sees one group of processors
        (2000, 4, "v1.14.10", 5000, 5000),
    ],
)
async def test_millicores_are_scaled_to_parts_of_the_machine(
    node: Any, milli: int, cpus: int, version: str, maximum: int, shares: int
) -> None:
    async with node("windows", version=version, machine={"hardware": Hardware(cpus=cpus)}) as node:
        resources = (
            {"limits": {"cpu": f"{milli}m"}, "requests": {"cpu": "1m"}}
            if milli
            else {"requests": {"cpu": "1"}}
        )
        await node.create("p", containers=[container(resources=resources)])
        pod = await running(node)
        reports_it = config(node, pod).windows.resources
        assert (reports_it.cpu_maximum, reports_it.cpu_shares) == (maximum, shares)


@pytest.mark.windows("API-15")
@pytest.mark.parametrize(
    ("version", "least", "most"), [("v1.20.15", 0.95e9, 1.05e9), ("v1.14.10", 1.9e9, 2.1e9)]
)
async def test_old_kubelets_give_weights_so_that_limits_have_no_effect(
    node: Any, version: str, least: float, most: float
) -> None:
    async with node("windows", version=version) as node:
        for name in ("a", "b"):
            resources = {"limits": {"cpu": "1"}}
            await node.create(
                name,
                metadata=simulation_annotations(cpu="0s=8"),
                containers=[container(resources=resources)],
            )
            await running(node, name)
        summary(node)
        await node.settle(11)
        rows = [row["containers"][0]["cpu"]["usageNanoCores"] for row in summary(node)["pods"]]
        assert all(least <= row <= most for row in rows), rows


@pytest.mark.windows("API-15")
async def test_busy_containers_share_the_processors_in_proportion_to_their_limits(
    node: Any,
) -> None:
    async with node("windows") as node:
        for name, limit in (("a", "4"), ("b", "2")):
            resources = {"limits": {"cpu": limit}, "requests": {"cpu": "100m"}}
            await node.create(
                name,
                metadata=simulation_annotations(cpu="0s=8"),
                containers=[container(resources=resources)],
            )
            await running(node, name)
        summary(node)
        await node.settle(11)
        used = {
            row["podRef"]["name"]: row["cpu"]["usageNanoCores"] for row in summary(node)["pods"]
        }
        assert used["a"] / used["b"] == pytest.approx(2, rel=0.05)


@pytest.mark.windows("API-18", "API-19", "API-20", "WIN-RES-004", "RES-12")
async def test_requests_are_for_the_scheduler_and_never_reach_the_runtime(node: Any) -> None:
    async with node("windows") as node:
        await node.create(
            "p", containers=[container(resources={"requests": {"cpu": "2", "memory": "1Gi"}})]
        )
        pod = await running(node)
        reports_it = config(node, pod).windows.resources
        assert (
            reports_it.cpu_maximum,
            reports_it.memory_limit,
            reports_it.cpu_count,
            reports_it.cpu_shares,
        ) == (0, 0, 0, 0)
        # They count on the node: what does not fit beside them is not admitted.
        await node.create("q", containers=[container(resources={"requests": {"cpu": "3"}})])
        pod = await ended(node, "q")
        assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "OutOfcpu")
        assert pod["status"]["message"] == (
            "Pod Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"
        )


@pytest.mark.windows("RES-12", "RES-13", "API-19")
async def test_limits_alone_make_requests_and_keep_further_pods_away(node: Any) -> None:
    async with node("windows", **SMALL) as node:
        await node.create(
            "p", containers=[container(resources={"limits": {"cpu": "1", "memory": "3Gi"}})]
        )
        pod = await running(node)
        assert pod["spec"]["containers"][0]["resources"]["requests"] == {
            "cpu": "1",
            "memory": "3Gi",
        }
        assert pod["status"]["qosClass"] == "Guaranteed"
        await node.create("q", containers=[container(resources={"limits": {"memory": "2Gi"}})])
        assert (await ended(node, "q"))["status"]["reason"] == "OutOfmemory"


@pytest.mark.windows("FEAT-05", "API-17", "WIN-RES-005")
async def test_huge_pages_are_not_there(node: Any) -> None:
    async with node("windows") as node:
        assert set((await the_node(node))["status"]["capacity"]) == {
            "cpu",
            "memory",
            "pods",
            "ephemeral-storage",
        }
        limits = {"limits": {"hugepages-2Mi": "4Mi", "memory": "64Mi", "cpu": "1"}}
        await node.create("p", containers=[container(resources=limits)])
        pod = await ended(node)
        assert pod["status"]["reason"] == "OutOfhugepages-2Mi"


@pytest.mark.windows("RES-01", "RES-04", "WIN-RES-008")
@flavours
async def test_pods_are_not_cgroups_and_the_job_object_cannot_be_disabled(
    node: Any, flavour: str
) -> None:
    async with node("windows", flavour=flavour) as node:
        context = {"privileged": True, "capabilities": {"add": ["SYS_ADMIN"]}}
        await node.create("p", hostPID=True, containers=[container(securityContext=context)])
        pod = await running(node)
        assert node.runtime.sandboxes()[0].config.linux.cgroup_parent == ""
        seen = (await run(node, pod, "tasklist")).stdout.decode()
        assert "kubelet.exe" not in seen and "dockerd.exe" not in seen and "CExecSvc.exe" in seen


# ---- flags ----


@pytest.mark.windows("RES-11", "RES-14", "RES-15", "RES-18", "FLAG-01", "FLAG-02", "FLAG-03")
@pytest.mark.parametrize(
    ("settings", "memory", "cpu", "disk"),
    [
        ({}, 8 * GI - 100 * MI, "4", NINE_TENTHS),
        (
            {"kube_reserved": {"memory": "1Gi", "cpu": "200m"}},
            7 * GI - 100 * MI,
            "3800m",
            NINE_TENTHS,
        ),
        ({"system_reserved": {"memory": "2Gi", "cpu": "10%"}}, None, None, None),
        (
            {"system_reserved": {"memory": "2Gi"}, "kube_reserved": {"memory": "500Mi"}},
            6 * GI - 600 * MI,
            "4",
            NINE_TENTHS,
        ),
        (
            {"eviction_hard": {"memory.available": "1Gi", "nodefs.available": "20Gi"}},
            7 * GI,
            "4",
            80 * GI,
        ),
        ({"eviction_hard": {}}, 8 * GI, "4", 100 * GI),
        ({"system_reserved": {"memory": "80Gi"}}, 0, "4", NINE_TENTHS),
        (
            {
                "eviction_soft": {"memory.available": "4Gi"},
                "eviction_soft_grace_period": {"memory.available": "1m"},
            },
            8 * GI - 100 * MI,
            "4",
            NINE_TENTHS,
        ),
    ],
)
async def test_reservations_and_hard_thresholds_reduce_allocatable(
    node: Any, settings: Any, memory: int | None, cpu: str | None, disk: int | None
) -> None:
    async def scenario(node: Node) -> None:
        status = (await the_node(node))["status"]
        assert (
            parse_quantity(status["capacity"]["memory"]).value() == 8 * GI
            and status["capacity"]["cpu"] == "4"
        )
        assert parse_quantity(status["allocatable"]["memory"]).value() == memory
        assert status["allocatable"]["cpu"] == cpu
        assert parse_quantity(status["allocatable"]["ephemeral-storage"]).value() == disk

    if memory is None:  # a part of something cannot be reserved
        with pytest.raises(Exception, match="quantities must match the regular expression"):
            async with node("windows", **settings) as made:
                await scenario(made)
    else:
        async with node("windows", **settings) as made:
            await scenario(made)


def _problems(**settings: Any) -> list[str]:
    given = {"cgroups_per_qos": False, "enforce_node_allocatable": (), **settings}
    host = WindowsHost("n", VirtualClock())
    return check_node_configuration(KubeletConfig("n", "10.0.0.1", **given), os_windows.RULES, host)


@pytest.mark.windows("FLAG-04", "TRB-45", "TRB-48", "WIN-NODE-001", "WIN-NODE-002")
async def test_a_kubelet_that_is_to_enforce_allocatable_or_use_cgroups_does_not_start(
    node: Any,
) -> None:
    assert _problems(enforce_node_allocatable=("pods",))[-1] == (
        "invalid configuration: EnforceNodeAllocatable (--enforce-node-allocatable) [pods] "
        "is not supported on Windows"
    )
    assert _problems(cgroups_per_qos=True) == [
        "invalid configuration: CgroupsPerQOS (--cgroups-per-qos) true is not supported on Windows"
    ]

    async def scenario(node: Node) -> None: ...

    with pytest.raises(BadConfiguration, match="EnforceNodeAllocatable"):
        async with node("windows", enforce_node_allocatable=("pods",)) as made:
            await scenario(made)


@pytest.mark.windows("FLAG-11", "FLAG-12", "FLAG-13", "WIN-NODE-005")
def test_the_priority_class_of_the_kubelet_is_one_of_windows_own() -> None:
    for name in ("IDLE", "BELOW_NORMAL", "NORMAL", "ABOVE_NORMAL", "HIGH", "REALTIME"):
        assert _problems(windows_priorityclass=f"{name}_PRIORITY_CLASS") == []
    assert KubeletConfig("n", "10.0.0.1").windows_priorityclass == "NORMAL_PRIORITY_CLASS"
    for wrong in ("HIGH", "high_priority_class", ""):
        assert _problems(windows_priorityclass=wrong) == [
            f"unknown priority class {wrong}, valid ones are available at "
            "https://docs.microsoft.com/en-us/windows/win32/procthread/scheduling-priorities"
        ]


@pytest.mark.windows("TRB-37", "WIN-NODE-009")
async def test_a_kubelet_with_the_default_resolver_file_starts_no_pod(node: Any) -> None:
    async with node("windows", resolv_conf="/etc/resolv.conf") as node:
        await node.create("p", containers=[cmd("exit 0")])
        await node.settle(20)
        assert (await node.pod("p"))["status"]["phase"] == "Pending"
        texts = await recorded(node, "FailedCreatePodSandBox")
        assert "open /etc/resolv.conf: The system cannot find the path specified." in texts[0]
