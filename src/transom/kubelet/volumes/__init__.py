"""Volumes of pods: one file for each plugin, a manager that keeps trying, and the writer that switches versions.

Content lies below the kubelet's root directory on the host's own files, where Kubernetes has it.
"""
