"""What a container on Linux reads of its own cgroup, before and after a resize, and of the kernel
parameters of its pod.
"""

from __future__ import annotations

from typing import Any

from tests.kubelet.test_kubelet import log, phase, shell

from transom.client.api import STRATEGIC_PATCH
from transom.client.resources import PODS
from transom.machinery.releases import Release

CURRENT = {"flavour": "containerd", "release": Release(1, 36)}
READ = "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu.weight /sys/fs/cgroup/memory.max"
SHOW = f"mount -t cgroup2; {READ} /proc/1/oom_score_adj /proc/self/cgroup; ls /sys/fs/cgroup"
MOUNT = "cgroup on /sys/fs/cgroup type cgroup2 (ro,nosuid,nodev,noexec,relatime)"
UNTIL_RESIZED = f"until grep -q 35000 /sys/fs/cgroup/cpu.max; do sleep 1; done; {READ}; sleep 1000"


def amounts(cpu: str, memory: str) -> dict[str, str]:
    return {"cpu": cpu, "memory": memory}


async def test_a_container_reads_the_limits_of_its_cgroup(node: Any) -> None:
    resources = {"requests": amounts("100m", "20Mi"), "limits": amounts("200m", "30Mi")}
    async with node("linux", **CURRENT) as node:
        await node.create("p", containers=[shell(f"{SHOW}; sleep 1000", resources=resources)])
        shown = log(node, await phase(node, "p", "Running")).splitlines()
        assert shown[:4] == [MOUNT, "20000 100000", "4", str(30 << 20)]
        assert 2 < int(shown[4]) < 1000 and shown[5] == "0::/"
        assert {"cgroup.controllers", "cpu.max", "memory.current"} <= set(shown[6:])


async def test_a_container_without_limits_reads_the_kernel_defaults(node: Any) -> None:
    async with node("linux", **CURRENT) as node:
        await node.create("p", containers=[shell(f"{SHOW}; sleep 1000")])
        shown = log(node, await phase(node, "p", "Running")).splitlines()
        assert shown[1:5] == ["max 100000", "1", "max", "1000"]


async def test_a_resize_changes_the_files(node: Any) -> None:
    resources = {"requests": amounts("20m", "20Mi"), "limits": amounts("20m", "20Mi")}
    async with node("linux", **CURRENT) as node:
        await node.create("p", containers=[shell(UNTIL_RESIZED, resources=resources)])
        await phase(node, "p", "Running")
        changed = {"requests": amounts("350m", "40Mi"), "limits": amounts("350m", "40Mi")}
        body = {"spec": {"containers": [{"name": "c", "resources": changed}]}}
        await node.client.patch(PODS, "default", "p", body, STRATEGIC_PATCH, subresource="resize")
        await node.settle(5)
        shown = log(node, await node.pod("p")).splitlines()
        assert shown == ["35000 100000", "14", str(40 << 20)]


async def test_a_container_reads_the_sysctls_of_its_pod(node: Any) -> None:
    script = "sysctl kernel.shm_rmid_forced; cat /proc/sys/net/ipv4/tcp_syncookies; sleep 1000"
    sysctls = [
        {"name": "kernel.shm_rmid_forced", "value": "1"},
        {"name": "net/ipv4/tcp_syncookies", "value": "0"},
    ]
    async with node("linux", **CURRENT) as node:
        await node.create("p", containers=[shell(script)], securityContext={"sysctls": sysctls})
        shown = log(node, await phase(node, "p", "Running")).splitlines()
        assert shown == ["kernel.shm_rmid_forced = 1", "0"]
