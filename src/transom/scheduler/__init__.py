"""The scheduler: an ordinary client of the API server that gives each pod a node.

NumPy is imported by most modules below, so nothing is imported here: whoever starts the scheduler decides when to pay.
"""
