"""A load generator for any Kubernetes API server. It produces the figures in the documentation.

It is an ordinary API client and imports nothing from the server.
"""
