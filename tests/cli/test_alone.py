"""`transom controller-manager` in its own process, for a cluster without address ranges."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transom.client.api import ApiClient
from transom.client.http import HttpClient
from transom.client.kubeconfig import load_kubeconfig
from transom.client.resources import NODES, SERVICES, GroupVersionResource
from transom.kit.clock import RealClock
from transom.machinery.objects import Object

COMMAND = [sys.executable, "-m", "transom.cli.main", "controller-manager"]


async def until(
    client: ApiClient, resource: GroupVersionResource, there: Callable[[Object], Any]
) -> Any:
    """What `there` finds in the first object that has it."""
    listed = await client.list(resource)
    found = next(filter(None, map(there, listed.items)), None)
    if found is None:
        watch = await client.watch(resource, resource_version=listed.resource_version)
        while not found:
            found = next(filter(None, (there(obj) for _, obj in await watch.next())), None)
        watch.close()
    return found


@pytest.mark.e2e
def test_it_gives_ranges_and_addresses(fresh_cluster: Any) -> None:
    options = [
        "--kubeconfig",
        str(fresh_cluster.kubeconfig),
        "--controllers=nodeipam,service",
        "--leader-elect=false",
        "--allocate-node-cidrs=true",
        "--cluster-cidr=10.9.0.0/24",
        "--service-cluster-ip-range=10.9.0.0/26",
        "--node-cidr-mask-size=26",
        "--load-balancer-cidr=127.9.0.4/32",
    ]

    async def scenario() -> None:
        client = HttpClient(load_kubeconfig(fresh_cluster.kubeconfig), RealClock())
        async with asyncio.timeout(60):
            await client.create(NODES, "", {"metadata": {"name": "n"}})
            await client.create(
                SERVICES,
                "default",
                {
                    "metadata": {"name": "s"},
                    "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
                },
            )
            assert (
                await until(client, NODES, lambda node: node["spec"].get("podCIDR"))
                == "10.9.0.64/26"
            )
            assert await until(
                client, SERVICES, lambda service: service["status"]["loadBalancer"].get("ingress")
            ) == [{"ip": "127.9.0.4"}]
        await client.close()

    with subprocess.Popen(
        [*COMMAND, *options], env=fresh_cluster.env, stderr=subprocess.PIPE, text=True
    ) as manager:
        try:
            asyncio.run(scenario())
        finally:
            manager.send_signal(signal.SIGTERM)
            _, printed = manager.communicate(timeout=30)
    assert manager.returncode == 0, printed


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        (["--allocate-node-cidrs"], "Must specify --cluster-cidr if --allocate-node-cidrs is set"),
        (["--leader-elect=perhaps"], "--leader-elect must be true or false, not 'perhaps'"),
        (
            ["--service-account-private-key-file=/nowhere"],
            "/nowhere cannot be read: No such file or directory",
        ),
    ],
)
def test_what_it_refuses(
    options: list[str], printed: str, tmp_path: Path, isolated_environment: dict[str, str]
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}], contexts: [{name: "
        "x, context: {cluster: c}}],"
        " current-context: x}"
    )
    done = subprocess.run(
        [*COMMAND, f"--kubeconfig={kubeconfig}", *options],
        env=isolated_environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0 and printed in done.stderr
