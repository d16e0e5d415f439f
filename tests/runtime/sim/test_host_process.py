"""HostProcess containers: the node's network, files, accounts and version."""

from __future__ import annotations

from typing import Any

import pytest
from tests.runtime.sim import harness

from transom.runtime.api import LinuxSandbox, Mount, RuntimeFailure, WindowsContainer

CORE = "mcr.microsoft.com/windows/servercore:ltsc2022"
OLDER = "mcr.microsoft.com/windows/servercore:ltsc2019"
CONFIG = r"C:\var\lib\kubelet\pods\uid-1\volumes\config"


async def start(
    r: harness.SimHarness,
    user: str = r"NT AUTHORITY\SYSTEM",
    image: str = CORE,
    command: tuple[str, ...] = ("serve", "8080"),
    **fields: Any,
) -> str:
    sandbox = await r.sandbox(hostname="", linux=LinuxSandbox(host_network=True, host_process=True))
    r.host.files.mkdir(CONFIG)
    r.host.files.write(CONFIG + r"\a.txt", b"mounted")
    return await r.container(
        *command,
        image=image,
        sandbox=sandbox,
        windows=WindowsContainer(run_as_user_name=user, host_process=True),
        mounts=(Mount("/etc/config", CONFIG),),
        **fields,
    )


def make(version: str = "1.7.29", build: int = 20348) -> harness.SimHarness:
    return harness.make("windows", "containerd", version=version, build=build)


@pytest.mark.windows(
    "W-HP-01", "W-HP-02", "W-HP-04", "W-HP-06", "W-HP-09", "W-HP-13", "W-HP-29", "W-HP-32"
)
@pytest.mark.windows("W-OS-08", "W-HP-05", "W-STO-11", "W-HP-03", "W-HP-35", "W-SEC-08")
async def test_it_is_a_process_of_the_node() -> None:
    r = make()
    await start(r)
    context = r.programs[0].context
    assert context.network.hostname == r.host.name
    assert context.platform.build == r.host.identity.kernel_version == "10.0.20348.587"
    r.host.files.write(r"C:\host.txt", b"of the node")
    assert context.files.read(r"C:\host.txt") == b"of the node"
    context.files.write(r"C:\made.txt", b"here")
    assert r.host.files.read(r"C:\made.txt") == b"here"
    [sandbox] = r.runtime.sandboxes()
    assert sandbox.ips == ()


@pytest.mark.windows("W-HP-24", "W-HP-26")
async def test_volumes_are_at_their_mount_paths_since_containerd_1_7() -> None:
    r = make()
    await start(r)
    context = r.programs[0].context
    assert context.env["CONTAINER_SANDBOX_MOUNT_POINT"] == "C:\\hpc\\"
    assert context.cwd == r"C:\hpc"
    assert context.files.read(r"C:\etc\config\a.txt") == b"mounted"
    assert context.files.read(r"C:\hpc\etc\config\a.txt") == b"mounted"


@pytest.mark.windows("W-HP-07", "W-HP-25")
async def test_volumes_are_below_the_mount_point_in_containerd_1_6() -> None:
    r = make("1.6.36")
    made = await start(r)
    context = r.programs[0].context
    point = context.env["CONTAINER_SANDBOX_MOUNT_POINT"].removesuffix("\\")
    assert point == context.cwd == rf"C:\C\{made}" and r.host.files.exists(point)
    assert context.files.read(rf"{point}\etc\config\a.txt") == b"mounted"
    assert not context.files.exists(r"C:\etc\config\a.txt")
    await r.do(r.runtime.remove_container(made))
    assert not r.host.files.exists(point)


@pytest.mark.windows("W-HP-08", "WIN-HP-108")
@pytest.mark.parametrize("version", ["1.4.3", "1.5.9"])
async def test_older_versions_do_not_know_it(version: str) -> None:
    r = make(version, build=17763)
    await start(r, image=OLDER)
    [sandbox] = r.runtime.sandboxes()
    assert sandbox.ips != ()


async def test_its_image_may_be_of_another_build() -> None:
    r = make()
    await r.sandbox(linux=LinuxSandbox(host_network=True, host_process=True))
    config = r.runtime.sandboxes()[0].config
    with pytest.raises(RuntimeFailure, match="no match for platform"):
        await r.do(r.runtime.pull_image(OLDER))
    assert await r.do(r.runtime.pull_image(OLDER, None, config))


