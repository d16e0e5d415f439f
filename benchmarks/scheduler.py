"""How fast the scheduler decides, without any API server: python benchmarks/scheduler.py [--nodes N] [--pods N]

Each line is one kind of pods on a fresh set of nodes. `decide` is the time from the queue to a chosen node that counts
the pod; `read` is the time to make a pod object known. Both are CPU time: other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from transom.client.api import ObjectList
from transom.client.resources import REPLICA_SETS
from transom.kit.clock import RealClock
from transom.scheduler.errors import SchedulingError
from transom.scheduler.framework import CycleState
from transom.scheduler.pods import PodInfo
from transom.scheduler.scheduler import Scheduler

Pod = dict[str, Any]


class EmptyClient:
    """A client of an empty cluster."""

    async def list(self, *_args: Any, **_options: Any) -> ObjectList:
        return ObjectList([], "0")


def node(i: int) -> Pod:
    has = {"cpu": "32", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    labels = {
        "kubernetes.io/hostname": f"node-{i}",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": f"z{i % 3}",
    }
    return {
        "metadata": {"name": f"node-{i}", "labels": labels},
        "spec": {},
        "status": {"allocatable": has},
    }


def pod(i: int, **spec: Any) -> Pod:
    resources = {
        "requests": {"cpu": "100m", "memory": "100Mi"},
        "limits": {"cpu": "1", "memory": "128Mi"},
    }
    container = {
        "name": "c",
        "image": "registry.example/pause:3.9",
        "ports": [{"containerPort": 80}],
        "resources": resources,
    }
    return {
        "metadata": {
            "name": f"pod-{i}",
            "namespace": "default",
            "uid": f"uid-{i}",
            "labels": {"app": "bench"},
        },
        "spec": {"schedulerName": "default-scheduler", "containers": [container], **spec},
    }


def anti_affinity(i: int) -> Pod:
    term = {
        "labelSelector": {"matchLabels": {"app": "bench"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    return pod(
        i, affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    )


def preferred_affinity(i: int) -> Pod:
    term = {
        "labelSelector": {"matchLabels": {"app": "bench"}},
        "topologyKey": "topology.kubernetes.io/zone",
    }
    entry = {"weight": 10, "podAffinityTerm": term}
    return pod(
        i, affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [entry]}}
    )


def spread(i: int) -> Pod:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "bench"}},
    }
    return pod(i, topologySpreadConstraints=[constraint])


def selector(i: int) -> Pod:
    return pod(i, nodeSelector={"topology.kubernetes.io/zone": f"z{i % 3}"})


def owned(i: int) -> Pod:
    """A pod of a ReplicaSet: spread by default."""
    made = pod(i)
    made["metadata"]["labels"] = {"app": "owned"}
    return made


def unique(i: int) -> Pod:
    """No two pods alike."""
    made = pod(i)
    made["metadata"]["labels"] = {"app": "bench", "statefulset.kubernetes.io/pod-name": f"pod-{i}"}
    made["spec"]["containers"][0]["resources"]["requests"] = {
        "cpu": f"{100 + i % 50}m",
        "memory": f"{100 + i % 70}Mi",
    }
    return made


KINDS: dict[str, Callable[[int], Pod]] = {
    "plain": pod,
    "node selector": selector,
    "of a ReplicaSet": owned,
    "all different": unique,
    "required anti-affinity": anti_affinity,
    "preferred affinity": preferred_affinity,
    "topology spread": spread,
}


def measure(make: Callable[[int], Pod], nodes: int, pods: int) -> tuple[float, float, int]:
    scheduler = Scheduler(EmptyClient(), RealClock(), random.Random(1))  # type: ignore[arg-type]
    for i in range(nodes):
        scheduler.snapshot.set_node(node(i))
    replica_set = {
        "metadata": {"name": "rs", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "owned"}}},
    }
    scheduler.informers(REPLICA_SETS)._put("default/rs", replica_set)
    objects = [make(i) for i in range(pods)]
    profile = scheduler.profiles["default-scheduler"]
    began = time.thread_time()
    infos = [PodInfo(obj) for obj in objects]
    read = time.thread_time()
    bound = 0
    for info in infos:
        try:
            result = scheduler.algorithm.schedule(profile, CycleState(), info)
        except SchedulingError:
            continue
        scheduler.cache.assume_pod(info, result)
        bound += 1
    return (read - began) / pods, (time.thread_time() - read) / pods, bound


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    print(f"{args.nodes} nodes, {args.pods} pods")
    for name, make in KINDS.items():
        if args.only in name:
            pods = min(args.pods, args.nodes) if "anti" in name else args.pods
            read, decide, bound = measure(make, args.nodes, pods)
            times = f"decide {decide * 1e6:6.0f} us   read {read * 1e6:4.1f} us"
            print(f"  {name:<24}{1 / decide:8.0f} pods/s   {times}   {bound} placed")


if __name__ == "__main__":
    asyncio.run(main())
