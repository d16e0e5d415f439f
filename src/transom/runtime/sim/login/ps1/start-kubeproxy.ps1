# Runs the kube-proxy of this (simulated) node, on the network that flanneld has made.
param(
    $NetworkMode = "l2bridge",
    $ClusterCIDR = "10.244.0.0/16"
)

$hostname = $(hostname).ToLower()
Get-HnsPolicyList | Remove-HnsPolicyList
if ($NetworkMode -eq "overlay") {
    $vip = (Get-Content C:\k\SourceVip.json | ConvertFrom-Json).ip4.ip.Split("/")[0]
    C:\k\kube-proxy.exe --v=4 --proxy-mode=kernelspace --feature-gates="WinOverlay=true" --hostname-override=$hostname --kubeconfig=c:\k\config --network-name=vxlan0 --source-vip=$vip --enable-dsr=false --cluster-cidr=$ClusterCIDR
} else {
    $env:KUBE_NETWORK = "cbr0"
    C:\k\kube-proxy.exe --v=4 --proxy-mode=kernelspace --hostname-override=$hostname --kubeconfig=c:\k\config --enable-dsr=false --cluster-cidr=$ClusterCIDR
}
exit $LASTEXITCODE
