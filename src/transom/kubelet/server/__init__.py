"""A kubelet's HTTPS API: pods, logs, commands, port forwarding, statistics and metrics of one node.

`server.KubeletServer` is its face; the rest answers one kind of request each. Nothing here changes a pod.
"""
