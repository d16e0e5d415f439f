"""Admission: the ordered chain of plugins between authorization and the store. `chain.py` declares the order."""
