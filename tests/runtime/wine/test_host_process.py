"""HostProcess containers, simulated and under Wine: the node's drive and network, accounts, mounts by
version. What only a simulated one can show is in `tests/runtime/sim`.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ContextFactory
from tests.runtime import behaviour
from tests.runtime.behaviour import RuntimeHarness
from tests.runtime.tablenet import TableDataplane, TableNetwork
from tests.runtime.wine.conftest import unavailable

from transom.kit.clock import RealClock
from transom.machines.realhost import RealWindowsHost
from transom.machines.windows import WindowsHost
from transom.runtime.api import (
    LinuxSandbox,
    Mount,
    RuntimeFailure,
    SandboxConfig,
    WindowsContainer,
)
from transom.runtime.images.service import ImageService
from transom.runtime.native.store import NodeImages
from transom.runtime.sim.engine import SimRuntime
from transom.runtime.wine.platform import WinePlatform
from transom.windows.builds import BUILDS

IMAGE = "mcr.microsoft.com/windows/nanoserver:21H2"
OTHER_BUILD = "mcr.microsoft.com/windows/nanoserver:1809"
SYSTEM = r"NT AUTHORITY\SYSTEM"
HOST_PROCESS = LinuxSandbox(host_network=True, host_process=True)


@pytest.fixture(params=["sim", "wine"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> ContextFactory:
    if request.param == "sim":
        return simulated
    why = unavailable()
    if why:
        pytest.skip(why)
    cache: Path = request.getfixturevalue("cache")
    return lambda version="1.7.29": under_wine(tmp_path, cache, version)


@asynccontextmanager
async def simulated(version: str = "1.7.29") -> AsyncIterator[RuntimeHarness]:
    clock, dataplane = RealClock(), TableDataplane()
    host = WindowsHost("win1", clock, build=BUILDS[20348])
    network = TableNetwork(dataplane, "192.168.0.1", "10.244.1.0/24")
    runtime = SimRuntime(
        host, clock, random.Random(1), network, dataplane, "containerd", version=version
    )
    async with asyncio.timeout(100):
        yield a_bench("sim", runtime, host, network)


@asynccontextmanager
async def under_wine(folder: Path, cache: Path, version: str) -> AsyncIterator[RuntimeHarness]:
    host = RealWindowsHost("win1", RealClock(), folder / "node", build=BUILDS[20348])
    images = NodeImages(ImageService(folder / "images"), "test/win1", "windows", 20348)
    platform = WinePlatform(cache, build=20348, version=version)
    await platform.prepare()
    async with (
        asyncio.timeout(100),
        behaviour.native(folder, host, platform, images) as (runtime, network, _),  # type: ignore[arg-type]
    ):
        yield a_bench("wine", runtime, host, network)


def a_bench(kind: str, runtime: Any, host: Any, network: TableNetwork) -> RuntimeHarness:
    logs = r"C:\var\log\pods\web"
    harness = RuntimeHarness(kind, runtime, host, behaviour.Windows(), IMAGE, logs, network)
    runtime.subscribe(harness.received)
    return harness


async def host_process(
    b: RuntimeHarness, command: tuple[str, ...], user: str = SYSTEM, **more: Any
) -> str:
    sandbox = await b.sandbox(linux=HOST_PROCESS, hostname="")
    windows = WindowsContainer(run_as_user_name=user, host_process=True)
    return await b.run(command, sandbox, windows=windows, **more)


async def printed(b: RuntimeHarness, line: str, user: str = SYSTEM, **more: Any) -> list[str]:
    made = await host_process(b, ("cmd", "/c", line), user, **more)
    await b.ended(made)
    return b.printed(made)


async def test_it_sees_the_drive_the_build_and_the_name_of_the_node(start: ContextFactory) -> None:
    async with start() as b:
        b.host.files.write(r"C:\host.txt", b"of the node")
        lines = await printed(b, r"type C:\host.txt & echo. & hostname & ver & echo here> C:\made")
        file, name, version = (line for line in lines if line)
        assert (file, name.upper()) == ("of the node", "WIN1")
        assert re.match(r"Microsoft Windows (\[Version )?10\.0\.20348", version)
        assert b.host.files.read(r"C:\made") == b"here\r\n"
        [sandbox] = b.runtime.sandboxes()
        assert sandbox.ips == ()


async def test_mounts_are_at_their_paths_since_containerd_1_7(start: ContextFactory) -> None:
    async with start() as b:
        path, _ = b.volume("data")
        b.host.files.write(rf"{path}\a", b"mounted\n")
        lines = await printed(
            b,
            r"cd & type C:\etc\conf\a & type %CONTAINER_SANDBOX_MOUNT_POINT%\etc\conf\a",
            mounts=(Mount(r"C:\etc\conf", path),),
        )
        assert lines == [r"C:\hpc", "mounted", "mounted"]


async def test_mounts_are_below_the_mount_point_in_containerd_1_6(start: ContextFactory) -> None:
    async with start("1.6.36") as b:
        path, _ = b.volume("data")
        b.host.files.write(rf"{path}\a", b"mounted\n")
        made = await host_process(
            b,
            (
                "cmd",
                "/c",
                r"cd & type %CONTAINER_SANDBOX_MOUNT_POINT%\etc\conf\a & "
                r"if not exist C:\etc\conf\a echo only there",
            ),
            mounts=(Mount(r"C:\etc\conf", path),),
        )
        await b.ended(made)
        assert b.printed(made) == [rf"C:\C\{made}", "mounted", "only there"]


async def test_older_versions_start_an_ordinary_container(start: ContextFactory) -> None:
    async with start("1.5.9") as b:
        b.host.files.write(r"C:\host.txt", b"of the node")
        windows = WindowsContainer(run_as_user_name="ContainerUser", host_process=True)
        sandbox = await b.sandbox(linux=HOST_PROCESS)
        line = r"if not exist C:\host.txt echo isolated"
        assert await b.output(("cmd", "/c", line), sandbox, windows=windows) == ["isolated"]
        [found] = b.runtime.sandboxes()
        assert found.ips != ()


@pytest.mark.parametrize(
    ("requested", "shown"),
    [
        (SYSTEM, r"nt authority\system"),
        (r"NT AUTHORITY\Local service", r"nt authority\local service"),
        (r"NT AUTHORITY\NetworkService", r"nt authority\network service"),
    ],
)
async def test_service_accounts(start: ContextFactory, requested: str, shown: str) -> None:
    async with start() as b:
        assert await printed(b, "whoami", requested) == [shown]


async def test_a_group_gets_an_account_for_the_time_of_the_container(start: ContextFactory) -> None:
    async with start() as b:
        b.host.account_database.add_group("operators")
        command = ("cmd", "/c", "whoami & ping -n 3600 127.0.0.1 > nul")
        made = await host_process(b, command, "operators")
        await b.until(lambda: bool(b.printed(made)))
        assert b.printed(made) == [rf"win1\{made[:20]}"]
        assert b.host.account_database.group("operators").members
        await b.runtime.stop_container(made, 0)
        await b.runtime.remove_container(made)
        assert not b.host.account_database.group("operators").members


@pytest.mark.parametrize("user", ["ContainerAdministrator", "missing"])
async def test_other_accounts_are_refused(start: ContextFactory, user: str) -> None:
    async with start() as b:
        with pytest.raises(RuntimeFailure, match="failed to create user process token"):
            await host_process(b, ("cmd", "/c", "echo started"), user)


async def test_its_image_may_be_of_another_build(start: ContextFactory) -> None:
    async with start() as b:
        with pytest.raises(RuntimeFailure, match="no match for platform"):
            await b.runtime.pull_image(OTHER_BUILD)
        await b.sandbox("uid-2", linux=HOST_PROCESS)
        config = SandboxConfig("web", "ns", "uid-2", linux=HOST_PROCESS)
        assert await b.runtime.pull_image(OTHER_BUILD, None, config)


async def test_the_runtime_expands_the_mount_point(start: ContextFactory) -> None:
    async with start() as b:
        variable = ("WHERE", "%CONTAINER_SANDBOX_MOUNT_POINT%")
        command = ("cmd", "/c", "echo %WHERE% $env:CONTAINER_SANDBOX_MOUNT_POINT")
        made = await host_process(b, command, env=(variable,))
        await b.ended(made)
        assert b.printed(made) == [r"C:\hpc C:\hpc"]


@pytest.mark.parametrize(
    ("version", "requested", "shown"),
    [
        ("1.7.29", "", r"C:\hpc"),
        ("1.7.29", r"C:\k", r"C:\k"),
        ("1.7.29", r"C:\hpc\missing", r"C:\hpc\missing"),
        ("1.6.36", r"C:\k", r"C:\C\{made}\k"),
        ("1.6.36", r"%CONTAINER_SANDBOX_MOUNT_POINT%\k", r"C:\C\{made}\k"),
    ],
)
async def test_working_directories(
    start: ContextFactory, version: str, requested: str, shown: str
) -> None:
    async with start(version) as b:
        b.host.files.mkdir(r"C:\k")
        made = await host_process(b, ("cmd", "/c", "cd"), working_dir=requested)
        await b.ended(made)
        assert b.printed(made) == [shown.format(made=made)]


async def test_commands_in_it(start: ContextFactory) -> None:
    """As the user of the container, with its variable and its view of the drive."""
    async with start() as b:
        path, _ = b.volume("data")
        b.host.files.write(rf"{path}\a", b"mounted\n")
        made = await host_process(
            b,
            ("cmd", "/c", "ping -n 3600 127.0.0.1 > nul"),
            r"NT AUTHORITY\Local service",
            mounts=(Mount(r"C:\etc\conf", path),),
        )
        line = r"whoami & echo %CONTAINER_SANDBOX_MOUNT_POINT%& type C:\etc\conf\a"
        done = await b.runtime.exec_sync(made, ("cmd", "/c", line))
        assert done.exit_code == 0
        assert done.stdout.decode().lower().split("\r\n")[:2] == [
            r"nt authority\local service",
            "c:\\hpc",
        ]
        assert done.stdout.endswith(b"mounted\n")
        assert b.host.files.exists(rf"{path}\a")


async def test_a_read_only_volume(start: ContextFactory) -> None:
    async with start() as b:
        path, _ = b.volume("data")
        mounts = (Mount(r"C:\etc\conf", path, read_only=True),)
        made = await host_process(b, ("cmd", "/c", r"echo x> C:\etc\conf\x"), mounts=mounts)
        await b.ended(made)
        assert not b.host.files.exists(rf"{path}\x")


async def test_containers_share_the_drive_of_the_node(start: ContextFactory) -> None:
    async with start() as b:
        assert await printed(b, r"echo from the first> C:\shared.txt") == []
        assert await printed(b, r"type C:\shared.txt") == ["from the first"]
