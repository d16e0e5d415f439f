"""What a Windows node shows of its containers: processes, docker, the host compute service, and the
runtime as a service.
"""

from __future__ import annotations

import pytest
from tests.runtime.login.harness import Login
from tests.runtime.sim import harness as rigs

from transom.userland.windows.priorities import priority_of

_IMAGE = "mcr.microsoft.com/windows/nanoserver:1809"


async def _container(login: Login, *command: str) -> str:
    sandbox = await login.harness.sandbox()
    reference = await login.harness.do(login.harness.runtime.pull_image(_IMAGE), 3600)
    config = rigs.ContainerConfig(
        "web", 0, _IMAGE, reference, command=command, log_path="web_0.log"
    )
    made = await login.harness.runtime.create_container(sandbox, config)
    await login.harness.runtime.start_container(made)
    await login.clock.run_for(2)
    return made


async def test_a_containers_process_has_the_same_number_inside_and_on_the_node() -> None:
    login = Login()
    made = await _container(login, "ping", "-t", "localhost")
    inside = await login.harness.do(
        login.harness.runtime.exec_sync(made, ("tasklist", "/fo", "csv", "/nh")), 10
    )
    pid = next(
        line.split('","')[1]
        for line in inside.stdout.decode().splitlines()
        if line.startswith('"ping.exe"')
    )
    assert (await login("(Get-Process ping).Id")).out == f"{pid}\r\n"
    assert f"ping.exe{pid:>26} " in (await login("tasklist")).out
    assert (await login("(Get-Process ping).SI -eq (Get-Process kubelet).SI")).out == "False\r\n"
    # The node's administrator ends it, with taskkill's exit code.
    assert (await login("taskkill", "/F", "/PID", pid)).code == 0
    assert (login.harness.state(made).state, login.harness.state(made).exit_code) == ("exited", 1)
    assert (await login("Get-Process ping")).code == 1


async def test_docker_and_the_host_compute_service_show_what_runs() -> None:
    login = Login()
    made = await _container(login, "ping", "-t", "localhost")
    assert made[:12] in (await login("docker ps -q")).out.split()
    assert len((await login("docker ps -q")).out.split()) == 2  # with the sandbox's pause container
    assert f'"Id": "{made}"' in (await login(f"docker inspect {made[:8]}")).out
    assert (await login(f"docker inspect -f '{{{{.State.Running}}}}' {made}")).out == "true\n"
    assert "ping.exe" in (await login(f"docker top {made}")).out
    assert "Reply from ::1" in (await login(f"docker logs {made}")).out
    assert f"{made}\r\n    Windows Server Container, \tRunning" in (await login("hcsdiag list")).out
    assert made in (await login("(Get-ComputeProcess).Id")).out
    assert (await login("docker", "stop", "-t", "1", made)).code == 0
    assert login.harness.state(made).state == "exited"
    assert made not in (await login("hcsdiag list")).out
    assert "Exited" in (await login("docker ps -a")).out
    table = (await login("docker images")).out.splitlines()
    assert table[0].split() == ["REPOSITORY", "TAG", "IMAGE", "ID", "SIZE"]
    shaped = await login("docker images --format '{{.Repository}}:{{.Tag}}'")
    assert shaped.out.splitlines() == [":".join(row.split()[:2]) for row in table[1:]]
    numbers = (await login("docker images -q")).out.split()
    assert numbers == list(dict.fromkeys(row.split()[2] for row in table[1:]))
    assert "is not supported on simulated machines" in (await login("docker run nginx")).err
    assert "is not a docker command" in (await login("docker nosuch")).err
    missing = await login("docker", "inspect", "nothing")
    assert (missing.code, "Error: No such object: nothing" in missing.err) == (1, True)
    assert (await login("crictl ps")).code != 0  # no client of containerd here


async def test_stopping_docker_takes_its_pipe_and_its_containers_with_it() -> None:
    login = Login()
    made = await _container(login, "ping", "-t", "localhost")
    pipes = r"[IO.Directory]::GetFiles('\\.\pipe\')"
    assert "\\\\.\\pipe\\docker_engine\r\n" in (await login(pipes)).out
    assert (await login("(Get-Service docker).Status")).out == "Running\r\n"
    assert (await login("Stop-Service docker")).code == 0
    assert login.harness.state(made).state == "exited"
    assert "docker_engine" not in (await login(pipes)).out
    assert (await login("Get-Process dockerd")).code == 1
    down = await login("docker", "ps")
    assert (
        down.code == 1
        and "open //./pipe/docker_engine: The system cannot find the file specified." in down.err
    )
    assert login.harness.runtime.status().runtime_reason == "DockerDaemonNotReady"
    assert (await login("Start-Service docker")).code == 0
    assert login.harness.runtime.status().runtime_reason == ""
    assert "docker_engine" in (await login(pipes)).out


async def test_a_runtime_that_is_disabled_stays_down_after_a_reboot() -> None:
    login = Login()
    assert (await login("Set-Service docker -StartupType Disabled; Stop-Service docker")).code == 0
    login.host.reboot()
    login.binaries.boot()
    login.machine.refresh()
    assert login.harness.runtime.status().runtime_reason == "DockerDaemonNotReady"
    assert (await login("(Get-Service docker).Status")).out == "Stopped\r\n"


@pytest.mark.parametrize(
    "argv, name",
    [
        ((r"C:\k\kubelet.exe", "--windows-priorityclass=HIGH_PRIORITY_CLASS"), "High"),
        (
            (r"C:\k\kubelet.exe", "--windows-priorityclass", "BELOW_NORMAL_PRIORITY_CLASS"),
            "BelowNormal",
        ),
        ((r"C:\k\kubelet.exe", "--v=6"), "Normal"),
        ((r"C:\k\other.exe", "--windows-priorityclass=HIGH_PRIORITY_CLASS"), "Normal"),
    ],
)
def test_the_kubelet_has_the_priority_class_of_its_flag(argv: tuple[str, ...], name: str) -> None:
    assert priority_of(argv).name == name
