# Runs the kubelet of this (simulated) node. Makes the virtual network before, which the kubelet cannot do without.
param(
    $NetworkMode = "l2bridge",
    $KubeDnsServiceIP = "10.96.0.10",
    $InterfaceName = "Ethernet",
    $PauseImage = "mcr.microsoft.com/oss/kubernetes/pause:1.4.1",
    [switch] $NetworkOnly
)

if (-not (Get-NetAdapter | ? Name -eq "vEthernet ($InterfaceName)")) {
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
C:\k\kubelet.exe --hostname-override=$hostname --v=6 --pod-infra-container-image=$PauseImage --resolv-conf="" --allow-privileged=true --enable-debugging-handlers --cluster-dns=$KubeDnsServiceIP --cluster-domain=cluster.local --kubeconfig=c:\k\config --hairpin-mode=promiscuous-bridge --image-pull-progress-deadline=20m --cgroups-per-qos=false --enforce-node-allocatable="" --network-plugin=cni --cni-bin-dir=c:\k\cni --cni-conf-dir=c:\k\cni\config
exit $LASTEXITCODE
