"""Optional features of Windows: which are installed is in the registry, as Windows keeps it.

A feature that needs a restart is pending until then.
"""

from __future__ import annotations

from typing import Final, Literal

from transom.kit.named_tuple import NamedTuple
from transom.machines.windows.registry import WindowsRegistry

SERVICING: Final = r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing"
REBOOT_PENDING: Final = SERVICING + r"\RebootPending"
_FEATURES: Final = SERVICING + r"\Notifications\OptionalFeatures"
_SELECTION, _PENDING = "Selection", "Pending"
CONTAINERS: Final = "Containers"

FeatureState = Literal["Enabled", "Disabled", "Enable Pending", "Disable Pending"]


class Feature(NamedTuple):
    name: str  # of DISM
    role: str  # of the Server Manager
    display_name: str
    description: str
    installed: bool = False  # on a fresh system
    restart: bool = False


FEATURES: Final = (
    Feature(
        CONTAINERS,
        "Containers",
        "Containers",
        "Provides services and tools to create and manage Windows Server Containers and their "
        "resources.",
        installed=True,
        restart=True,
    ),
    Feature(
        "Microsoft-Hyper-V",
        "Hyper-V",
        "Hyper-V",
        "Provides the services that you can use to create and manage virtual machines and their "
        "resources.",
        restart=True,
    ),
    Feature("NetFx4", "NET-Framework-45-Core", ".NET Framework 4.7", ".NET Framework 4.7", True),
    Feature(
        "NetFx3ServerFeatures",
        "NET-Framework-Core",
        ".NET Framework 3.5 (includes .NET 2.0 and 3.0)",
        ".NET Framework 3.5 (includes .NET 2.0 and 3.0)",
    ),
    Feature(
        "IIS-WebServerRole",
        "Web-Server",
        "Web Server (IIS)",
        "Internet Information Services provides support for Web and FTP servers.",
    ),
    Feature(
        "FailoverCluster-FullServer",
        "Failover-Clustering",
        "Failover Clustering",
        "Failover Clustering allows multiple servers to work together.",
        restart=True,
    ),
    Feature("MultipathIo", "Multipath-IO", "Multipath I/O", "Multipath I/O", restart=True),
    Feature(
        "SMB1Protocol",
        "FS-SMB1",
        "SMB 1.0/CIFS File Sharing Support",
        "Support for the SMB 1.0/CIFS file sharing protocol, and the Computer Browser protocol.",
        restart=True,
    ),
    Feature("TelnetClient", "Telnet-Client", "Telnet Client", "Allows you to connect to servers."),
    Feature(
        "Windows-Defender",
        "Windows-Defender",
        "Windows Defender Antivirus",
        "Windows Defender Antivirus helps protect your machine from malware.",
        installed=True,
        restart=True,
    ),
    Feature(
        "WindowsServerBackup",
        "Windows-Server-Backup",
        "Windows Server Backup",
        "Windows Server Backup allows you to back up and recover your operating system.",
    ),
    Feature("MicrosoftWindowsPowerShell", "PowerShell", "Windows PowerShell 5.1", "", True),
)


def find_feature(name: str) -> Feature | None:
    """By either of its names."""
    wanted = name.lower()
    return next((one for one in FEATURES if wanted in (one.name.lower(), one.role.lower())), None)


def _is_installed(registry: WindowsRegistry, feature: Feature) -> bool:
    found = registry.get(rf"{_FEATURES}\{feature.name}", _SELECTION)
    return feature.installed if found is None else found == 1


def has_feature(registry: WindowsRegistry, name: str) -> bool:
    """Whether it has been installed since the last restart."""
    feature = find_feature(name)
    return feature is not None and _is_installed(registry, feature)


def feature_state(registry: WindowsRegistry, feature: Feature) -> FeatureState:
    pending = registry.get(rf"{_FEATURES}\{feature.name}", _PENDING)
    if pending is not None:
        return "Enable Pending" if pending == 1 else "Disable Pending"
    return "Enabled" if _is_installed(registry, feature) else "Disabled"


def change_feature(registry: WindowsRegistry, feature: Feature, install: bool) -> bool:
    """Returns whether a restart is needed."""
    key = rf"{_FEATURES}\{feature.name}"
    if _is_installed(registry, feature) == install:
        registry.delete(key, _PENDING)
        return False
    if not feature.restart:
        registry.set(key, _SELECTION, int(install))
        return False
    registry.set(key, _PENDING, int(install))
    registry.create(REBOOT_PENDING)
    return True


def finish_features(registry: WindowsRegistry) -> None:
    """Installs and removes what waits for a restart."""
    if not registry.exists(REBOOT_PENDING):
        return
    for feature in FEATURES:
        key = rf"{_FEATURES}\{feature.name}"
        pending = registry.get(key, _PENDING)
        if isinstance(pending, int):
            registry.set(key, _SELECTION, pending)
            registry.delete(key, _PENDING)
    registry.delete(REBOOT_PENDING)
