# What the FlexVolume drivers of this node have in common: the protocol, links for volumes, the event log.
$ErrorActionPreference = "Stop"

function Write-Log([string] $Message)
{
    Write-EventLog -LogName Application -Source $script:LogSource -EntryType Information -EventId 1 -Message $Message
}

function Write-Answer($Answer) { $Answer | ConvertTo-Json -Compress }

function ConvertFrom-Base64([string] $Text)
{
    if (-not $Text) { return "" }
    [System.Text.Encoding]::UTF8.GetString([System.Convert]::FromBase64String($Text))
}

# The kubelet may have made a directory where the link belongs.
function New-VolumeLink([string] $Path, [string] $Target)
{
    if (Test-Path $Path)
    {
        $item = Get-Item $Path
        if ($item.LinkType -eq "SymbolicLink" -and $item.Target -eq $Target) { return }
        $item.Delete()
    }
    cmd /c mklink /D $Path $Target | Out-Null
    if ($LASTEXITCODE -ne 0) { throw "no link $Path to $Target could be made" }
}

function Remove-VolumeLink([string] $Path)
{
    if (-not (Test-Path $Path)) { return }
    $item = Get-Item $Path
    if ($item.LinkType -eq "SymbolicLink") { $item.Delete() }
}

function Invoke-FlexVolume([string] $Source, [string] $Command, [string] $Folder, [string] $Json)
{
    $script:LogSource = $Source
    New-EventLog -LogName Application -Source $Source -ErrorAction Ignore
    Write-Log "$Command $Folder"
    try
    {
        switch ($Command)
        {
            "init" { Write-Answer @{ status = "Success"; capabilities = @{ attach = $false } } }
            "mount"
            {
                Mount-Volume $Folder.Replace("/", "\") ($Json | ConvertFrom-Json)
                Write-Answer @{ status = "Success" }
            }
            "unmount"
            {
                Dismount-Volume $Folder.Replace("/", "\")
                Write-Answer @{ status = "Success" }
            }
            default { Write-Answer @{ status = "Not supported"; message = "Unsupported command $Command" } }
        }
    }
    catch
    {
        Write-Log "$Command failed: $_"
        Write-Answer @{ status = "Failure"; message = "Caught exception $_" }
        exit 1
    }
}
