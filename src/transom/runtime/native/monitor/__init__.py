"""The monitor: the one small process of a cluster that is the parent of all its containers.

It holds their pipes and terminals, writes their logs, records how they ended, and outlives whoever uses them: a new
Transom connects and finds everything as it was. It knows nothing of Kubernetes, images or specifications: it starts what
it is told to. Only the standard library is imported here, and little of it, because this process is always there.
"""
