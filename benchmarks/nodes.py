"""Nodes and pods in one process: how soon they are ready, how many pods a second get to run, what
it costs in memory.

    .venv/bin/python benchmarks/nodes.py --nodes 1000 --pods 10000

Everything runs in this process: API server on disk, controllers, scheduler, kubelets on simulated
machines.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from dataclasses import replace
from typing import Any

import uvloop

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ApiServer, ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.resources import DEPLOYMENTS
from transom.cluster import config as configs
from transom.cluster import daemon, pki, run
from transom.cluster.options import LARGE_POD_CIDR
from transom.kit.process import tune_process
from transom.node.spec import demo_specs

DEPLOYMENTS_MADE = 10
LONGEST = 300.0


def megabytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() >> 20


def processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def deployment(name: str, replicas: int) -> dict[str, Any]:
    pod = {"containers": [{"name": "c", "image": "k8s.gcr.io/pause:3.2"}]}
    labels = {"app": name}
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


async def measure(
    config: configs.ClusterConfig,
    keys: pki.ClusterPki,
    sockets: Any,
    servers: list[ApiServer],
    pods: int,
) -> None:
    ready = asyncio.Event()
    began = time.perf_counter()

    def report(text: str) -> None:
        if not text:
            ready.set()

    stopping = asyncio.Event()
    cluster = asyncio.create_task(run.serve_cluster(config, keys, sockets, report, stopping))
    await ready.wait()
    print(
        f"nodes ready     {time.perf_counter() - began:8.2f} s   CPU {processor():6.2f} s   "
        f"RSS {megabytes()} MiB"
    )
    await asyncio.sleep(3)  # the scheduler begins
    client = InProcessClient(servers[0], UserInfo("admin", ("system:masters",)))
    began, before = time.perf_counter(), processor()
    for number in range(DEPLOYMENTS_MADE):
        await client.create(
            DEPLOYMENTS, "default", deployment(f"d{number}", pods // DEPLOYMENTS_MADE)
        )
    running = 0
    while (
        running < pods // DEPLOYMENTS_MADE * DEPLOYMENTS_MADE
        and time.perf_counter() - began < LONGEST
    ):
        await asyncio.sleep(0.25)
        found = (await client.list(DEPLOYMENTS, "default")).items
        running = sum((item.get("status") or {}).get("readyReplicas", 0) for item in found)
    took, cost = time.perf_counter() - began, processor() - before
    print(
        f"pods running    {took:8.2f} s   {running / took:.0f}/s   CPU "
        f"{cost * 1000 / running:.2f} ms a pod   "
        f"RSS {megabytes()} MiB"
    )
    stopping.set()
    await cluster


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--windows", type=int, default=0, help="so many of them")
    parser.add_argument("--pods", type=int, default=10000)
    args = parser.parse_args()
    servers: list[ApiServer] = []

    def building(options: ServerOptions) -> ApiServer:
        servers.append(build_api_server(options))
        return servers[-1]

    vars(run)["build_api_server"] = building
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_DATA_HOME"] = folder
        config = configs.ClusterConfig(name="bench", pod_cidr=LARGE_POD_CIDR)
        sockets = daemon.open_sockets(config)
        config = replace(config, port=sockets[0].getsockname()[1])
        configs.save_config(config)
        keys = pki.ensure_cluster_pki(config)
        configs.save_nodes(
            config,
            demo_specs(config, args.nodes - 1 - args.windows, args.windows, None, taint=True),
        )
        tune_process()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(measure(config, keys, sockets, servers, args.pods))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
