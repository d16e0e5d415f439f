# The cmdlets for the host networking service (Get-HnsNetwork, Get-HnsEndpoint, Get-HnsPolicyList
# and others) are part of this (simulated) machine. Scripts that import this file find them.
Import-Module HostNetworkingService
