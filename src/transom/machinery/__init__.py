"""The Kubernetes API as pure functions on JSON dicts. Does not depend on sockets, clocks or the
store.
"""
