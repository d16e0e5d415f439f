"""A container runtime that runs nothing: containers live, log, listen and die as real ones would.

Nothing is imported here: programs of this package also run alone, in containers that are real.
"""
