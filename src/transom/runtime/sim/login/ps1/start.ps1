# Makes this (simulated) machine a node: the virtual network, flanneld, kubelet and kube-proxy.
# Each of the three runs in a window of its own; what it writes there is in a file of the log directory.
param(
    $ManagementIP,
    $NetworkMode = "l2bridge",
    $ClusterCIDR = "10.244.0.0/16",
    $KubeDnsServiceIP = "10.96.0.10",
    $ServiceCIDR = "10.96.0.0/12",
    $InterfaceName = "Ethernet",
    $LogDir = "C:\k",
    $KubeletFeatureGates = ""
)

$NetworkMode = $NetworkMode.ToLower()
$networks = @{ l2bridge = "cbr0"; overlay = "vxlan0" }
$network = $networks[$NetworkMode]
if (-not $network) {
    Write-Error "-NetworkMode is l2bridge or overlay, not $NetworkMode"
    exit 1
}
if (-not $ManagementIP) {
    Write-Error "-ManagementIP is missing: the address of this machine, see ipconfig"
    exit 1
}

Write-Host "Stopping what runs"
& C:\k\stop.ps1
if ($LASTEXITCODE -ne 0) {
    exit 1
}

# flanneld recreates the network. Containers on the old one would lose their address, so they are removed and the kubelet creates others.
$old = Get-HnsNetwork | ? Name -eq $network
if ($old) {
    if (Get-Process dockerd -ErrorAction SilentlyContinue) {
        docker ps -aq --filter name=k8s_ | foreach { docker rm -f $_ } | Out-Null
    }
    Write-Host "Cleaning up old HNS network found"
    $old | Remove-HnsNetwork
}

& C:\k\start-kubelet.ps1 -NetworkOnly -NetworkMode $NetworkMode -InterfaceName $InterfaceName
if ($LASTEXITCODE -ne 0) {
    exit 1
}

Write-Host "Starting flanneld"
[Environment]::SetEnvironmentVariable("NODE_NAME", $(hostname).ToLower())
# A node that was deleted registers again first: flanneld takes its subnet from the Node.
& C:\k\start-kubelet.ps1 -RegisterOnly -NetworkMode $NetworkMode -KubeDnsServiceIP $KubeDnsServiceIP
if ($LASTEXITCODE -ne 0) {
    exit 1
}
$options = "--kubeconfig-file=c:\k\config --iface=$ManagementIP --ip-masq=1 --kube-subnet-mgr=1"
Start-Process C:\flannel\flanneld.exe -ArgumentList $options -WorkingDirectory C:\flannel -RedirectStandardError $LogDir\flanneld.log
$tries = 0
while (-not (Get-HnsNetwork | ? Name -eq $network)) {
    if ($tries -eq 60) {
        Write-Error "The network $network is not there after a minute. Launch start.ps1 again; see $LogDir\flanneld.log"
        exit 1
    }
    Write-Host "Waiting for the Network to be created"
    Start-Sleep 1
    $tries++
}
Get-HnsNetwork | ? Name -eq "External" | Remove-HnsNetwork

if ($NetworkMode -eq "overlay") {
    & C:\k\source-vip.ps1 -NetworkName $network
    if ($LASTEXITCODE -ne 0) {
        exit 1
    }
}

Write-Host "Starting kubelet"
$options = "-File C:\k\start-kubelet.ps1 -NetworkMode $NetworkMode -KubeDnsServiceIP $KubeDnsServiceIP"
$options = "$options -InterfaceName ""$InterfaceName"""
if ($KubeletFeatureGates) {
    $options = "$options -KubeletFeatureGates $KubeletFeatureGates"
}
Start-Process powershell -ArgumentList $options -RedirectStandardOutput $LogDir\kubelet.log -RedirectStandardError $LogDir\kubelet.log
Start-Sleep 1

Write-Host "Starting kube-proxy"
$options = "-File C:\k\start-kubeproxy.ps1 -NetworkMode $NetworkMode -ClusterCIDR $ClusterCIDR"
Start-Process powershell -ArgumentList $options -RedirectStandardOutput $LogDir\kube-proxy.log -RedirectStandardError $LogDir\kube-proxy.log
Start-Sleep 1

Get-Process flanneld, kubelet, kube-proxy
