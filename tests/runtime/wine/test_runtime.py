"""Windows containers of a node: through the runtime, as kubelets see them, from the built-in
images.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ContextFactory
from tests.runtime import behaviour
from tests.runtime.behaviour import RuntimeHarness
from tests.runtime.wine import probe
from tests.runtime.wine.conftest import unavailable

from transom.kit.clock import RealClock
from transom.machines.realhost import RealWindowsHost
from transom.runtime.api import Mount, RuntimeFailure, WindowsContainer, WindowsResources
from transom.runtime.images.service import ImageService
from transom.runtime.native.store import NodeImages
from transom.runtime.wine.platform import WinePlatform

NANOSERVER = "mcr.microsoft.com/windows/nanoserver:1809"
PROBE = probe.PATH
_MIB = 1 << 20
Scenario = Callable[[RuntimeHarness], Awaitable[None]]


@asynccontextmanager
async def node(folder: Path, cache: Path) -> AsyncIterator[RuntimeHarness]:
    """The probe is in a folder of the node, which every container of `run` has mounted."""
    host = RealWindowsHost("win1", RealClock(), folder / "node")
    images = NodeImages(ImageService(folder / "images"), "test/win1", "windows", 17763)
    platform = WinePlatform(cache, build=17763)
    await platform.prepare()
    async with behaviour.native(folder, host, platform, images) as (runtime, network, cgroup):  # type: ignore[arg-type]
        host.files.mkdir(r"C:\app")
        host.files.write(r"C:\app\probe.exe", (probe.FOLDER / "probe.exe").read_bytes())
        yield RuntimeHarness(
            "wine",
            runtime,
            host,
            behaviour.Windows(),
            NANOSERVER,
            r"C:\var\log\pods\web",
            network,
            None,
            folder,
            cgroup,
        )


@pytest.fixture
def start(tmp_path: Path, cache: Path) -> ContextFactory:
    why = unavailable()
    if why:
        pytest.skip(why)

    @asynccontextmanager
    async def run() -> AsyncIterator[Any]:
        async with asyncio.timeout(100), node(tmp_path, cache) as harness:
            harness.runtime.subscribe(harness.received)
            yield harness

    return run


Play = Callable[[Scenario], None]
APP = (Mount(r"C:\app", r"C:\app", read_only=True),)


async def test_nanoserver_says_what_it_is(start: ContextFactory) -> None:
    async with start() as b:
        made = await b.run(("cmd", "/c", "ver & echo %USERNAME% on %COMPUTERNAME%& exit 70000"))
        assert (await b.ended(made)).exit_code == 70000
        assert b.printed(made) == ["", "Microsoft Windows 10.0.17763", "ContainerUser on WEB"]


async def test_a_server_is_reached_asked_measured_and_stopped(start: ContextFactory) -> None:
    async with start() as b:
        limits = WindowsContainer(
            resources=WindowsResources(memory_limit=200 * _MIB, cpu_maximum=2500)
        )
        sandbox = await b.sandbox()
        made = await b.run((PROBE, "serve", "80"), sandbox, mounts=APP, windows=limits)
        await b.until(lambda: b.printed(made) == ["ready"])
        connection = await b.runtime.port_forward(sandbox, 80)
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        await loop.sock_sendall(connection, b"hello")
        assert await loop.sock_recv(connection, 100) == b"hello"
        connection.close()
        with pytest.raises(RuntimeFailure):
            await b.runtime.port_forward(sandbox, 81)
        (stats,) = b.runtime.container_stats()
        assert stats.working_set is not None and 4 * _MIB < stats.working_set < 36 * _MIB
        assert stats.cpu is not None and stats.cpu.core_nanoseconds > 0
        await b.runtime.stop_container(made, 20)
        assert b.state(made).exit_code == 42
        assert b.printed(made) == ["ready", "event 6", "bye"]


async def test_a_program_that_ignores_the_shutdown_is_killed_after_the_grace_period(
    start: ContextFactory,
) -> None:
    async with start() as b:
        made = await b.run((PROBE, "wait", "stay"), mounts=APP)
        await b.until(lambda: b.printed(made) == ["ready"])
        await b.runtime.stop_container(made, 0.5)
        assert b.state(made).exit_code == -1
        assert b.printed(made) == ["ready", "event 6"]


async def test_a_window_gets_wm_close_when_its_container_stops(start: ContextFactory) -> None:
    async with start() as b:
        made = await b.run((PROBE, "window"), mounts=APP)
        await b.until(lambda: b.printed(made) == ["ready"])
        await b.runtime.stop_container(made, 20)
        assert b.state(made).exit_code == 43
        assert b.printed(made) == ["ready", "message 16"]


@pytest.mark.parametrize("stopped", [True, False])
async def test_services_are_notified_before_their_container_ends(
    start: ContextFactory, stopped: bool
) -> None:
    """Whether the container is stopped or its main program is killed."""

    async with start() as b:
        b.host.files.mkdir(r"C:\log")
        mounts = (*APP, Mount(r"C:\log", r"C:\log", read_only=False))
        windows = WindowsContainer(run_as_user_name="ContainerAdministrator")
        program = (PROBE, "wait", "end") if stopped else ("ping", "-n", "3600", "127.0.0.1")
        made = await b.run(program, mounts=mounts, windows=windows)
        command = rf"{PROBE} service C:\log\controls"
        await b.runtime.exec_sync(made, ("sc", "create", "probe", "binPath=", command))
        await b.runtime.exec_sync(made, ("sc", "start", "probe"))
        state = b""
        while b"RUNNING" not in state:
            state = (await b.runtime.exec_sync(made, ("sc", "query", "probe"))).stdout
        if not stopped:
            await b.exec(made, ("taskkill", "/f", "/im", "ping.exe"))
        if stopped:
            await b.runtime.stop_container(made, 60)
        assert (await b.ended(made)).exit_code == (42 if stopped else 1)
        assert b.host.files.read(r"C:\log\controls") == b"control 5\n"


async def test_the_registry_of_a_container_limits_its_shutdown(start: ContextFactory) -> None:
    async with start() as b:
        made = await b.run((PROBE, "wait", "stay"), mounts=APP)
        await b.until(lambda: b.printed(made) == ["ready"])
        key = r"HKLM\SYSTEM\CurrentControlSet\Control"
        setting = ("/v", "WaitToKillServiceTimeout", "/d", "3000", "/f")
        process, _ = await b.exec(made, ("reg", "add", key, *setting))
        assert await process.wait() == 0
        async with asyncio.timeout(30):
            await b.runtime.stop_container(made, 60)
        assert b.printed(made) == ["ready", "event 6"]


@pytest.mark.parametrize("name, sid", [("ContainerUser", 2), ("ContainerAdministrator", 1)])
async def test_programs_see_the_account_and_variables_of_windows(
    start: ContextFactory, name: str, sid: int
) -> None:
    async with start() as b:
        windows = WindowsContainer(run_as_user_name=name)
        line = f"{PROBE} identity & whoami & {PROBE} variables"
        own = (("WINERY", "1"), ("WINEDLLDIRS", "2"), ("WINE", "3"))
        printed = await b.output(("cmd", "/c", line), mounts=APP, windows=windows, env=own)
        account = f"User Manager\\{name}"
        assert printed[:3] == [f"S-1-5-93-2-{sid}", account, account.lower()]
        listed = sorted(line for line in printed if line[2:].startswith("WINE"))
        expected = sorted(f"{kind} {key}={value}" for kind in "AW" for key, value in own)
        assert listed == expected
        assert any(line.startswith("W Path=") for line in printed)


async def test_clients_of_commands_and_of_the_container(start: ContextFactory) -> None:
    async with start() as b:
        made = await b.run((PROBE, "repeat"), mounts=APP, stdin=True)
        process, printed = await b.exec(made, (PROBE, "repeat"), stdin=True)
        process.write(b"typed")
        process.end_input()
        assert await process.wait() == 0
        assert b"".join(data for _, data in printed) == b"typed"
        shown: list[bytes] = []
        client = await b.runtime.attach(made, lambda stream, data: shown.append(data), stdin=True)
        client.write(b"to the container\n")
        await b.until(lambda: b"to the container" in b"".join(shown))
        client.end_input()
        client.close()
        done = await b.runtime.exec_sync(made, (PROBE, "exit", "3221225477"))
        assert done.exit_code == -1073741819
        with pytest.raises(
            RuntimeFailure,
            match=r"CreateProcess .*: The system cannot find the file specified.: unknown",
        ):
            await b.runtime.exec_sync(made, ("bash",))
        assert (await b.runtime.exec_sync(made, ("CMD", "/c", "echo hi"))).stdout == b"hi\r\n"


async def test_a_terminal(start: ContextFactory) -> None:
    async with start() as b:
        made = await b.run((PROBE, "wait", "end"), mounts=APP)
        process, printed = await b.exec(made, ("cmd",), stdin=True, tty=True)
        process.resize(100, 30)
        await b.until(lambda: rb"C:\>" in _plain(printed))
        process.write(b"echo one^two\r")
        await b.until(lambda: b"\nonetwo" in _plain(printed).replace(b"\r", b"\n"))
        process.write(b"exit 9\r")
        assert await process.wait() == 9


def _plain(printed: list[tuple[str, bytes]]) -> bytes:
    return re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"\n", b"".join(data for _, data in printed))


async def test_a_container_that_is_a_terminal(start: ContextFactory) -> None:
    async with start() as b:
        made = await b.run(("cmd",), stdin=True, tty=True)
        printed: list[tuple[str, bytes]] = []
        client = await b.runtime.attach(
            made, lambda stream, data: printed.append((stream, data)), stdin=True, tty=True
        )
        client.resize(120, 40)
        await b.until(
            lambda: rb"C:\>" in _plain(printed) + b.host.files.read(b.state(made).log_path)
        )
        client.write(b"echo one^two\r")
        await b.until(lambda: b"\nonetwo" in _plain(printed).replace(b"\r", b"\n"))
        client.write(b"exit 300\r")
        assert (await b.ended(made)).exit_code == 300


async def test_users_may_write_to_volumes_of_the_node(start: ContextFactory) -> None:
    async with start() as b:
        path, inside = b.volume("data")
        made = await b.run(("cmd", "/c", rf"echo kept> {inside}\x"), mounts=(Mount(inside, path),))
        assert (await b.ended(made)).exit_code == 0
        assert b.host.files.read(rf"{path}\x") == b"kept\r\n"
