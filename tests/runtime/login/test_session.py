"""Login sessions on a machine: the available commands, where output goes, what remains after
logout.
"""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest
from tests.runtime.login.harness import Login
from tests.runtime.sim import harness

from transom.userland.start import start_program


@pytest.mark.parametrize(
    ("command", "out", "err", "code"),
    [
        (("hostname",), "win-1\r\n", "", 0),
        (("cmd", "/c", "echo out& echo err 1>&2& exit 7"), "out\r\n", "err \r\n", 7),
        (("cmd /c exit 5",), "", "", 5),
        (("Write-Output", "a b", "it's"), "a b\r\nit's\r\n", "", 0),
        (("$a = 'x'; Write-Output $a | ForEach-Object { $_ + 'y' }",), "xy\r\n", "", 0),
        (("whoami",), "win-1\\administrator\r\n", "", 0),
        (("(Get-Location).Path",), "C:\\k\r\n", "", 0),
        (("exit 3",), "", "", 3),
    ],
)
async def test_a_command_runs_on_the_machine_and_its_exit_code_is_the_answer(
    command: tuple[str, ...], out: str, err: str, code: int
) -> None:
    assert await Login()(*command) == (out, err, code)


async def test_a_command_that_is_not_there() -> None:
    login = Login()
    for command in (("dance",), ("dance", "fast")):
        printed = await login(*command)
        assert printed.code == 1
        assert printed.err.startswith(
            "dance : The term 'dance' is not recognized as the name of a cmdlet"
        )


async def test_what_is_piped_in_are_lines_of_the_shell() -> None:
    login = Login()
    printed = await login(stdin=b"$x = 20\nforeach ($i in 1, 2) {\n  $x + $i\n}\nexit 4\n")
    assert (printed.out, printed.code) == ("21\r\n22\r\n", 4)
    assert (await login("cmd", "/c", "findstr", "b", stdin=b"abc\r\nxyz\r\n")).out == "abc\r\n"


@pytest.mark.windows("TRB-18", "SUP-TRB-004")
async def test_ipconfig_shows_the_address_of_the_machine() -> None:
    login = Login()
    before = (await login("ipconfig")).out
    assert "Ethernet adapter Ethernet:" in before
    assert "   IPv4 Address. . . . . . . . . . . : 10.0.0.1\r\n" in before
    await login("nssm restart flanneld")
    after = (await login("ipconfig", "/all")).out
    assert "Ethernet adapter vEthernet (Ethernet):" in after
    assert "Ethernet adapter Ethernet:" not in after  # the switch has it
    assert "   IPv4 Address. . . . . . . . . . . : 10.0.0.1(Preferred) \r\n" in after
    address = await login(
        "(Get-NetIPAddress -AddressFamily IPv4 -InterfaceAlias 'vEthernet (Ethernet)').IPAddress"
    )
    assert address.out == "10.0.0.1\r\n"


@pytest.mark.windows("TRB-117", "TRB-118", "SUP-TRB-018")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTP_PROXY", "http://proxy.example.com:80/"),
        ("HTTPS_PROXY", "http://proxy.example.com:443/"),
    ],
)
async def test_variables_of_the_machine_are_those_of_later_processes(name: str, value: str) -> None:
    login = Login()
    change = (
        f'[Environment]::SetEnvironmentVariable("{name}", "{value}", '
        "[EnvironmentVariableTarget]::Machine)"
    )
    assert (await login(f"{change}; $env:{name}")).out == ""  # this process has begun before
    assert (
        await login(f'[Environment]::GetEnvironmentVariable("{name}", "Machine")')
    ).out == f"{value}\r\n"
    assert (await login("cmd", "/c", f"echo %{name}%")).out == f"{value}\r\n"
    await login("Restart-Service kubelet")
    assert login.binaries.started[-1].environment[name] == value
    await login(f'[Environment]::SetEnvironmentVariable("{name}", "", "Machine")')
    assert (await login(f"$env:{name}")).out == ""


