"""Programs on the real engine: every image of the catalogue, and commands of well-known
manifests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.runtime.sim import harness as harnesses

from transom.runtime.api import LinuxContainer, RuntimeFailure
from transom.runtime.sim.catalogue import ImageMissing, default_catalogue
from transom.runtime.sim.names import parse_image_name
from transom.userland.start import start_program

_SERVERCORE = "mcr.microsoft.com/windows/servercore:ltsc2019"
_IIS = "mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2019"


@asynccontextmanager
async def on(os: str) -> AsyncIterator[harnesses.SimHarness]:
    harness = harnesses.make(os, start=start_program)  # type: ignore[arg-type]
    yield harness
    for sandbox in harness.runtime.sandboxes():
        await harness.do(harness.runtime.stop_sandbox(sandbox.id))


def _images(os: str) -> list[str]:
    """One name of each row that has something for the system and for everybody."""
    catalogue = default_catalogue()
    names: list[str] = []
    for repository, rows in catalogue._entries.items():
        for entry in rows:
            if entry.private:
                continue
            tag = next((tag for tag in entry.tags if "*" not in tag and "[" not in tag), "latest")
            if entry.windows_builds is None:
                tag = "ltsc2019"
            name = f"{repository}:{tag}"
            try:
                platforms = catalogue.find(parse_image_name(name)).platforms
            except ImageMissing:
                assert any("*" in tag for tag in entry.tags)
                continue
            if any(platform.os == os and platform.build in (0, 17763) for platform in platforms):
                names.append(name)
    return sorted(set(names))


@pytest.mark.parametrize("os", ["linux", "windows"])
async def test_every_image_runs_by_itself(os: str) -> None:
    async with on(os) as harness:
        failed = []
        for number, image in enumerate(_images(os)):
            sandbox = await harness.sandbox(uid=f"uid-{number}")
            try:
                reference = await harness.do(harness.runtime.pull_image(image), 3600)
                made = await harness.runtime.create_container(
                    sandbox,
                    harnesses.ContainerConfig("main", 0, image, reference, log_path="main_0.log"),
                )
                await harness.runtime.start_container(made)
            except RuntimeFailure as failure:
                if "No command specified" not in str(failure):
                    failed.append((image, str(failure)))
            await harness.do(harness.runtime.stop_sandbox(sandbox))
            await harness.do(harness.runtime.remove_sandbox(sandbox))
            await harness.do(harness.runtime.remove_image(image))
        assert failed == []


@pytest.mark.parametrize(
    ("image", "command", "seconds", "code", "log"),
    [
        ("busybox", ("sh", "-c", "echo hello; exit 3"), 1, 3, "stdout F hello"),
        (
            "busybox",
            ("/bin/sh", "-c", "touch /tmp/healthy; sleep 30; rm -f /tmp/healthy; sleep 600"),
            640,
            0,
            "",
        ),
        (
            "busybox",
            ("/bin/sh", "-c", "date; echo Hello from the Kubernetes cluster"),
            1,
            0,
            "Hello from the Kubernetes cluster",
        ),
        ("bash", ("bash", "-c", "echo $((6*7))"), 1, 0, "stdout F 42"),
        ("debian", ("bash", "-c", "for i in 9 8 7 ; do echo $i ; done"), 1, 0, "stdout F 7"),
        ("perl", ("perl", "-Mbignum=bpi", "-wle", "print bpi(2000)"), 10, 0, "3.14159265358979"),
        ("alpine", ("ash", "-c", "env | grep ^PATH"), 1, 0, "PATH=/usr/local/sbin"),
    ],
)
async def test_linux_commands(
    image: str, command: tuple[str, ...], seconds: float, code: int, log: str
) -> None:
    async with on("linux") as harness:
        container = await harness.container(*command, image=image)
        await harness.clock.run_for(seconds)
        assert (harness.state(container).state, harness.state(container).exit_code) == (
            "exited",
            code,
        )
        assert log in harness.log()


@pytest.mark.parametrize(
    ("command", "code", "log"),
    [
        (("cmd", "/S", "/C", "echo %username%"), 0, "ContainerAdministrator"),
        (("cmd", "/c", "ping -n 3 127.0.0.1 & exit 7"), 7, "Reply from 127.0.0.1"),
        (("powershell", "-Command", "Start-Sleep 5; Write-Host done; exit 4"), 4, "stdout F done"),
        (
            (
                "powershell.exe",
                "-c",
                "Get-Content C:\\Windows\\System32\\drivers\\etc\\hosts | Select -First 1",
            ),
            0,
            "#",
        ),
    ],
)
async def test_windows_commands(command: tuple[str, ...], code: int, log: str) -> None:
    async with on("windows") as harness:
        container = await harness.container(
            *command, image="mcr.microsoft.com/windows/servercore:ltsc2019"
        )
        await harness.clock.run_for(10)
        assert (harness.state(container).state, harness.state(container).exit_code) == (
            "exited",
            code,
        )
        assert log in harness.log()


@pytest.mark.parametrize(("forbidden", "uid"), [(True, 1000), (False, 0)])
async def test_new_privileges(forbidden: bool, uid: int) -> None:
    async with on("linux") as harness:
        linux = LinuxContainer(run_as_user=1000, no_new_privileges=forbidden)
        await harness.container(image="k8s.gcr.io/e2e-test-images/nonewprivs:1.3", linux=linux)
        await harness.clock.run_for(1)
        assert harness.log().endswith(f" stdout F Effective uid: {uid}\n")


@pytest.mark.parametrize(
    ("linux", "printed"),
    [
        (LinuxContainer(), "Operation not permitted"),
        (LinuxContainer(privileged=True), ""),
        (LinuxContainer(add_capabilities=("NET_ADMIN",)), ""),
        (LinuxContainer(add_capabilities=("NET_ADMIN",), run_as_user=5), "Operation not permitted"),
    ],
)
async def test_which_accounts_may_change_the_network(linux: LinuxContainer, printed: str) -> None:
    async with on("linux") as harness:
        await harness.container(
            "ip", "link", "add", "dummy0", "type", "dummy", image="busybox", linux=linux
        )
        await harness.clock.run_for(1)
        assert harness.log().rstrip().endswith(printed)
        assert bool(harness.log()) == bool(printed)


async def test_exec_and_probe() -> None:
    async with on("linux") as harness:
        container = await harness.container("sleep", "1000", image="busybox")
        result = await harness.do(
            harness.runtime.exec_sync(
                container, ("sh", "-c", "cat /etc/hostname; echo oops >&2; exit 2")
            )
        )
        assert (result.stdout, result.stderr, result.exit_code) == (b"web\n", b"oops\n", 2)
        listed = await harness.do(harness.runtime.exec_sync(container, ("ps",)))
        assert b"    1 root      0:00 sleep 1000\n" in listed.stdout
        missing = await harness.do(harness.runtime.exec_sync(container, ("nope",)))
        assert missing.exit_code == 126
        with pytest.raises(RuntimeFailure):
            await harness.do(harness.runtime.exec_sync(container, ("sleep", "60"), 3), 5)


async def test_terminal() -> None:
    async with on("linux") as harness:
        container = await harness.container("sleep", "1000", image="busybox")
        process, printed = await harness.exec(container, "sh", stdin=True, tty=True)
        await harness.clock.run_for(0.1)
        process.write(b"echo hi\r")
        await harness.clock.run_for(0.1)
        process.write(b"sleep 50\r")
        await harness.clock.run_for(1)
        process.write(b"\x03")
        await harness.clock.run_for(1)
        process.write(b"exit 5\r")
        assert await harness.do(process.wait()) == 5
        screen = b"".join(data for _, data in printed)
        assert screen == b"/ # echo hi\r\nhi\r\n/ # sleep 50\r\n^C\r\n/ # exit 5\r\n"


async def test_out_of_memory_kills_linux() -> None:
    async with on("linux") as harness:
        from transom.runtime.api import LinuxContainer, LinuxResources

        container = await harness.container(
            "stress",
            "--vm",
            "1",
            "--vm-bytes",
            "250M",
            "--vm-hang",
            "1",
            image="polinux/stress",
            linux=LinuxContainer(resources=LinuxResources(memory_limit=100 << 20)),
        )
        await harness.clock.run_for(1)
        assert (harness.state(container).reason, harness.state(container).exit_code) == (
            "OOMKilled",
            137,
        )


@pytest.mark.parametrize(
    ("image", "command", "code", "log"),
    [
        ("e2eteam/busybox:1.29", ("/bin/true",), 0, ""),
        ("e2eteam/busybox:1.29", ("/bin/false",), 1, ""),
        (
            "e2eteam/busybox:1.29",
            ("sh", "-c", "echo $((1 + 2)) | cat && sleep 1; exit 4"),
            4,
            "stdout F 3",
        ),
        (
            "e2eteam/busybox:1.29",
            ("powershell.exe", "-Command", "Write-Host from PowerShell"),
            0,
            "stdout F from PowerShell",
        ),
        ("e2eteam/busybox:1.29", ("busybox", "echo", "applet"), 0, "stdout F applet"),
        ("e2eteam/busybox:1.29", ("cmd.exe", "/s", "/c", "/bin/sh", "-c", "exit 42"), 42, ""),
        (
            "e2eteam/busybox:1.29",
            ("cmd.exe", "/c", "/bin/nope"),
            1,
            "'/bin/nope' is not recognized",
        ),
        ("e2eteam/busybox:1.29", ("sh", "-c", "cd /curl; pwd"), 0, "stdout F C:/curl\n"),
        (
            "e2eteam/busybox:1.29",
            ("uname", "-srvo"),
            0,
            "stdout F Windows_NT 10.0 17763 MS/Windows\n",
        ),
        (
            "e2eteam/busybox:1.29",
            ("/bin/find", "/dig", "-maxdepth", "1", "-name", "d*.exe"),
            0,
            "stdout F /dig/dig.exe\n",
        ),
        ("e2eteam/pause:3.2", ("nltest", "/PARENTDOMAIN"), 1, "Getting parent domain failed"),
        (
            "k8s.gcr.io/e2e-test-images/agnhost:2.21",
            ("/bin/sh", "-c", "C:/bin/ls C:/bin | grep nc.exe"),
            0,
            "stdout F nc.exe",
        ),
        (
            "k8s.gcr.io/e2e-test-images/agnhost:2.21",
            ("cmd", "/c", "whoami"),
            0,
            "stdout F ContainerAdm",
        ),
        (
            "k8s.gcr.io/e2e-test-images/agnhost:2.21",
            ("cmd", "/c", r"C:\Windows\System32\whoami"),
            0,
            "stdout F user manager",
        ),
    ],
)
async def test_busybox_on_windows(
    image: str, command: tuple[str, ...], code: int, log: str
) -> None:
    async with on("windows") as harness:
        sandbox = await harness.sandbox()
        container = await harness.container(*command, image=image, sandbox=sandbox)
        await harness.clock.run_for(5)
        state = harness.state(container)
        assert (state.state, state.exit_code) == ("exited", code)
        assert log in harness.log()


async def test_busybox_is_not_on_every_windows_image() -> None:
    async with on("windows") as harness:
        for command in ("sh", "/bin/true", "ls"):
            with pytest.raises(RuntimeFailure, match="cannot find the"):
                await harness.container(
                    command, image="mcr.microsoft.com/windows/servercore:ltsc2019"
                )


@pytest.mark.parametrize(
    "image, command, killer, code",
    [
        (_SERVERCORE, ("ping", "-t", "localhost"), "taskkill /F /IM ping.exe", 1),
        (_SERVERCORE, ("powershell", "-c", "sleep 999"), "taskkill /F /IM powershell.exe", 1),
        (_SERVERCORE, ("ping", "-t", "localhost"), "Stop-Process -Name ping", -1),
        (_SERVERCORE, ("cmd", "/c", "ping -n 999 localhost"), "Stop-Process -Name cmd -Force", -1),
        (_IIS, (), "Stop-Process -Name ServiceMonitor", -1),
    ],
)
async def test_a_killed_windows_container_has_the_exit_code_that_terminate_process_was_given(
    image: str, command: tuple[str, ...], killer: str, code: int
) -> None:
    async with on("windows") as harness:
        sandbox = await harness.sandbox()
        reference = await harness.do(harness.runtime.pull_image(image), 3600)
        config = harnesses.ContainerConfig(
            "main", 0, image, reference, command=command, log_path="main_0.log"
        )
        made = await harness.runtime.create_container(sandbox, config)
        await harness.runtime.start_container(made)
        await harness.clock.run_for(2)
        other = await harness.runtime.exec(
            made, ("ping", "-t", "localhost"), lambda stream, data: None
        )
        await harness.do(harness.runtime.exec_sync(made, ("powershell", "-Command", killer)), 10)
        assert await harness.do(other.wait(), 5) in (1, -1)  # signed, as in CRI
        assert (harness.state(made).state, harness.state(made).exit_code) == ("exited", code)
        assert harness.state(made).reason == "Error"
