"""Priority and fairness: no flood of requests keeps the others waiting.

`rules.py` finds the FlowSchema of a request, `levels.py` counts and queues what a priority level has in hand, `turns.py`
lets heavy reads of the event loop go one after the other, `flows.py` keeps all that in step with the stored objects,
`objects.py` has those every cluster is born with.
"""
