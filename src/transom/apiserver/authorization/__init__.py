"""Authorization: the chain of authorizers, declared in `chain.py`. The first that allows or denies
decides.
"""
