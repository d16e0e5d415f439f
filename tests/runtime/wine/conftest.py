"""A machine for Windows containers: the platform, and `Box`, one container run by runc itself,
without a runtime around it.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.wine import probe

from transom.network.api import DnsConfig
from transom.runtime.api import ContainerConfig, Mount, SandboxConfig
from transom.runtime.native import cgroups
from transom.runtime.native.platform import ContainerRequest, SandboxFacts, SandboxPlan, Spec
from transom.runtime.wine import bundle, jobs
from transom.runtime.wine.platform import WinePlatform

PROBE = probe.PATH
_CGROUP = f"transom-test-wine-{os.getpid()}"
_CLONE_NEWNET = 0x40000000
_NO_DNS = DnsConfig()


def unavailable() -> str:
    if os.geteuid() != 0:
        return "only root can run containers here"
    if shutil.which("runc") is None:
        return "runc is not installed"
    return WinePlatform(Path("/nonexistent")).unusable()


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kept between runs, as users have it: the template takes ten seconds to make."""
    return tmp_path_factory.getbasetemp().parent / "transom-wine"


@pytest.fixture(scope="session")
def wine(cache: Path) -> Iterator[WinePlatform]:
    why = unavailable()
    if why:
        pytest.skip(why)
    platform = WinePlatform(cache)
    asyncio.run(platform.prepare())
    yield platform
    assert cgroups.kill_and_remove_cgroup(f"/{_CGROUP}")


class Host:
    """`HostMounts` of a machine whose paths are ours."""

    def bind(self, mount: Mount, destination: str, options: Sequence[str] = ()) -> Spec:
        access = "ro" if mount.read_only else "rw"
        return {
            "destination": destination,
            "type": "bind",
            "source": mount.host_path,
            "options": [*options, "rbind", access],
        }

    def real(self, path: str) -> str:
        return path

    def stat(self, path: str) -> os.stat_result:
        return os.stat(path)

    def read(self, path: str) -> bytes:
        return Path(path).read_bytes()


class Image:
    def __init__(self, layers: Sequence[Path], config: dict[str, Any], version: str) -> None:
        self.id = "sha256:0"
        self.layers = layers
        self.config = {"os": "windows", "os.version": version, "config": config}


