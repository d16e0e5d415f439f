"""Parameters that cmdlets have on Windows and that are not simulated. A call with one of them fails:
it would do something else than what the user asked for if the parameter were ignored.
"""

from __future__ import annotations

from typing import Final

_REMOTING: Final = "Credential Port UseSSL"

_UNSUPPORTED: Final = {
    name: frozenset(parameters.split())
    for name, parameters in {
        "Add-LocalGroupMember": "SID",
        "Clear-Variable": "Scope",
        "ConvertTo-SecureString": "Key SecureKey",
        "Disable-NetAdapter": "PassThru",
        "Enable-NetAdapter": "PassThru",
        "Enter-PSSession": _REMOTING,
        "Export-Certificate": "Type",
        "Format-Hex": "Encoding InputObject",
        "Get-Acl": "Audit",
        "Get-CimInstance": "KeyOnly",
        "Get-Command": "Module",
        "Get-ComputeProcess": "Id Owner Type",
        "Get-Content": "ReadCount",
        "Get-Counter": "Continuous",
        "Get-DnsClientCache": "Name",
        "Get-Help": "Online",
        "Get-History": "Id",
        "Get-Job": "State",
        "Get-LocalGroupMember": "Member SID",
        "Get-Member": "Static View",
        "Get-NetAdapter": "InterfaceDescription",
        "Get-NetFirewallRule": "PolicyStore",
        "Get-NetIPAddress": "PrefixLength",
        "Get-NetRoute": "PolicyStore",
        "Get-NetTCPConnection": "AppliedSetting",
        "Get-PSDrive": "Scope",
        "Get-Unique": "OnType",
        "Get-Volume": "FilePath",
        "Get-VMSwitch": "Id SwitchType",
        "Import-Csv": "Encoding",
        "Install-WindowsFeature": "Source",
        "Add-WindowsFeature": "Source",
        "Invoke-Command": f"AsJob Authentication Session {_REMOTING}",
        "Invoke-RestMethod": "SkipCertificateCheck",
        "Invoke-WebRequest": "SkipCertificateCheck UseDefaultCredentials",
        "New-Alias": "Scope Option",
        "New-NetFirewallRule": "InterfaceAlias",
        "New-NetNeighbor": "State",
        "New-NetRoute": "PolicyStore RouteMetric",
        "New-Object": "ComObject",
        "New-PSDrive": "Credential Description Persist Scope",
        "New-PSSession": f"{_REMOTING} Name",
        "New-SelfSignedCertificate": "FriendlyName KeyExportPolicy NotAfter",
        "New-SmbGlobalMapping": "FullAccess DenyAccess",
        "Out-Host": "Paging",
        "Read-Host": "AsSecureString",
        "Register-ScheduledTask": "Principal Settings TaskPath",
        "Remove-LocalGroupMember": "SID",
        "Remove-NetRoute": "PolicyStore",
        "Remove-PSDrive": "PSProvider Scope",
        "Remove-SmbGlobalMapping": "InputObject PassThru",
        "Remove-Variable": "Scope",
        "Rename-ItemProperty": "PassThru",
        "Resolve-DnsName": "CacheOnly NoRecursion QuickTimeout TcpOnly",
        "Restart-Computer": "ComputerName Wait",
        "Restart-NetAdapter": "PassThru",
        "Set-Acl": "Passthru",
        "Set-Alias": "Scope Option",
        "Set-NetIPInterface": "AddressFamily",
        "Set-NetNeighbor": "State",
        "Start-Process": "UseNewEnvironment",
        "Stop-Computer": "ComputerName",
        "Stop-Service": "NoWait",
        "Test-Connection": "Delay",
        "Test-Path": "IsValid",
        "Wait-Job": "Any",
        "Write-EventLog": "Category",
    }.items()
}


def is_unsupported(cmdlet: str, parameter: str) -> bool:
    return parameter in _UNSUPPORTED.get(cmdlet, ())
