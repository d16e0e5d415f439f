# Undoes what start.ps1 and register-svc.ps1 have done on this (simulated) machine. Drain the node before.
param(
    [switch] $KeepNetwork
)

foreach ($name in "kube-proxy", "kubelet", "flanneld") {
    Get-Service $name -ErrorAction SilentlyContinue | Stop-Service -Force
    Get-Process $name -ErrorAction SilentlyContinue | Stop-Process
}
if (-not $KeepNetwork) {
    Get-HnsPolicyList | Remove-HnsPolicyList
    Get-HnsNetwork | ? Type -ne nat | Remove-HnsNetwork
}
