"""Who did what, for the record: Kubernetes' audit events, as a policy file asks for them.

`policy.py` says how much of a request is recorded, `event.py` follows one request, `redact.py` keeps tokens out, `log.py`
writes the lines away from the event loop, `auditor.py` puts them together.
"""
