from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.runtime.sim import harness

from transom.machines.windows.host import CREDENTIAL_SPECS
from transom.runtime.api import (
    LinuxContainer,
    LinuxResources,
    LinuxSandbox,
    Mount,
    RuntimeFailure,
    WindowsContainer,
    WindowsResources,
)
from transom.runtime.sim.engine import Flavour
from transom.userland.start import start_program


@pytest.mark.parametrize(
    ("os", "flavour", "program", "grace", "code", "seconds"),
    [
        ("linux", "docker", "polite", 30, 0, 0),
        ("linux", "docker", "ignore", 30, 137, 30),
        ("linux", "containerd", "ignore", 3, 137, 3),
        ("windows", "docker", "polite", 30, -1073741510, 0),
        ("windows", "docker", "ignore", 30, 1073807364, 5),
        ("windows", "docker", "ignore", 2, 1073807364, 2),
        ("windows", "containerd", "ignore", 30, -1, 30),
    ],
)
async def test_stopping(
    os: str, flavour: Flavour, program: str, grace: float, code: int, seconds: float
) -> None:
    r = harness.make(os, flavour)  # type: ignore[arg-type]
    image = "mcr.microsoft.com/windows/nanoserver:1809" if os == "windows" else "busybox"
    main = await r.container(program, image=image)
    begun = r.clock.time()
    await r.do(r.runtime.stop_container(main, grace), 40)
    state = r.state(main)
    assert (state.state, state.exit_code) == ("exited", code)
    assert state.finished_at - begun == seconds
    assert r.programs[0].received == ["CTRL_SHUTDOWN_EVENT" if os == "windows" else "SIGTERM"]


@pytest.mark.parametrize(
    ("program", "code", "seconds"), [("polite", -1073741510, 0), ("ignore", 1073807364, 5)]
)
async def test_programs_shut_down_their_windows_container(
    program: str, code: int, seconds: float
) -> None:
    r = harness.make("windows", "containerd")
    main = await r.container(program, image="mcr.microsoft.com/windows/nanoserver:1809")
    begun, power = r.clock.time(), r.programs[0].context.windows.power
    assert power.request("off", 30) and not power.request("restart", 0) and power.cancel()
    assert power.request("restart", 10)
    await r.do(asyncio.sleep(0), 40)
    state = r.state(main)
    assert (state.state, state.exit_code) == ("exited", code)
    assert state.finished_at - begun == 10 + seconds


async def test_images_choose_their_stop_signal() -> None:
    r = harness.make()
    await r.do(r.runtime.stop_container(await r.container("polite", image="nginx"), 5))
    assert r.programs[0].received == ["SIGQUIT"]


CANNOT = [
    (
        "linux",
        "docker",
        "missing",
        127,
        "ContainerCannotRun",
        "OCI runtime create failed: container_linux.go:370: starting container process caused: "
        'exec: "missing": executable file not found in $PATH: unknown',
    ),
    (
        "linux",
        "docker",
        "/no/path",
        127,
        "ContainerCannotRun",
        "OCI runtime create failed: container_linux.go:370: starting container process caused: "
        'exec: "/no/path": stat /no/path: no such file or directory: unknown',
    ),
    (
        "linux",
        "docker",
        "denied",
        126,
        "ContainerCannotRun",
        "OCI runtime create failed: container_linux.go:370: starting container process "
        'caused: exec: "denied": '
        "permission denied: unknown",
    ),
    (
        "linux",
        "containerd",
        "missing",
        128,
        "StartError",
        "failed to create containerd task: OCI runtime create failed: "
        "container_linux.go:370: starting container process caused: "
        'exec: "missing": executable file not found in $PATH: unknown',
    ),
    (
        "windows",
        "docker",
        "missing",
        127,
        "ContainerCannotRun",
        "container ID encountered an error during hcsshim::System::CreateProcess: failure in "
        "a Windows system call: "
        "The system cannot find the file specified. (0x2)",
    ),
]


