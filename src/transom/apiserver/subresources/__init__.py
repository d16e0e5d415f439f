"""Sub-resources with a life of their own: scale, binding, eviction, token, log, exec and the like.

`table.py` says which function serves which verb of which sub-resource; `status` needs none, the ordinary update does it.
"""
