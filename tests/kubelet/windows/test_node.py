"""A Windows node as it shows itself: labels, versions, statistics and their gaps, logs, port
forwarding.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.kubelet.conftest import Node

from transom.client.resources import NODES
from transom.kubelet.server.forward import dial_sandbox
from transom.runtime.api import RuntimeFailure
from transom.runtime.sim.catalogue import catalogue_with
from transom.windows.builds import BUILDS

from .windows_pods import (
    BOTH,
    cmd,
    container,
    do,
    ended,
    in_runtime,
    log,
    meant,
    running,
    simulation_annotations,
    summary,
    until,
)

flavours = pytest.mark.parametrize("flavour", BOTH)
IIS = "mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2019"


async def the_node(node: Node) -> Any:
    return await node.client.get(NODES, "", "node1")


# ---- what it says of itself ----


@pytest.mark.windows("OS-15", "OS-20", "POD-05", "RT-02", "RT-04", "RT-05")
@flavours
@pytest.mark.parametrize("build", [17763, 18363, 19041, 20348])
async def test_labels_and_versions_of_a_node(node: Any, flavour: str, build: int) -> None:
    async with node("windows", flavour=flavour, machine={"build": BUILDS[build]}) as node:
        shown = await the_node(node)
        assert shown["metadata"]["labels"] == {
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "windows",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": "node1",
            "kubernetes.io/os": "windows",
            "node.kubernetes.io/windows-build": f"10.0.{build}",
        }
        info = shown["status"]["nodeInfo"]
        version = {"docker": "docker://19.3.14-sim", "containerd": "containerd://1.4.3-sim"}[
            flavour
        ]
        assert (
            info["kernelVersion"] == BUILDS[build].full_version
            and info["osImage"] == BUILDS[build].product
        )
        assert (info["operatingSystem"], info["architecture"], info["containerRuntimeVersion"]) == (
            "windows",
            "amd64",
            version,
        )
        assert (info["machineID"], info["bootID"]) == ("node1", "")
        assert not shown["metadata"].get("annotations", {}).get("os") and "taints" not in str(
            shown["metadata"]
        )


@pytest.mark.windows("OS-18", "RT-03", "OS-12")
@pytest.mark.parametrize(
    ("version", "labelled"), [("v1.14.10", False), ("v1.17.17", True), ("v1.20.15", True)]
)
async def test_the_label_of_the_build_came_with_1_17(
    node: Any, version: str, labelled: bool
) -> None:
    async with node("windows", version=version, runtime={"version": "18.9.7"}) as node:
        shown = await the_node(node)
        assert ("node.kubernetes.io/windows-build" in shown["metadata"]["labels"]) is labelled
        assert shown["status"]["nodeInfo"]["kubeletVersion"] == version
        assert shown["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("docker://18.9")


@pytest.mark.windows("FLAG-07", "WIN-NODE-004", "FEAT-06", "WIN-POD-014")
async def test_conditions_are_those_of_every_node(node: Any) -> None:
    async with node("windows") as node:
        await node.settle(20)
        conditions = (await the_node(node))["status"]["conditions"]
        assert [(c["type"], c["status"]) for c in conditions] == [
            ("MemoryPressure", "False"),
            ("DiskPressure", "False"),
            ("PIDPressure", "False"),
            ("Ready", "True"),
        ]  # and none of a node problem detector
        assert conditions[-1]["message"] == "kubelet is posting ready status"  # no word of AppArmor


@pytest.mark.windows("FEAT-05", "API-17")
async def test_capacity_of_a_node(node: Any) -> None:
    async with node("windows") as node:
        status = (await the_node(node))["status"]
        assert (
            set(status["capacity"])
            == set(status["allocatable"])
            == {"cpu", "memory", "pods", "ephemeral-storage"}
        )


# ---- statistics ----


@pytest.mark.windows("LIFE-01", "RES-02")
@flavours
async def test_the_gaps_of_stats_summary(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create(
            "p",
            restartPolicy="Never",
            volumes=[{"name": "v", "emptyDir": {}}],
            containers=[container(volumeMounts=[{"name": "v", "mountPath": "C:\\v"}])],
            initContainers=[cmd("exit 0", "init")],
        )
        await running(node)
        summary(node)
        await node.settle(20)
        stats = summary(node)
        machine = stats["node"]
        assert "rlimit" not in machine and [row["name"] for row in machine["systemContainers"]] == [
            "pods"
        ]
        for disk in (machine["fs"], machine["runtime"]["imageFs"]):
            assert set(disk) == {"time", "availableBytes", "capacityBytes", "usedBytes"}
        assert machine["network"]["name"] == "" and "rxBytes" not in machine["network"]
        assert (
            machine["memory"]["rssBytes"]
            == machine["memory"]["pageFaults"]
            == machine["memory"]["majorPageFaults"]
            == 0
        )
        [pod] = stats["pods"]
        assert "process_stats" not in pod
        [one] = pod["containers"]  # the init container has ended
        assert set(one["memory"]) == {"time", "workingSetBytes"} and "accelerators" not in one
        assert one["cpu"]["usageNanoCores"] >= 0 and one["cpu"]["usageCoreNanoSeconds"] > 0
        memory = pod["memory"]
        assert memory["workingSetBytes"] == one["memory"]["workingSetBytes"]
        assert not any(
            memory[name] for name in ("availableBytes", "usageBytes", "rssBytes", "pageFaults")
        )
        [card] = pod["network"]["interfaces"]
        assert (
            set(card) == {"name", "rxBytes", "txBytes"} and card["name"] == pod["network"]["name"]
        )
        assert card["name"].startswith(node.runtime.sandboxes()[0].id + "_")
        if flavour == "docker":
            assert one["rootfs"]["usedBytes"] == 0  # layers are not measured there


@pytest.mark.windows("LIFE-01")
async def test_usage_of_pods_follows_what_they_do(node: Any) -> None:
    async with node("windows") as node:
        metadata = simulation_annotations(cpu="0s=100m,60s=1", memory="0s=100Mi,60s=400Mi")
        await node.create("p", metadata=metadata, containers=[container()])
        await running(node)
        seen = []
        for _ in range(2):
            summary(node)
            await node.settle(30)
            summary(node)
            await node.settle(11)
            [pod] = summary(node)["pods"]
            seen.append(
                (
                    round(pod["cpu"]["usageNanoCores"] / 1e9, 1),
                    pod["memory"]["workingSetBytes"] >> 20,
                )
            )
            await node.settle(30)
        assert seen == [(0.1, 100), (1.0, 400)]


# ---- logs ----


@pytest.mark.windows("API-07", "LIFE-01")
@flavours
async def test_logs_lie_under_c_var_log_pods(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create("p", restartPolicy="OnFailure", containers=[cmd("echo hello & exit 1")])
        pod = await until(
            node,
            "p",
            lambda pod: (
                (pod["status"].get("containerStatuses") or [{}])[0].get("restartCount") == 1
            ),
        )
        path = in_runtime(node, pod).log_path
        folder = f"C:\\var\\log\\pods\\default_p_{pod['metadata']['uid']}\\c"
        assert path.lower().startswith(folder.lower()) and "/" not in path
        assert {"0.log", "1.log"} & set(node.host.files.listdir(folder))
        line = node.host.files.read(path).decode().splitlines()[0]
        assert (
            line.split(" ", 3)[1:3] == ["stdout", "F"]
            and log(node, pod, attempt=1).strip() == "hello"
        )


# ---- port forwarding ----


@pytest.mark.windows("TRB-113", "TRB-114", "TRB-115", "LNET-19", "WIN-NODE-006", "WIN-NODE-007")
@pytest.mark.parametrize(
    ("flavour", "version", "pause", "text"),
    [
        ("docker", "v1.20.15", "mcr.microsoft.com/oss/kubernetes/pause:1.4.1", ""),
        ("docker", "v1.17.17", "mcr.microsoft.com/k8s/core/pause:1.2.0", ""),
        (
            "docker",
            "v1.14.10",
            "mcr.microsoft.com/k8s/core/pause:1.2.0",
            "unable to do port forwarding: socat not found.",
        ),
        ("containerd", "v1.20.15", "mcr.microsoft.com/oss/kubernetes/pause:1.4.1", ""),
        (
            "docker",
            "v1.20.15",
            "kubeletwin/pause",
            "container {id} encountered an error during hcsshim::System::CreateProcess: "
            "failure in a Windows system call: "
            "The system cannot find the file specified. (0x2): ",
        ),
        (
            "containerd",
            "v1.20.15",
            "kubeletwin/pause",
            (
                "hcs::System::CreateProcess {id}: The system cannot find the file specified.: "
                "unknown: "
            ),
        ),
        ("docker", "v1.20.15", "example.com/own-pause", ""),
    ],
)
async def test_ports_are_forwarded_by_wincat_of_the_pause_image(
    node: Any, flavour: str, version: str, pause: str, text: str
) -> None:
    own = (
        "images: [{name: example.com/own-pause, windows: [17763], program: pause, options: "
        "{wincat: 'true'}}]"
    )

    async with node(
        "windows",
        flavour=flavour,
        version=version,
        pod_infra_image=pause,
        runtime={"catalogue": catalogue_with(own, "own")},
    ) as node:
        await node.create("p", containers=[{"name": "c", "image": IIS}])
        sandbox = meant(node, await running(node)).id
        if not text:
            (await do(node, dial_sandbox(node.kubelet.env, sandbox, 80))).close()
            return
        with pytest.raises(RuntimeFailure) as failed:
            await do(node, dial_sandbox(node.kubelet.env, sandbox, 80))
        assert failed.value.description == text.format(id=sandbox)


@pytest.mark.windows("TRB-114")
@flavours
async def test_a_port_without_listener(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create("p", containers=[container()])
        sandbox = meant(node, await running(node)).id
        with pytest.raises(RuntimeFailure, match="because the target machine actively refused it"):
            await do(node, dial_sandbox(node.kubelet.env, sandbox, 8080))


# ---- faults ----


@pytest.mark.windows("POD-02")
@flavours
async def test_pods_come_back_after_a_reboot(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create("p", containers=[container()])
        pod = await running(node)
        await node.stop_kubelet()
        node.host.reboot()
        await node.start_kubelet()
        again = await until(
            node, "p", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1, 60
        )
        assert again["metadata"]["uid"] == pod["metadata"]["uid"]
        assert again["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 255
        await running(node)


@pytest.mark.windows("POD-02")
@flavours
async def test_a_kubelet_that_comes_back_finds_its_pods(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create("p", containers=[container()])
        pod = await running(node)
        identity = in_runtime(node, pod).id
        await node.stop_kubelet()
        await node.start_kubelet()
        await node.settle(10)
        pod = await node.pod("p")
        assert (
            in_runtime(node, pod).id == identity
            and pod["status"]["containerStatuses"][0]["restartCount"] == 0
        )
        await node.create("q", restartPolicy="Never", containers=[cmd("echo hi")])
        assert log(node, await ended(node, "q")) == "hi"
