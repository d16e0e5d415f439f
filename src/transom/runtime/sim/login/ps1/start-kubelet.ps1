# Runs the kubelet of this (simulated) node. Makes the virtual network before, which the kubelet cannot do without.
# -NetworkOnly makes the network and ends. -RegisterOnly ends as soon as the API server has a Node for this machine.
param(
    $NetworkMode = "l2bridge",
    $KubeDnsServiceIP = "10.96.0.10",
    $InterfaceName = "Ethernet",
    $PauseImage = "mcr.microsoft.com/oss/kubernetes/pause:1.4.1",
    $KubeletFeatureGates = "",
    [switch] $NetworkOnly,
    [switch] $RegisterOnly
)

if (-not $RegisterOnly -and -not (Get-NetAdapter | ? Name -eq "vEthernet ($InterfaceName)")) {
    Write-Host "Creating the virtual network on the adapter $InterfaceName"
    try {
        $made = New-HnsNetwork -Type $NetworkMode -Name External -AdapterName $InterfaceName -AddressPrefix 192.168.255.0/30 -Gateway 192.168.255.1
    } catch {
        Write-Error "No network adapter is found: the virtual network on $InterfaceName could not be created. $_"
        exit 1
    }
}
if ($NetworkOnly) {
    exit 0
}

$hostname = $(hostname).ToLower()
$runtime = @("--network-plugin=cni", "--cni-bin-dir=c:\k\cni", "--cni-conf-dir=c:\k\cni\config")
if (Get-Process containerd -ErrorAction SilentlyContinue) {
    $runtime = @("--container-runtime=remote", "--container-runtime-endpoint=npipe:////./pipe/containerd-containerd")
}
$gates = @()
if ($KubeletFeatureGates) {
    $gates = @("--feature-gates=$KubeletFeatureGates")
}

if ($RegisterOnly) {
    $log = "C:\k\register.log"
    $options = "--hostname-override=$hostname --v=2 --pod-infra-container-image=$PauseImage --resolv-conf= --cluster-dns=$KubeDnsServiceIP --cluster-domain=cluster.local --kubeconfig=c:\k\config --cgroups-per-qos=false --enforce-node-allocatable= $runtime $gates"
    Remove-Item $log -ErrorAction SilentlyContinue
    Start-Process C:\k\kubelet.exe -ArgumentList $options -RedirectStandardError $log
    $tries = 0
    while (-not (Select-String -Quiet "Successfully registered node" $log)) {
        if ($tries -eq 60) {
            Write-Error "The node is not registered after 30 seconds; see $log"
            exit 1
        }
        Start-Sleep -Milliseconds 500
        $tries++
    }
    Get-Process kubelet -ErrorAction SilentlyContinue | Stop-Process -Force
    while (netstat -ano | Select-String -Quiet "0.0.0.0:10250 ") {
        Start-Sleep -Milliseconds 500
    }
    exit 0
}

C:\k\kubelet.exe --hostname-override=$hostname --v=6 --pod-infra-container-image=$PauseImage --resolv-conf="" --allow-privileged=true --enable-debugging-handlers --cluster-dns=$KubeDnsServiceIP --cluster-domain=cluster.local --kubeconfig=c:\k\config --hairpin-mode=promiscuous-bridge --image-pull-progress-deadline=20m --cgroups-per-qos=false --enforce-node-allocatable="" $runtime $gates
exit $LASTEXITCODE
