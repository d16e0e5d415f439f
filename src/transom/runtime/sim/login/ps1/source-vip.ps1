# Reserves the source VIP of an overlay network: an address of the node's subnet that no pod gets. Asks once: what is in
# C:\k\sourceVip.json stays. After the node has joined with another subnet, remove SourceVip.json and SourceVipRequest.json.
param(
    $NetworkName = "vxlan0"
)

if (Test-Path C:\k\sourceVip.json) {
    exit 0
}
$subnet = (Get-HnsNetwork | ? Name -eq $NetworkName).Subnets[0].AddressPrefix
$request = '{"cniVersion": "0.2.0", "name": "' + $NetworkName + '", "ipam": {"type": "host-local", "ranges": [[{"subnet": "' + $subnet + '"}]], "dataDir": "/var/lib/cni/networks"}}'
$request | Out-File C:\k\sourceVipRequest.json
$env:CNI_CONTAINERID = "dummy"
$env:CNI_NETNS = "dummy"
$env:CNI_IFNAME = "dummy"
$env:CNI_PATH = "c:\k\cni"
# An address that an earlier request reserved would make this one fail.
$env:CNI_COMMAND = "DEL"
Get-Content C:\k\sourceVipRequest.json | C:\k\cni\host-local.exe
$env:CNI_COMMAND = "ADD"
Get-Content C:\k\sourceVipRequest.json | C:\k\cni\host-local.exe | Out-File C:\k\sourceVip.json
if ($LASTEXITCODE -ne 0) {
    exit $LASTEXITCODE
}

# A service of kube-proxy keeps the address that it was registered with.
$vip = (Get-Content C:\k\sourceVip.json | ConvertFrom-Json).ip4.ip.Split("/")[0]
$service = "HKLM:\SYSTEM\CurrentControlSet\Services\kube-proxy"
foreach ($place in @($service, "ImagePath"), @("$service\Parameters", "AppParameters")) {
    $key, $name = $place
    $line = (Get-ItemProperty $key -ErrorAction SilentlyContinue).$name
    if ($line -match "--source-vip=") {
        Set-ItemProperty $key $name ($line -replace "--source-vip=\S*", "--source-vip=$vip")
    }
}
exit 0
