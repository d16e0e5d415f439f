# Stops flanneld, kubelet and kube-proxy of this (simulated) machine. Containers and networks stay: start.ps1 removes them.
# Drain the node before. With -RemoveNetwork the networks and load balancers go too, and the machine is as before start.ps1.
param(
    [switch] $RemoveNetwork
)

$names = "kube-proxy", "kubelet", "flanneld"
foreach ($name in $names) {
    Get-Service $name -ErrorAction SilentlyContinue | Stop-Service -Force
    Get-Process $name -ErrorAction SilentlyContinue | Stop-Process -Force
}
# A kubelet that starts while the port of the old one is taken ends with an error.
$tries = 0
while ((Get-Process $names -ErrorAction SilentlyContinue) -or (netstat -ano | Select-String -Quiet "0.0.0.0:10250 ")) {
    if ($tries -eq 60) {
        Write-Error "The old kubelet, kube-proxy or flanneld still runs after 30 seconds"
        exit 1
    }
    Start-Sleep -Milliseconds 500
    $tries++
}
if ($RemoveNetwork) {
    Get-HnsPolicyList | Remove-HnsPolicyList
    Get-HnsNetwork | ? Type -ne nat | Remove-HnsNetwork
}
exit 0
