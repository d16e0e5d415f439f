"""The machines that nodes run on: their hardware, identity, files and faults. Knows nothing of
pods.
"""