@pytest.mark.windows("W-HP-14", "W-HP-15", "W-HP-16", "W-HP-17")
@pytest.mark.parametrize(
    ("requested", "user"),
    [
        (r"NT AUTHORITY\SYSTEM", "SYSTEM"),
        (r"NT AUTHORITY\Local service", "LOCAL SERVICE"),
        (r"NT AUTHORITY\NetworkService", "NETWORK SERVICE"),
    ],
)
async def test_service_accounts(requested: str, user: str) -> None:
    r = make()
    await start(r, requested)
    assert r.programs[0].context.user.upper() == user


@pytest.mark.windows("W-HP-18", "W-HP-20", "W-HP-22")
async def test_a_group_gets_an_account_for_the_time_of_the_container() -> None:
    r = make()
    accounts = r.host.account_database  # type: ignore[union-attr]
    accounts.add_group("hpc-localgroup")
    made = await start(r, "hpc-localgroup")
    user = r.programs[0].context.user
    assert user == made[:20] and accounts.identity(user) is not None
    assert accounts.group("hpc-localgroup").members
    await r.do(r.runtime.remove_container(made))
    assert accounts.identity(user) is None


@pytest.mark.windows("W-HP-19", "W-HP-21", "WIN-HP-119", "WIN-HP-121")
@pytest.mark.parametrize(
    ("version", "user"),
    [("1.7.29", "ContainerAdministrator"), ("1.7.29", "missing"), ("1.6.36", "Administrators")],
)
async def test_other_accounts_are_refused(version: str, user: str) -> None:
    r = make(version)
    with pytest.raises(RuntimeFailure, match="failed to create user process token"):
        await start(r, user)


@pytest.mark.windows("W-HP-27", "WIN-HP-127")
async def test_pipes_are_not_mounted() -> None:
    r = make()
    sandbox = await r.sandbox(linux=LinuxSandbox(host_network=True, host_process=True))
    await r.container(
        "ignore",
        image=CORE,
        sandbox=sandbox,
        windows=WindowsContainer(run_as_user_name="SYSTEM", host_process=True),
        mounts=(Mount(r"\\.\pipe\other", r"\\.\pipe\containerd-containerd"),),
    )
    assert len(r.programs) == 1


@pytest.mark.windows("W-HP-28")
async def test_limits_count() -> None:
    r = make()
    await start(r)
    assert r.programs[0].context.usage.memory(1 << 20)


@pytest.mark.parametrize("version", ["1.6.36", "1.7.29"])
async def test_the_volume_has_the_files_of_the_image(version: str) -> None:
    r = make(version)
    await start(r)
    context = r.programs[0].context
    point = context.env["CONTAINER_SANDBOX_MOUNT_POINT"]
    assert context.files.exists(rf"{point}Windows\System32\cmd.exe")
    context.files.write(rf"{point}own.txt", b"of this container")
    await start(r, command=("ignore",))
    other = r.programs[1].context
    assert not other.files.exists(other.env["CONTAINER_SANDBOX_MOUNT_POINT"] + "own.txt")


@pytest.mark.parametrize(
    ("version", "requested", "expected"),
    [
        ("1.7.29", r"C:\k", r"C:\k"),
        ("1.7.29", "$env:CONTAINER_SANDBOX_MOUNT_POINT/k", r"C:\hpc\k"),
        ("1.6.36", r"C:\k", r"{point}\k"),
        ("1.6.36", r"%CONTAINER_SANDBOX_MOUNT_POINT%\k", r"{point}\k"),
    ],
)
async def test_working_directories(version: str, requested: str, expected: str) -> None:
    r = make(version)
    made = await start(r, working_dir=requested)
    assert r.programs[0].context.cwd == expected.format(point=rf"C:\C\{made}")


async def test_the_runtime_expands_the_mount_point() -> None:
    r = make()
    variable = ("CONFIG", r"%CONTAINER_SANDBOX_MOUNT_POINT%\etc\config")
    await start(r, env=(variable,), args=("$env:CONTAINER_SANDBOX_MOUNT_POINT/run.ps1",))
    context = r.programs[0].context
    assert context.argv[-1] == r"C:\hpc/run.ps1"
    assert context.env["CONFIG"] == r"C:\hpc\etc\config"
    path = next(value for name, value in context.env.items() if name.lower() == "path")
    assert "C:\\hpc\\" in path.split(";")


@pytest.mark.windows("W-HP-31")
async def test_the_account_of_containerd_must_create_logon_tokens() -> None:
    r = make()
    service = r"HKLM\SYSTEM\CurrentControlSet\Services\containerd"
    r.host.registry.set(service, "ObjectName", r".\Administrator")
    denied = "failed to create user process token: failed to logon user: Access is denied.: unknown"
    with pytest.raises(RuntimeFailure, match=denied) as caught:
        await start(r)
    assert str(caught.value).count("unknown") == 1
    r.host.registry.set(service, "ObjectName", "LocalSystem")
    await start(r)
