"""Classes and namespaces of WMI on Windows Server that are not simulated. Queries for them fail with
an error that differs from the one for a name that Windows does not know.
"""

from __future__ import annotations

from typing import Final

NOT_SUPPORTED: Final = 0x8004100C  # WBEM_E_NOT_SUPPORTED


def _words(text: str) -> frozenset[str]:
    return frozenset(text.lower().split())


_NAMESPACES: Final = (
    "root/default",
    "root/hyperv",
    "root/interop",
    "root/microsoft",
    "root/rsop",
    "root/security",
    "root/securitycenter",
    "root/standardcimv2",
    "root/subscription",
    "root/virtualization",
    "root/wmi",
)
_WIN32: Final = _words(
    "ACE ActiveRoute AllocatedResource ApplicationService AssociatedProcessorMemory "
    "AutochkSetting BaseBoard BaseService Battery BootConfiguration Bus CacheMemory CDROMDrive "
    "ClassicCOMClass ClientApplicationSetting ClusterShare CodecFile COMApplication COMClass "
    "COMSetting ComputerShutdownEvent ComputerSystemEvent ComputerSystemProcessor "
    "ComputerSystemWindowsProductActivationSetting CurrentProbe DCOMApplication "
    "DCOMApplicationSetting DependentService Desktop DesktopMonitor DeviceBus "
    "DeviceMemoryAddress DfsNode DiskDrivePhysicalMedia DiskDriveToDiskPartition DiskQuota "
    "DisplayConfiguration DMAChannel DriverForDevice Fan FileSpecification FolderRedirection "
    "GroupInDomain HeatPipe IDEController ImplementedCategory InfraredDevice IniFileSpecification "
    "InstalledSoftwareElement IP4PersistedRouteTable IP4RouteTable IP4RouteTableEvent "
    "IRQResource JobObjectStatus Keyboard LoadOrderGroup LocalTime LogicalDiskRootDirectory "
    "LogicalDiskToPartition LogicalFileSecuritySetting LogicalMemoryConfiguration "
    "LogicalShareSecuritySetting LogonSessionMappedDisk LUID MappedLogicalDisk MemoryArray "
    "MemoryDevice MotherboardDevice MountPoint NamedJobObject NetworkAdapterSetting "
    "NetworkClient NetworkConnection NetworkLoginProfile NetworkProtocol NTDomain "
    "NTLogEventLog NTLogEventUser OfflineFilesCache OnBoardDevice OperatingSystemQFE "
    "OptionalFeature OSRecoveryConfiguration PageFile ParallelPort PCMCIAController Perf "
    "PerfFormattedData PerfRawData PhysicalMedia PhysicalMemoryArray PingStatus PnPEntity "
    "PnPSignedDriver PointingDevice PortableBattery PortConnector PortResource PowerPlan "
    "Printer PrinterConfiguration PrinterDriver PrinterShare PrintJob ProcessStartTrace "
    "ProcessStartup ProcessStopTrace ProcessTrace ProductCheck ProgIDSpecification ProtocolBinding "
    "Proxy QuotaSetting Reliability ReliabilityRecords ReliabilityStabilityMetrics Registry "
    "RoamingProfileMachineConfiguration ScsiController SCSIControllerDevice SecurityDescriptor "
    "SecurityDescriptorHelper SecuritySetting SerialPort ServerConnection ServerFeature "
    "ServerSession ServiceControl SessionProcess SessionResource ShadowBy ShadowCopy "
    "ShadowProvider ShadowStorage ShareToDirectory SID SMBIOSMemory SoftwareElement "
    "SoftwareFeature SoundDevice SubSession SystemAccount SystemBIOS SystemDevices "
    "SystemDriver SystemDriverPNPEntity SystemEnclosure SystemLoadOrderGroups "
    "SystemLogicalMemoryConfiguration SystemOperatingSystem SystemPartitions SystemProcesses "
    "SystemResources SystemServices SystemSlot SystemTimeZone SystemUsers TapeDrive "
    "TemperatureProbe TerminalServiceSetting Thread Trustee TSAccount TSGeneralSetting "
    "UninterruptiblePowerSupply USBController USBControllerDevice USBHub UserDesktop "
    "UserInDomain UserStateConfigurationControls UTCTime VideoConfiguration VideoController "
    "VideoSettings VoltageProbe VolumeChangeEvent VolumeQuota VolumeUserQuota "
    "WindowsProductActivation WinSAT WMISetting"
)
_COUNTER_SETS: Final = ("win32_perfformatteddata_", "win32_perfrawdata_")
_CIM: Final = _words(
    "cim_battery cim_bioselement cim_bootservice cim_cachememory cim_card cim_chassis "
    "cim_chip cim_computersystem cim_controller cim_device cim_devicefile cim_directory "
    "cim_diskdrive cim_diskpartition cim_fan cim_filesystem cim_job cim_keyboard "
    "cim_logicaldevice cim_logicaldisk cim_logicalelement cim_logicalfile cim_memory "
    "cim_networkadapter cim_operatingsystem cim_physicalelement cim_physicalmemory "
    "cim_printer cim_process cim_processor cim_product cim_sensor cim_service cim_setting "
    "cim_storageextent cim_system cim_systemresource cim_usbdevice cim_videocontroller"
)
ALIASES: Final = _words(
    "baseboard bootconfig cdrom csproduct dcomapp desktop desktopmonitor devicememoryaddress "
    "diskdrive diskquota dmachannel environment fsdir group idecontroller irq job loadorder "
    "logon memcache memorychip memphysical netclient netlogin netprotocol netuse nteventlog "
    "ntdomain onboarddevice pagefileset partition port portconnector printer printerconfig "
    "printjob product quotasetting rdaccount rdnic rdpermissions rdtoggle recoveros registry "
    "scsicontroller server shadowcopy shadowstorage sounddev softwareelement softwarefeature "
    "sysaccount sysdriver systemenclosure systemslot tapedrive temperature ups "
    "useraccount voltage volumequotasetting volumeuserquota wmiset"
)
"""The words of wmic that stand for a class."""


def is_unsupported_namespace(name: str) -> bool:
    """`name` has slashes."""
    lower = name.lower()
    return lower == "root" or any(
        lower == one or lower.startswith(one + "/") for one in _NAMESPACES
    )


def is_unsupported_class(name: str) -> bool:
    lower = name.lower()
    return (
        (lower.removeprefix("win32_") in _WIN32 and lower.startswith("win32_"))
        or lower in _CIM
        or lower.startswith(_COUNTER_SETS)
    )
