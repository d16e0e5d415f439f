"""The control loops: each drives one kind of object towards its spec, as an ordinary API client.

One file for each controller; `manager.py` lists all of them.
"""
