"""A cluster of real processes, and faults in it by seed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.jepsen.history import HistoryChecker
from tests.jepsen.workload import (
    MAPS,
    SERVICES,
    ConnectionClient,
    History,
    Watcher,
    WorkloadClient,
    revision_of,
)

from transom.client.kubeconfig import RestConfig, load_kubeconfig
from transom.kit.rpc import RpcError
from transom.store.etcd import wire
from transom.store.etcd.client import EtcdClient, parse_etcd_address

_CLIENTS = 6
_HEAL_SECONDS = 60.0


class FaultCluster:
    """`transom up --servers N` in a folder of its own, without nodes."""

    def __init__(self, folder: Path, servers: int = 3) -> None:
        self._folder = folder
        self._env = os.environ | {"XDG_DATA_HOME": str(folder / "home"), "HOME": str(folder)}
        self._kubeconfig = folder / "kubeconfig"
        self._servers = servers

    def _run(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "transom.cli.main", *args]
        return subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=180)

    def start(self) -> None:
        done = self._run(
            "up",
            "--no-nodes",
            f"--servers={self._servers}",
            "--kubeconfig",
            str(self._kubeconfig),
        )
        if done.returncode:
            raise RuntimeError(done.stderr)

    def delete(self) -> None:
        self._run("delete")

    def processes(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._run("status", "--output", "json").stdout)
        servers: dict[str, Any] = found["servers"]
        return servers

    def log(self) -> str:
        return (self._folder / "home" / "transom" / "transom" / "transom.log").read_text()

    def balancer(self) -> RestConfig:
        return load_kubeconfig(self._kubeconfig)

    def targets(self) -> list[RestConfig]:
        """Each server itself."""
        base = self.balancer()
        return [
            replace(base, port=int(one["address"].rpartition(":")[2]))
            for one in self.processes()["servers"]
        ]

    def etcd(self) -> EtcdClient:
        state = self._folder / "home" / "transom" / "transom"
        return EtcdClient(
            parse_etcd_address(json.loads((state / "cluster.json").read_text())["store"])
        )


class FaultInjector:
    """One fault at a time: each ends before the next begins, so that etcd keeps its quorum."""

    def __init__(self, cluster: FaultCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self.story: list[str] = []
        self._paused: set[int] = set()

    async def run(self, until: asyncio.Event) -> None:
        faults = (
            (self._kill_server, 3),
            (self._end_server, 2),
            (self._pause_server, 3),
            (self._kill_member, 3),
            (self._pause_member, 2),
            (self._compact, 3),
        )
        while not until.is_set():
            await asyncio.sleep(0.5 + 2.0 * self._rng.random())
            fault = self._rng.choices([f for f, _ in faults], [w for _, w in faults])[0]
            await fault()

    async def _pid(self, group: str) -> tuple[str, int | None]:
        found = await asyncio.to_thread(self._cluster.processes)
        one = self._rng.choice(found[group])
        return one["name"], one["pid"]

    def _tell(self, text: str) -> None:
        self.story.append(text)

    def _signal(self, pid: int | None, number: signal.Signals) -> None:
        if pid is not None:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                self._tell(f"process {pid} was gone")

    async def _kill_server(self) -> None:
        name, pid = await self._pid("servers")
        self._tell(f"kill -9 {name}")
        self._signal(pid, signal.SIGKILL)

    async def _end_server(self) -> None:
        name, pid = await self._pid("servers")
        self._tell(f"end {name}")
        self._signal(pid, signal.SIGTERM)

    async def _pause_server(self) -> None:
        await self._pause("servers", 1.0 + 4.0 * self._rng.random())

    async def _kill_member(self) -> None:
        name, pid = await self._pid("etcd")
        self._tell(f"kill -9 {name}")
        self._signal(pid, signal.SIGKILL)
        await asyncio.sleep(2.0)  # it is back before another member fails

    async def _pause_member(self) -> None:
        await self._pause("etcd", 0.5 + 3.0 * self._rng.random())

    async def _pause(self, group: str, seconds: float) -> None:
        name, pid = await self._pid(group)
        self._tell(f"pause {name} for {seconds:.1f} s")
        self._signal(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._signal(pid, signal.SIGCONT)

    async def _compact(self) -> None:
        client = self._cluster.etcd()
        try:
            newest = await client.range(wire.range_request(b"/registry/x", count_only=True))
            self._tell(f"compact to {newest.revision}")
            await client.compact(newest.revision)
        except RpcError as problem:
            self._tell(f"compaction: {problem}")
        finally:
            await client.close()


async def play_seed(cluster: FaultCluster, seed: int, seconds: float) -> tuple[History, list[str]]:
    """Runs clients and faults, waits until the cluster is whole again, and checks the history.
    Returns it with the violations, which include what the faults were.
    """
    rng = random.Random(seed)
    namespace = f"seed-{seed}-{int(time.time())}"
    history = History([], [])
    balancer = [cluster.balancer()]
    targets = await asyncio.to_thread(cluster.targets)
    admin = ConnectionClient(balancer, rng)
    await _until_done(admin, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    done = asyncio.Event()
    end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    watchers = [
        Watcher(name, namespace, resource, where, random.Random(rng.random()), history)
        for resource in (MAPS, SERVICES)
        for name, where in (
            ("balancer", balancer),
            *((f"server-{number}", [one]) for number, one in enumerate(targets, 1)),
        )
    ]
    following = [asyncio.create_task(one.run(end)) for one in watchers]
    # The order of changes is known from the first one on only if the watches begin before it.
    await asyncio.gather(*(one.listed.wait() for one in watchers))
    clients = [
        WorkloadClient(
            f"c{number}",
            namespace,
            ConnectionClient(targets if number % 2 else balancer, random.Random(rng.random())),
            random.Random(rng.random()),
            history,
        )
        for number in range(_CLIENTS)
    ]
    running = [asyncio.create_task(one.run(done)) for one in clients]
    injector = FaultInjector(cluster, random.Random(rng.random()))
    faults = asyncio.create_task(injector.run(done))
    await asyncio.sleep(seconds)
    done.set()
    await asyncio.gather(*running, faults)
    violations = []
    body = {"metadata": {"name": "end"}}  # it has no value, and is not part of the history
    made = await _until_done(admin, "POST", f"/api/v1/namespaces/{namespace}/{MAPS}", body)
    service = {"metadata": {"name": "end"}, "spec": {"ports": [{"port": 1}]}}
    last = await _until_done(admin, "POST", f"/api/v1/namespaces/{namespace}/{SERVICES}", service)
    end.set_result(min(revision_of(made), revision_of(last)))
    _, late = await asyncio.wait(following, timeout=_HEAL_SECONDS)
    for task in late:
        task.cancel()
        violations.append(f"a watch did not continue after the faults: {task}")
    await asyncio.gather(*following, return_exceptions=True)
    violations += HistoryChecker(history.operations, history.watches).check()
    await _until_done(admin, "DELETE", f"/api/v1/namespaces/{namespace}")
    admin.close()
    if violations:
        violations.append(f"seed {seed}: {'; '.join(injector.story)}")
    return history, violations


async def _until_done(client: ConnectionClient, method: str, path: str, body: Any = None) -> Any:
    """Repeats a call of the test itself until it succeeds."""
    deadline = time.monotonic() + _HEAL_SECONDS
    while True:
        try:
            status, found = await client.call(method, path, body)
            if status < 300:
                return found
            if status == 409:
                name = body["metadata"]["name"]
                return (await client.call("GET", f"{path}/{name}"))[1]
        except OSError:
            status = 0
        if time.monotonic() > deadline:
            raise TimeoutError(f"{method} {path}: {status}")
        await asyncio.sleep(0.2)
