"""Dynamic resource allocation on a node: drivers that register with the kubelet prepare the devices
of resource claims before a pod starts, and release them when it has ended.

Independent of the container runtime: the kubelet passes on the CDI names that drivers return.
"""
