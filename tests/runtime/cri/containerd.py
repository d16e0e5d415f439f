"""A containerd of a test's own: its files in a folder, its mounts, processes and network in
namespaces that end with it.

Nothing of this machine is touched but its control groups, and what is made there is taken away
again.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.runtime.cri.registry import BUSYBOX, Registry

from transom.runtime.native import cgroups

_T = TypeVar("_T")
_PLUGINS = Path("/usr/lib/cni")
_PORT = 5000
_GROUP = "/k8s.io"  # where containerd puts what has no parent
_NEW_NETWORK = 0x40000000
_SLEEP = ("/bin/sleep", "2147483647")
_IMAGES = (
    ("library/busybox", "latest", ("/bin/sh",)),
    ("pause", "3.2", _SLEEP),
    ("private/busybox", "1", ("/bin/cat",)),
)
_CONFIG = """
version = 2
root = "{0}/root"
state = "{0}/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.internal.v1.tracing",
]
[grpc]
  address = "{0}/c.sock"
[ttrpc]
  address = "{0}/c.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "k8s.gcr.io/pause:3.2"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{0}/cni"
  [plugins."io.containerd.grpc.v1.cri".registry.mirrors."*"]
    endpoint = ["http://127.0.0.1:{1}"]
"""
_NETWORK = """
{{"cniVersion": "0.4.0", "name": "test", "plugins": [{{"type": "bridge", "bridge": "test0", "isGateway": true,
  "ipam": {{"type": "host-local", "dataDir": "{0}/ipam", "ranges": [[{{"subnet": "10.88.0.0/24"}}]]}}}}]}}
"""
# It comes back when it is killed, unless it is to stay away. To /run and /var/lib containerd, runc
# and CNI write whatever they receive.
_INIT = """
mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/lib && busybox ip link set lo up && mkdir /run/netns || exit 1
while :; do [ -e {0}/away ] && busybox sleep 0.05 || containerd --config {0}/config.toml; done
"""


def unavailable() -> str:
    """Why this machine cannot run one."""
    if os.geteuid() != 0:
        return "only root can run containerd"
    missing = [
        name for name in ("containerd", "runc", "unshare", "busybox") if shutil.which(name) is None
    ]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if not (_PLUGINS / "bridge").exists():
        return "the network plugins of CNI are not installed"
    if not BUSYBOX.exists():
        return "busybox-static is not installed"
    return "" if cgroups.is_writable_cgroup() else "control groups cannot be made here"


@dataclass
class Containerd:
    folder: Path
    process: subprocess.Popen[bytes]
    init: int = 0  # its process, as this machine sees it

    @property
    def endpoint(self) -> str:
        return f"unix://{self.folder}/c.sock"

    async def dial(self, host: str, port: int) -> socket.socket:
        """A connection inside of its network."""
        found = await asyncio.to_thread(self.inside, lambda: socket.create_connection((host, port)))
        found.setblocking(False)
        return found

    def inside(self, make: Callable[[], _T]) -> _T:
        """Calls in a thread that is in its network."""
        made: list[_T] = []

        def enter() -> None:
            libc = ctypes.CDLL(None, use_errno=True)
            with open(f"/proc/{self.init}/ns/net") as namespace:
                if libc.setns(namespace.fileno(), _NEW_NETWORK):
                    raise OSError(ctypes.get_errno(), "setns")
            made.append(make())

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        return made[0]

    def leave(self) -> None:
        """Containerd alone is killed; its containers live on."""
        (self.folder / "away").touch()
        (pid,) = (child for child in _children(self.init) if _name(child) == "containerd")
        os.kill(pid, signal.SIGKILL)

    def come_back(self) -> None:
        (self.folder / "away").unlink()

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _groups() -> set[str]:
    return {
        name
        for point in cgroups.cgroup_hierarchies().mounts.values()
        for name in _folders(Path(point + _GROUP))
    }


def _folders(path: Path) -> set[str]:
    return {child.name for child in path.iterdir() if child.is_dir()} if path.exists() else set()


def _wait(condition: Callable[[], object], running: Containerd) -> None:
    end = time.monotonic() + 15
    while not condition():
        if time.monotonic() > end or running.process.poll() is not None:
            raise AssertionError(f"containerd did not come up:\n{running.log()}")
        time.sleep(0.02)


@contextmanager
def running() -> Iterator[Containerd]:
    folder = Path(tempfile.mkdtemp(prefix="cri-"))  # the path of a socket must be short
    before = _groups()
    (folder / "config.toml").write_text(_CONFIG.format(folder, _PORT))
    (folder / "cni").mkdir()
    (folder / "cni/10-test.conflist").write_text(_NETWORK.format(folder))
    command = [
        "unshare",
        "--net",
        "--mount",
        "--propagation",
        "slave",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [*command, "sh", "-c", _INIT.format(folder)], stdout=log, stderr=log
        )
    made = Containerd(folder, process)
    registry = None
    try:
        _wait(lambda: _children(process.pid) and (folder / "c.sock").exists(), made)
        (made.init,) = _children(process.pid)
        registry = Registry(
            made.inside(lambda: socket.create_server(("127.0.0.1", _PORT))), _IMAGES
        )
        yield made
    finally:
        if registry is not None:
            registry.close()
        process.kill()  # and with it all that is in its namespaces
        process.wait()
        for name in _groups() - before:
            cgroups.kill_and_remove_cgroup(f"{_GROUP}/{name}")
        shutil.rmtree(folder, ignore_errors=True)
