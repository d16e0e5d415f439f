# FlexVolume driver microsoft.com/iscsi.cmd: mounts a LUN of an iSCSI target with the interface of the driver of this name.
# Options: targetPortal, portals, iqn, lun.
param([string] $Command, [string] $Folder, [string] $Json)
. $PSScriptRoot\flexvolume.ps1

function Mount-Volume([string] $Path, $Options)
{
    if (-not $Options.targetPortal) { throw "the option targetPortal is missing" }
    if (-not $Options.iqn) { throw "the option iqn is missing" }
    $lun = $Options.lun
    if (-not $lun) { $lun = "0" }
    $type = $Options."kubernetes.io/fsType"
    if (-not $type) { $type = "NTFS" }
    $volume = & "$PSScriptRoot\iscsiHelper.exe" mount $Options.targetPortal $Options.iqn $lun $type
    if ($LASTEXITCODE -ne 0) { throw "$volume" }
    New-VolumeLink $Path $volume
}

function Dismount-Volume([string] $Path) { Remove-VolumeLink $Path }

Invoke-FlexVolume "KubeISCSI" $Command $Folder $Json
