"""Simulated CSI drivers and their sidecars: the registrar, and the programs that watch the API.

They behave like the images that they replace, with the same flags, sockets and API objects, so that
a driver's own manifests give a working storage class. The storage behind them belongs to the
cluster, not to a node.
"""
