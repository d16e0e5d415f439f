"""The node agent: turns pods bound to its node into sandboxes and containers of a runtime, and
reports their status.

One kubelet for both operating systems; what differs is in `os_linux.py` and `os_windows.py`, behind
`osrules.OsRules`.
"""
