"""Auditing: Kubernetes' audit events, as configured by a policy file.

`policy.py` decides how much of a request is recorded, `event.py` tracks one request, `redact.py`
removes tokens, `log.py` writes the lines in a thread, `auditor.py` combines them.
"""
