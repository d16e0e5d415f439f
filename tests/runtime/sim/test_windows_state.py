"""The state of simulated Windows containers: what one command changes, all others see, in that
container only.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, NamedTuple

import pytest
from tests.runtime.sim import harness as rigs

from transom.machines.windows.host import WindowsHost
from transom.runtime.api import Mount, RuntimeFailure, WindowsContainer, WindowsResources
from transom.runtime.sim.catalogue import catalogue_with
from transom.runtime.sim.engine import Flavour
from transom.userland.start import start_program

SERVERCORE = "mcr.microsoft.com/windows/servercore:ltsc2019"
STAY = ("ping", "-t", "localhost")


class Printed(NamedTuple):
    out: str
    err: str
    code: int


@asynccontextmanager
async def run() -> AsyncIterator[None]:
    Windows.made.clear()
    try:
        yield
    finally:
        for windows in Windows.made:
            for sandbox in windows.harness.runtime.sandboxes():
                await windows.harness.do(windows.harness.runtime.stop_sandbox(sandbox.id), 60)


class Windows:
    """A runtime with Windows containers, and commands in them."""

    made: ClassVar[list[Windows]] = []

    def __init__(self, flavour: Flavour = "docker", **options: Any) -> None:
        self.made.append(self)
        self.harness = rigs.make("windows", flavour, start=start_program, **options)
        self.host = self.harness.host
        assert isinstance(self.host, WindowsHost)

    async def start(
        self, *command: str, user: str = "", uid: str = "uid-1", memory: int = 0, **fields: Any
    ) -> str:
        windows = WindowsContainer(
            run_as_user_name=user, resources=WindowsResources(memory_limit=memory)
        )
        sandbox = await self.harness.sandbox(uid=uid)
        image = fields.pop("image", SERVERCORE)
        return await self.harness.container(
            *(command or STAY), image=image, sandbox=sandbox, windows=windows, **fields
        )

    async def run(self, container: str, *command: str, seconds: float = 2.0) -> Printed:
        printed: dict[str, bytes] = {"stdout": b"", "stderr": b""}

        def output(stream: str, data: bytes) -> None:
            printed[stream] += data

        process = await self.harness.runtime.exec(container, command, output)
        await self.harness.clock.run_for(seconds)
        code = await process.wait()
        return Printed(printed["stdout"].decode(), printed["stderr"].decode(), code)

    async def cmd(self, container: str, line: str, **more: Any) -> Printed:
        return await self.run(container, "cmd", "/c", line, **more)

    async def powershell(self, container: str, script: str, **more: Any) -> Printed:
        return await self.run(container, "powershell", "-Command", script, **more)


async def test_the_registry_is_one_for_all_commands_and_each_container_has_its_own() -> None:
    async with run():
        windows = Windows()
        one, two = await windows.start(), await windows.start(uid="uid-2")
        assert (
            await windows.cmd(one, r"reg add HKLM\SOFTWARE\Shop /v Size /t REG_DWORD /d 7")
        ).out.startswith("The operation")
        assert (
            await windows.powershell(one, r"(Get-ItemProperty HKLM:\SOFTWARE\Shop).Size")
        ).out == "7\r\n"
        await windows.powershell(one, r"Set-ItemProperty HKLM:\SOFTWARE\Shop -Name Size -Value 9")
        await windows.powershell(one, r"New-Item HKLM:\SOFTWARE\Shop\Sub")
        shown = await windows.cmd(one, r"reg query HKLM\SOFTWARE\Shop")
        assert (
            r"    Size    REG_DWORD    0x9" in shown.out
            and r"HKEY_LOCAL_MACHINE\SOFTWARE\Shop\Sub" in shown.out
        )
        assert (await windows.cmd(two, r"reg query HKLM\SOFTWARE\Shop")).code == 1
        assert not windows.host.registry.exists(r"HKLM\SOFTWARE\Shop")
        assert (await windows.cmd(one, r"reg delete HKLM\SOFTWARE\Shop /f")).code == 0
        assert (await windows.powershell(one, r"Test-Path HKLM:\SOFTWARE\Shop")).out == "False\r\n"
        # what the system says of itself comes from there, too
        version = r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion"
        await windows.cmd(one, f'reg add "{version}" /v ProductName /d "Windows Toy" /f')
        assert "Microsoft Windows Toy" in (await windows.cmd(one, "systeminfo")).out
        caption = await windows.powershell(one, "(Get-CimInstance Win32_OperatingSystem).Caption")
        assert caption.out == "Microsoft Windows Toy\r\n"


@pytest.mark.windows("API-39")
@pytest.mark.parametrize(
    ("flavour", "milliseconds", "seconds"),
    [
        ("docker", "12000", 12.0),
        ("docker", "1000", 1.0),
        ("docker", "nonsense", 5.0),
        ("containerd", "12000", 12.0),
        ("containerd", "1000", 1.0),
        ("containerd", "60000", 30.0),  # the grace period is the upper limit
        ("containerd", "5000", 30.0),  # the default of Windows
        ("containerd", "nonsense", 30.0),
    ],
)
async def test_the_shutdown_timeout_of_the_containers_registry_counts(
    flavour: Flavour, milliseconds: str, seconds: float
) -> None:
    async with run():
        harness = rigs.make("windows", flavour)
        container = await harness.container("ignore", image=SERVERCORE)
        registry = harness.programs[0].context.windows.system.registry
        registry.set(
            r"HKLM\SYSTEM\CurrentControlSet\Control", "WaitToKillServiceTimeout", milliseconds
        )
        stopping = asyncio.ensure_future(harness.runtime.stop_container(container, 30))
        await harness.clock.run_for(60)
        await stopping
        assert harness.state(container).finished_at - harness.state(
            container
        ).started_at == pytest.approx(seconds, abs=0.1)


@pytest.mark.windows("API-39")
@pytest.mark.parametrize(
    ("flavour", "node", "seconds"),
    [("docker", 8.0, 8.0), ("docker", 60.0, 15.0), ("containerd", 8.0, 0.0)],
)
async def test_docker_stops_its_containers_before_the_machine_shuts_down(
    flavour: Flavour, node: float, seconds: float
) -> None:
    """containerd leaves its containers to the machine."""

    async with run():
        harness = rigs.make("windows", flavour)
        container = await harness.container("ignore", image=SERVERCORE)
        registry = harness.programs[0].context.windows.system.registry
        registry.set(r"HKLM\SYSTEM\CurrentControlSet\Control", "WaitToKillServiceTimeout", "90000")
        begin = harness.clock.time()
        stopping = asyncio.ensure_future(harness.runtime.shut_down(node))
        await harness.clock.run_for(60)
        await stopping
        if seconds:
            assert harness.state(container).finished_at - begin == pytest.approx(seconds, abs=0.1)
        else:
            assert harness.state(container).state == "running"


@pytest.mark.windows("API-05")
async def test_accounts_are_made_by_every_tool_and_known_in_that_container_only() -> None:
    async with run():
        windows = Windows()
        one, two = await windows.start(), await windows.start(uid="uid-2")
        assert (
            "completed successfully" in (await windows.cmd(one, "net user web Secret-1 /add")).out
        )
        assert "web" in (await windows.powershell(one, "(Get-LocalUser).Name")).out.split()
        await windows.powershell(
            one, "New-LocalUser job -NoPassword; Add-LocalGroupMember Administrators job"
        )
        assert "job" in (await windows.cmd(one, "net localgroup Administrators")).out
        assert "job" in (await windows.cmd(one, "wmic useraccount get name")).out
        assert (await windows.cmd(one, "net user web x /add")).err.startswith(
            "The account already exists."
        )
        unknown = await windows.cmd(two, "net user web")
        assert unknown.code == 2 and "NET HELPMSG 2221" in unknown.err
        assert "web" not in [user.name for user in windows.host.account_database.users()]
        await windows.cmd(one, "net user web /delete")
        assert "web" not in (await windows.powershell(one, "(Get-LocalUser).Name")).out.split()


@pytest.mark.windows("RES-06", "SEC-07")
async def test_an_account_of_the_image_runs_its_container_and_an_unknown_one_does_not() -> None:
    row = "{name: shop.example/app, windows: [17763], userland: servercore, options: {users: web}}"
    catalogue = catalogue_with(f"images: [{row}]", "test")

    async with run():
        windows = Windows(catalogue=catalogue)
        windows.host.account_database.add_user("hostonly")
        container = await windows.start(user="web", image="shop.example/app:1")
        whoami = await windows.cmd(container, "whoami /user")
        sid = whoami.out.split()[-1]
        assert r"web\web " in whoami.out and sid.startswith("S-1-5-21-") and sid.endswith("-1000")
        assert sid in (await windows.powershell(container, "(Get-LocalUser web).SID.Value")).out
        for name in ("nobody", "hostonly"):
            with pytest.raises(RuntimeFailure, match="The user name or password is incorrect"):
                await windows.start(user=name, uid=f"uid-{name}", image="shop.example/app:1")


@pytest.mark.windows("API-06", "LSTO-09")
async def test_access_control_lists_control_reads_and_writes() -> None:
    async with run():
        windows = Windows()
        windows.host.files.mkdir(r"C:\data")
        volume = (Mount(r"C:\data", r"C:\data"),)
        admin = await windows.start(mounts=volume)
        user = await windows.start(user="ContainerUser", uid="uid-2", mounts=volume)
        assert (await windows.cmd(admin, r"echo secret> C:\data\a.txt")).code == 0
        assert (await windows.cmd(user, r"type C:\data\a.txt")).out == "secret\r\n"
        denied = await windows.cmd(admin, r"icacls C:\data\a.txt /deny *S-1-5-93-2-2:R")
        assert denied.out.startswith("processed file: C:\\data\\a.txt") and denied.code == 0
        assert (await windows.cmd(user, r"type C:\data\a.txt")).err == "Access is denied.\r\n"
        assert (
            r"User Manager\ContainerUser:(DENY)(R)"
            in (await windows.cmd(admin, r"icacls C:\data\a.txt")).out
        )
        rules = await windows.powershell(
            admin, r"(Get-Acl C:\data\a.txt).Access | % { $_.AccessControlType }"
        )
        assert rules.out.startswith("Deny\r\n")
        unknown = await windows.cmd(admin, r"icacls C:\data\a.txt /grant nobody:F")
        assert (
            unknown.err == "nobody: No mapping between account names and security IDs was done.\r\n"
        )
        assert (
            unknown.out == "Successfully processed 0 files; Failed processing 1 files\r\n"
            and unknown.code == 1332
        )
        await windows.powershell(
            admin,
            (
                r"$a = Get-Acl C:\data; $a.SetAccessRuleProtection($true, $false); "
                r"$r = New-Object "
                r"System.Security.AccessControl.FileSystemAccessRule('Administrators','FullControl',"
                r"'ContainerInherit,ObjectInherit','None','Allow'); $a.AddAccessRule($r); "
                r"Set-Acl C:\data $a"
            ),
        )
        assert (
            await windows.cmd(user, r"dir C:\data")
        ).code == 1  # inherited by what is in it, and by what will be
        assert (await windows.cmd(admin, r"echo new> C:\data\b.txt")).code == 0
        assert (await windows.cmd(user, r"type C:\data\b.txt")).err == "Access is denied.\r\n"
        assert (
            await windows.cmd(user, r"icacls C:\data\b.txt /grant ContainerUser:F")
        ).err.endswith("Access is denied.\r\n")
        assert (
            await windows.cmd(user, r"takeown /f C:\data\b.txt")
        ).err == "ERROR: Access is denied.\r\n"
        assert (
            await windows.cmd(admin, r"icacls C:\data /reset & icacls C:\data /inheritance:e")
        ).code == 0
        assert (await windows.cmd(user, r"type C:\data\b.txt")).out == "new\r\n"


async def test_services_are_made_and_have_processes() -> None:
    async with run():
        windows = Windows()
        container = await windows.start()
        assert (await windows.cmd(container, r"sc query W32Shop")).code == 1060
        await windows.cmd(
            container, r"mkdir C:\app & copy C:\Windows\System32\cmd.exe C:\app\shop.exe"
        )
        made = await windows.cmd(
            container, r'sc create W32Shop binPath= "C:\app\shop.exe --port 80" start= auto'
        )
        assert made.out == "[SC] CreateService SUCCESS\r\n"
        assert "4  RUNNING" not in (await windows.cmd(container, "sc query W32Shop")).out
        assert (
            await windows.powershell(
                container, "Start-Service W32Shop; (Get-Service W32Shop).Status"
            )
        ).out == "Running\r\n"
        assert "shop.exe" in (await windows.cmd(container, "tasklist")).out
        query = "(Get-CimInstance Win32_Service -Filter \"Name='W32Shop'\").ProcessId"
        pid = (await windows.powershell(container, query)).out.strip()
        assert (
            f"PID                : {pid}"
            in (await windows.cmd(container, "sc queryex W32Shop")).out
        )
        registry = await windows.cmd(
            container, r"reg query HKLM\SYSTEM\CurrentControlSet\Services\W32Shop /v ImagePath"
        )
        assert r"C:\app\shop.exe --port 80" in registry.out
        assert (await windows.cmd(container, "net stop W32Shop & sc delete W32Shop")).code == 0
        assert "shop.exe" not in (await windows.cmd(container, "tasklist")).out
        # a console program is not a service: its start fails after half a minute
        await windows.cmd(
            container, r'sc create Odd binPath= "C:\Windows\System32\ping.exe -t localhost"'
        )
        odd = await windows.cmd(container, "sc start Odd", seconds=40)
        assert odd.code == 1053 and "did not respond to the start or control request" in odd.out
        missing = await windows.cmd(
            container, r"sc create Gone binPath= C:\none.exe & sc start Gone"
        )
        assert missing.code == 2
        assert (
            await windows.cmd(container, r"sc create Other binPath= C:\app\shop.exe obj= .\nobody")
        ).code == 1057


async def test_ordinary_users_change_neither_services_nor_accounts_nor_the_machines_registry() -> (
    None
):
    async with run():
        windows = Windows()
        container = await windows.start(user="ContainerUser")
        assert (await windows.cmd(container, r"sc create X binPath= C:\x.exe")).code == 5
        assert (await windows.cmd(container, "net user x /add")).err.startswith(
            "System error 5 has occurred."
        )
        assert (
            await windows.cmd(container, r"reg add HKLM\SOFTWARE\X /v a /d b")
        ).err == "ERROR: Access is denied.\r\n"
        assert (await windows.cmd(container, r"reg add HKCU\Software\X /v a /d b")).code == 0
        assert (
            await windows.powershell(container, r"(Get-ItemProperty HKCU:\Software\X).a")
        ).out == "b\r\n"


async def test_memory_of_processes_adds_up_to_what_the_kubelet_reports_and_hits_the_limit() -> None:
    async with run():
        windows = Windows("containerd")
        container = await windows.start(
            "powershell",
            "-Command",
            "$a = New-Object byte[] 200MB; while (1) { Start-Sleep 10 }",
            memory=300 << 20,
        )
        await windows.harness.clock.run_for(1)
        listed = await windows.cmd(container, "wmic process get workingsetsize")
        stats = next(
            one for one in windows.harness.runtime.container_stats() if one.id == container
        )
        sizes = [int(word) for word in listed.out.split()[1:]]
        system = (8 << 10) + (136 << 10)  # the two system processes
        assert abs(sum(sizes) - system - stats.working_set) < (4 << 20)
        assert stats.working_set >= 200 << 20
        hungry = await windows.powershell(
            container, "try { $b = New-Object byte[] 200MB } catch { 'refused' }"
        )
        assert hungry.out == "refused\r\n"
        shown = json.loads(
            (
                await windows.powershell(
                    container,
                    (
                        "Get-CimInstance Win32_OperatingSystem | Select TotalVisibleMemorySize | "
                        "ConvertTo-Json -Compress"
                    ),
                )
            ).out
        )
        assert shown["TotalVisibleMemorySize"] == windows.host.hardware.memory >> 10
        counter = "(Get-Counter '\\Memory\\Available MBytes').CounterSamples[0].CookedValue"
        free = (await windows.powershell(container, counter)).out
        memory = windows.host.memory()
        assert abs(int(float(free)) - ((memory.total - memory.working_set) >> 20)) <= 16


@pytest.mark.parametrize("flavour", ["docker", "containerd"])
async def test_mounts_at_other_drives_are_there(flavour: Flavour) -> None:
    async with run():
        windows = Windows(flavour)
        windows.host.files.mkdir(r"C:\disk")
        windows.host.files.write(r"C:\disk\a.txt", b"hello")
        mounts = (
            Mount("D:", r"C:\disk"),
            Mount(r"E:\data\in", r"C:\disk"),
            Mount(r"C:\v", r"C:\disk"),
        )
        container = await windows.start(mounts=mounts)
        for path in (r"D:\a.txt", r"E:\data\in\a.txt", r"C:\v\a.txt"):
            assert (await windows.cmd(container, f"type {path}")).out == "hello"
        assert (await windows.cmd(container, "d: & cd")).out == "D:\\\r\n"
        names = (
            await windows.powershell(
                container, "(Get-PSDrive -PSProvider FileSystem).Name -join ','"
            )
        ).out
        assert names == "C,D,E\r\n"
        assert (await windows.cmd(container, "wmic logicaldisk get deviceid")).out.split() == [
            "DeviceID",
            "C:",
            "D:",
            "E:",
        ]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (r"C:\a|b", "The filename, directory name, or volume label syntax is incorrect."),
        ("1:", "The filename, directory name, or volume label syntax is incorrect."),
        ("C:", "destination path cannot be `c:` or `c:\\`: c:"),
    ],
)
async def test_a_mount_path_that_cannot_be_is_an_error_and_nothing_disappears(
    path: str, why: str
) -> None:
    async with run():
        windows = Windows()
        windows.host.files.mkdir(r"C:\disk")
        with pytest.raises(RuntimeFailure) as failure:
            await windows.start(mounts=(Mount(path, r"C:\disk"),))
        assert why in failure.value.description


async def test_variables_set_for_the_machine_reach_the_next_process() -> None:
    async with run():
        windows = Windows()
        container = await windows.start()
        assert (
            await windows.cmd(container, "setx SHOP open /M")
        ).out == "\r\nSUCCESS: Specified value was saved.\r\n"
        assert (await windows.cmd(container, "echo %SHOP%")).out == "open\r\n"
        shown = await windows.powershell(
            container, "[Environment]::GetEnvironmentVariable('SHOP', 'Machine')"
        )
        assert shown.out == "open\r\n"
        await windows.powershell(
            container, "[Environment]::SetEnvironmentVariable('SHOP', 'closed', 'Machine')"
        )
        assert (await windows.cmd(container, "echo %SHOP%")).out == "closed\r\n"


async def test_a_started_process_outlives_its_script_and_can_run_as_another_user() -> None:
    async with run():
        windows = Windows()
        container = await windows.start()
        await windows.cmd(container, "net user web Secret-1 /add")
        out = await windows.powershell(
            container,
            (
                "$p = ConvertTo-SecureString 'Secret-1' -AsPlainText -Force; "
                "$c = New-Object System.Management.Automation.PSCredential('web', $p); "
                "Start-Process ping -ArgumentList '-t','localhost' -Credential $c; "
                "$q = Start-Process cmd -ArgumentList '/c exit 7' -PassThru -Wait; "
                "$q.HasExited, $q.ExitCode"
            ),
        )
        assert out.out == "True\r\n7\r\n"
        owners = await windows.powershell(container, "(Get-Process ping -IncludeUserName).UserName")
        assert r"\web" in owners.out
        wrong = await windows.powershell(
            container,
            (
                "$p = ConvertTo-SecureString 'nope' -AsPlainText -Force; "
                "Start-Process cmd -Credential (New-Object PSCredential('web', $p))"
            ),
        )
        assert "The user name or password is incorrect." in wrong.err


async def test_the_process_of_a_service_is_in_the_list_of_processes() -> None:
    async with run():
        windows = Windows()
        container = await windows.start()
        listed = await windows.powershell(container, "(Get-Process).Id -join ','")
        pids = await windows.powershell(
            container, "(Get-CimInstance Win32_Service).ProcessId | Sort -Unique"
        )
        assert pids.out and set(pids.out.split()) <= set(listed.out.strip().split(","))
