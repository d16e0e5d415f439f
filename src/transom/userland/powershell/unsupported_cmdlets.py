"""Cmdlets of Windows PowerShell 5.1 on Windows Server that are not simulated. A call fails with an
error that differs from the one for a name that Windows does not know.
"""

from __future__ import annotations

from functools import cache
from typing import Final

# NOUN:VERB,VERB... of each module. Cmdlets that exist here are found first.
_NOUNS: Final = {
    "Appx": ("AppxPackage:Add,Get,Remove,Move AppxVolume:Add,Get,Mount,Remove"),
    "AppLocker": ("AppLockerPolicy:Get,New,Set,Test AppLockerFileInformation:Get"),
    "BitsTransfer": ("BitsFile:Add BitsTransfer:Complete,Get,Remove,Resume,Set,Start,Suspend"),
    "CimCmdlets": (
        "CimAssociatedInstance:Get CimSession:Get,New,Remove CimSessionOption:New "
        "CimIndicationEvent:Register BinaryMiLog:Export,Import"
    ),
    "Defender": (
        "MpComputerStatus:Get MpPreference:Add,Get,Remove,Set MpScan:Start "
        "MpThreat:Get,Remove MpThreatCatalog:Get MpThreatDetection:Get MpSignature:Update "
        "MpWDOScan:Start"
    ),
    "Dism": (
        "AppxProvisionedPackage:Add,Get,Remove WindowsCapability:Add,Get,Remove "
        "WindowsDriver:Add,Export,Get,Remove WindowsEdition:Get,Set "
        "WindowsImage:Add,Expand,Export,Get,Mount,Dismount,New,Optimize,Remove,Repair,Save,Split "
        "WindowsPackage:Add,Get,Remove WindowsProductKey:Set WIMBootEntry:Get,Update"
    ),
    "DnsClient": (
        "DnsClientNrptGlobal:Get,Set DnsClientNrptPolicy:Get "
        "DnsClientNrptRule:Add,Get,Remove,Set DnsClient:Register "
        "DnsClientGlobalSetting:Set"
    ),
    "EventTracingManagement": (
        "AutologgerConfig:Get,New,Remove,Set EtwTraceProvider:Add,Get,Remove,Set "
        "EtwTraceSession:Get,New,Remove,Save,Set,Start,Stop,Update"
    ),
    "International": (
        "Culture:Set WinCultureFromLanguageListOptOut:Get,Set WinHomeLocation:Get,Set "
        "WinSystemLocale:Get,Set WinUILanguageOverride:Get,Set "
        "WinUserLanguageList:Get,New,Set"
    ),
    "Kds": ("KdsRootKey:Add,Clear,Get,Test KdsConfiguration:Clear,Get,Set"),
    "Microsoft.PowerShell.Core": (
        "PSSession:Connect,Disconnect,Exit,Export,Get,Import,Receive,Remove "
        "PSSessionConfiguration:Disable,Enable,Get,Register,Set,Unregister "
        "PSSessionConfigurationFile:New,Test PSRemoting:Disable,Enable "
        "PSHostProcess:Enter,Exit PSHostProcessInfo:Get PSSessionOption:New "
        "PSTransportOption:New PSSessionCapability:Get ModuleMember:Export Module:New "
        "ModuleManifest:New,Test,Update PSRoleCapabilityFile:New Job:Debug,Resume,Suspend "
        "Help:Save,Update Snapin:Add PSSnapin:Add,Get,Remove ArgumentCompleter:Register "
        "Console:Export History:Add,Clear,Invoke PSDebug:Set"
    ),
    "Microsoft.PowerShell.Diagnostics": ("Counter:Export,Import WinEvent:New"),
    "Microsoft.PowerShell.Host": ("Transcript:Start,Stop"),
    "Microsoft.PowerShell.Management": (
        "Computer:Add,Checkpoint,Remove,Restore ComputerMachinePassword:Reset "
        "ComputerRestore:Disable,Enable ComputerRestorePoint:Get "
        "Clipboard:Get,Set Item:Clear RecycleBin:Clear EventLog:Remove "
        "ComputerSecureChannel:Test ControlPanelItem:Get,Show EventLog:Limit,Show "
        "Item:Invoke,Set ItemProperty:Copy,Move Process:Debug "
        "Transaction:Complete,Get,Start,Undo,Use WebServiceProxy:New WmiEvent:Register"
    ),
    "Microsoft.PowerShell.Security": (
        "AuthenticodeSignature:Get,Set CmsMessage:Get,Protect,Unprotect "
        "FileCatalog:New,Test PfxCertificate:Get"
    ),
    "Microsoft.PowerShell.Utility": (
        "Breakpoint:Disable,Enable PSBreakpoint:Disable,Enable,Get,Remove,Set "
        "Runspace:Debug,Get RunspaceDebug:Disable,Enable,Get String:Convert "
        "Clixml:Export,Import Xml:ConvertTo,Select EngineEvent:Register "
        "ObjectEvent:Register Event:Get,New,Remove,Unregister,Wait EventSubscriber:Get "
        "Custom:Format FormatData:Export,Get,Remove,Update TypeData:Get,Remove,Update "
        "GridView:Out Printer:Out PSSession:Export,Import SddlString:ConvertFrom "
        "MailMessage:Send Command:Show LocalizedData:Import TraceSource:Get,Set "
        "Command:Trace Object:Update List:Update TemporaryFile:New Alias:Export,Import "
        "String:ConvertFrom SecureString:ConvertFrom PSCallStack:Get Date:Set Debugger:Wait"
    ),
    "Microsoft.WSMan.Management": (
        "WSMan:Connect,Disconnect,Test WSManAction:Invoke WSManCredSSP:Disable,Enable,Get "
        "WSManInstance:Get,New,Remove,Set WSManQuickConfig:Set WSManSessionOption:New"
    ),
    "MsDtc": ("Dtc:Get,Install,Restart,Start,Stop,Test,Uninstall DtcNetworkSetting:Get,Set"),
    "NetAdapter": (
        "NetAdapterAdvancedProperty:Get,New,Remove,Reset,Set "
        "NetAdapterBinding:Disable,Enable,Get,Set "
        "NetAdapterChecksumOffload:Disable,Enable,Get,Set "
        "NetAdapterEncapsulatedPacketTaskOffload:Disable,Enable,Get,Set "
        "NetAdapterHardwareInfo:Get NetAdapterIPsecOffload:Disable,Enable,Get,Set "
        "NetAdapterLso:Disable,Enable,Get,Set "
        "NetAdapterPacketDirect:Disable,Enable,Get,Set "
        "NetAdapterPowerManagement:Disable,Enable,Get,Set "
        "NetAdapterQos:Disable,Enable,Get,Set NetAdapterRdma:Disable,Enable,Get,Set "
        "NetAdapterRsc:Disable,Enable,Get,Set NetAdapterRss:Disable,Enable,Get,Set "
        "NetAdapterSriov:Disable,Enable,Get,Set NetAdapterSriovVf:Get "
        "NetAdapterVmq:Disable,Enable,Get,Set NetAdapterVmqQueue:Get NetAdapterVPort:Get "
        "NetAdapter:Rename,Set"
    ),
    "NetConnection": ("NetConnectionProfile:Set"),
    "NetEventPacketCapture": (
        "NetEventSession:Get,New,Remove,Set,Start,Stop "
        "NetEventProvider:Add,Get,Remove,Set "
        "NetEventPacketCaptureProvider:Add,Get,Remove,Set "
        "NetEventNetworkAdapter:Add,Get,Remove"
    ),
    "NetLbfo": (
        "NetLbfoTeam:Get,New,Remove,Rename,Set NetLbfoTeamMember:Add,Get,Remove,Set "
        "NetLbfoTeamNic:Add,Get,Remove,Set"
    ),
    "NetNat": (
        "NetNat:Get,New,Remove,Set NetNatExternalAddress:Add,Get,Remove "
        "NetNatGlobal:Get,Set NetNatSession:Get NetNatStaticMapping:Add,Get,Remove"
    ),
    "PSReadLine": "PSReadLineOption:Get,Set PSReadLineKeyHandler:Get,Remove,Set",
    "SecureBoot": (
        "SecureBootUEFI:Confirm,Format,Get,Set SecureBootPolicy:Get WindowsUpdateLog:Get "
        "SilComputer:Get SilData:Get LocalGroup:Rename,Set ScheduledTask:Stop CimInstance:New"
    ),
    "NetQos": ("NetQosPolicy:Get,New,Remove,Set"),
    "NetSecurity": (
        "NetFirewallAddressFilter:Set NetFirewallApplicationFilter:Set "
        "NetFirewallInterfaceFilter:Get,Set NetFirewallInterfaceTypeFilter:Get,Set "
        "NetFirewallPortFilter:Set NetFirewallRule:Copy,Rename,Show "
        "NetFirewallSecurityFilter:Get,Set NetFirewallServiceFilter:Get,Set "
        "NetFirewallSetting:Get,Set "
        "NetIPsecRule:Copy,Disable,Enable,Find,Get,New,Remove,Rename,Set,Show "
        "NetIPsecMainModeSA:Get,Remove NetIPsecQuickModeSA:Get,Remove "
        "NetIPsecPhase1AuthSet:Get,New,Remove NetIPsecPhase2AuthSet:Get,New,Remove "
        "GPO:Open,Save"
    ),
    "NetSwitchTeam": ("NetSwitchTeam:Get,New,Remove,Rename"),
    "NetTCPIP": (
        "NetCompartment:Get NetIPv4Protocol:Get,Set NetIPv6Protocol:Get,Set "
        "NetOffloadGlobalSetting:Get,Set NetPrefixPolicy:Get NetTCPSetting:Get,Set "
        "NetTransportFilter:Get,New,Remove NetUDPSetting:Get,Set NetRoute:Set"
    ),
    "PKI": (
        "PfxCertificate:Export,Import PfxData:Get Certificate:Get,Switch,Test "
        "CertificateAutoEnrollmentPolicy:Get,Set "
        "CertificateEnrollmentPolicyServer:Add,Get,Remove "
        "CertificateNotificationTask:Get,New,Remove"
    ),
    "PnpDevice": ("PnpDevice:Disable,Enable,Get PnpDeviceProperty:Get"),
    "PowerShellGet": (
        "Module:Find,Install,Publish,Save,Uninstall,Update InstalledModule:Get "
        "PSRepository:Get,Register,Set,Unregister "
        "Script:Find,Install,Publish,Save,Uninstall,Update InstalledScript:Get "
        "Command:Find DscResource:Find RoleCapability:Find ScriptFileInfo:New,Test,Update"
    ),
    "PackageManagement": (
        "Package:Find,Get,Install,Save,Uninstall PackageProvider:Find,Get,Import,Install "
        "PackageSource:Get,Register,Set,Unregister"
    ),
    "PSDesiredStateConfiguration": (
        "DscConfiguration:Get,Publish,Restore,Start,Stop,Test,Update "
        "DscConfigurationStatus:Get DscLocalConfigurationManager:Get,Set "
        "DscResource:Get,Invoke DscDebug:Disable,Enable DscConfigurationDocument:Remove "
        "DSCCheckSum:New"
    ),
    "PSScheduledJob": (
        "JobTrigger:Add,Disable,Enable,Get,New,Remove,Set "
        "ScheduledJob:Disable,Enable,Get,Register,Set,Unregister "
        "ScheduledJobOption:Get,New,Set"
    ),
    "ScheduledTasks": (
        "ScheduledTask:New,Set ClusteredScheduledTask:Get,Register,Set,Unregister "
        "ScheduledTaskPrincipal:New ScheduledTaskSettingsSet:New"
    ),
    "ServerManager": ("ServerManagerStandardUserRemoting:Disable,Enable"),
    "SmbShare": (
        "SmbBandwidthLimit:Get,Remove,Set SmbClientConfiguration:Get,Set "
        "SmbClientNetworkInterface:Get SmbConnection:Get SmbDelegation:Disable,Enable,Get "
        "SmbMapping:Get,New,Remove SmbMultichannelConnection:Get,Update "
        "SmbMultichannelConstraint:Get,New,Remove SmbOpenFile:Close,Get "
        "SmbServerConfiguration:Get,Set SmbServerNetworkInterface:Get "
        "SmbSession:Close,Get SmbShare:Set SmbShareAccess:Block,Grant,Revoke,Unblock "
        "SmbWitnessClient:Get,Move SmbPathAcl:Set"
    ),
    "Storage": (
        "Disk:Clear,Initialize,Set,Update Partition:New,Remove,Resize,Set "
        "PartitionAccessPath:Add,Remove PartitionSupportedSize:Get "
        "Volume:Format,New,Optimize,Repair,Set VolumeCache:Write "
        "VolumeCorruptionCount:Get VolumeScrubPolicy:Get,Set "
        "StoragePool:Get,New,Optimize,Remove,Set,Update "
        "StorageReliabilityCounter:Get,Reset StorageSubSystem:Get,Register,Set,Unregister "
        "StorageProvider:Get,Set StorageTier:Get,New,Remove,Resize,Set StorageNode:Get "
        "StorageJob:Get,Stop StorageSetting:Get,Set StorageHealthReport:Get "
        "StorageEnclosure:Get "
        "VirtualDisk:Connect,Disconnect,Get,New,Remove,Repair,Resize,Set "
        "PhysicalDisk:Add,Remove,Reset,Set DiskImage:Dismount,Get,Mount "
        "HostStorageCache:Update DedupProperties:Get FileIntegrity:Get,Repair,Set "
        "InitiatorPort:Get MaskingSet:Get SupportedFileSystems:Get "
        "SupportedClusterSizes:Get DiskStorageNodeView:Get FileShare:Get,New,Remove,Set "
        "FileStorageTier:Clear,Get,Set"
    ),
    "TLS": (
        "TlsCipherSuite:Disable,Enable,Get TlsEccCurve:Disable,Enable,Get "
        "TlsSessionTicketKey:Disable,Enable,Export,New"
    ),
    "TrustedPlatformModule": ("Tpm:Clear,Get,Initialize TpmOwnerAuth:Import,Set,ConvertTo"),
    "VpnClient": ("VpnConnection:Add,Get,Remove,Set"),
    "Wdac": ("OdbcDriver:Get,Set OdbcDsn:Add,Get,Remove,Set OdbcPerfCounter:Disable,Enable,Get"),
    "WindowsErrorReporting": ("WindowsErrorReporting:Disable,Enable,Get"),
    "WindowsUpdateProvider": ("WUScan:Start WUUpdates:Install WUIsPendingReboot:Get"),
}
# Only on machines with Hyper-V and container features.
_NOUNS_OF_NODES: Final = {
    "Hyper-V": (
        "VM:Checkpoint,Compare,Copy,Export,Get,Import,Move,New,Remove,Rename,Restart,Resume,Save,Set,Start,Stop,Suspend "
        "VMHost:Get,Set "
        "VMNetworkAdapter:Add,Connect,Disconnect,Get,Remove,Rename,Set,Test "
        "VMNetworkAdapterAcl:Add,Get,Remove VMNetworkAdapterVlan:Get,Set "
        "VMProcessor:Get,Set VMMemory:Get,Set VMHardDiskDrive:Add,Get,Remove,Set "
        "VMSnapshot:Export,Get,Remove,Rename,Restore "
        "VHD:Convert,Dismount,Get,Merge,Mount,New,Optimize,Resize,Set,Test "
        "VMIntegrationService:Disable,Enable,Get VMSwitch:Add,New,Remove,Rename,Set "
        "VMSwitchExtension:Disable,Enable,Get VMSwitchExtensionPortData:Get "
        "VMSwitchTeam:Get,Set VMNetworkAdapterTeamMapping:Get,Set"
    ),
    "HostNetworkingService": (
        "HnsLoadBalancer:New HnsEndpoint:Attach,Detach,New HnsNamespace:New,Remove "
        "HnsRoute:New HnsPolicyList:New"
    ),
}


@cache
def _unsupported() -> dict[str, bool]:
    """By name in lower case: only on machines."""
    out: dict[str, bool] = {}
    for nouns, of_nodes in ((_NOUNS, False), (_NOUNS_OF_NODES, True)):
        for line in nouns.values():
            for entry in line.split():
                noun, _, verbs = entry.partition(":")
                out |= {f"{verb}-{noun}".lower(): of_nodes for verb in verbs.split(",")}
    return out


def is_unsupported_cmdlet(name: str, *, node: bool) -> bool:
    """Whether Windows has a cmdlet with this name. `node`: on a machine, not in a container."""
    of_nodes = _unsupported().get(name.lower())
    return of_nodes is not None and (node or not of_nodes)
