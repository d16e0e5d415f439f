"""Volumes of pods: one file per plugin, a manager that retries, and the atomic writer.

Volume content is below the kubelet's root directory in the host's own files, where Kubernetes has
it.
"""
