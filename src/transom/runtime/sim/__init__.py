"""A simulated container runtime: no processes run, but containers live, log, listen and exit like
real ones.

Nothing is imported here: programs of this package also run alone, in real containers.
"""
