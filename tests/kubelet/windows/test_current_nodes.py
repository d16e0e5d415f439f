"""Windows nodes of current releases: what pods, containers and the kubelet show."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kubelet.conftest import NODE
from tests.kubelet.windows.windows_pods import (
    cmd,
    container,
    log,
    printed,
    recorded,
    running,
    states,
    until,
)

from transom.client.resources import NODES
from transom.kubelet.kubelet import BadConfiguration
from transom.machinery.releases import Release

CURRENT = Release(1, 36)
SETTINGS: dict[str, Any] = {"flavour": "containerd", "release": CURRENT}
IMAGE = "mcr.microsoft.com/windows/servercore:ltsc2019"
GIB = 1 << 30


@pytest.mark.windows("W-POD-07")
async def test_a_pod_with_the_label_of_another_system_is_rejected(node: Any) -> None:
    async with node("windows", **SETTINGS) as node:
        labels = {"labels": {"kubernetes.io/os": "linux"}}
        await node.create("p", metadata=labels, containers=[container()])
        pod = await until(node, "p", lambda pod: pod["status"]["phase"] == "Failed", 20)
        assert pod["status"]["reason"] == "PodOSSelectorNodeLabelDoesNotMatch"
        assert pod["status"]["message"] == (
            "Pod was rejected: Failed to admit pod as the `kubernetes.io/os` label doesn't match "
            "node label"
        )


@pytest.mark.windows("W-POD-11")
async def test_startup_probes(node: Any) -> None:
    async with node("windows", **SETTINGS) as node:
        probe = {
            "exec": {"command": ["cmd", "/c", "type C:\\ready.txt"]},
            "periodSeconds": 1,
            "failureThreshold": 2,
        }
        await node.create(
            "p", terminationGracePeriodSeconds=1, containers=[container(startupProbe=probe)]
        )
        await until(node, "p", lambda pod: states(pod)[0].get("restartCount") == 1, 30)
        assert "Container c failed startup probe, will be restarted" in await recorded(
            node, "Killing"
        )
        [text, *_] = await recorded(node, "Unhealthy")
        assert text.startswith("Startup probe failed: ")


@pytest.mark.windows("W-POD-19")
async def test_the_host_name_of_a_container_can_be_its_domain_name(node: Any) -> None:
    async with node("windows", **SETTINGS) as node:
        names = {"hostname": "h", "subdomain": "svc", "setHostnameAsFQDN": True}
        await node.create("p", containers=[container()], **names)
        pod = await running(node)
        assert await printed(node, pod, "hostname") == "h.svc.default.svc.cluster.local"
        key = r"HKLM\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters"
        assert "h.svc.default.svc.cluster.local" in await printed(
            node, pod, f"reg query {key} /v hostname"
        )


@pytest.mark.windows("W-POD-21")
async def test_logs_have_what_a_program_prints_not_its_events(node: Any) -> None:
    script = (
        "New-EventLog -LogName Application -Source app; "
        "Write-EventLog -LogName Application -Source app -EventId 1 -Message unseen; "
        "Write-Output seen; Start-Sleep 3600"
    )
    async with node("windows", **SETTINGS) as node:
        await node.create("p", containers=[container("powershell", "-Command", script)])
        pod = await running(node)
        await node.settle(2)
        assert log(node, pod) == "seen"


@pytest.mark.windows("W-OS-10", "WIN-OS-110")
async def test_the_annotation_for_hyper_v_has_no_effect(node: Any) -> None:
    async with node("windows", **SETTINGS) as node:
        key = "experimental.windows.kubernetes.io/isolation-type"
        await node.create("p", metadata={"annotations": {key: "hyperv"}}, containers=[container()])
        pod = await running(node)
        [sandbox] = node.runtime.core.by_uid[pod["metadata"]["uid"]]
        assert not sandbox.isolation.hyperv


@pytest.mark.windows("W-NET-04", "SUP-NET-104")
@pytest.mark.parametrize("minor", [26, 32])
async def test_containerd_ignores_the_alpha_of_host_networks(node: Any, minor: int) -> None:
    """The kubelet requests the network of the node; containerd gives it to HostProcess pods only."""
    gates = {"feature_gates": {"WindowsHostNetwork": True}}
    async with node("windows", flavour="containerd", release=Release(1, minor), **gates) as node:
        await node.create("p", hostNetwork=True, containers=[container()])
        pod = await running(node)
        assert pod["status"]["podIP"] != pod["status"]["hostIP"]
        [sandbox] = node.runtime.sandboxes()
        assert sandbox.config.linux.host_network and sandbox.ips == (pod["status"]["podIP"],)


@pytest.mark.windows("W-OS-15", "SUP-OS-115")
async def test_systeminfo_shows_the_version(node: Any) -> None:
    async with node("windows", **SETTINGS) as node:
        await node.create("p", containers=[container()])
        shown = await printed(node, await running(node), "systeminfo")
        build = node.host.build.number
        assert f"OS Version:                10.0.{build} N/A Build {build}" in shown


@pytest.mark.windows("W-OS-14")
async def test_the_drive_of_a_container_has_20_gb(node: Any) -> None:
    async with node("windows", **SETTINGS) as node:
        volume = {"name": "v", "emptyDir": {}}
        mount = {"name": "v", "mountPath": "C:\\data"}
        await node.create("p", volumes=[volume], containers=[container(volumeMounts=[mount])])
        pod = await running(node)
        free = node.host.disk().available
        shown = await printed(node, pod, "fsutil volume diskfree c:")
        assert f"{20 * GIB:,}" in shown
        await printed(node, pod, "fsutil file createNew C:\\big.bin 1048576")
        assert f"{20 * GIB:,}" in await printed(node, pod, "fsutil volume diskfree c:")
        assert free - node.host.disk().available < GIB


@pytest.mark.windows("W-RES-24")
@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"single_process_oom_kill": False}, "singleProcessOOMKill is not supported on Windows"),
        ({"user_namespace_ids": 65536}, "userNamespaces is not supported on Windows"),
    ],
)
async def test_settings_that_windows_refuses(
    node: Any, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BadConfiguration, match=f"^invalid configuration: {problem}$"):
        async with node("windows", **SETTINGS, **settings):
            pass


@pytest.mark.parametrize(("release", "starts"), [(Release(1, 30), False), (CURRENT, True)])
async def test_cgroups_are_refused_at_first_and_ignored_later(
    node: Any, release: Release, starts: bool
) -> None:
    settings = {"release": release, "cgroups_per_qos": True, "enforce_node_allocatable": ("pods",)}
    try:
        async with node("windows", flavour="containerd", **settings) as node:
            assert (await node.client.get(NODES, "", NODE))["status"]["conditions"]
            assert starts
    except BadConfiguration:
        assert not starts


@pytest.mark.windows("W-RES-17")
async def test_the_swap_behavior_has_no_effect(node: Any) -> None:
    async with node("windows", **SETTINGS, swap_behavior="LimitedSwap") as node:
        await node.create("p", containers=[container()])
        await running(node)
        assert "swap" not in (await node.client.get(NODES, "", NODE))["status"]["nodeInfo"]


@pytest.mark.windows("W-NODE-34", "W-NODE-35", "WIN-NODE-135", "W-NODE-38")
async def test_directories_of_the_kubelet(node: Any) -> None:
    async with node("windows", **SETTINGS, pod_logs_dir="C:\\logs") as node:
        await node.create("p", containers=[cmd("echo here& ping -t localhost")])
        pod = await running(node)
        meta = pod["metadata"]
        path = f"C:\\logs\\default_p_{meta['uid']}\\c\\0.log"
        assert b"here" in node.host.files.read(path)
        kubelet = "C:\\var\\lib\\kubelet"
        assert node.host.files.exists(f"{kubelet}\\plugins_registry")
        below = node.host.files.listdir(kubelet)
        assert "plugins" in below and not [name for name in below if name.endswith(".sock")]