class Box:
    def __init__(
        self,
        platform: WinePlatform,
        folder: Path,
        config: ContainerConfig,
        image: Image,
        dns: DnsConfig,
    ) -> None:
        self.id = f"wine-{uuid.uuid4().hex[:12]}"
        self.platform = platform
        self.folder = folder
        self.snapshot = folder / "rootfs"
        facts = SandboxFacts(
            self.id,
            SandboxConfig("pod", "default", "uid", hostname="web-0", dns=dns),
            SandboxPlan("web-0", network=False),
            0,
            folder,
            ("127.0.0.1",),
        )
        self.request = ContainerRequest(
            self.id, facts, config, image, folder, self.snapshot, Host()
        )
        self.process: subprocess.Popen[bytes] | None = None
        self._mounted = False

    def create(self) -> Box:
        layers = asyncio.run(_sequence(self.platform, self.request))
        for name in ("upper", "work", "rootfs"):
            (self.folder / name).mkdir(parents=True)
        options = f"lowerdir={':'.join(map(str, reversed(layers)))},upperdir={self.folder}/upper,workdir={self.folder}/work"
        subprocess.run(
            ["mount", "-t", "overlay", "overlay", "-o", options, str(self.snapshot)], check=True
        )
        self._mounted = True
        spec = asyncio.run(self.platform.create(self.request))
        spec["ociVersion"] = "1.0.2"
        spec["process"]["terminal"] = False
        spec["linux"] |= {"cgroupsPath": f"/{_CGROUP}/{self.id}"}
        spec["linux"]["namespaces"].append({"type": "network"})
        (self.folder / "config.json").write_text(json.dumps(spec))
        return self

    def start(self, stdin: int = subprocess.DEVNULL) -> Box:
        """Returns when Windows has made the process."""
        self.process = subprocess.Popen(
            ["runc", "run", "--bundle", str(self.folder), self.id],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        asyncio.run(self.platform.started(self))
        return self

    # As `Running`

    @property
    def pid(self) -> int:
        return self.inside or (self.process.pid if self.process is not None else 0)

    def signal(self, number: int, *, all_processes: bool = False) -> None:
        subprocess.run(["runc", "kill", self.id, str(int(number))], check=True)

    async def run(self, process: Spec, seconds: float = 0) -> Any:
        raise NotImplementedError

    @property
    def inside(self) -> int:
        """The pid of its first process."""
        state = subprocess.run(["runc", "state", self.id], capture_output=True, check=False)
        return int(json.loads(state.stdout)["pid"]) if state.returncode == 0 else 0

    def socket(self, kind: int = socket.SOCK_STREAM) -> socket.socket:
        """One of its network."""
        made: list[socket.socket] = []

        def enter() -> None:  # a thread of its own, for it stays there
            with open(f"/proc/{self.inside}/ns/net") as namespace:
                assert (
                    ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) == 0
                )
            made.append(socket.socket(socket.AF_INET, kind))

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        return made[0]

    def line(self) -> str:
        assert self.process is not None and self.process.stdout is not None
        return self.process.stdout.readline().decode().rstrip("\r\n")

    def result(self, given: bytes | None = None, seconds: float = 100.0) -> tuple[int, str, str]:
        """Waits for its end: the exit code as CRI has it, and its output."""
        assert self.process is not None
        out, err = self.process.communicate(given, timeout=seconds)
        return (
            self.platform.exit_code(self.request, self.process.returncode),
            out.decode(),
            err.decode(),
        )

    def exec(self, *command: str, name: str = "exec") -> tuple[int, str]:
        process = self.platform.exec_process(self, command, tty=False, exec_id=name)
        process["terminal"] = False
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(process))
        done = subprocess.run(
            ["runc", "exec", "--process", str(path), self.id],
            capture_output=True,
            timeout=100,
            check=False,
        )
        reported = jobs.read_job(bundle.bundle_places(self.request).prefix, name)
        assert reported.what == "exit", (reported, done)  # runc, or Wine itself, has failed
        # pytest shows it when the test fails
        sys.stderr.write(f"{command}: {done.stderr.decode(errors='replace')}\n")
        return self.platform.exit_code(self.request, done.returncode, name), done.stdout.decode()

    def memory(self) -> int:
        files = ("memory/{}/memory.usage_in_bytes", "{}/memory.current")
        paths = (Path("/sys/fs/cgroup", file.format(f"{_CGROUP}/{self.id}")) for file in files)
        return next((int(path.read_text()) for path in paths if path.exists()), 0)

    def remove(self) -> None:
        subprocess.run(["runc", "delete", "--force", self.id], capture_output=True, check=False)
        if self.process is not None:
            self.process.communicate(timeout=100)
        if self._mounted:
            subprocess.run(["umount", str(self.snapshot)], check=True)
            self._mounted = False


async def _sequence(platform: WinePlatform, request: ContainerRequest) -> Sequence[Path]:
    return await platform.layers(request)


Make = Callable[..., Box]


@pytest.fixture
def box(wine: WinePlatform, tmp_path: Path) -> Iterator[Make]:
    """Makes containers of an image that has `C:\\app\\probe.exe`; they are removed at the end."""
    layer = probe.layer(tmp_path / "layer")
    made: list[Box] = []

    def make(
        *command: str,
        image: dict[str, Any] | None = None,
        platform: WinePlatform | None = None,
        dns: DnsConfig = _NO_DNS,
        version: str = "10.0.17763.1697",
        **fields: Any,
    ) -> Box:
        config = ContainerConfig("c", 0, "image", "sha256:0", command=command, **fields)
        new = Box(
            platform or wine,
            tmp_path / f"box-{len(made)}",
            config,
            Image([layer], image or {}, version),
            dns,
        )
        made.append(new)
        return new

    yield make
    for old in made:
        old.remove()
