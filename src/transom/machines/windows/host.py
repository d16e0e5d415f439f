"""A Windows machine: its registry, which defines its version, its files, and memory without an OOM
killer.

Memory: what processes request is *committed*, up to physical memory plus page file; requests beyond
that fail. While less is committed than is physically available, all of it is resident. Beyond that
every working set is trimmed in the same proportion, the rest is in the page file, and the machine
slows down in proportion to the paged fraction: everything takes twenty times longer when all is
paged (a tenth paged: three times as long; half: eleven).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from transom.kit.clock import Clock
from transom.kit.lazy import lazy_import
from transom.machines.api import Hardware, MemoryUse, SystemInfo
from transom.machines.inodes import Inode
from transom.machines.machine import BaseHost, MachineAccount
from transom.machines.saving import Document, SavedContents
from transom.machines.styles import WINDOWS
from transom.machines.trees import INSTALLED as INSTALLED_AT
from transom.machines.trees import Entry, TreeFile, TreeFolder, TreeOpenFolder, make_tree
from transom.machines.windows.accounts import AccountDatabase
from transom.machines.windows.features import finish_features
from transom.machines.windows.firewall import node_firewall_keys
from transom.machines.windows.journal import SystemJournal
from transom.machines.windows.programs import OF_WINDOWS
from transom.machines.windows.registry import ExpandString, Hive, WindowsRegistry
from transom.machines.windows.variables import INSTALLED as INSTALLED_VARIABLES
from transom.machines.windows.variables import PATH
from transom.windows.builds import DEFAULT, WindowsBuild

if TYPE_CHECKING:
    from transom.machines.windows import hns as hns_service
    from transom.machines.windows.hns import HostNetworkService
else:
    hns_service = lazy_import("transom.machines.windows.hns")

CURRENT_VERSION: Final = r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion"
TCPIP: Final = r"HKLM\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters"
CREDENTIAL_SPECS: Final = CURRENT_VERSION + r"\Virtualization\Containers\CredentialSpecs"
CONTROL: Final = r"HKLM\SYSTEM\CurrentControlSet\Control"
MEMORY_MANAGEMENT: Final = CONTROL + r"\Session Manager\Memory Management"
PREFETCH: Final = MEMORY_MANAGEMENT + r"\PrefetchParameters"
_VERSION: Final = (
    "CurrentMajorVersionNumber",
    "CurrentMinorVersionNumber",
    "CurrentBuildNumber",
    "UBR",
)
_PAGING: Final = 20.0
PROCESSOR: Final = "Intel(R) Xeon(R) CPU E5-2673 v4 @ 2.30GHz"

CLASSES: Final = r"HKLM\SOFTWARE\Classes"
_FILE_TYPES: Final = {
    ".bat": "batfile",
    ".cmd": "cmdfile",
    ".exe": "exefile",
    ".reg": "regfile",
    ".txt": "txtfile",
}
_OPEN_COMMANDS: Final = {
    "batfile": '"%1" %*',
    "cmdfile": '"%1" %*',
    "exefile": '"%1" %*',
    "regfile": 'regedit.exe "%1"',
    "txtfile": ExpandString(r"%SystemRoot%\system32\NOTEPAD.EXE %1"),
}
_PROGRAM = TreeFile(b"MZ", 0o755)
_HOSTS = TreeFile(
    b"# Copyright (c) 1993-2009 Microsoft Corp.\r\n#\r\n"
    b"# This is a sample HOSTS file used by Microsoft TCP/IP for Windows.\r\n#\r\n"
    b"#\t127.0.0.1       localhost\r\n#\t::1             localhost\r\n"
)
_INSTALLED: dict[str, Entry] = {
    r"C:\Windows\System32\drivers\etc\hosts": _HOSTS,
    **dict.fromkeys(
        (
            rf"C:\Windows\System32\{name}.exe"
            for name in (*OF_WINDOWS, "csrss", "lsass", "services", "smss", "svchost", "wininit")
        ),
        _PROGRAM,
    ),
    r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe": _PROGRAM,
    r"C:\Windows\System32\config\systemprofile": TreeFolder(),
    r"C:\Program Files": TreeFolder(),
    r"C:\Program Files (x86)": TreeFolder(),
    r"C:\ProgramData": TreeFolder(),
    r"C:\Users\Administrator": TreeFolder(),
    r"C:\Users\Public": TreeOpenFolder(),
    r"C:\Windows\Temp": TreeOpenFolder(),
    "C:\\": TreeOpenFolder(),  # last: only directories created later are open to all accounts
}


@cache
def installed_windows_files() -> Inode:
    """The disk of a fresh machine."""
    return make_tree(WINDOWS, _INSTALLED)


def product_id(build: int) -> str:
    return f"00430-00000-00000-AA{build % 1000:03d}"


@cache
def version_keys(build: WindowsBuild) -> Hive:
    """The registry values of a build, for a machine and for a container, which has its own
    registry.
    """
    number = str(build.number)
    named = (
        {"ReleaseId": build.release}
        if build.release.isdigit()
        else {"ReleaseId": "2009", "DisplayVersion": build.release}
    )
    return {
        CURRENT_VERSION: {
            "CurrentMajorVersionNumber": 10,
            "CurrentMinorVersionNumber": 0,
            "CurrentVersion": "6.3",
            "CurrentBuild": number,
            "CurrentBuildNumber": number,
            "UBR": build.ubr,
            "ProductName": build.product,
            "EditionID": "ServerDatacenter",
            "InstallationType": "Server Core",
            "ProductId": product_id(build.number),
            "InstallDate": int(INSTALLED_AT),
            "SystemRoot": r"C:\Windows",
            "PathName": r"C:\Windows",
            **named,
        },
        CREDENTIAL_SPECS: {},
        CONTROL: {
            "WaitToKillServiceTimeout": "5000",
            "CurrentUser": "USERNAME",
            "SystemBootDevice": "multi(0)disk(0)rdisk(0)partition(2)",
            "SystemStartOptions": " NOEXECUTE=OPTOUT",
        },
        CONTROL + r"\FileSystem": {"LongPathsEnabled": 0, "NtfsDisable8dot3NameCreation": 2},
        CONTROL + r"\TimeZoneInformation": {
            "TimeZoneKeyName": "UTC",
            "Bias": 0,
            "StandardName": "Coordinated Universal Time",
        },
        CONTROL + r"\Session Manager\Environment": {
            name: INSTALLED_VARIABLES[name]
            for name in ("ComSpec", "OS", "PATHEXT", "PROCESSOR_ARCHITECTURE", "windir")
        }
        | {"Path": ExpandString(PATH)},
        MEMORY_MANAGEMENT: {"ClearPageFileAtShutdown": 0, "DisablePagingExecutive": 0},
        TCPIP: {
            "DataBasePath": ExpandString(r"%SystemRoot%\System32\drivers\etc"),
            "IPEnableRouter": 0,
        },
        r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion": {
            "ProgramFilesDir": r"C:\Program Files",
            "CommonFilesDir": r"C:\Program Files\Common Files",
        },
        r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Run": {},
        r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Uninstall": {},
        r"HKLM\SOFTWARE\Microsoft\NET Framework Setup\NDP\v4\Full": {
            "Release": 461814,
            "Version": "4.7.03190",
            "Install": 1,
        },
        r"HKLM\HARDWARE\DESCRIPTION\System\CentralProcessor\0": {
            "ProcessorNameString": PROCESSOR,
            "~MHz": 2594,
        },
        r"HKCU\Software": {},
        r"HKCU\Environment": {},
        CONTROL + r"\ProductOptions": {"ProductType": "ServerNT"},
        **{rf"{CLASSES}\{extension}": {"": kind} for extension, kind in _FILE_TYPES.items()},
        **{
            rf"{CLASSES}\{kind}\shell\open\command": {"": command}
            for kind, command in _OPEN_COMMANDS.items()
        },
    }


@cache
def _machine_keys(build: WindowsBuild) -> Hive:
    return {**version_keys(build), **node_firewall_keys()}


def computer_name(hostname: str) -> str:
    """The NetBIOS name of a machine or container."""
    return hostname.upper()[:15]


class WindowsHost(BaseHost):
    __slots__ = (
        "_accounts_saved",
        "_hns",
        "_journal_saved",
        "_registry_saved",
        "account_database",
        "build",
        "journal",
        "registry",
    )

    style = WINDOWS
    layer_size = 20 << 30
    system_memory = 1200 << 20
    system_cores = 0.05

    def __init__(
        self,
        name: str,
        clock: Clock,
        hardware: Hardware | None = None,
        *,
        build: WindowsBuild = DEFAULT,
        seed: str = "",
    ) -> None:
        self.build = build
        self.registry = WindowsRegistry(_machine_keys(build))
        self._registry_saved = 0  # its number of changes
        self._hns: HostNetworkService | None = None
        super().__init__(name, clock, hardware, seed, installed_windows_files())
        self.registry.set(PREFETCH, "BootId", self.digest("boots")[0] % 40 + 3)
        for key in ("ComputerName", "ActiveComputerName"):
            self.registry.set(rf"{CONTROL}\ComputerName\{key}", "ComputerName", computer_name(name))
        self.registry.set(TCPIP, "Hostname", name)
        self.registry.set(TCPIP, "NV Hostname", name)
        self.registry.set(MEMORY_MANAGEMENT, "PagingFiles", (r"C:\pagefile.sys 0 0",))
        self.journal = SystemJournal()
        self._journal_saved = self.journal.save()
        self.account_database = AccountDatabase(
            computer_name(name), f"{seed}/{name}", created=INSTALLED_AT
        )
        self._accounts_saved = self.account_database.save()

    @property
    def computer_name(self) -> str:
        return str(
            self.registry.get(CONTROL + r"\ComputerName\ActiveComputerName", "ComputerName")
            or computer_name(self.name)
        )

    @property
    def identity(self) -> SystemInfo:
        registry = self.registry
        version = [registry.get(CURRENT_VERSION, name) for name in _VERSION]
        return SystemInfo(
            hostname=self.name,
            machine_id=self.name,
            system_uuid=self.uuid("system").upper(),
            boot_id=str(registry.get(PREFETCH, "BootId")),
            kernel_version=".".join(map(str, version)),
            os_image=str(registry.get(CURRENT_VERSION, "ProductName")),
            operating_system="windows",
            architecture="amd64",
        )

    @property
    def hns(self) -> hns_service.HostNetworkService:
        """Created on first access; without an adapter until one is added."""
        if self._hns is None:
            self._hns = hns_service.HostNetworkService(
                self.build, seed=f"{self.seed}/{self.name}", now=self.clock.time
            )
        return self._hns

    def reboot(self) -> None:
        boots = self.registry.get(PREFETCH, "BootId")
        self.registry.set(PREFETCH, "BootId", boots + 1 if isinstance(boots, int) else 1)
        finish_features(self.registry)
        if self._hns is not None:
            self._hns.reboot()
        super().reboot()

    def has_changed(self) -> bool:
        known = (
            self.registry.changes == self._registry_saved
            and self.account_database.save() == self._accounts_saved
            and self.journal.save() == self._journal_saved
        )
        return super().has_changed() or not known

    def save(self, contents: SavedContents) -> Document:
        self._registry_saved = self.registry.changes
        self._accounts_saved = self.account_database.save()
        self._journal_saved = self.journal.save()
        return {
            **super().save(contents),
            "registry": self.registry.save(),
            "accounts": self._accounts_saved,
            "journal": self._journal_saved,
        }

    def restore(self, saved: Document, contents: SavedContents) -> None:
        self.registry.restore(saved["registry"])
        if "accounts" in saved:
            self.account_database.restore(saved["accounts"])
        if "journal" in saved:
            self.journal.restore(saved["journal"])
        super().restore(saved, contents)

    # Memory

    def memory(self) -> MemoryUse:
        total = self.hardware.memory
        resident = min(self.committed, total)
        return MemoryUse(
            total=total,
            working_set=resident,
            usage=self.committed,
            rss=0,
            paged=self.committed - resident,
            commit_limit=self.commit_limit,
        )

    @property
    def commit_limit(self) -> int:
        return self.hardware.memory + self.hardware.page_file

    def slowdown(self) -> float:
        if self.committed <= self.hardware.memory:
            return 1.0
        return 1.0 + _PAGING * (1.0 - self.hardware.memory / self.committed)

    def resident(self, size: int) -> int:
        if self.committed <= self.hardware.memory:
            return size
        return size * self.hardware.memory // self.committed

    def resize(self, account: MachineAccount, size: int) -> bool:
        more = size - account.memory
        if account not in self.accounts or (more > 0 and self.committed + more > self.commit_limit):
            return False
        self.committed += more
        account.memory = size
        return True