@pytest.mark.parametrize(("os", "flavour", "program", "code", "reason", "message"), CANNOT)
async def test_commands_that_are_not_there(
    os: str, flavour: Flavour, program: str, code: int, reason: str, message: str
) -> None:
    r = harness.make(os, flavour)  # type: ignore[arg-type]
    image = "mcr.microsoft.com/windows/nanoserver:1809" if os == "windows" else "busybox"
    with pytest.raises(RuntimeFailure) as raised:
        await r.container(program, image=image)
    (c,) = r.runtime.containers()
    assert (c.state, c.exit_code, c.reason) == ("exited", code, reason)
    assert c.message == message.replace("ID", c.id)
    start = (
        f'failed to start container "{c.id}": Error response from daemon: '
        if flavour == "docker"
        else ""
    )
    assert raised.value.description == start + c.message
    assert ("died", "uid-1") in r.events
    assert ("started", "uid-1") not in r.events


@pytest.mark.parametrize(
    ("flavour", "reason", "text"),
    [
        ("docker", "ContainerCannotRun", "The user name or password is incorrect. (0x52e)"),
        ("containerd", "StartError", "The user name or password is incorrect.: unknown"),
    ],
)
async def test_windows_users(flavour: Flavour, reason: str, text: str) -> None:
    nano = "mcr.microsoft.com/windows/nanoserver:1809"
    for image, requested, user in (
        (nano, "", "ContainerUser"),
        ("mcr.microsoft.com/windows/servercore:ltsc2019", "", "ContainerAdministrator"),
        (nano, "containeradministrator", "ContainerAdministrator"),
        (nano, r"NT AUTHORITY\NETWORK SERVICE", "NETWORK SERVICE"),
    ):
        r = harness.make("windows", flavour)
        await r.container(
            "ignore", image=image, windows=WindowsContainer(run_as_user_name=requested)
        )
        assert r.programs[0].context.env["USERNAME"] == r.programs[0].context.user == user
    r = harness.make("windows", flavour)
    with pytest.raises(RuntimeFailure):
        await r.container(
            "ignore", image=nano, windows=WindowsContainer(run_as_user_name="FooLish")
        )
    (c,) = r.runtime.containers()
    assert c.reason == reason
    assert text in c.message


async def test_what_a_program_receives() -> None:
    r = harness.make()
    await r.container(
        image="nginx",
        args=("nginx", "-T"),
        env=(("A", "1"), ("NGINX_VERSION", "2")),
        working_dir="/srv",
        linux=LinuxContainer(run_as_user=101, supplemental_groups=(5,)),
    )
    context = r.programs[0].context
    assert context.argv == ("/docker-entrypoint.sh", "nginx", "-T")
    assert context.env["A"] + context.env["NGINX_VERSION"] == "12"
    assert (context.env["HOSTNAME"], context.env["HOME"], context.cwd) == (
        "web",
        "/nonexistent",
        "/srv",
    )
    assert (context.user, context.uid, context.groups, context.pid, context.network.ips) == (
        "nginx",
        101,
        (5,),
        1,
        ("10.244.1.2",),
    )
    assert context.files.stat("/srv").kind == "directory"
    assert context.files.read("/etc/hostname") == b"web\n"


async def test_a_working_directory_that_is_a_file_is_refused() -> None:
    r = harness.make()
    with pytest.raises(RuntimeFailure, match=r"init caused: mkdir /etc/passwd: not a directory"):
        await r.container("polite", working_dir="/etc/passwd")
    (c,) = r.runtime.containers()
    assert (c.reason, c.exit_code) == ("ContainerCannotRun", 128)


async def test_windows_environment_names_have_no_case() -> None:
    r = harness.make("windows")
    env = (("PATH", "x"), ("Foo", "1"), ("FOO", "2"))
    await r.container("ignore", image="mcr.microsoft.com/windows/nanoserver:1809", env=env)
    seen = r.programs[0].context.env
    assert (seen["Path"], seen["Foo"]) == ("x", "2")
    assert not {"PATH", "FOO"} & set(seen)


async def test_memory_past_the_limit_kills_on_linux_and_is_refused_on_windows() -> None:
    r = harness.make()
    limited = LinuxContainer(resources=LinuxResources(memory_limit=64 << 20))
    main = await r.container("eat", str(100 << 20), linux=limited)
    assert (r.state(main).exit_code, r.state(main).reason) == (137, "OOMKilled")
    w = harness.make("windows")
    small = WindowsContainer(resources=WindowsResources(memory_limit=64 << 20))
    main = await w.container(
        "eat", str(100 << 20), image="mcr.microsoft.com/windows/nanoserver:1809", windows=small
    )
    assert w.state(main).state == "running"
    assert "stderr F no memory" in w.log()


