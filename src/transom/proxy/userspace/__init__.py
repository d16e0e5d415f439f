"""kube-proxy's user space mode on Windows: service addresses on an interface of the node, and a
proxy that listens on them.
"""
