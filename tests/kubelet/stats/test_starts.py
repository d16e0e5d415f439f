"""The counters of started pods and containers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kubelet.test_kubelet import phase, shell

from transom.kit.prometheus import render_metrics
from transom.machinery.releases import Release
from transom.windows.builds import BUILDS

SERVERCORE = "mcr.microsoft.com/windows/servercore:ltsc2022"


def started(node: Any) -> list[str]:
    text = render_metrics(node.kubelet.server.metrics.collect())
    return sorted(line for line in text.split("\n") if line.startswith("kubelet_started_"))


def ping(**more: Any) -> Any:
    return {"name": "c", "image": SERVERCORE, "command": ["ping", "-t", "localhost"], **more}


@pytest.mark.windows("W-HP-33", "W-HP-34")
async def test_host_process_containers_are_counted_apart(node: Any) -> None:
    host = {
        "hostNetwork": True,
        "securityContext": {
            "windowsOptions": {"hostProcess": True, "runAsUserName": "NT AUTHORITY\\SYSTEM"}
        },
    }
    async with node(
        "windows", flavour="containerd", release=Release(1, 36), machine={"build": BUILDS[20348]}
    ) as node:
        await node.create("plain", containers=[ping()])
        await phase(node, "plain", "Running")
        await node.create("host", containers=[ping()], **host)
        await phase(node, "host", "Running")
        await node.create("absent", containers=[ping(imagePullPolicy="Never", image="no")], **host)
        await node.settle(5)
        lines = dict(line.rsplit(" ", 1) for line in started(node))
        errors = 'errors_total{container_type="container",code="ErrImageNeverPull"}'
        assert lines["kubelet_started_pods_total"] == "3"
        failed = int(lines[f"kubelet_started_containers_{errors}"])
        assert failed > 0
        assert lines[f"kubelet_started_host_process_containers_{errors}"] == str(failed)
        assert lines['kubelet_started_containers_total{container_type="container"}'] == str(
            2 + failed
        )
        kind = 'container_type="container"'
        assert lines[f"kubelet_started_host_process_containers_total{{{kind}}}"] == str(1 + failed)


@pytest.mark.parametrize(("release", "known"), [((1, 21), False), ((1, 22), True)])
async def test_older_kubelets_do_not_count_them(node: Any, release: Any, known: bool) -> None:
    async with node("linux", release=Release(*release)) as node:
        await node.create(
            "p",
            initContainers=[shell("true", name="first")],
            containers=[shell("sleep 1000")],
        )
        await phase(node, "p", "Running")
        assert started(node) == (
            [
                'kubelet_started_containers_total{container_type="container"} 1',
                'kubelet_started_containers_total{container_type="init_container"} 1',
                "kubelet_started_pods_total 1",
            ]
            if known
            else []
        )
