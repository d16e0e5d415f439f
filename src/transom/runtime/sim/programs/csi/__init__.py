"""Simulated CSI drivers and the programs that usually run beside them: the registrar, and those who watch the API.

They behave as the images that they stand for, by the same flags, sockets and API objects, so that a driver's own manifests
give a working storage class. The storage behind them is memory of this process.
"""
