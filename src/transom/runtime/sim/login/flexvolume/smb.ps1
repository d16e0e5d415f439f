# FlexVolume driver microsoft.com/smb.cmd: mounts an SMB share with the interface of the driver of this name.
# Options: source (\\server\share, //server/share or smb://server/share). Secret: username, password.
param([string] $Command, [string] $Folder, [string] $Json)
. $PSScriptRoot\flexvolume.ps1

function Mount-Volume([string] $Path, $Options)
{
    $source = $Options.source
    if (-not $source) { throw "the option source is missing" }
    if ($source.ToLower().StartsWith("smb://")) { $source = $source.Substring(4) }
    $source = $source.Replace("/", "\")
    if (-not $source.StartsWith("\\")) { throw "source $source is not the path of a share" }
    $user = ConvertFrom-Base64 $Options."kubernetes.io/secret/username"
    $password = ConvertFrom-Base64 $Options."kubernetes.io/secret/password"
    if (-not $user -or -not $password) { throw "the secret has no username or no password" }
    $secure = ConvertTo-SecureString -String $password -AsPlainText -Force
    $credential = New-Object -TypeName System.Management.Automation.PSCredential -ArgumentList $user, $secure
    # The mapping belongs to the node: the first credentials count for all of its pods.
    $failed = ""
    try
    {
        New-SmbGlobalMapping -RemotePath $source -Credential $credential -Persistent $false -ErrorAction Stop | Out-Null
    }
    catch { $failed = "$_".Trim() }
    if (-not (Test-Path $source)) { throw "New-SmbGlobalMapping of $source failed: $failed" }
    New-VolumeLink $Path $source
}

function Dismount-Volume([string] $Path) { Remove-VolumeLink $Path }

Invoke-FlexVolume "KubeSMB" $Command $Folder $Json
