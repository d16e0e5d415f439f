"""A cluster of real processes, and faults in it by seed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.jepsen.history import HistoryChecker
from tests.jepsen.members import EtcdMember, NamespacedEtcd
from tests.jepsen.oracle import EtcdOracle
from tests.jepsen.workload import (
    MAPS,
    SERVICES,
    TEMPLATES,
    ConnectionClient,
    History,
    Watcher,
    WorkloadClient,
    WorkloadSize,
    describe_object,
    pod_template,
    revision_of,
)

from transom.client.kubeconfig import RestConfig, load_kubeconfig
from transom.cluster.ha.sockets import connect_unix
from transom.cluster.ha.supervisor import CONTROL
from transom.kit.rpc import RpcError
from transom.store.etcd.client import EtcdClient, parse_etcd_address

CLIENTS = 12
_HEAL_SECONDS = 60.0
_SKEW_SOURCE = Path(__file__).with_name("skew.c")


class FaultCluster:
    """`transom up --servers N` in a folder of its own, without nodes. `etcd`: the members that it uses;
    by default it starts its own.
    """

    def __init__(self, folder: Path, servers: int = 3, etcd: NamespacedEtcd | None = None) -> None:
        self._folder = folder
        self._env = os.environ | {
            "XDG_DATA_HOME": str(folder / "home"),
            "HOME": str(folder),
            "TRANSOM_NAME": "transom",
        }
        self._kubeconfig = folder / "kubeconfig"
        self._servers = servers
        self.etcd = etcd
        self._skew = folder / "skew"
        self.can_skew = self._build_skew()
        if self.can_skew:
            self._env |= {"SKEW_FOLDER": str(self._skew), "LD_PRELOAD": str(self._skew / "skew.so")}

    def _build_skew(self) -> bool:
        """Whether the clocks of the servers can be shifted: that needs a C compiler."""
        compiler = shutil.which("gcc")
        if compiler is None:
            return False
        self._skew.mkdir()
        command = [compiler, "-shared", "-fPIC", "-o", str(self._skew / "skew.so")]
        subprocess.run([*command, str(_SKEW_SOURCE)], check=True, timeout=60)
        return True

    def skew(self, pid: int, seconds: float) -> None:
        """Shifts the wall clock of a server, for as long as it runs."""
        (self._skew / str(pid)).write_bytes(struct.pack("q", int(seconds * 1e9)))

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
            *(["--store", self.etcd.url] if self.etcd is not None else []),
        )
        if done.returncode:
            raise RuntimeError(done.stderr)

    def delete(self) -> None:
        self._run("delete")

    @property
    def _state(self) -> Path:
        return self._folder / "home" / "transom" / "transom"

    def processes(self) -> dict[str, Any]:
        """As `transom status` asks for them, without a process for each question."""
        with connect_unix(self._state / CONTROL, 30.0) as sock, sock.makefile("rwb") as file:
            file.write(b'{"command": "status"}\n')
            file.flush()
            servers: dict[str, Any] = json.loads(file.readline())
        if self.etcd is not None:
            servers["etcd"] = [{"name": one.name, "pid": one.pid} for one in self.etcd.members]
        return servers

    def log(self) -> str:
        return (self._state / "transom.log").read_text()

    def balancer(self) -> RestConfig:
        return load_kubeconfig(self._kubeconfig)

    def targets(self) -> list[RestConfig]:
        """Each server itself."""
        base = self.balancer()
        return [
            replace(base, port=int(one["address"].rpartition(":")[2]))
            for one in self.processes()["servers"]
        ]

    def etcd_client(self) -> EtcdClient:
        store = json.loads((self._state / "cluster.json").read_text())["store"]
        return EtcdClient(parse_etcd_address(store))


class FaultInjector:
    """One fault at a time: each ends before the next begins. Those of single members leave etcd its
    quorum.
    """

    def __init__(self, cluster: FaultCluster, oracle: EtcdOracle, rng: random.Random) -> None:
        self._cluster = cluster
        self._oracle = oracle
        self._rng = rng
        self.story: list[str] = []
        self._paused: set[int] = set()

    async def run(self, until: asyncio.Event) -> None:
        faults: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self._kill_server, 2),
            (self._end_server, 2),
            (self._pause_server, 3),
            (self._kill_member, 3),
            (self._pause_member, 2),
            (self._kill_all_members, 1),
            (self._pause_quorum, 1),
            (self._compact, 3),
        ]
        if self._cluster.can_skew:
            faults.append((self._skew_clock, 2))
        if (etcd := self._cluster.etcd) is not None:
            faults += [
                (lambda: self._move_leader(etcd), 3),
                (lambda: self._partition(etcd), 3),
                (lambda: self._slow_disk(etcd), 2),
                (lambda: self._full_disk(etcd), 1),
            ]
        while not until.is_set():
            await asyncio.sleep(0.5 + 3.0 * self._rng.random())
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

    async def _kill_all_members(self) -> None:
        """Power loss of all of etcd: what was acknowledged is on its disks."""
        found = await asyncio.to_thread(self._cluster.processes)
        self._tell("kill -9 all of etcd")
        for one in found["etcd"]:
            self._signal(one["pid"], signal.SIGKILL)
        await asyncio.sleep(4.0)

    async def _pause_quorum(self) -> None:
        found = await asyncio.to_thread(self._cluster.processes)
        seconds = 1.0 + 4.0 * self._rng.random()
        self._tell(f"pause two members for {seconds:.1f} s")
        chosen = self._rng.sample(found["etcd"], 2)
        for one in chosen:
            self._signal(one["pid"], signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            for one in chosen:
                self._signal(one["pid"], signal.SIGCONT)

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

    async def _skew_clock(self) -> None:
        """The clock stays wrong until the server ends or another skew follows."""
        name, pid = await self._pid("servers")
        seconds = self._rng.choice((-1, 1)) * 10.0 ** (3 * self._rng.random() - 1)
        self._tell(f"clock of {name} {seconds:+.1f} s")
        if pid is not None:
            self._cluster.skew(pid, seconds)

    async def _move_leader(self, etcd: NamespacedEtcd) -> None:
        one = self._rng.choice(etcd.members)
        moved = await asyncio.to_thread(etcd.move_leader, one)
        self._tell(f"leader moved to {one.name}: {moved}")

    async def _partition(self, etcd: NamespacedEtcd) -> None:
        """Half of the time of the leader; a member that its clients still reach is the harder case."""
        one: EtcdMember | None = None
        if self._rng.random() < 0.5:
            one = await asyncio.to_thread(etcd.leader)
        one = one or self._rng.choice(etcd.members)
        clients = self._rng.random() < 0.4
        seconds = 1.0 + 5.0 * self._rng.random()
        self._tell(f"cut off {one.name} for {seconds:.1f} s, clients too: {clients}")
        try:
            await asyncio.to_thread(etcd.partition, one, clients=clients)
            await asyncio.sleep(seconds)
        finally:
            await asyncio.to_thread(etcd.heal)
        await asyncio.sleep(1.0)

    async def _slow_disk(self, etcd: NamespacedEtcd) -> None:
        one = self._rng.choice(etcd.members)
        delay, seconds = 0.01 + 0.5 * self._rng.random() ** 2, 1.0 + 4.0 * self._rng.random()
        self._tell(f"fsync of {one.name} takes {delay:.2f} s, for {seconds:.1f} s")
        with etcd.slow_disk(one, delay):
            await asyncio.sleep(seconds)

    async def _full_disk(self, etcd: NamespacedEtcd) -> None:
        one = self._rng.choice(etcd.members)
        seconds = 1.0 + 4.0 * self._rng.random()
        before = one.restarts
        await asyncio.to_thread(etcd.fill, one)
        try:
            await asyncio.sleep(seconds)
        finally:
            etcd.free(one)
        self._tell(f"full disk of {one.name}, {one.restarts - before} restarts")
        await asyncio.sleep(2.0)

    async def _compact(self) -> None:
        """To the newest revision: servers that are cut off lose the history in between."""
        client = self._cluster.etcd_client()
        self._tell(f"compact to {self._oracle.revision}")
        try:
            await client.compact(self._oracle.revision)
        except RpcError as problem:
            self._tell(f"compaction: {problem}")
        finally:
            await client.close()


async def play_seed(
    cluster: FaultCluster, seed: int, seconds: float, clients: int = CLIENTS
) -> tuple[History, list[str]]:
    """Runs clients and faults, waits until the cluster is whole again, and checks the history.
    Returns it with the violations, which include what the faults were.
    """
    size = WorkloadSize.for_clients(clients)
    rng = random.Random(seed)
    namespace = f"seed-{seed}-{int(time.time())}"
    history = History([], [])
    balancer = [cluster.balancer()]
    targets = await asyncio.to_thread(cluster.targets)
    admin = ConnectionClient(balancer, rng)
    await _until_done(admin, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    quota = {
        "metadata": {"name": "templates"},
        "spec": {"hard": {f"count/{TEMPLATES}": str(size.quota)}},
    }
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    await _until_done(admin, "POST", path, quota)
    # As in Kubernetes, a quota limits nothing until the controller has written its status.
    await _until_done(admin, "GET", f"{path}/templates", found=lambda one: "hard" in one["status"])
    keeper = None if cluster.etcd is None else asyncio.create_task(cluster.etcd.keep())
    client = cluster.etcd_client()
    folders = {
        f"/registry/{folder}/{namespace}": resource
        for resource, folder in ((MAPS, MAPS), (SERVICES, "services/specs"), (TEMPLATES, TEMPLATES))
    }
    oracle = EtcdOracle(client, folders, describe_object)
    await oracle.start()
    knowing = asyncio.create_task(oracle.run())
    done = asyncio.Event()
    end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    watchers = [
        Watcher(name, namespace, resource, where, random.Random(rng.random()), history)
        for resource in (MAPS, SERVICES, TEMPLATES)
        for name, where in (
            ("balancer", balancer),
            *((f"server-{number}", [one]) for number, one in enumerate(targets, 1)),
        )
    ]
    following = [asyncio.create_task(one.run(end)) for one in watchers]
    # The order of changes is known from the first one on only if the watches begin before it.
    await asyncio.gather(*(one.listed.wait() for one in watchers))
    workers = [
        WorkloadClient(
            f"c{number}",
            namespace,
            size,
            ConnectionClient(targets if number % 2 else balancer, random.Random(rng.random())),
            random.Random(rng.random()),
            history,
        )
        for number in range(clients)
    ]
    running = [asyncio.create_task(one.run(done)) for one in workers]
    injector = FaultInjector(cluster, oracle, random.Random(rng.random()))
    faults = asyncio.create_task(injector.run(done))
    await asyncio.sleep(seconds)
    done.set()
    await asyncio.gather(*running, faults)
    violations = []
    # Objects without a value are not part of the history.
    lasts = []
    await _until_done(admin, "DELETE", f"{path}/templates")
    for resource, spec in (
        (MAPS, {}),
        (SERVICES, {"spec": {"ports": [{"port": 1}]}}),
        (TEMPLATES, {"template": pod_template()}),
    ):
        url = f"/api/v1/namespaces/{namespace}/{resource}"
        lasts.append(await _until_done(admin, "POST", url, {"metadata": {"name": "end"}, **spec}))
    end.set_result(min(revision_of(one) for one in lasts))
    _, late = await asyncio.wait(following, timeout=_HEAL_SECONDS)
    for task in late:
        task.cancel()
        violations.append(f"a watch did not continue after the faults: {task}")
    await asyncio.gather(*following, return_exceptions=True)
    # Calls without an answer may still have changed something after the end.
    await oracle.wait_for(
        max(
            (
                end.result(),
                *(one.revision for one in history.operations),
                *(one.last for one in watchers),
            )
        )
    )
    knowing.cancel()
    await asyncio.gather(knowing, return_exceptions=True)
    await client.close()
    history.watches.append(oracle.log)
    limits = {f"{TEMPLATES}/": size.quota}
    violations += HistoryChecker(history.operations, history.watches, limits).check()
    await _until_done(admin, "DELETE", f"/api/v1/namespaces/{namespace}")
    admin.close()
    if keeper is not None:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
    history.faults += injector.story
    if violations:
        violations.append(f"seed {seed}: {'; '.join(injector.story)}")
    return history, violations


def kind_of_fault(text: str) -> str:
    """Without the number of the process and the times."""
    return re.sub(r"(-\d)? (for .*|takes .*|to \d+|[+-][\d.]+ s|.*restarts)$", "", text).strip()


async def _until_done(
    client: ConnectionClient,
    method: str,
    path: str,
    body: Any = None,
    found: Callable[[Any], bool] = lambda _: True,
) -> Any:
    """Repeats a call of the test itself until it succeeds."""
    deadline = time.monotonic() + _HEAL_SECONDS
    while True:
        try:
            status, answer = await client.call(method, path, body)
            if status < 300 and found(answer):
                return answer
            if status == 404 and method == "DELETE":
                return answer  # of an attempt without an answer
            if status == 409:
                name = body["metadata"]["name"]
                return (await client.call("GET", f"{path}/{name}"))[1]
        except OSError:
            status = 0
        if time.monotonic() > deadline:
            raise TimeoutError(f"{method} {path}: {status}")
        await asyncio.sleep(0.2)
