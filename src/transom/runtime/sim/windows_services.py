"""Windows' own services on a machine: their names, accounts and dependencies, and the placeholder
processes of those that run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from transom.machines.windows.services import Start

PROGRAM: Final = r"C:\Windows\System32\svchost.exe"
NETWORKING: Final = "hns"
OF_CONTAINERS: Final = (NETWORKING, "vmcompute")  # services of the feature Containers
LOCAL_SERVICE: Final = r"NT AUTHORITY\LocalService"
NETWORK_SERVICE: Final = r"NT AUTHORITY\NetworkService"
SECURITY: Final = r"C:\Windows\system32\lsass.exe"
FIRST: Final = "BFE"  # a service that no administrator deletes
USERS: Final = {LOCAL_SERVICE: "LOCAL SERVICE", NETWORK_SERVICE: "NETWORK SERVICE"}
_RPC: Final = ("RpcSs",)


class WindowsServiceRow(NamedTuple):
    """A service of Windows. One that starts on demand is stopped after boot."""

    name: str
    display_name: str
    group: str = "netsvcs"  # of svchost.exe
    account: str = "LocalSystem"
    depends: tuple[str, ...] = ()
    start: Start = "auto"
    stoppable: bool = True
    program: str = ""  # instead of svchost.exe

    @property
    def bin_path(self) -> str:
        return self.program or f"{PROGRAM} -k {self.group} -p"


SERVICES: Final = (  # a service comes after those that it depends on
    WindowsServiceRow(
        "BFE", "Base Filtering Engine", "LocalServiceNoNetworkFirewall", LOCAL_SERVICE, _RPC
    ),
    WindowsServiceRow(
        "BITS", "Background Intelligent Transfer Service", depends=_RPC, start="demand"
    ),
    WindowsServiceRow(
        "CryptSvc", "Cryptographic Services", "NetworkService", NETWORK_SERVICE, _RPC
    ),
    WindowsServiceRow("DcomLaunch", "DCOM Server Process Launcher", "DcomLaunch", stoppable=False),
    WindowsServiceRow(
        "Dhcp", "DHCP Client", "LocalServiceNetworkRestricted", LOCAL_SERVICE, stoppable=False
    ),
    WindowsServiceRow("Dnscache", "DNS Client", "NetworkService", NETWORK_SERVICE, stoppable=False),
    WindowsServiceRow(
        "EventLog",
        "Windows Event Log",
        "LocalServiceNetworkRestricted",
        LOCAL_SERVICE,
        stoppable=False,
    ),
    WindowsServiceRow("EventSystem", "COM+ Event System", "LocalService", LOCAL_SERVICE, _RPC),
    WindowsServiceRow("gpsvc", "Group Policy Client", depends=_RPC, stoppable=False),
    WindowsServiceRow(NETWORKING, "Host Network Service", "NetSvcs", depends=_RPC),
    WindowsServiceRow("iphlpsvc", "IP Helper", "NetSvcs", depends=_RPC),
    WindowsServiceRow("LanmanServer", "Server", depends=("SamSs",)),
    WindowsServiceRow(
        "LanmanWorkstation", "Workstation", "NetworkService", NETWORK_SERVICE, ("nsi",)
    ),
    WindowsServiceRow(
        "lmhosts",
        "TCP/IP NetBIOS Helper",
        "LocalServiceNetworkRestricted",
        LOCAL_SERVICE,
    ),
    WindowsServiceRow("LSM", "Local Session Manager", "DcomLaunch", stoppable=False),
    WindowsServiceRow(
        "MpsSvc",
        "Windows Defender Firewall",
        "LocalServiceNoNetworkFirewall",
        LOCAL_SERVICE,
        ("BFE",),
        stoppable=False,
    ),
    WindowsServiceRow(
        "msiserver",
        "Windows Installer",
        depends=_RPC,
        start="demand",
        program=r"C:\Windows\system32\msiexec.exe /V",
    ),
    WindowsServiceRow(
        "NlaSvc", "Network Location Awareness", "NetworkService", NETWORK_SERVICE, ("nsi", "RpcSs")
    ),
    WindowsServiceRow(
        "nsi",
        "Network Store Interface Service",
        "LocalService",
        LOCAL_SERVICE,
        stoppable=False,
    ),
    WindowsServiceRow("PlugPlay", "Plug and Play", "DcomLaunch", start="auto"),
    WindowsServiceRow("Power", "Power", "DcomLaunch", stoppable=False),
    WindowsServiceRow("ProfSvc", "User Profile Service", depends=_RPC),
    WindowsServiceRow("RemoteRegistry", "Remote Registry", "localService", LOCAL_SERVICE, _RPC),
    WindowsServiceRow(
        "RpcEptMapper", "RPC Endpoint Mapper", "RPCSS", NETWORK_SERVICE, stoppable=False
    ),
    WindowsServiceRow(
        "RpcSs",
        "Remote Procedure Call (RPC)",
        "rpcss",
        NETWORK_SERVICE,
        ("RpcEptMapper", "DcomLaunch"),
        stoppable=False,
    ),
    WindowsServiceRow(
        "SamSs",
        "Security Accounts Manager",
        depends=_RPC,
        stoppable=False,
        program=SECURITY,
    ),
    WindowsServiceRow("Schedule", "Task Scheduler", depends=("RpcSs",)),
    WindowsServiceRow("SENS", "System Event Notification Service", depends=("EventSystem",)),
    WindowsServiceRow(
        "TermService", "Remote Desktop Services", "NetworkService", NETWORK_SERVICE, _RPC
    ),
    WindowsServiceRow(
        "TrustedInstaller",
        "Windows Modules Installer",
        start="demand",
        program=r"C:\Windows\servicing\TrustedInstaller.exe",
    ),
    WindowsServiceRow("vmcompute", "Hyper-V Host Compute Service", depends=_RPC, stoppable=False),
    WindowsServiceRow("W32Time", "Windows Time", "LocalService", LOCAL_SERVICE),
    WindowsServiceRow(
        "WinDefend",
        "Windows Defender Antivirus Service",
        depends=_RPC,
        stoppable=False,
        program=r'"C:\ProgramData\Microsoft\Windows Defender\platform\4.18.2011.6-0\MsMpEng.exe"',
    ),
    WindowsServiceRow("Winmgmt", "Windows Management Instrumentation", depends=_RPC),
    WindowsServiceRow(
        "WinRM",
        "Windows Remote Management (WS-Management)",
        "NetworkService",
        NETWORK_SERVICE,
        _RPC,
    ),
    WindowsServiceRow("wuauserv", "Windows Update", depends=_RPC, start="demand"),
)
BY_NAME: Final = {row.name.lower(): row for row in SERVICES}


# By runtime: the display name of its service, and the command line of its process.
RUNTIMES: Final = {
    "docker": ("Docker Engine", r'"C:\Program Files\Docker\dockerd.exe" --run-service'),
    "containerd": ("containerd", r'"C:\Program Files\containerd\containerd.exe" --run-service'),
}


class ResidentProgram:
    """A placeholder process that runs until it is stopped; its work is done elsewhere."""

    def __init__(self, pid: int, ended: Callable[[], None]) -> None:
        self.pid = pid
        self._on_end = ended
        self._end: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def ready(self) -> None:
        return

    async def wait(self) -> int:
        return await asyncio.shield(self._end)

    async def stop(self) -> None:
        self.finish()

    def finish(self) -> None:
        if not self._end.done():
            self._end.set_result(0)
            self._on_end()
