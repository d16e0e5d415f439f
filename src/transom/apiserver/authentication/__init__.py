"""Who is it: the chain of authenticators, declared in `chain.py`; each returns a user, or None to pass on."""
