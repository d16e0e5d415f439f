"""The admission webhook: what our own API server says of pods for Windows, for any other cluster.

It is asked by AdmissionReviews and asks nobody itself, so it needs no rights in the cluster; what it should know of the
nodes it is told when it starts.
"""
