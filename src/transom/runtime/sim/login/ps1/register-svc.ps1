# Registers flanneld, kubelet and kube-proxy of this (simulated) machine as services of nssm, in place of Windows' own.
param(
    $ManagementIP,
    $NetworkMode = "l2bridge",
    $ClusterCIDR = "10.244.0.0/16",
    $KubeDnsServiceIP = "10.96.0.10",
    $LogDir = "C:\k",
    $PauseImage = "mcr.microsoft.com/oss/kubernetes/pause:1.4.1"
)

$NetworkMode = $NetworkMode.ToLower()
if ($NetworkMode -ne "l2bridge" -and $NetworkMode -ne "overlay") {
    Write-Error "-NetworkMode is l2bridge or overlay, not $NetworkMode"
    exit 1
}
if (-not $ManagementIP) {
    Write-Error "-ManagementIP is missing: the address of this machine, see ipconfig"
    exit 1
}
$hostname = $(hostname).ToLower()

foreach ($name in "kube-proxy", "kubelet", "flanneld") {
    if (Get-Service $name -ErrorAction SilentlyContinue) {
        Write-Host "Removing the service $name that is there"
        Stop-Service $name -Force
        sc.exe delete $name | Out-Null
    }
}
& C:\k\stop.ps1
$network = @{ l2bridge = "cbr0"; overlay = "vxlan0" }[$NetworkMode]
& C:\k\start-kubelet.ps1 -RegisterOnly -NetworkMode $NetworkMode
if ($LASTEXITCODE -ne 0) {
    exit 1
}

nssm install flanneld C:\flannel\flanneld.exe
nssm set flanneld AppParameters --kubeconfig-file=c:\k\config --iface=$ManagementIP --ip-masq=1 --kube-subnet-mgr=1
nssm set flanneld AppEnvironmentExtra NODE_NAME=$hostname
nssm set flanneld AppDirectory C:\flannel
nssm start flanneld
$tries = 0
while (-not (Get-HnsNetwork | ? Name -eq $network) -and $tries -lt 60) {
    Start-Sleep 1
    $tries++
}
if ($NetworkMode -eq "overlay") {
    & C:\k\source-vip.ps1 -NetworkName $network
}

$runtime = @("--network-plugin=cni", "--cni-bin-dir=c:\k\cni", "--cni-conf-dir=c:\k\cni\config")
if (Get-Process containerd -ErrorAction SilentlyContinue) {
    $runtime = @("--container-runtime=remote", "--container-runtime-endpoint=npipe:////./pipe/containerd-containerd")
}
nssm install kubelet C:\k\kubelet.exe
nssm set kubelet AppParameters --hostname-override=$hostname --v=6 --pod-infra-container-image=$PauseImage --resolv-conf="" --allow-privileged=true --enable-debugging-handlers --cluster-dns=$KubeDnsServiceIP --cluster-domain=cluster.local --kubeconfig=c:\k\config --hairpin-mode=promiscuous-bridge --image-pull-progress-deadline=20m --cgroups-per-qos=false --log-dir=$LogDir --logtostderr=false --enforce-node-allocatable="" $runtime
nssm set kubelet AppDirectory C:\k
nssm start kubelet

nssm install kube-proxy C:\k\kube-proxy.exe
nssm set kube-proxy AppDirectory c:\k
if ($NetworkMode -eq "l2bridge") {
    nssm set kube-proxy AppEnvironmentExtra KUBE_NETWORK=cbr0
    nssm set kube-proxy AppParameters --v=4 --proxy-mode=kernelspace --hostname-override=$hostname --kubeconfig=c:\k\config --enable-dsr=false --cluster-cidr=$ClusterCIDR --log-dir=$LogDir --logtostderr=false
} else {
    $vip = (Get-Content C:\k\SourceVip.json | ConvertFrom-Json).ip4.ip.Split("/")[0]
    nssm set kube-proxy AppParameters --v=4 --proxy-mode=kernelspace --feature-gates="WinOverlay=true" --hostname-override=$hostname --kubeconfig=c:\k\config --network-name=vxlan0 --source-vip=$vip --enable-dsr=false --cluster-cidr=$ClusterCIDR --log-dir=$LogDir --logtostderr=false
}
nssm set kube-proxy DependOnService kubelet
nssm start kube-proxy
