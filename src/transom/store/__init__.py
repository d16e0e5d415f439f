"""The revisioned key-value store. Keys are strings and values are bytes; it knows nothing about
Kubernetes.
"""
