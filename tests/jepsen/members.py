"""Three members of etcd, each in a network namespace and with a file system of its own, so that they can be
cut off from each other and run out of space. Needs root.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transom.kit.process import end_with_parent

_COUNT = 3
_DISK_MIB = 512
_CLIENT_PORT, _PEER_PORT = 2379, 2380
_RESTART_SECONDS = 0.3
_START_SECONDS = 30.0
_PROGRAMS = ("etcd", "etcdctl", "ip", "mount", "umount", "strace")


def missing_for_namespaces() -> str:
    """Why members cannot have namespaces on this machine; empty if they can."""
    if os.geteuid() != 0:
        return "not root"
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    return f"{', '.join(missing)} not installed" if missing else ""


def _run(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


class EtcdMember:
    def __init__(self, number: int, folder: Path, subnet: str, tag: str) -> None:
        self.name = f"etcd-{number}"
        self.address = f"{subnet}.{10 + number}"
        self.namespace = f"{tag}-{number}"
        self.link = f"{tag}v{number}"
        self.folder = folder / self.name
        self.restarts = -1
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def client(self) -> str:
        return f"http://{self.address}:{_CLIENT_PORT}"

    @property
    def peer(self) -> str:
        return f"http://{self.address}:{_PEER_PORT}"

    def launch(self, cluster: str) -> None:
        self.restarts += 1
        with (self.folder.parent / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("ip", "netns", "exec", self.namespace, "etcd", "--name", self.name),
                    *("--data-dir", str(self.folder / "data"), "--logger", "zap"),
                    *("--listen-client-urls", self.client, "--advertise-client-urls", self.client),
                    *("--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer),
                    *("--initial-cluster", cluster, "--log-level", "warn"),
                ],
                stdout=log,
                stderr=log,
                preexec_fn=end_with_parent,
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def in_namespace(self, *command: str, check: bool = True) -> str:
        return _run("ip", "netns", "exec", self.namespace, *command, check=check)


class NamespacedEtcd:
    """All members, restarted when they end."""

    def __init__(self, folder: Path) -> None:
        number = os.getpid()
        self._bridge = f"tj{number}"
        self._subnet = f"198.18.{number % 250}"
        self._folder = folder
        self.members = [
            EtcdMember(i, folder, self._subnet, self._bridge) for i in range(1, _COUNT + 1)
        ]
        self._cluster = ",".join(f"{one.name}={one.peer}" for one in self.members)

    @property
    def url(self) -> str:
        return f"etcd://{','.join(f'{one.address}:{_CLIENT_PORT}' for one in self.members)}"

    def start(self) -> None:
        _run("ip", "link", "add", self._bridge, "type", "bridge")
        _run("ip", "address", "add", f"{self._subnet}.1/24", "dev", self._bridge)
        _run("ip", "link", "set", self._bridge, "up")
        for one in self.members:
            inside = f"{one.link}i"
            _run("ip", "netns", "add", one.namespace)
            _run("ip", "link", "add", one.link, "type", "veth", "peer", "name", inside)
            _run("ip", "link", "set", one.link, "master", self._bridge, "up")
            _run("ip", "link", "set", inside, "netns", one.namespace)
            one.in_namespace("ip", "address", "add", f"{one.address}/24", "dev", inside)
            one.in_namespace("ip", "link", "set", inside, "up")
            one.in_namespace("ip", "link", "set", "lo", "up")
            one.folder.mkdir(parents=True)
            size = f"size={_DISK_MIB}m"
            _run("mount", "-t", "tmpfs", "-o", size, self._bridge, str(one.folder))
            one.launch(self._cluster)
        deadline = time.monotonic() + _START_SECONDS
        while self.leader() is None:
            if time.monotonic() > deadline:
                raise RuntimeError("etcd does not start")
            time.sleep(0.1)

    async def keep(self) -> None:
        while True:
            self.restart_ended()
            await asyncio.sleep(_RESTART_SECONDS)

    def restart_ended(self) -> None:
        for one in self.members:
            if one.pid is None:
                one.launch(self._cluster)

    def stop(self) -> None:
        for one in self.members:
            one.kill()
            _run("umount", str(one.folder), check=False)
            _run("ip", "link", "delete", one.link, check=False)
            _run("ip", "netns", "delete", one.namespace, check=False)
        _run("ip", "link", "delete", self._bridge, check=False)

    # ---- faults ----

    def partition(self, one: EtcdMember, *, clients: bool) -> None:
        """Cuts a member off from the others, and from its clients too if `clients`. Packets are lost
        in both directions.
        """
        for other in self.members:
            if other is not one:
                self._blackhole(one, other.address)
                self._blackhole(other, one.address)
        if clients:
            self._blackhole(one, f"{self._subnet}.1")

    def _blackhole(self, where: EtcdMember, address: str) -> None:
        where.in_namespace("ip", "route", "replace", "blackhole", f"{address}/32")

    def heal(self) -> None:
        addresses = [*(one.address for one in self.members), f"{self._subnet}.1"]
        for where in self.members:
            for address in addresses:
                where.in_namespace("ip", "route", "del", "blackhole", f"{address}/32", check=False)

    def fill(self, one: EtcdMember) -> None:
        """Leaves no space on the disk of a member."""
        with (one.folder / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 20))

    def free(self, one: EtcdMember) -> None:
        (one.folder / "ballast").unlink(missing_ok=True)

    @contextlib.contextmanager
    def slow_disk(self, one: EtcdMember, seconds: float) -> Iterator[None]:
        """Every fsync of the member takes `seconds` longer."""
        pid = one.pid
        if pid is None:
            yield
            return
        delay = f"inject=fsync,fdatasync:delay_enter={int(seconds * 1e6)}"
        tracer = subprocess.Popen(
            [
                *("strace", "-f", "-qq", "-o", "/dev/null", "-p", str(pid)),
                *("-e", "trace=fsync,fdatasync", "-e", delay),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=end_with_parent,
        )
        try:
            yield
        finally:
            tracer.send_signal(signal.SIGTERM)  # detaches
            tracer.wait()

    def leader(self) -> EtcdMember | None:
        for one in self.members:
            status = self._status(one)
            if status and status["header"]["member_id"] == status.get("leader"):
                return one
        return None

    def move_leader(self, to: EtcdMember) -> bool:
        """Whether the leader has given up its role in favour of the member."""
        leader, status = self.leader(), self._status(to)
        if leader is None or status is None or leader is to:
            return False
        target = f"{status['header']['member_id']:x}"
        answer = self._etcdctl(leader, "move-leader", target)
        return "transferred" in answer

    def _status(self, one: EtcdMember) -> Any | None:
        found = self._etcdctl(one, "endpoint", "status", "--write-out=json")
        return json.loads(found)[0]["Status"] if found.startswith("[{") else None

    def _etcdctl(self, one: EtcdMember, *command: str) -> str:
        limits = ("--dial-timeout=1s", "--command-timeout=2s")
        program = ("env", "ETCDCTL_API=3", "etcdctl", f"--endpoints={one.client}")
        return _run(*program, *limits, *command, check=False)
