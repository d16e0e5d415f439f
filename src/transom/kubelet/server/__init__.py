"""A kubelet's HTTPS API: pods, logs, commands, port forwarding, statistics and metrics of one node.

`server.KubeletServer` is the entry point; each other module handles one kind of request. Nothing
here changes a pod.
"""
