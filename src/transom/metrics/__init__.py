"""The equivalent of metrics-server: regularly reads the resource usage of nodes and pods from all
kubelets.
"""
