"""The composition root: turns a configuration into certificates, a kubeconfig and running
components.
"""