async def test_a_machine_without_memory_kills_the_largest() -> None:
    r = harness.make()
    sandbox = await r.sandbox()
    first = await r.container("eat", str(6 << 30), sandbox=sandbox)
    second = await r.container("eat", str(3 << 30), sandbox=sandbox)
    assert [r.state(first).reason, r.state(second).state] == ["OOMKilled", "running"]


async def test_limits_hold_the_processor() -> None:
    r = harness.make()
    main = await r.container(
        "ignore",
        linux=LinuxContainer(resources=LinuxResources(cpu_quota=50000, cpu_period=100000)),
    )
    r.programs[0].context.usage.cpu(3)
    (first,) = r.runtime.container_stats()
    assert first.cpu is not None
    assert first.cpu.nano_cores is None
    await r.clock.run_for(20)
    (second,) = r.runtime.container_stats("uid-1")
    assert second.cpu is not None
    assert second.id == main
    assert (
        second.cpu.core_nanoseconds - first.cpu.core_nanoseconds,
        second.cpu.nano_cores,
    ) == (10 * 10**9, 500_000_000)


@pytest.mark.parametrize(
    ("os", "limits", "jobs", "cores"),
    [
        (
            "linux",
            {"linux": LinuxContainer(resources=LinuxResources(cpu_quota=50000, cpu_period=100000))},
            8,
            0.5,
        ),
        ("linux", {}, 3, 3),
        ("linux", {}, 8, 4),  # processors that there are
        (
            "windows",
            {"windows": WindowsContainer(resources=WindowsResources(cpu_maximum=1250))},
            8,
            0.5,
        ),
        ("windows", {}, 8, 4),
    ],
)
async def test_limits_hold_scripts_that_compute(
    os: str, limits: dict[str, Any], jobs: int, cores: float
) -> None:
    r = harness.make(os, start=start_program)  # type: ignore[arg-type]
    loop = "while true; do :; done"
    busy = " & ".join([loop] * jobs)
    command = ("sh", "-c", busy)
    if os == "windows":
        command = (
            "powershell",
            "-c",
            (f"foreach ($n in 1..{jobs}) {{ Start-Job {{ while(1) {{}} }} }}; get-job | wait-job"),
        )
    image = "mcr.microsoft.com/windows/servercore:1809" if os == "windows" else "busybox"
    main = await r.container(*command, image=image, **limits)
    r.runtime.container_stats()
    begun = r.host.cpu_seconds()
    await r.clock.run_for(10)
    (stats,) = r.runtime.container_stats()
    assert stats.cpu is not None
    # the system wants its part, too
    assert stats.cpu.nano_cores == pytest.approx(cores * 1e9, rel=0.03)
    assert r.host.cpu_seconds() - begun < 10.1 * r.host.hardware.cpus
    await r.do(r.runtime.stop_container(main, 0))
    assert not r.runtime.container_stats()


async def test_mounts() -> None:
    r = harness.make()
    r.host.files.mkdir("/data")
    mounts = (
        Mount("/mnt/data", "/data"),
        Mount("/mnt/new", "/made/by/the/runtime", read_only=True),
    )
    await r.container("ignore", mounts=mounts, linux=LinuxContainer(read_only_root=True))
    files = r.programs[0].context.files
    files.write("/mnt/data/x", b"1")
    assert r.host.files.read("/data/x") == b"1"
    assert r.host.files.stat("/made/by/the/runtime").kind == "directory"
    for path in ("/mnt/new/x", "/x"):
        with pytest.raises(OSError, match="Read-only file system"):
            files.write(path, b"1")
    assert files.read("/etc/hostname") == b"web\n"


async def test_docker_on_windows_mounts_no_files() -> None:
    image = "mcr.microsoft.com/windows/nanoserver:1809"
    for flavour in ("docker", "containerd"):
        r = harness.make("windows", flavour)  # type: ignore[arg-type]
        r.host.files.write(r"C:\file", b"x")
        mounted = r.container(
            "ignore", image=image, mounts=(Mount(r"c:\f", r"C:\file", read_only=True),)
        )
        if flavour == "docker":
            with pytest.raises(RuntimeFailure) as raised:
                await mounted
            assert raised.value.description == (
                r"Error response from daemon: invalid volume specification: "
                r"'C:\file:c:\f:ro': invalid mount config for "
                'type "bind": source path must be a directory'
            )
        else:
            await mounted
            assert r.programs[0].context.files.read(r"c:\f") == b"x"


