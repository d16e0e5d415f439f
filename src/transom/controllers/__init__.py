"""The control loops: each brings one kind of object towards what its spec says, as a client of the API like any other.

One file for each controller; `manager.py` has the table of all of them.
"""
