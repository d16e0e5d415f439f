"""Building blocks without Kubernetes knowledge: time, tasks, certificates, logging."""