async def test_credential_specs_go_through_dockers_registry() -> None:
    r = harness.make("windows")
    spec = WindowsContainer(credential_spec='{"a":1}')
    main = await r.container(
        "ignore", image="mcr.microsoft.com/windows/nanoserver:1809", windows=spec
    )
    values = r.host.registry.values(CREDENTIAL_SPECS)  # type: ignore[union-attr]
    (name,) = values or ()
    assert name.startswith("k8s-cred-spec-")
    assert len(name) == len("k8s-cred-spec-") + 80
    assert r.programs[0].context.windows.credential_spec == '{"a":1}'
    await r.runtime.remove_container(main)
    assert not r.host.registry.values(CREDENTIAL_SPECS)  # type: ignore[union-attr]


async def test_processes_of_a_pod_can_be_shared() -> None:
    r = harness.make()
    sandbox = await r.sandbox(linux=LinuxSandbox(share_processes=True))
    first = await r.container("polite", sandbox=sandbox)
    await r.container("ignore", sandbox=sandbox)
    table = r.programs[1].context.processes
    assert [(row.pid, row.argv) for row in table.list()] == [
        (1, ("/pause",)),
        (2, ("polite",)),
        (3, ("ignore",)),
    ]
    assert table.signal(2, "SIGTERM")
    assert r.state(first).exit_code == 0
    assert not table.signal(2, "SIGTERM")
    alone = harness.make()
    main = await alone.container("ignore")
    table = alone.programs[0].context.processes
    assert table.signal(1, "SIGKILL")
    assert alone.state(main).state == "running"


async def test_removal_takes_everything_along() -> None:
    r = harness.make()
    r.host.files.mkdir(harness.LOG_DIRECTORY["linux"])
    used = r.host.disk().used
    sandbox = await r.sandbox()
    main = await r.container("say", "hello\n", sandbox=sandbox)
    r.programs[0].context.files.write("/tmp/x", bytes(1 << 20))
    stats = r.runtime.container_stats()[0].writable_layer
    assert stats is not None
    assert stats.used >= 1 << 20
    await r.runtime.remove_container(main)
    await r.runtime.remove_sandbox(sandbox)
    for image in r.runtime.images():
        await r.runtime.remove_image(image.id)
    assert r.host.disk().used == used
    assert list(r.host.accounts) == [r.host.system]


async def test_two_stop_calls_wait_for_the_same_end() -> None:
    r = harness.make()
    main = await r.container("ignore")
    stops = [asyncio.ensure_future(r.runtime.stop_container(main, grace)) for grace in (9, 3)]
    await r.clock.run_for(4)
    assert all(stop.done() for stop in stops)
    assert r.events.count(("died", "uid-1")) == 1


SHIM = "failed to create shim task: OCI runtime create failed: runc create failed: unable to start "


@pytest.mark.parametrize(
    ("version", "caused"),
    [
        (
            "1.5.18",
            "OCI runtime create failed: container_linux.go:370: starting container process caused: ",
        ),
        ("1.7.29", SHIM + "container process: "),
        ("2.1.5", SHIM + "container process: error during container init: "),
    ],
)
async def test_containerd_words_failures_as_its_version_does(version: str, caused: str) -> None:
    r = harness.make("linux", "containerd", version=version)
    with pytest.raises(RuntimeFailure) as failure:
        await r.container("missing")
    assert str(failure.value).partition("desc = ")[2] == (
        f'failed to create containerd task: {caused}exec: "missing": executable file not found in '
        "$PATH: unknown"
    )


async def test_the_variables_of_all_containers_have_a_limit() -> None:
    """One pod can have hundreds of containers, each with the variables of all Services."""
    r = harness.make()
    shared = "x" * 1000
    env = tuple((f"V{n}", shared) for n in range(20_000))
    made = []
    with pytest.raises(RuntimeFailure, match="Cannot allocate memory"):
        for number in range(20):
            made.append(await r.container("polite", attempt=number, env=env))
    assert 4 <= len(made) <= 8
    await r.runtime.remove_container(made[0])
    await r.container("polite")
