"""The scheduler: an ordinary API client that assigns pods to nodes.

Most modules below import NumPy, so this one imports nothing: the caller decides when to pay for
that.
"""
