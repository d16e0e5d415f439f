"""Connections from the API server to kubelets, pods and services: logs, streams and HTTP
proxies.
"""
