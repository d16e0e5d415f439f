"""API Priority and Fairness: a flood of requests does not starve others.

`rules.py` finds the FlowSchema of a request, `levels.py` has the seats and queues of a priority
level, `turns.py` serializes heavy reads on the event loop, `flows.py` follows the stored objects,
`objects.py` has the default objects.
"""
