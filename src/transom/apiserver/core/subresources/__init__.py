"""Subresources with their own handlers: scale, binding, eviction, token, log, exec and the like.

`table.py` maps verbs of subresources to functions; `status` uses the ordinary update.
"""
