"""Admission: the ordered chain of plugins between authorization and the store. `order.py` declares
the order.
"""
