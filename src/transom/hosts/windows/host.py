"""A Windows machine: its registry, from which it knows its version, its files, and memory that is never used up by killing.

Memory: what processes ask for is *committed*, and there is as much of it as physical memory and page file together; who asks
for more is refused. While less is committed than is physically there, all of it is resident. Beyond that every working set
is trimmed in the same proportion, the rest is in the page file, and the machine gets slow: everything takes twenty times
longer for all that is committed being paged, and in proportion (a tenth of it paged: three times as long; half: eleven).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from transom.hosts.api import Hardware, Identity, MemoryUse
from transom.hosts.machine import Account, Machine
from transom.hosts.nodes import Node
from transom.hosts.styles import WINDOWS
from transom.hosts.trees import Entry, File, Folder, Open, tree
from transom.hosts.windows.registry import Hive, Registry
from transom.kit.clock import Clock
from transom.windows.builds import DEFAULT, Build

if TYPE_CHECKING:
    from transom.hosts.windows.hns import Hns

CURRENT_VERSION: Final = r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion"
CREDENTIAL_SPECS: Final = CURRENT_VERSION + r"\Virtualization\Containers\CredentialSpecs"
CONTROL: Final = r"HKLM\SYSTEM\CurrentControlSet\Control"
PREFETCH: Final = CONTROL + r"\Session Manager\Memory Management\PrefetchParameters"
_VERSION: Final = ("CurrentMajorVersionNumber", "CurrentMinorVersionNumber", "CurrentBuildNumber", "UBR")
_PAGING: Final = 20.0

_PROGRAM = File(b"MZ", 0o755)
_HOSTS = File(
    b"# Copyright (c) 1993-2009 Microsoft Corp.\r\n#\r\n"
    b"# This is a sample HOSTS file used by Microsoft TCP/IP for Windows.\r\n#\r\n"
    b"#\t127.0.0.1       localhost\r\n#\t::1             localhost\r\n"
)
_INSTALLED: dict[str, Entry] = {
    r"C:\Windows\System32\drivers\etc\hosts": _HOSTS,
    **dict.fromkeys((rf"C:\Windows\System32\{name}.exe" for name in ("cmd", "curl", "hostname", "ipconfig", "tar")), _PROGRAM),
    r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe": _PROGRAM,
    r"C:\Windows\System32\config\systemprofile": Folder(),
    r"C:\Program Files": Folder(),
    r"C:\Program Files (x86)": Folder(),
    r"C:\ProgramData": Folder(),
    r"C:\Users\Administrator": Folder(),
    r"C:\Users\Public": Open(),
    r"C:\Windows\Temp": Open(),
    "C:\\": Open(),  # last, so that only folders made later are everybody's
}


@cache
def installed() -> Node:
    """What is on the disk of a fresh machine."""
    return tree(WINDOWS, _INSTALLED)


@cache
def version_keys(build: Build) -> Hive:
    """What a build's registry says of it; of a machine's, and of a container's, that has its own."""
    number = str(build.number)
    named = {"ReleaseId": build.release} if build.release.isdigit() else {"ReleaseId": "2009", "DisplayVersion": build.release}
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
            **named,
        },
        CREDENTIAL_SPECS: {},
        CONTROL: {"WaitToKillServiceTimeout": "5000"},
        CONTROL + r"\ProductOptions": {"ProductType": "ServerNT"},
        r"HKLM\SYSTEM\CurrentControlSet\Services\cexecsvc": {},
    }


class WindowsHost(Machine):
    __slots__ = ("_hns", "build", "registry")

    style = WINDOWS
    system_memory = 1200 << 20
    system_cores = 0.05

    def __init__(
        self, name: str, clock: Clock, hardware: Hardware | None = None, *, build: Build = DEFAULT, seed: str = ""
    ) -> None:
        self.build = build
        self.registry = Registry(version_keys(build))
        self._hns: Hns | None = None
        super().__init__(name, clock, hardware, seed, installed())
        self.registry.set(PREFETCH, "BootId", self.digest("boots")[0] % 40 + 3)
        self.registry.set(CONTROL + r"\ComputerName\ComputerName", "ComputerName", self.computer_name)

    @property
    def computer_name(self) -> str:
        return self.name.upper()[:15]

    @property
    def identity(self) -> Identity:
        registry = self.registry
        version = [registry.get(CURRENT_VERSION, name) for name in _VERSION]
        return Identity(
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
    def hns(self) -> Hns:
        """Made when somebody asks; without an adapter until somebody plugs one in."""
        if self._hns is None:
            from transom.hosts.windows.hns import Hns

            self._hns = Hns(self.build, seed=f"{self.seed}/{self.name}", now=self.clock.time)
        return self._hns

    def reboot(self) -> None:
        boots = self.registry.get(PREFETCH, "BootId")
        self.registry.set(PREFETCH, "BootId", boots + 1 if isinstance(boots, int) else 1)
        if self._hns is not None:
            self._hns.reboot()
        super().reboot()

    # Memory

    def memory(self) -> MemoryUse:
        total = self.hardware.memory
        resident = min(self.committed, total)
        return MemoryUse(total=total, working_set=resident, usage=self.committed, rss=0, paged=self.committed - resident)

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

    def resize(self, account: Account, size: int) -> bool:
        more = size - account.memory
        if account not in self.accounts or (more > 0 and self.committed + more > self.commit_limit):
            return False
        self.committed += more
        account.memory = size
        return True
