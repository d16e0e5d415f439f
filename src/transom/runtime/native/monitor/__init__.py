"""The monitor: one small process per cluster that is the parent of all its containers.

It holds their pipes and terminals, writes their logs, records how they ended, and outlives the
process that uses them: a new Transom process connects and finds everything unchanged. It knows
nothing of Kubernetes, images or specifications: it starts what it is asked to. It imports only a
small part of the standard library, because this process always runs.
"""
