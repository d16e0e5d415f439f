"""Transom: a complete Kubernetes cluster, Windows worker nodes included, in one Python package."""

__version__ = "0.1.0"
