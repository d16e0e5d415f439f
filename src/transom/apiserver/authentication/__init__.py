"""Authentication: the chain of authenticators, declared in `chain.py`; each returns a user, or None
to continue.
"""
