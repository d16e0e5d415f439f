"""Leaves of the house: time, tasks, certificates, logging. Knows nothing of Kubernetes."""
