"""A load generator for any Kubernetes API server: the figures in the documentation come from it.

It is an ordinary client: it knows the API from outside only, and imports nothing of the server.
"""