@pytest.mark.windows("TRB-91")
async def test_a_variable_of_the_process_is_for_what_it_starts() -> None:
    login = Login()
    await login("Stop-Service flanneld")
    printed = asyncio.ensure_future(
        login(
            '[Environment]::SetEnvironmentVariable("NODE_NAME", "win-1"); '
            "C:\\flannel\\flanneld.exe --iface=10.0.0.1"
        )
    )
    await login.clock.run_for(1)
    assert login.binaries.started[-1].environment["NODE_NAME"] == "win-1"
    assert "NODE_NAME" not in login.machine.system.variables()
    program = login.binaries.running("flanneld")
    assert program is not None
    program.end(3)
    assert (await printed).code == 3


async def test_a_foreground_program_ends_with_the_session_and_one_in_a_window_does_not() -> None:
    login = Login()
    await login("Stop-Service kubelet; Stop-Service kube-proxy")
    await login(
        "Start-Process C:\\k\\kube-proxy.exe -ArgumentList '--v=1 --feature-gates=\"A=true\"'"
    )
    assert login.binaries.started[-1].argv == ["--v=1", "--feature-gates=A=true"]
    session = login.harness.runtime.login(
        login.machine, ("C:\\k\\kubelet.exe", "--v=1"), lambda stream, data: None
    )
    await login.clock.run_for(1)
    assert login.binaries.running("kubelet") is not None
    session.close()
    await login.clock.run_for(1)
    assert login.binaries.running("kubelet") is None
    assert login.binaries.running("kube-proxy") is not None
    assert "kubelet" not in (await login("tasklist")).out


async def test_control_c_ends_the_command_and_not_the_shell() -> None:
    login = Login()
    printed = bytearray()
    shell = login.harness.runtime.login(
        login.machine, (), lambda stream, data: printed.extend(data), stdin=True, tty=True
    )
    await login.clock.run_for(1)
    assert printed.endswith(b"PS C:\\k> ")
    shell.write(b"Get-Content -Wait C:\\k\\stop.ps1\r")
    await login.clock.run_for(5)
    shell.write(b"\x03")
    await login.clock.run_for(1)
    assert printed.endswith(b"^C\r\nPS C:\\k> ")
    shell.write(b"exit 6\r")
    await login.clock.run_for(1)
    assert await shell.wait() == 6


@pytest.mark.parametrize("os", ["linux", "windows"])
async def test_sessions_end_with_the_machine(os: Literal["linux", "windows"]) -> None:
    login = Login() if os == "windows" else None
    place = login.harness if login is not None else harness.make("linux", start=start_program)
    shell = place.runtime.login(
        login.machine if login else None, (), lambda stream, data: None, stdin=True, tty=True
    )
    await place.clock.run_for(1)
    place.host.reboot()
    await place.clock.run_for(1)
    assert await shell.wait() == {"linux": 137, "windows": 0xFFFFFFFF}[os]


@pytest.mark.windows("TRB-05")
async def test_a_log_is_followed() -> None:
    login = Login()
    printed = bytearray()
    line = "Get-Content -Tail 1 -Wait C:\\k\\kubelet.log"
    login.host.files.write(r"C:\k\kubelet.log", b"one\r\ntwo\r\n")
    session = login.harness.runtime.login(
        login.machine, (line,), lambda stream, data: printed.extend(data)
    )
    await login.clock.run_for(2)
    login.host.files.append(r"C:\k\kubelet.log", b"three\r\n")
    await login.clock.run_for(2)
    session.close()
    assert printed.split() == [b"two", b"three"]


@pytest.mark.parametrize(
    ("command", "out", "code"),
    [
        (("hostname",), "node-1\n", 0),
        (("ls", "/home"), "", 0),
        (("echo $HOME; exit 9",), "/root\n", 9),
        (("dance", "fast"), "sh: dance: not found\n", 127),
    ],
)
async def test_a_linux_machine_has_a_plain_shell(
    command: tuple[str, ...], out: str, code: int
) -> None:
    machine = harness.make("linux", start=start_program)
    printed = bytearray()
    session = machine.runtime.login(None, command, lambda stream, data: printed.extend(data))
    await machine.clock.run_for(1)
    assert (printed.decode(), await session.wait()) == (out, code)
